"""Links that several groups share: one connection for each pair of processes, whatever groups they have in common.

Each process announces its groups (`crdtcast.wire.group_frames`); frames of a group go only to processes that have it,
too. Processes tell each other where others can be dialled.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import trio

from crdtcast.causality.member_id import check_name, fresh_incarnation, name_of
from crdtcast.engine import GroupEngine
from crdtcast.engine.core import Core
from crdtcast.engine.founding import Announcement
from crdtcast.exceptions import (
    ConfigurationError,
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
)
from crdtcast.transport.endpoint import Endpoint
from crdtcast.transport.link import Link
from crdtcast.transport.log_throttle import Throttle
from crdtcast.transport.options import (
    WILDCARDS,
    Address,
    NodeOptions,
    format_address,
    parse_address,
)
from crdtcast.wire.frames import Frame, FrameKind, Hello, KeepAlive, Refusal, encode
from crdtcast.wire.group_frames import (
    MAX_KNOWN,
    Apart,
    Founding,
    Grouped,
    GroupFrame,
    Here,
    InGroup,
    Known,
)
from crdtcast.wire.handshake import Reason, outranked

_MOST_GROUPS = 10_000
"""Most groups of one peer."""
_REPEAT = 600.0
"""Seconds between two log lines about the same lasting problem."""


class LinkedGroup(Protocol):
    """What shared links need of a group."""

    group: str
    """Its name."""
    number: int
    """Its number in frames to others."""
    group_id: str
    """See `Here`."""
    announcement: Announcement | None
    """The state of its founding, as seen from this process; None: it does not take part in one."""

    @property
    def engine(self) -> Core | None:
        """None until the group has begun."""

    @property
    def here(self) -> Mapping[str, str]:
        """Name -> incarnation, of linked peers that have announced themselves in the group."""

    def heard_founding(self, link: Link, announcement: Announcement) -> None:
        """The peer founds a group of the same name."""

    def heard_here(self, link: Link, here: Here) -> None:
        """The peer has announced its incarnation in this group."""

    def heard_apart(self, link: Link, apart: Apart) -> None:
        """The peer excludes this process from the group."""

    def received(self, link: Link, frames: list[InGroup]) -> None:
        """Take frames, in order. `after` follows the last ones."""

    def after(self) -> None:
        """Do what follows from the frames that were received."""

    def idle(self, link: Link) -> None:
        """Nothing is queued for that peer."""

    def link_down(self, link: Link) -> None:
        """The link is down."""

    def congested(self) -> bool:
        """Whether too much waits for the application."""


class SharedLinks(Endpoint):
    """The links of one process, and its groups. All methods except `run` are synchronous.

    options: `group` names the set of links: only processes with the same one are linked. `peers` are dialled first;
        more are learned from them.
    advertise: where others can dial this process; by default where it listens, unless that is a wildcard.
    """

    def __init__(
        self,
        options: NodeOptions,
        *,
        advertise: Address | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        super().__init__(options, logger or logging.getLogger("crdtcast.links"))
        if advertise is None and options.listen[0] in WILDCARDS:
            self._logger.warning(
                "node %s listens on every address of this machine and advertises none, so the "
                "others cannot dial it: set advertise='HOST:PORT' to the address that they can "
                "dial",
                options.name,
            )
        self.channels: dict[str, LinkedGroup] = {}
        self.known: dict[str, Address] = {}
        """Addresses of processes, by name."""
        self._incarnation = fresh_incarnation(options.name)
        self._fence: int | None = 0
        self._databases: tuple[int, int] | None = None
        self._fences: dict[str, tuple[str, int]] = {}
        self._advertise = advertise
        self._rarely = Throttle(self._logger, _REPEAT)
        self._numbers = 0
        self._said: dict[Link, dict[int, Here]] = {}
        self._founds: dict[Link, dict[str, Founding]] = {}
        self._waiting: list[Callable[[], Awaitable[None]]] = []
        self._news = trio.lowlevel.ParkingLot()

    # Groups

    def open(self, channel: LinkedGroup) -> int:
        """Add a group to the links; returns its number on them. It is announced when it has an engine.

        Raises ConfigurationError if its name is invalid, LocalProtocolError if the group is open already.
        """
        group = channel.group
        check_name("group", group)
        if group in self.channels:
            raise LocalProtocolError(
                f"node {self.name!r} has already opened group {group!r}: use what that returned"
            )
        self._numbers += 1
        self.channels[group] = channel
        self._tell_all(Here(self._numbers, group, None, channel.group_id))
        return self._numbers

    def closed(self, channel: LinkedGroup) -> None:
        """Remove a group from the links."""
        del self.channels[channel.group]
        self._tell_all(Here(channel.number, channel.group, None))
        self.relieve()

    def announce(self, channel: LinkedGroup) -> None:
        """Announce this process's incarnation in a group to all peers."""
        self._tell_all(self._here(channel))

    def announce_founding(self, group: str, announcement: Announcement) -> None:
        """Announce the state of a group's founding to all peers."""
        self._tell_all(Founding(group, announcement))

    def founders(self, group: str) -> dict[Link, Founding]:
        """The links with peers that found a group of that name, and their last announcements."""
        return {link: said[group] for link, said in self._founds.items() if group in said}

    def present(self, group: str) -> dict[Link, Here]:
        """The links with peers in a group, and their announcements."""
        return {
            link: here
            for link, said in self._said.items()
            for here in said.values()
            if here.group == group and here.incarnation is not None
        }

    def outside(self, group: str) -> list[str]:
        """The linked peers that have opened a group, and are not in it yet: they found it, or join it, too."""
        return sorted(
            link.name
            for link, said in self._said.items()
            for here in said.values()
            if here.group == group and not here.group_id
        )

    def _here(self, channel: LinkedGroup) -> Here:
        me = None if channel.engine is None else channel.engine.me
        return Here(channel.number, channel.group, me, channel.group_id)

    @property
    def runs_tasks(self) -> bool:
        """Whether `spawn` starts tasks at once."""
        return self._nursery is not None

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task next to the links. An exception of it ends them."""
        if self._nursery is None:
            self._waiting.append(work)
        else:
            self._nursery.start_soon(self._guarded, work)

    @trio.lowlevel.enable_ki_protection
    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.ended(error)

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """See `Endpoint`: the tasks spawned before `run`."""
        waiting, self._waiting = self._waiting, []
        return [lambda work=work: self._guarded(work) for work in waiting]  # type: ignore[misc]

    def engines(self) -> Mapping[str, Core]:
        """See `Endpoint`."""
        return {c.group: c.engine for c in self.channels.values() if c.engine is not None}

    def not_here(self) -> set[str]:
        """See `Endpoint`. The link may belong to an older life of the member, which continued from a copied or restored
        journal and is not admitted.
        """
        names: set[str] = set()
        here: set[str] = set()
        for channel in self.channels.values():
            if isinstance(engine := channel.engine, GroupEngine):
                members = engine.members
                names.update(map(name_of, members))
                here.update(name for name, who in channel.here.items() if who in members)
        return names - here

    # Processes to dial

    def want(self, name: str) -> None:
        """Keep a link with that process, if its address is known. It may have moved since it was dialled first, unless
        the options give that address.
        """
        address = self.known.get(name)
        if name == self.name or address is None:
            return
        dialled = self._dialled(name)
        if not dialled or not {address, *self.options.addresses} & dialled:
            self.set_address(name, address)

    def unwant(self, name: str) -> None:
        """Stop dialling that process, unless the options name it, or it shares another group."""
        shares = sum(name in channel.here for channel in self.channels.values())
        if name not in self.options.named_peers and shares < 2:
            self._with_links(lambda links: links.forget(name))

    def _dialled(self, name: str) -> set[Address | None]:
        """The addresses at which that process is being dialled."""
        dialled = self._links.dialled if self._links is not None else ()
        return {peer.address for peer in dialled if peer.name == name}

    def rivals(self) -> list[str]:
        """Refusals of peers that are linked with another running process of this name. It may be a copy of this one, or
        the other way round.
        """
        return [] if self._links is None else self._links.rivals()

    def dial_again(self) -> None:
        """Dial all peers without a link now."""
        for peer in [] if self._links is None else self._links.dialled:
            peer.nudge()

    def unanswered(self) -> list[str]:
        """The peers being dialled that have neither linked nor refused."""
        if self._links is None:
            return []
        return [
            p.label for p in self._links.dialled if p.label not in self._links.up and not p.rival
        ]

    async def news(self) -> None:
        """Return when a link has come or gone, or a peer has said something about its groups."""
        await self._news.park()

    # Ownership of a server

    def will_own(self) -> None:
        """Link with no peer before `owns`."""
        self._fence = None

    def owns(self, server: str, fence: int, databases: tuple[int, int]) -> None:
        """This process has taken a server, with that fence epoch. A peer that knows a higher one of the same server
        refuses a lower one.

        server: hexadecimal digits that identify it.
        databases: see `Hello`.
        """
        self._databases = databases
        begins = self._fence is None
        self._incarnation, self._fence = f"{self.name}.{server[:32] or 0}", fence
        if begins and self._links is not None:
            for peer in self._links.dialled:
                peer.nudge()

    # LinkHost

    def hello(self) -> Hello:
        """This process's present hello. Raises NotReadyError after `will_own`, until `owns`."""
        if self._fence is None:
            raise NotReadyError(f"node {self.name!r} has not taken its server yet")
        return Hello(
            group=self.options.group,
            name=self.name,
            incarnation=self._incarnation,
            process=self.process,
            fence=self._fence,
            max_frame=self.options.max_frame,
            shared=True,
            address=self._own_address(),
            databases=self._databases,
        )

    def _own_address(self) -> str:
        if self._advertise is not None:
            return format_address(self._advertise)
        host, _ = self.options.listen
        return "" if host in WILDCARDS else format_address((host, self.address[1]))

    def admit(self, peer: Hello) -> Refusal | None:
        """Any process may link if its handshake is in order; groups decide for themselves."""
        if name_of(peer.incarnation) != peer.name:
            return Refusal(
                Reason.UNKNOWN_NAME,
                f"process {peer.incarnation!r} does not belong to a node called {peer.name!r}",
            )
        if refusal := outranked(peer, self._fences):
            return refusal
        if peer.fence:
            self._fences[peer.name] = (peer.incarnation, peer.fence)
        return None

    def link_up(self, link: Link) -> None:
        """Announce all groups and known addresses to the peer."""
        self._said[link], self._founds[link] = {}, {}
        for channel in self.channels.values():
            self.tell(link, self._here(channel))
            if channel.announcement is not None:
                self.tell(link, Founding(channel.group, channel.announcement))
        self._learn(link.name, link.peer.address)
        self.tell(link, Known({name: format_address(a) for name, a in self.known.items()}))
        if link.peer.address:
            newcomer = Known({link.name: link.peer.address})
            for other in self.links().up.values():
                if other is not link:
                    self.tell(other, newcomer)
        self._news.unpark_all()

    def link_down(self, link: Link) -> None:
        """Forget the peer's announcements, and notify its groups."""
        self._said.pop(link, None)
        self._founds.pop(link, None)
        for channel in list(self.channels.values()):
            channel.link_down(link)
        self._news.unpark_all()

    def idle(self, link: Link) -> None:
        """Nothing is queued for that peer: let its groups send more."""
        for channel in self.channels.values():
            channel.idle(link)

    def learn(self, addresses: Mapping[str, str]) -> None:
        """Add addresses where processes can be dialled, by name."""
        for name, address in addresses.items():
            self._learn(name, address)

    def _learn(self, name: str, address: str) -> None:
        if name == self.name or not address:
            return
        if name not in self.known and len(self.known) >= MAX_KNOWN:
            # Names are easily made up, but the name of a linked peer was checked.
            up = self._links.up if self._links is not None else {}
            stale = next((other for other in self.known if other not in up), None)
            if name not in up or stale is None:
                return
            del self.known[stale]
        try:
            self.known[name] = parse_address(address)
        except ConfigurationError:
            key = f"the address of {name}"
            self.say(key, logging.WARNING, f"ignored the invalid address {address!r} of {name}")

    def received(self, link: Link, frames: list[Frame]) -> None:
        """Take all frames from one piece of a stream, in order."""
        said = self._said.get(link)
        if said is None:
            return
        touched: dict[str, LinkedGroup] = {}
        number, run = -1, list[InGroup]()  # consecutive frames of one group
        try:
            for frame in frames:
                if type(frame) is Grouped:
                    if frame[0] != number:
                        if run:
                            self._to_group(link, said.get(number), run, touched)
                        number, run = frame[0], []
                    run.append(frame[1])
                    continue
                if run:
                    self._to_group(link, said.get(number), run, touched)
                    number, run = -1, []
                if type(frame) is Refusal:
                    link.refused(frame.text)
                    return
                self._heard(link, said, frame)
            if run:
                self._to_group(link, said.get(number), run, touched)
        finally:
            for channel in touched.values():
                channel.after()

    def _to_group(
        self, link: Link, here: Here | None, run: list[InGroup], touched: dict[str, LinkedGroup]
    ) -> None:
        channel = None if here is None else self.channels.get(here.group)
        if channel is not None:
            touched[channel.group] = channel
            channel.received(link, run)

    def _heard(self, link: Link, said: dict[int, Here], frame: Frame) -> None:
        """The peer has announced something about groups."""
        if type(frame) is Here:
            self._heard_here(link, said, frame)
        elif type(frame) is Apart:
            channel = self.channels.get(frame.group)
            if channel is not None:
                channel.heard_apart(link, frame)
        elif type(frame) is Founding:
            self._heard_founding(link, frame)
        elif type(frame) is Known:
            self.learn(frame.addresses)
            self._news.unpark_all()
        elif type(frame) is not KeepAlive:
            raise RemoteProtocolError(
                f"a {type(frame).__name__} on a link that carries several groups"
            )

    def _heard_here(self, link: Link, said: dict[int, Here], here: Here) -> None:
        said[here.number] = here
        if len(said) > _MOST_GROUPS:
            over = next((n for n, old in said.items() if old.incarnation is None), here.number)
            del said[over]
            if over == here.number:
                raise RemoteProtocolError(f"{link.name} is in more than {_MOST_GROUPS:,} groups")
        channel = self.channels.get(here.group)
        if channel is not None:
            channel.heard_here(link, here)
        elif here.incarnation is not None:
            text = f"{link.name} is in group {here.group!r}, which is not open at this node"
            self.say(text, logging.INFO, text)
        self._news.unpark_all()

    def _heard_founding(self, link: Link, frame: Founding) -> None:
        if link.name not in frame.announcement.founders:
            raise RemoteProtocolError(
                f"{link.name} founds a group without being among its founders"
            )
        said = self._founds[link]
        said[frame.group] = frame
        if len(said) > _MOST_GROUPS:
            raise RemoteProtocolError(f"{link.name} founds more than {_MOST_GROUPS:,} groups")
        channel = self.channels.get(frame.group)
        if channel is not None:
            channel.heard_founding(link, frame.announcement)

    def tell(self, link: Link, frame: GroupFrame) -> None:
        """Queue a frame about groups."""
        encoded = encode(frame, self.options.max_frame)
        if not link.offer(FrameKind.HERE, encoded) and link.closed is None:
            # No repair sends this again. A new connection begins with all of it.
            link.close("the peer is too slow: a new link will start from the present state")

    def _tell_all(self, frame: GroupFrame) -> None:
        if self._links is not None:
            for link in self._links.up.values():
                self.tell(link, frame)

    def say(self, key: str, level: int, text: str) -> None:
        """Log something lasting: once, then rarely."""
        self._rarely.log(trio.current_time(), key, level, text)

    def relieve(self) -> None:
        """Stop reading while some group's application is far behind, and read on after that."""
        if self._links is None:
            return
        gate = self._links.gate
        congested = any(channel.congested() for channel in self.channels.values())
        if congested:
            gate.close()
        elif gate.closed:
            gate.open()
