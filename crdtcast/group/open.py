"""Several independent groups over one set of links: `open_links`; and one alone: `open_group`.

Groups know nothing of each other: each has its own members, its own engine, its own causality. Two
processes have one connection, whatever groups they have in common.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from crdtcast.causality.member_id import fresh_incarnation, valid_name
from crdtcast.engine import Engine
from crdtcast.eventlog.durable_log import DurableLog
from crdtcast.eventlog.writer import ROTATION, Rotation
from crdtcast.exceptions import ConfigurationError, EndedError
from crdtcast.group.broadcast import Broadcasting
from crdtcast.group.journaling import COMPACT_BYTES
from crdtcast.group.limits import StoreLimits
from crdtcast.group.member import GroupMember
from crdtcast.group.running import running
from crdtcast.group.state_machine import Process, checked
from crdtcast.journal import FileJournal, Journal
from crdtcast.transport.channel import Channel
from crdtcast.transport.host import SharedLinks
from crdtcast.transport.options import (
    Address,
    NodeOptions,
    format_address,
    parse_address,
    peer_addresses,
)
from crdtcast.transport.peers import LinkStatus
from crdtcast.wire.group_frames import MAX_FOUNDERS

AnyJournal: TypeAlias = str | os.PathLike[str] | Journal


class GroupNode(Broadcasting):
    """One member of a group whose members are fixed, on shared links."""

    engine: Engine

    def __init__(self, channel: Channel, members: Iterable[str]) -> None:
        super().__init__(channel)
        self.channel = channel
        try:
            self.engine = Engine(fresh_incarnation(channel.name), {channel.name, *members})
        except BaseException:
            channel.close()
            raise
        channel.on_work = self._wake
        channel.start(self.engine)

    @property
    def group(self) -> str:
        return self.channel.group

    def close(self) -> None:
        """Take part no more; what this member had not received is lost to it."""
        self.channel.close()
        self.end()


class GroupLinks:
    """The links of one process, and the groups on them. Made by `open_links`."""

    def __init__(self, shared: SharedLinks) -> None:
        self.shared = shared
        self._opened: dict[str, Broadcasting] = {}
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

    def group(
        self, name: str, *, members: Iterable[str], process: Process | None = None
    ) -> GroupNode:
        """Take part in the group of that name, whose members are the processes of these names.

        members: all of them; the own name may be missing. process: takes all events.

        Raises LocalProtocolError if the group is open here already. A group that another process
        does not have costs nothing; that is said in the log, once.
        """
        checked(process, self.name)
        node = GroupNode(self._open(name), members)
        self._opened[name] = node
        if process is not None:
            self.shared.spawn(partial(node.run, process))
        return node

    def found(
        self,
        name: str,
        *,
        founders: Iterable[str] = (),
        process: Process | None = None,
        witness: bool = False,
        journal: AnyJournal | None = None,
        compact_bytes: int = COMPACT_BYTES,
        limits: StoreLimits | None = None,
        event_logs: str | os.PathLike[str] | None = None,
        rotation: Rotation = ROTATION,
    ) -> GroupMember:
        """Found a new group, alone or together with others; whoever comes later joins it.

        founders: the names of all processes that found it, each of which gives the same list; the own one may be
            missing. It returns at once, and the group begins when all of them have been up at the same time: wait for
            that with `GroupMember.ready`. A founder that starts again later joins in its own place. Without founders
            this one is the first member alone, which only one process may do, and only once: a second one has another
            group of the same name, which has nothing to do with the first one; both say so in their logs.
        journal: see `join`. One that holds a former life is gone on from; it is read at once, while
            everything else in this thread waits.
        """
        checked(process, self.name)
        names = _names(founders)
        member = GroupMember(
            self._open(name),
            process=process,
            witness=witness,
            journal=_journal(journal),
            compact_bytes=compact_bytes,
            limits=limits,
            observer=_observer(journal, event_logs, rotation),
        )
        self._opened[name] = member
        try:
            member.found(names)
        except BaseException:
            member.channel.close()
            raise
        return member

    async def join(
        self,
        name: str,
        *,
        process: Process | None = None,
        replace: bool = False,
        replaces: Iterable[str] = (),
        witness: bool = False,
        progress: Callable[[int, int], None] | None = None,
        journal: AnyJournal | None = None,
        compact_bytes: int = COMPACT_BYTES,
        limits: StoreLimits | None = None,
        event_logs: str | os.PathLike[str] | None = None,
        rotation: Rotation = ROTATION,
    ) -> GroupMember:
        """Join a group through any process that is linked and in it; returns when this is a member.

        process: gets the group's state, by `set_state` and what has happened since, and takes all
            events. Without one, what was before is not told.
        replace: take the place of a member of the same name, which is evicted: an earlier life of
            this process. replaces: of these members, by name or incarnation id: they are lost, by the
            operator's word, and are evicted with the join. One that is alive is not replaced.
        witness: vote and store, but hold no state: for the third place beside two regions.
        progress: called with the bytes of the state that are here, and of how many.
        journal: the path of a directory, or a `crdtcast.journal.Journal`: what this member has sent,
            delivered and said is durable before anything leaves that depends on it, and a process
            that starts again goes on from there (docs/journal.md). compact_bytes: a snapshot is taken
            when it has grown by so much. event_logs: a directory for event logs (`crdtcast check`), whose
            lines are written when what they tell of is durable. limits: what may be held of messages
            that are not stable yet, and what happens beyond.

        Raises HandshakeError, with the reason, if no member lets this one in; what the process
        raises when it is given the group's state: this member has left again then. What
        `Journal.load` raises.
        """
        checked(process, self.name)
        member = GroupMember(
            self._open(name),
            process=process,
            witness=witness,
            journal=_journal(journal),
            compact_bytes=compact_bytes,
            limits=limits,
            observer=_observer(journal, event_logs, rotation),
        )
        self._opened[name] = member
        try:
            await member.join(replace=replace, replaces=replaces, progress=progress)
        except BaseException:
            member.channel.close()
            raise
        return member

    def _open(self, group: str) -> Channel:
        if self._over:
            raise EndedError(
                f"the links of node {self.name!r} are closed: use them inside of their `async with` "
                "block, or open them again"
            )
        return Channel(self.shared, group)

    def end(self) -> None:
        """(For `open_links`.) The links are gone, and the groups with them."""
        self._over = True
        for member in self._opened.values():
            member.end()


@asynccontextmanager
async def open_links(
    name: str,
    *,
    listen: str = "127.0.0.1:0",
    peers: Mapping[str, str | Address | None] | Sequence[str | Address] = (),
    network: str = "default",
    advertise: str | None = None,
    logger: logging.Logger | None = None,
    **options: Any,
) -> AsyncIterator[GroupLinks]:
    """The links of a process, for as long as the `with` block runs; open groups on them.

    name: of this process, in all its groups. peers: processes to dial: name -> address, or only
        addresses. Where others are is learned from those. network: only processes that say the same
        are linked. advertise: host and port where others reach this one, if it listens on a
        wildcard. options: of `NodeOptions`.
    """
    node_options = NodeOptions(
        name=name,
        listen=parse_address(listen),
        group=network,
        peers=(peer_addresses(peers) if isinstance(peers, Mapping) else list(map(_address, peers))),
        **options,
    )
    shared = SharedLinks(
        node_options,
        advertise=None if advertise is None else parse_address(advertise),
        logger=logger,
    )
    opened = GroupLinks(shared)
    try:
        async with running(shared):
            yield opened
    finally:
        opened.end()


@asynccontextmanager
async def open_group(
    name: str,
    *,
    found: bool = False,
    founders: Mapping[str, str | Address | None] | None = None,
    join: str | Address | Sequence[str | Address] = (),
    group: str = "default",
    process: Process | None = None,
    replace: bool = False,
    replaces: Iterable[str] = (),
    witness: bool = False,
    progress: Callable[[int, int], None] | None = None,
    journal: AnyJournal | None = None,
    compact_bytes: int = COMPACT_BYTES,
    limits: StoreLimits | None = None,
    event_logs: str | os.PathLike[str] | None = None,
    rotation: Rotation = ROTATION,
    **links: Any,
) -> AsyncIterator[GroupMember]:
    """A member of a group whose members come and go, for as long as the `with` block runs. End it by
    `leave`, unless the others shall take this member for dead, or it goes on from its journal.

    founders: all who found the group, the same names at each of them, name -> where it listens; None: it dials us, or
        others tell where it is. The group begins when all
        have been up at the same time: `member.ready()` returns then, and until then nothing can be sent. Who starts
        again later comes back in its own place; others `join`. `listen` is by default this node's own address in it.
    found: be the first member of a new group alone. join: where a member can be dialled, any one, as
        "host:port" or its `address`; several to be safe. This node's own address among them does not count, so
        that all members may be given the same ones. The other arguments are those of `GroupLinks.join`
        and `open_links`.

    Raises ConfigurationError if none of `founders`, `found` and `join` is given (none is needed if the journal holds a
    former life), and, inside of the block, if the founders' lists differ; HandshakeError, with the reason, if no member
    lets this one in. While nobody answers at these addresses it waits, and says so in the log.
    """
    if "peers" in links:
        raise ConfigurationError(
            f"node {name!r}: peers= is for members that are fixed, open_node(name, peers=…); a group whose "
            "members come and go has found=True for its first one, join='host:port' for the others"
        )
    contacts: Mapping[str, str | Address | None] | Sequence[str | Address] = _addresses(join)
    if founders is not None:
        if found or contacts:
            raise ConfigurationError(
                f"node {name!r}: give founders= to all who found a group together, without found= and join="
            )
        if name not in founders:
            raise ConfigurationError(
                f"node {name!r} is none of the founders {', '.join(sorted(founders))}: add it, or give join= with the "
                "address of any of them"
            )
        contacts = {other: at for other, at in founders.items() if other != name}
        if (own := founders[name]) is not None:
            links.setdefault("listen", own if isinstance(own, str) else format_address(own))
    elif not found and not contacts and journal is None:
        raise ConfigurationError(
            f"node {name!r}: give founders={{name: 'host:port', …}} to all who found a group together, or "
            "join='host:port', the address of any member, or found=True to found one alone"
        )
    async with open_links(name, peers=contacts, network=group, **links) as opened:
        if found or founders is not None:
            member = opened.found(
                group,
                founders=founders or (),
                process=process,
                witness=witness,
                journal=journal,
                compact_bytes=compact_bytes,
                limits=limits,
                event_logs=event_logs,
                rotation=rotation,
            )
            if founders is None:
                await member.ready()
        else:
            member = await opened.join(
                group,
                process=process,
                replace=replace,
                replaces=replaces,
                witness=witness,
                progress=progress,
                journal=journal,
                compact_bytes=compact_bytes,
                limits=limits,
                event_logs=event_logs,
                rotation=rotation,
            )
        yield member


def _names(founders: Iterable[str]) -> list[str]:
    if isinstance(founders, str):
        raise ConfigurationError(f"founders={founders!r} is one string: give the names in a list")
    names = list(founders)
    for name in names:
        if not valid_name(name):
            raise ConfigurationError(
                f"invalid name of a founder {name!r}: use 1 to 32 letters, digits, '-' or '_'"
            )
    if len(names) > MAX_FOUNDERS:
        raise ConfigurationError(
            f"{len(names)} founders: at most {MAX_FOUNDERS} found a group together, others join it"
        )
    return names


def _journal(given: AnyJournal | None) -> Journal | None:
    return given if given is None or isinstance(given, Journal) else FileJournal(given)


def _observer(
    journal: AnyJournal | None, event_logs: str | os.PathLike[str] | None, rotation: Rotation
) -> Callable[[GroupMember], DurableLog] | None:
    if event_logs is None:
        return None
    if journal is None:
        raise ConfigurationError(
            "event_logs of a member whose group changes needs a journal: without one, a log may tell "
            "of what was lost"
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


def _address(given: str | Address) -> Address:
    return parse_address(given) if isinstance(given, str) else given
