"""One group on shared links: it moves the engine's messages to the members of the group, and theirs to the engine. It
stores nothing, applies nothing, and decides nothing about members.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

import trio

from crdtcast.causality.member_id import name_of
from crdtcast.causality.messages import Digest, Ended, Message, Transmit
from crdtcast.causality.tags import make_tuple
from crdtcast.engine import GroupEngine
from crdtcast.engine.core import Core
from crdtcast.engine.founding import Announcement
from crdtcast.engine.views import Views
from crdtcast.engine.whispers import WhisperFrame, Whispers
from crdtcast.exceptions import CrdtcastError, HandshakeError, RemoteProtocolError, RolledBackError
from crdtcast.journal.spill import Spilled
from crdtcast.transport.engine_driver import REPAIR_AT_ONCE, EngineDriver, runs
from crdtcast.transport.host import SharedLinks
from crdtcast.transport.link import Link
from crdtcast.transport.options import Address, NodeOptions
from crdtcast.transport.peers import LinkPhase, LinkStatus
from crdtcast.wire.fields import FrameKind
from crdtcast.wire.group_frames import Apart, Grouped, Here, InGroup
from crdtcast.wire.handshake import Reason


class Channel(EngineDriver):
    """One group of this process. Raises ConfigurationError if the group's name is invalid, LocalProtocolError if the
    group is open already.

    engine: None until `start`; a further `start` replaces it.
    group_id: see `Here`; set it before `start`.
    on_rolled_back: a peer remembers more of this incarnation than it does itself; by default the node ends.
    on_founding: a peer founds a group of that name.
    on_here: a peer announces itself while there is no engine.
    on_asked: takes frames of the dialogue by which members join.
    on_gone: the peer on that link is gone or has become a member, so any such dialogue with it ends.
    """

    def __init__(self, shared: SharedLinks, group: str) -> None:
        super().__init__(shared.options.digest_interval)
        self.shared = shared
        self.group = group
        self.engine: GroupEngine | None = None
        self.group_id = ""
        self.serials: Iterator[int] = count(1)
        """Numbers for this member's requests to its peers."""
        self.on_asked: Callable[[Link, InGroup], None] = _nobody_to_ask
        self.on_gone: Callable[[Link], None] = _nothing_of_it
        self.announcement: Announcement | None = None
        """The state of the group's founding, as seen from this process; None: it does not take part in one."""
        self.on_founding: Callable[[Link, Announcement], None] = _no_founder
        self.on_here: Callable[[Link, Here], None] = _not_yet
        self.on_rolled_back: Callable[[RolledBackError], None] = self.ended
        self.closed: bool = False
        self.here: dict[str, str] = {}
        """Name -> incarnation, of linked peers that have announced themselves in the group."""
        self.whispers: Whispers = Whispers(self._whisper_waits)
        self._backlog = 0
        self._scope = trio.CancelScope()
        self.number: int = shared.open(self)

    def driven(self) -> Core:
        """The present engine."""
        assert self.engine is not None
        return self.engine

    # For the group's member

    @property
    def name(self) -> str:
        return self.shared.name

    @property
    def options(self) -> NodeOptions:
        return self.shared.options

    @property
    def address(self) -> Address:
        """Host and port where other processes reach this one."""
        return self.shared.address

    @property
    def max_payload(self) -> int:
        """The longest payload, in bytes, that `Engine.send` accepts."""
        return self.shared.options.max_payload

    def status(self) -> dict[str, LinkStatus]:
        """State of the links with peers in the group."""
        dropped = self.whispers.dropped
        return {
            name: replace(link, dropped_whispers=dropped[name])
            for name, link in self.shared.status().items()
            if name in self.here
        }

    def check_not_refused(self, purpose: str) -> None:
        """Raises HandshakeError if all dialled processes refuse this one: only an operator can change that.

        purpose: what this member wants to do with the group, a verb.
        """
        status = self.shared.status()
        if status and all(link.state is LinkPhase.REFUSED for link in status.values()):
            where, link = next(iter(status.items()))
            raise HandshakeError(
                f"node {self.name!r} has no link with {where}, so it cannot {purpose} group "
                f"{self.group!r}: {link.error or 'refused'}"
            )

    # Life

    def start(self, engine: GroupEngine) -> None:
        """Take part as `engine.me` from now on."""
        before, self.engine = self.engine, engine
        engine.repair_at_once = REPAIR_AT_ONCE
        self._backlog = 0
        self.shared.announce(self)
        for name in self.here:
            self.whispers.unlinked(name)
        self.here.clear()
        for link, here in self.shared.present(self.group).items():
            self.heard_here(link, here)
        if before is None:
            self.shared.spawn(self._run)
        self.after()

    async def _run(self) -> None:
        with self._scope:
            await self.ticking.run()

    def close(self) -> None:
        """Leave the links, which stay up."""
        if not self.closed:
            self.closed = True
            self._scope.cancel()
            self.shared.closed(self)

    def ended(self, error: Exception) -> None:
        """The application has failed: end its node with that error."""
        self.shared.ended(error)

    # Sending

    def transmit(self) -> None:
        """See `EngineDriver`."""
        if self.engine is not None:
            self.send_effects(self.engine.take_outbox())

    def before_writing(self, fill: Callable[[], None]) -> bool:
        """See `EngineDriver`."""
        return self.shared.before_writing(fill)

    def send_effects(self, effects: list[Transmit]) -> None:
        """Queue the engine's messages."""
        if self.closed:
            return
        for to, kind, messages in runs(effects):
            if to is None:
                names = list(self.here)
            else:
                name = name_of(to)
                names = [name] if self.here.get(name) == to else []
            if names:
                self._send(names, kind, messages)

    def send_to(self, names: list[str], frame: InGroup) -> None:
        """Queue a frame for those of these peers that are linked."""
        self._send(names, FrameKind.GROUPED, [frame])

    def _send(self, names: list[str], kind: FrameKind, frames: list[InGroup]) -> None:
        up, number = self.shared.links().up, self.number
        links = [link for name in names if (link := up.get(name)) is not None]
        self.shared.send(
            links,
            kind,
            [
                make_tuple(Grouped, (number, frame.loaded() if type(frame) is Spilled else frame))
                for frame in frames
            ],
        )

    # Peers

    def heard_founding(self, link: Link, announcement: Announcement) -> None:
        """The peer founds a group of the same name."""
        self.on_founding(link, announcement)

    def heard_here(self, link: Link, here: Here) -> None:
        """The peer has announced its incarnation in this group."""
        engine = self.engine
        if engine is None:
            self.on_here(link, here)  # `start` looks at these peers, too
            return
        incarnation = here.incarnation
        before = self.here.get(link.name)
        if before is not None and before != incarnation:
            self._leave(link.name)
        if incarnation is None or before == incarnation:
            return
        if name_of(incarnation) != link.name:
            text = f"incarnation {incarnation} does not belong to a node called {link.name}"
            self._part(link, Reason.WRONG_NAME, text)
        elif here.group_id != self.group_id:
            self._part(link, Reason.GROUP, _other_group(link.name, here.group_id, self))
        else:
            self.here[link.name] = incarnation  # the engine decides by ids
            self.on_gone(link)
            self.whispers.linked(link.name)
            engine.connected(incarnation)
            self.after()

    def _part(self, link: Link, reason: str, text: str) -> None:
        """Exclude a peer from this group, and tell it why."""
        self._leave(link.name)
        self.shared.tell(link, Apart(self.group, reason, text))
        line = f"group {self.group!r}: {link.name} is excluded: {text}"
        self.shared.say(line, logging.ERROR, line)

    def heard_apart(self, link: Link, apart: Apart) -> None:
        """The peer excludes this process from the group."""
        self._leave(link.name)
        text = f"group {self.group!r}: {link.name} excludes this node: {apart.text}"
        # The peer chooses the text, so there is one line for all texts.
        self.shared.say(f"{link.name} keeps us out of {self.group}", logging.ERROR, text)

    def idle(self, link: Link) -> None:
        """Nothing is queued for that peer: send more repairs."""
        incarnation = self.here.get(link.name)
        if incarnation is None or self.engine is None or self.closed:
            return
        self.repair_on(incarnation)
        if self.whispers.waits_for(link.name):
            frames: list[InGroup] = [*self.whispers.take(link.name, trio.current_time())]
            self._send([link.name], FrameKind.WHISPER, frames)

    def whisper(self, topic: str, payload: bytes, seconds: float) -> None:
        """See `Whispers.say`: it leaves when the links may write."""
        self.whispers.say(topic, payload, seconds, trio.current_time())

    def _whisper_waits(self, name: str) -> None:
        """Let the peer's link take what waits, once nothing else is queued on it."""
        link = self.shared.links().up.get(name)
        if link is not None:
            link.queue.expect()

    def link_down(self, link: Link) -> None:
        """The link is down, and its peer has left the group's links."""
        incarnation = self.here.get(link.name)
        if link.wrong is not None and incarnation is not None and self.engine is not None:
            self.engine.blames.note_link(incarnation, link.wrong)
        self._leave(link.name)
        self.on_gone(link)

    def _leave(self, name: str) -> None:
        incarnation = self.here.pop(name, None)
        self.whispers.unlinked(name)
        if incarnation is not None and self.engine is not None:
            self.engine.disconnected(incarnation)
            self.ticking.gone(incarnation)

    # Receiving

    def received(self, link: Link, frames: list[InGroup]) -> None:
        """Take frames of a peer. The caller calls `after` behind the last ones."""
        engine, sender = self.engine, self.here.get(link.name)
        for frame in frames:
            try:
                if type(frame) is Message:
                    # Without an engine, `here` is empty.
                    if sender is not None:
                        self._backlog += len(frame.payload) + 64
                        engine.receive(sender, frame)  # type: ignore[union-attr]
                    continue
                self._received(link, frame)
            except RolledBackError as error:
                self.on_rolled_back(error)
            except RemoteProtocolError as error:
                # A member that sends what is never allowed loses its link with this process.
                raise RemoteProtocolError(f"group {self.group!r}: {error}") from error
            except CrdtcastError as error:
                self._part(link, Reason.PROTOCOL, str(error))
            # Each of these may have ended this engine, or begun another one.
            engine, sender = self.engine, self.here.get(link.name)

    def _received(self, link: Link, frame: InGroup) -> None:
        """Take a frame that is not a message."""
        if type(frame) is WhisperFrame:
            self.whispers.receive(link.name, frame, trio.current_time())
            return
        if type(frame) is not Digest and type(frame) is not Views and type(frame) is not Ended:
            self._dialogue(link, frame)
            return
        engine, sender = self.engine, self.here.get(link.name)
        if engine is None or sender is None:
            return  # the peer does not know yet that it is excluded, or that we are no member yet
        if type(frame) is Digest:
            self.ticking.heard(sender, frame)
        engine.receive(sender, frame)

    def _dialogue(self, link: Link, frame: InGroup) -> None:
        try:
            self.on_asked(link, frame)
        except CrdtcastError as error:
            self._part(link, Reason.PROTOCOL, str(error))

    def _object(self, engine: GroupEngine) -> None:
        """Report messages that turned out to be invalid when they were delivered."""
        up = self.shared.links().up
        for incarnation, wrong in engine.blames.take_late().items():
            link, text = up.get(name_of(incarnation)), f"group {self.group!r}: {wrong}"
            if link is not None and self.here.get(link.name) == incarnation:
                self.shared.spawn(partial(link.object_to, text))
            else:
                self.shared.say(text, logging.ERROR, text)
        for doubt in engine.blames.take_doubts().values():
            text = f"group {self.group!r}: {doubt}"
            self.shared.say(text, logging.WARNING, text)

    def after(self) -> None:
        """See `EngineDriver.after`; does nothing without an engine."""
        if self.engine is not None:
            super().after()

    def _tick(self) -> None:
        super()._tick()
        self.whispers.expire(trio.current_time())

    def congested(self) -> bool:
        """Whether too much waits for the application."""
        return self._backlog > self.shared.options.backlog_bytes and not self.closed

    def relieve(self) -> None:
        """See `EngineDriver`."""
        engine = self.engine
        if engine is not None:
            if engine.blames.is_late:
                self._object(engine)
            if not engine.has_deliverable():
                self._backlog = 0
        self.shared.relieve()


def _other_group(name: str, group_id: str, own: Channel) -> str:
    return (
        f"two different groups are called {own.group!r}: {name} is in group id {group_id}, "
        f"{own.name} in {own.group_id}: stop one side, and let it join the other"
    )


def _nobody_to_ask(link: Link, frame: InGroup) -> None:
    pass


def _nothing_of_it(link: Link) -> None:
    pass


def _no_founder(link: Link, announcement: Announcement) -> None:
    pass  # it learns that the group exists


def _not_yet(link: Link, here: Here) -> None:
    pass
