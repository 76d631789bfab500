"""`open_replica`: replicated objects at one member of a group."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Unpack

from crdtcast.causality.member_id import wall_clock_us
from crdtcast.datatypes import PureOpCRDT
from crdtcast.group.open import MemberOptions, open_member
from crdtcast.replica.replica import Replica
from crdtcast.transport.options import check_known


@asynccontextmanager
async def open_replica(
    name: str,
    *,
    types: Iterable[type[PureOpCRDT[Any]]] = (),
    clock_us: Callable[[], int] = wall_clock_us,
    **options: Unpack[MemberOptions],
) -> AsyncIterator[Replica]:
    """A replica that runs as long as the `with` block.

    name: unique in the group. types: your own data types, beside those of `crdtcast.datatypes`. The other options:
    `MemberOptions`. `founders={name: "host:port", …}` for all who found the group together, `join="host:port"` for who
    comes later, `found=True` for a first one alone; with `journal=PATH` what the replica holds survives a crash of its
    process or machine, and a journal that holds a former life is gone on from, whatever else is said.

    With `founders` it returns when it listens. Operations wait until all founders were up once, and `Replica.ready`
    says when.

    Raises, or in the place of the block: ConfigurationError for options that cannot work, founders' lists that differ,
    or an address that is taken; HandshakeError, with the reason, if no member lets this one in; JournalError when the
    disk fails.
    """
    check_known(f"replica {name!r}", options, (*MemberOptions.__annotations__, "types", "clock_us"))
    logger = options.get("logger")
    replica = Replica(name, clock_ms=lambda: clock_us() // 1000, types=types, logger=logger)
    async with open_member(name, machine=replica.machine, **options) as member:
        replica.speak_for(member)
        yield replica
