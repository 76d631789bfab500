"""`crdtcast.aio.open_replica`: replicated objects in an asyncio program."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Unpack

from crdtcast.aio.guest import guest
from crdtcast.aio.replica import Replica
from crdtcast.causality.member_id import wall_clock_us
from crdtcast.datatypes import PureOpCRDT
from crdtcast.group.open import MemberOptions
from crdtcast.replica.open import open_replica as open_in_trio


@asynccontextmanager
async def open_replica(
    name: str,
    *,
    types: Iterable[type[PureOpCRDT[Any]]] = (),
    clock_us: Callable[[], int] = wall_clock_us,
    **options: Unpack[MemberOptions],
) -> AsyncIterator[Replica]:
    """A replica that runs while the `async with` block runs, in the running asyncio loop.

    Options and errors are those of `crdtcast.open_replica`. An error of the running replica cancels the block, and is
    raised in its place.
    """
    async with (
        guest() as run,
        run.entered(open_in_trio(name, types=types, clock_us=clock_us, **options)) as replica,
    ):
        yield Replica(replica, run)
