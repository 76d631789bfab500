"""`open_replica`: replicated objects at one member of a group."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Unpack

from crdtcast.causality.member_id import wall_clock_us
from crdtcast.datatypes import PureOpCRDT
from crdtcast.group.open import MemberOptions, open_member
from crdtcast.option_checks import check_options
from crdtcast.replica.replica import Replica


@asynccontextmanager
async def open_replica(
    name: str,
    *,
    types: Iterable[type[PureOpCRDT[Any]]] = (),
    clock_us: Callable[[], int] = wall_clock_us,
    **options: Unpack[MemberOptions],
) -> AsyncIterator[Replica]:
    """A replica that runs while the `with` block runs.

    name: unique in the group.
    types: your own data types, in addition to those of `crdtcast.datatypes`.
    options: see `MemberOptions`. Use `founders={name: "host:port", …}` on all replicas that found the group together,
        `join="host:port"` on later members, and `found=True` on a first member alone. With `journal=PATH` the replica's
        data survives a crash of its process or machine; a journal that holds a former life overrides these options.

    With `founders` the call returns when the replica listens. Operations wait until all founders have been up at the
    same time once; `Replica.ready` returns then.

    Raises, also inside the block, ConfigurationError for invalid options, different lists of founders, or an address in
    use; HandshakeError, with the reason, if no member admits this one; JournalError if the disk fails.
    """
    check_options(f"replica {name!r}", options, MemberOptions, "types", "clock_us")
    logger = options.get("logger")
    replica = Replica(name, clock_ms=lambda: clock_us() // 1000, types=types, logger=logger)
    async with open_member(name, machine=replica.machine, **options) as member:
        replica.speak_for(member)
        yield replica
