"""Several independent groups over one set of links: `open_host`; and a single one: `open_member`.

Groups are independent: each has its own members, engine, and causality. Two processes share one connection, whatever
groups they have in common.
"""

import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypedDict, Unpack

import trio

from crdtcast.causality.member_id import check_name
from crdtcast.eventlog.durable_log import DurableLog, Logged
from crdtcast.eventlog.writer import ROTATION, Rotation
from crdtcast.exceptions import ConfigurationError, EndedError, HandshakeError, LocalProtocolError
from crdtcast.group.journaling import COMPACT_BYTES
from crdtcast.group.lifecycle import MemberLife
from crdtcast.group.limits import Limits
from crdtcast.group.member import Member
from crdtcast.group.running import running
from crdtcast.group.state_machine import StateMachine, checked
from crdtcast.journal import FileJournal, Journal
from crdtcast.option_checks import FOREVER, check_options
from crdtcast.short_repr import shown
from crdtcast.transport.channel import Channel
from crdtcast.transport.host import SharedLinks
from crdtcast.transport.options import (
    Address,
    LinkOptions,
    NodeOptions,
    address_of,
    format_address,
    parse_address,
    peer_addresses,
)
from crdtcast.transport.peers import LinkStatus
from crdtcast.wire.group_frames import MAX_FOUNDERS
from crdtcast.wire.offers import Progress

_OF_FOUNDERS = "founders", "machine", "witness", "progress"
_OF_JOINERS = "machine", "witness", "replace", "replaces", "progress"
AnyJournal: TypeAlias = str | os.PathLike[str] | Journal


class HostOptions(LinkOptions, total=False):
    """Options of a process that others link with.

    listen: `host:port`; port 0 takes a free one.
    advertise: host and port where others reach this process, if it listens on a wildcard.
    """

    listen: str
    advertise: str | None
    logger: logging.Logger | None


class KeptOptions(TypedDict, total=False):
    """Options for what a member stores.

    journal: the path of a directory, or a `crdtcast.journal.Journal`. What this member has sent, delivered and promised
        is durable before anything leaves that depends on it. A process that starts again continues from it
        (docs/journal.md).
    compact_bytes: the journal takes a snapshot when it has grown by this much.
    limits: bounds for unstable messages, and what happens beyond them.
    event_logs: a directory for event logs (`crdtcast check`). A line is written once what it reports is durable.
    rotation: of the event logs' files.
    """

    journal: AnyJournal | None
    compact_bytes: int
    limits: Limits | None
    event_logs: str | os.PathLike[str] | None
    rotation: Rotation


class MemberOptions(HostOptions, KeptOptions, total=False):
    """Options of one member of a group.

    founders: all processes that found the group, the same names at each of them: name -> where it listens; None if it
        dials us, or others give its address. The group starts when all have been up at the same time; until then
        nothing can be sent. A founder that starts again later comes back in its own place. `listen` is by default this
        member's address in it.
    join: where a member can be dialled, any one, as "host:port" or its `address`; several to be safe. The own address
        among them is ignored, so all members may get the same list.
    found: be the first member of a new group, alone.
    join_timeout: most seconds to wait for a member that admits this one; HandshakeError then, which says what was in
        the way. By default it waits, and logs that.
    group: the group's name.
    replace, replaces, progress: see `Host.join`.
    """

    founders: Mapping[str, str | Address | None] | None
    join: str | Address | Sequence[str | Address]
    found: bool
    join_timeout: float | None
    group: str
    replace: bool
    replaces: Iterable[str]
    progress: Progress | None


