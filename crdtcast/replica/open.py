"""`open_replica`: replicated objects at one member of a group."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Unpack

from crdtcast.causality.member_id import wall_clock_us
from crdtcast.datatypes import PureOpCRDT
from crdtcast.exceptions import ConfigurationError
from crdtcast.group.open import MemberOptions, open_member
from crdtcast.option_checks import check_options
from crdtcast.replica.replica import Replica
from crdtcast.short_repr import shown

_LATEST_US = 2**47 * 1000
"""The clock's time goes into 63 bits with a counter of 16: until the year 6429."""


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
    check_options(f"replica {shown(name)}", options, MemberOptions, "types", "clock_us")
    logger = options.get("logger")
    _check_clock(f"replica {shown(name)}", clock_us)
    replica = Replica(name, clock_ms=lambda: clock_us() // 1000, types=types, logger=logger)
    async with open_member(name, machine=replica.machine, **options) as member:
        replica.speak_for(member)
        yield replica


def _check_clock(who: str, clock_us: Callable[[], int]) -> None:
    """Raises ConfigurationError if it does not tell a time."""
    now = clock_us() if callable(clock_us) else None
    if not isinstance(now, int) or now >= _LATEST_US:
        told = f"tells {shown(now)}" if callable(clock_us) else f"is {shown(clock_us)}"
        raise ConfigurationError(
            f"{who}: clock_us {told}: give a function that returns the microseconds since 1970 as a whole number"
        )
