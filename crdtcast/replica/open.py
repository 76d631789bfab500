"""`open_replica`: replicated objects among members that are fixed, or in a group whose members come and go."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, overload

from crdtcast.causality.member_id import fresh_incarnation, wall_clock_us
from crdtcast.datatypes import PureOpCRDT
from crdtcast.eventlog.writer import EventLog
from crdtcast.exceptions import ConfigurationError, SupersededError
from crdtcast.fixed import state_file
from crdtcast.fixed.replica import FixedReplica
from crdtcast.group.open import AnyJournal, open_group
from crdtcast.group.running import running
from crdtcast.replica.group_replica import GroupReplica
from crdtcast.replica.replica import Replica
from crdtcast.transport.options import Address, NodeOptions, parse_address, peer_addresses

EventLogs: TypeAlias = str | os.PathLike[str] | Callable[[str], EventLog]
"""A directory, or what makes the log for an incarnation id."""
Types: TypeAlias = Iterable[type[PureOpCRDT[Any]]]

_OF_FIXED = "state", "event_log"
_OF_GROUPS = (
    "founders",
    "found",
    "join",
    "journal",
    "replace",
    "replaces",
    "progress",
    "compact_bytes",
    "limits",
    "event_logs",
    "advertise",
)


@overload
def open_replica(
    name: str,
    *,
    peers: Mapping[str, str | Address | None],
    listen: str = ...,
    group: str = ...,
    types: Types = ...,
    event_log: EventLogs | None = ...,
    state: str | os.PathLike[str] | None = ...,
    clock_us: Callable[[], int] = ...,
    logger: logging.Logger | None = ...,
    **options: Any,
) -> AbstractAsyncContextManager[FixedReplica]: ...


@overload
def open_replica(
    name: str,
    *,
    founders: Mapping[str, str | Address | None] | None = ...,
    found: bool = ...,
    join: str | Address | Sequence[str | Address] = ...,
    journal: AnyJournal | None = ...,
    listen: str = ...,
    group: str = ...,
    types: Types = ...,
    clock_us: Callable[[], int] = ...,
    logger: logging.Logger | None = ...,
    **options: Any,
) -> AbstractAsyncContextManager[GroupReplica]: ...


def open_replica(
    name: str, *, peers: Mapping[str, str | Address | None] | None = None, **options: Any
) -> AbstractAsyncContextManager[Replica]:
    """A replica that runs as long as the `with` block.

    With `peers` the members of the group are fixed, and a `FixedReplica` keeps everything in memory.
    With `found` or `join` they come and go, and with a `journal` what a `GroupReplica` holds survives
    a crash of its process or machine.

    name: unique in the group. listen: `host:port`; port 0 takes a free one (`replica.address`).
    types: your own data types, beside those of `crdtcast.datatypes`.

    Fixed members. peers: all others, name -> `host:port`, or None for one that will dial us.
    event_log: directory of a log for `crdtcast audit`; or a function from the incarnation to a log.
    state: file that a clean stop writes and the next start goes on from, and removes: a crash
        leaves none, and the group does not take a replica back that has lost its state.
    options: any other of `crdtcast.transport.options.NodeOptions`.

    Members that come and go. found: be the first of a new group. join: where any member can be
        dialled. journal: path of a directory; one that holds a former life is gone on from,
        whatever `found` and `join` say.
    options: any other of `crdtcast.open_group`, but `process` and `witness`.

    Raises `ConfigurationError` for options that cannot work or an address that is taken, and in the block's place
    `SupersededError` when another process has taken this replica's name over, `JournalError` when the disk fails; with
    `join` what `open_group` raises.
    """
    if peers is not None:
        _refuse(name, options, _OF_GROUPS, "members that come and go", "those in peers= are fixed")
        return _open_fixed(name, peers=peers, **options)
    if not (
        options.get("founders")
        or options.get("found")
        or options.get("join")
        or options.get("journal")
    ):
        raise ConfigurationError(
            f"replica {name!r}: say who the others are: peers={{name: 'host:port'}} where members are fixed; "
            "where they come and go found=True for the first one, join='host:port' for all others"
        )
    why = "in a group whose members come and go use journal= and event_logs="
    _refuse(name, options, _OF_FIXED, "members that are fixed, with peers=", why)
    _refuse(name, options, ("process",), "open_group", "a replica is a process of its own")
    _refuse(name, options, ("witness",), "open_group", "a witness holds no objects")
    return _open_in_group(name, **options)


def _refuse(
    name: str, options: Mapping[str, Any], unfit: Sequence[str], belongs: str, why: str
) -> None:
    for option in unfit:
        if option in options:
            raise ConfigurationError(f"replica {name!r}: {option}= is for {belongs}; {why}")


@asynccontextmanager
async def _open_fixed(
    name: str,
    *,
    listen: str = "127.0.0.1:0",
    peers: Mapping[str, str | Address | None],
    group: str = "default",
    types: Types = (),
    event_log: EventLogs | None = None,
    state: str | os.PathLike[str] | None = None,
    clock_us: Callable[[], int] = wall_clock_us,
    logger: logging.Logger | None = None,
    **options: Any,
) -> AsyncIterator[FixedReplica]:
    node_options = NodeOptions(
        name=name,
        listen=parse_address(listen),
        group=group,
        peers=peer_addresses(peers),
        **options,
    )
    path = None if state is None else Path(state)
    saved = None if path is None else state_file.read(path, group, name)
    incarnation = fresh_incarnation(name, clock_us, saved.incarnation if saved else None)
    log: EventLog | None = None
    if callable(event_log):
        log = event_log(incarnation)
    elif event_log is not None:
        log = EventLog(
            os.fspath(event_log),
            group=group,
            replica=name,
            incarnation=incarnation,
            clock_us=clock_us,
            log=(logger or logging.getLogger("crdtcast.replica")).warning,
        )
    replica = FixedReplica(
        node_options,
        incarnation,
        types=types,
        event_log=log,
        clock_us=clock_us,
        saved=saved,
        logger=logger,
    )
    replica.begin_log()
    ended = False
    try:
        if path is not None and saved is not None:
            state_file.consume(path)
        async with running(replica.node, replica.pump):
            yield replica
    except SupersededError:
        ended = True
        raise
    finally:
        replica.end()
        replica.end_log()
        left = replica.saved()
        if path is not None and left is not None and not ended:
            state_file.write(path, left)


@asynccontextmanager
async def _open_in_group(
    name: str,
    *,
    types: Types = (),
    clock_us: Callable[[], int] = wall_clock_us,
    logger: logging.Logger | None = None,
    **options: Any,
) -> AsyncIterator[GroupReplica]:
    replica = GroupReplica(name, clock_ms=lambda: clock_us() // 1000, types=types, logger=logger)
    async with open_group(name, process=replica.shelf, logger=logger, **options) as member:
        replica.speak_for(member)
        yield replica