class Host:
    """The links of one process, and the groups on them. Made by `open_host`."""

    def __init__(self, shared: SharedLinks) -> None:
        self.shared = shared
        self._lives: dict[str, MemberLife] = {}
        self._over = False

    @property
    def name(self) -> str:
        return self.shared.name

    @property
    def address(self) -> Address:
        """Host and port where other processes reach this one."""
        return self.shared.address

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other process."""
        return self.shared.status()

    def found(
        self,
        name: str,
        *,
        founders: Iterable[str] = (),
        machine: StateMachine | None = None,
        witness: bool = False,
        progress: Progress | None = None,
        **kept: Unpack[KeptOptions],
    ) -> Member:
        """Found a new group, alone or together with others; all other members join it later.

        founders: the names of all processes that found it, the same list at each; this process's own name may be
            missing. The call returns at once. The group starts when all founders have been up at the same time: wait
            for that with `Member.ready`. A founder that starts again later returns in its own place. Without `founders`
            this process is the first member alone. Only one process may do this, and only once: a second one has
            another group of the same name, and both log that.
        machine, witness, progress: see `join`.
        journal: if it holds a former life, the member continues from that. It is read at once, while all other tasks of
            this thread wait.
        """
        check_options(f"group {shown(name)}", kept, KeptOptions, *_OF_FOUNDERS)
        names = _names(founders)
        life = self._live(name, machine, witness, kept)
        try:
            life.found(names, progress)
        except BaseException:
            life.channel.close()
            life.end()
            raise
        return Member(life)

    async def join(
        self,
        name: str,
        *,
        machine: StateMachine | None = None,
        replace: bool = False,
        replaces: Iterable[str] = (),
        witness: bool = False,
        progress: Progress | None = None,
        **kept: Unpack[KeptOptions],
    ) -> Member:
        """Join a group through any linked process that is in it. Returns when this process is a member.

        machine: the state machine. It gets the group's state, by `set_state`, then all events since. Without one,
            earlier events are not reported.
        replace: replace the member of the same name, an earlier life of this process; that one is evicted.
        replaces: replace these lost members, by name or incarnation id, by the operator's word; they are evicted with
            the join. Living members are not replaced.
        witness: vote and store messages, but hold no state: for a third site next to two regions.
        progress: called with the bytes of the state that are copied, and their total.

        Raises HandshakeError, with the reason, if no member admits this one; the error of the state machine if it fails
        on the group's state (this member has left again then); and the errors of `Journal.load`.
        """
        check_options(f"group {shown(name)}", kept, KeptOptions, *_OF_JOINERS)
        life = self._live(name, machine, witness, kept)
        try:
            await life.join(replace=replace, replaces=replaces, progress=progress)
        except BaseException:
            await life.discard()
            raise
        return Member(life)

    def _live(
        self, name: str, machine: StateMachine | None, witness: bool, kept: KeptOptions
    ) -> MemberLife:
        if self._over:
            raise EndedError(
                f"the host of node {self.name!r} is closed: use it inside its `async with` block, "
                "or open it again"
            )
        checked(machine, self.name)
        journal = kept.get("journal")
        opened = _journal(journal)
        if (compact_bytes := kept.get("compact_bytes", COMPACT_BYTES)) < 1:
            raise ConfigurationError(
                f"compact_bytes must be at least 1, not {shown(compact_bytes)}"
            )
        observer = _observer(journal, kept.get("event_logs"), kept.get("rotation", ROTATION))
        life = MemberLife(
            Channel(self.shared, name),
            machine=machine,
            witness=witness,
            journal=opened,
            compact_bytes=compact_bytes,
            limits=kept.get("limits"),
            observer=observer,
        )
        self._lives[name] = life
        return life

    def _end(self) -> None:
        """End all groups: the links are closed."""
        self._over = True
        for life in self._lives.values():
            life.end()


@asynccontextmanager
async def open_host(
    name: str,
    *,
    peers: Mapping[str, str | Address | None] | Sequence[str | Address] = (),
    network: str = "default",
    **options: Unpack[HostOptions],
) -> AsyncIterator[Host]:
    """The links of a process, while the `with` block runs; open groups on them.

    name: of this process, in all its groups.
    peers: processes to dial: name -> address, or only addresses. The addresses of others are learned from those.
    network: only processes with the same network name are linked.
    """
    check_options(f"node {shown(name)}", options, HostOptions, "peers", "network")
    if not trio.lowlevel.in_trio_task():
        raise LocalProtocolError(
            f"node {shown(name)} cannot be opened outside Trio: under asyncio use crdtcast.aio.open_replica, and in "
            "programs without an event loop crdtcast.sync.open_replica"
        )
    logger, advertise = options.pop("logger", None), options.pop("advertise", None)
    listen = options.pop("listen", "127.0.0.1:0")
    links: LinkOptions = options  # the remaining options
    node_options = NodeOptions(
        name=name,
        listen=parse_address(listen),
        group=network,
        peers=(
            peer_addresses(peers) if isinstance(peers, Mapping) else list(map(address_of, peers))
        ),
        **links,
    )
    shared = SharedLinks(
        node_options,
        advertise=None if advertise is None else parse_address(advertise),
        logger=logger,
    )
    opened = Host(shared)
    try:
        async with running(shared):
            yield opened
    finally:
        opened._end()


@asynccontextmanager
async def open_member(
    name: str,
    *,
    machine: StateMachine | None = None,
    witness: bool = False,
    **options: Unpack[MemberOptions],
) -> AsyncIterator[Member]:
    """A member of a group, while the `with` block runs. End it with `leave`, unless the others shall consider this
    member dead, or it continues from its journal later.

    machine, witness: see `Host.join`.

    One of `founders`, `join` and `found` is needed, unless the journal holds a former life. With `founders` the call
    returns before the group has started; wait for `ready`.

    Raises ConfigurationError for invalid options, and, inside the block, if the founders' lists differ; HandshakeError,
    with the reason, if no member admits this one. While no process answers at these addresses it waits, and logs that,
    for `join_timeout` at most.
    """
    check_options(f"node {shown(name)}", options, MemberOptions, "machine", "witness")
    founders, found = options.pop("founders", None), options.pop("found", False)
    contacts: Mapping[str, str | Address | None] | Sequence[str | Address]
    contacts = _addresses(options.pop("join", ()))
    group = options.pop("group", "default")
    replace, replaces = options.pop("replace", False), options.pop("replaces", ())
    progress = options.pop("progress", None)
    limit = _join_limit(options.pop("join_timeout", None))
    kept = KeptOptions()
    for option in KeptOptions.__annotations__:
        if option in options:
            kept[option] = options.pop(option)  # type: ignore[literal-required, misc]
    if founders is not None:
        if found or contacts:
            raise ConfigurationError(
                f"node {shown(name)}: founders= was set together with found= or join=: set only "
                "founders= for those who found a group together"
            )
        if name not in founders:
            raise ConfigurationError(
                f"node {shown(name)} is not one of the founders {', '.join(sorted(map(str, founders)))}: add it, "
                "or set join= to the address of any of them"
            )
        contacts = {other: at for other, at in founders.items() if other != name}
        if (own := founders[name]) is not None:
            options.setdefault("listen", format_address(address_of(own)))
    elif not found and not contacts and kept.get("journal") is None:
        raise ConfigurationError(
            f"node {shown(name)}: set founders={{name: 'host:port', …}} for all who found a group "
            "together, or join='host:port' with the address of any member, or found=True to "
            "found one alone"
        )
    if (found or founders is not None) and (replace or replaces):
        raise ConfigurationError(
            f"node {shown(name)}: replace= and replaces= are for members that join: leave them out, or set "
            "join= instead of founders= and found="
        )
    host: HostOptions = options  # the remaining options
    async with open_host(name, peers=contacts, network=group, **host) as opened:
        if found or founders is not None:
            member = opened.found(
                group,
                founders=founders or (),
                machine=machine,
                witness=witness,
                progress=progress,
                **kept,
            )
            if founders is None:
                await member.ready()
        else:
            with trio.move_on_after(limit) as waits:
                member = await opened.join(
                    group,
                    machine=machine,
                    replace=replace,
                    replaces=replaces,
                    witness=witness,
                    progress=progress,
                    **kept,
                )
            if waits.cancelled_caught:
                raise _too_late(opened, group, limit)
        yield member


def _join_limit(seconds: float | None) -> float:
    if seconds is None:
        return math.inf
    if not seconds >= 0:  # nan, too
        raise ConfigurationError(
            f"join_timeout must be 0 seconds or more, or None, not {shown(seconds)}"
        )
    return min(seconds, FOREVER)


def _too_late(host: Host, group: str, seconds: float) -> HandshakeError:
    links = host.links().values()
    why = [link.error for link in links if link.error] or [
        f"no answer from {', '.join(link.address for link in links) or 'anyone'}"
    ]
    return HandshakeError(
        f"node {host.name!r} was not admitted to group {group!r} within {seconds:g} s: {'; '.join(why)}: correct the "
        "address, start a member there, or give it longer (join_timeout=)"
    )


def _names(founders: Iterable[str]) -> list[str]:
    if isinstance(founders, str):
        raise ConfigurationError(f"founders={shown(founders)} is one string: pass a list of names")
    names = list(founders)
    for name in names:
        check_name("founder", name)
    if len(names) > MAX_FOUNDERS:
        raise ConfigurationError(
            f"{len(names)} founders: at most {MAX_FOUNDERS} can found a group together; let the "
            "others join it"
        )
    return names


def _journal(given: AnyJournal | None) -> Journal | None:
    if given == "":
        raise ConfigurationError("journal='' names no directory: pass its path, or None")
    return given if given is None or isinstance(given, Journal) else FileJournal(given)


def _observer(
    journal: AnyJournal | None, event_logs: str | os.PathLike[str] | None, rotation: Rotation
) -> Callable[[Logged], DurableLog] | None:
    if event_logs is None:
        return None
    if journal is None:
        raise ConfigurationError(
            "event_logs needs a journal: without one, a log may contain messages that were lost: "
            "set journal="
        )
    return partial(DurableLog, directory=Path(event_logs), rotation=rotation)


def _addresses(given: str | Address | Sequence[str | Address]) -> list[str | Address]:
    match given:
        case str():
            return [given]
        case (str(host), int(port)):
            return [(host, port)]
        case _:
            return list(given)
