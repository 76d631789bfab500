"""The contact's side of a join: what a member offers each joiner, until it is admitted.

A joiner whose link breaks is remembered for a while by its process, and continues on its next link.

The copy of the application's state is taken before the join, because a joiner that cannot acknowledge messages yet must
not delay stability. What happens to the application from then on is noted, and sent with the admission. So the joiner's
application becomes what this member's was at the instant of the join.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Generic, TypeVar

import trio

from crdtcast.causality.member_id import base_of, joined_by, name_of
from crdtcast.causality.tags import Tag, Vector
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import (
    CrdtcastError,
    HandshakeError,
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
    ServerError,
)
from crdtcast.group.application import Application
from crdtcast.transport.channel import Channel
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.offer_frames import PART_BYTES, Fetch, Unable
from crdtcast.wire.offers import Offered, part_of
from crdtcast.wire.state import Happened, JoinerEntry, pack_entry

MOST_UNHEARD = 2
"""A member with this many admitted joiners that it has not heard from admits no other."""
KEPT_SECONDS = 60.0
"""How long to remember a joiner without a link."""
FORGET = 0
"""The serial of a `Fetch` that asks for nothing: what was begun for the joiner starts again."""
_FRAME_ROOM = 1024


def check_crowd(engine: GroupEngine, base: str) -> None:
    """Raises NotReadyError if one more joiner must wait: this member has admitted others and not heard from them. If
    they are dead, no message becomes stable until they are evicted.
    """
    own = base_of(engine.me)
    unheard = [
        who
        for who in engine.unheard
        if (join := joined_by(who)) is not None and join[0] == own and base_of(who) != base
    ]
    if len(unheard) < MOST_UNHEARD:
        return
    names = ", ".join(map(name_of, unheard))
    raise NotReadyError(
        f"{engine.me} accepts no further member yet: it has admitted {names} and received nothing "
        "from them: wait until they are up; if they are dead, evict them (`crdtcast evict NAME`)",
    )


def check_begun(engine: GroupEngine, base: str) -> None:
    """For a member without a journal. Raises NotReadyError if a joiner must wait for founders that may not have
    started.
    """
    if awaited := engine.awaited_founders(name_of(base)):
        names = ", ".join(map(name_of, awaited))
        raise NotReadyError(
            f"{engine.me} accepts no further member yet: it has no journal and has received "
            f"nothing from {names} since the group started: wait until they are up; if they are "
            "dead, evict them (`crdtcast evict NAME`)"
        )


class Guest:
    """One joiner, on its last link."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.left_at: float | None = None
        """When the link broke."""
        self.offered: Offered | None = None


G = TypeVar("G", bound=Guest)


class Hosting(ABC, Generic[G]):
    """Answers joiners on behalf of one member. answer: sends a frame on a link."""

    def __init__(self, answer: Callable[[Link, InGroup], None]) -> None:
        self._answer = answer
        self._guests: dict[bytes, G] = {}

    def asked(self, link: Link, frame: InGroup) -> None:
        """Take a frame of the dialogue. Raises RemoteProtocolError if it is not allowed."""
        match frame:
            case Copy(serial) | Admit(serial):
                try:
                    self._request(link, frame)
                except (NotReadyError, HandshakeError) as error:
                    self._refuse(link, serial, error)
            case Fetch():
                self._fetch(link, frame)
            case _:
                raise RemoteProtocolError(
                    f"unexpected {type(frame).__name__}: this member did not ask for it"
                )

    def _request(self, link: Link, frame: Copy | Admit) -> None:
        if isinstance(frame, Copy):
            self._copy(link, frame)
            return
        if name_of(frame.base) != link.name:
            raise RemoteProtocolError(
                f"{link.name} wants to join as {frame.base}, which is another node's name"
            )
        self._admit(link, frame)

    def _refuse(self, link: Link, serial: int, error: CrdtcastError) -> None:
        """Refuse a request. The joiner may ask again later if the cause is temporary, or the server."""
        is_later = isinstance(error, NotReadyError | ServerError)
        self._answer(link, Unable(serial, is_later, str(error)))

    def gone(self, link: Link) -> None:
        """The joiner has everything, or the link with it is down."""
        guest = self._guests.get(link.peer.process)
        if guest is None or guest.link is not link:
            return
        if link.closed is None:
            self._dismiss(guest)
        else:
            guest.left_at = trio.current_time()

    def clear(self) -> None:
        """Forget all joiners: this member continues from another state."""
        self._guests.clear()

    @property
    def has_guests(self) -> bool:
        """Whether `guests` may yield one."""
        return bool(self._guests)

    def guests(self) -> Iterator[G]:
        """The joiners in the dialogue, or that may come back to it."""
        for guest in list(self._guests.values()):
            if guest.left_at is not None and trio.current_time() - guest.left_at > KEPT_SECONDS:
                self._dismiss(guest)
            else:
                yield guest

    def _guest(self, link: Link) -> G | None:
        """The joiner at the other end of this link, if it is known."""
        guest = self._guests.get(link.peer.process)
        if guest is not None:
            guest.link, guest.left_at = link, None
        return guest

    def _receive(self, guest: G) -> G:
        self._guests[guest.link.peer.process] = guest
        return guest

    def _dismiss(self, guest: G) -> None:
        self._guests.pop(guest.link.peer.process, None)

    def _is_here(self, guest: G) -> bool:
        """Whether this joiner was not dismissed or replaced since."""
        return self._guests.get(guest.link.peer.process) is guest

    def _offer(self, guest: G, serial: int, data: bytes) -> None:
        guest.offered = Offered(serial, data)
        self._answer(guest.link, guest.offered.offer)

    def _fetch(self, link: Link, frame: Fetch) -> None:
        guest = self._guest(link)
        if frame.serial == FORGET:
            if guest is not None:
                self._dismiss(guest)
            return
        most = min(PART_BYTES, link.peer.max_frame - _FRAME_ROOM)
        self._answer(link, part_of(None if guest is None else guest.offered, frame, most))

    @abstractmethod
    def _copy(self, link: Link, frame: Copy) -> None:
        """Give the joiner a copy, or the next piece of one. Raises NotReadyError or HandshakeError to refuse it."""

    @abstractmethod
    def _admit(self, link: Link, frame: Admit) -> None:
        """Admit the joiner. Raises NotReadyError or HandshakeError to refuse it."""


MOST_NOTED = 64 * 2**20
"""Bytes of payload to note for one joiner; a slower one must copy again."""
_NOTE_OVERHEAD = 200


class _Guest(Guest):
    """One joiner: the vector of its copy, and what has happened since then."""

    def __init__(self, link: Link, vector: Vector) -> None:
        super().__init__(link)
        self.vector = vector
        self.since: list[Happened] = []
        self.noted = 0
        self.lapsed = False
        """Too much has happened since: it must copy again."""


class JoinServer(Hosting[_Guest]):
    """Answers joiners on behalf of one member.

    answer: sends a frame on a link.
    in_memory: whether the member has no journal.
    """

    def __init__(
        self,
        channel: Channel,
        application: Application,
        answer: Callable[[Link, InGroup], None],
        *,
        in_memory: bool,
    ) -> None:
        super().__init__(answer)
        self._channel = channel
        self._application = application
        self._in_memory = in_memory
        application.on_happened = self._happened

    def _happened(self, tag: Tag, payload: bytes | None) -> None:
        """Note an event of the application."""
        if not self._guests:
            return
        for guest in self.guests():
            if guest.lapsed:
                continue
            guest.since.append(Happened(tag, payload))
            guest.noted += _NOTE_OVERHEAD + len(payload or b"")
            if guest.noted > MOST_NOTED:
                guest.lapsed = True
                guest.since.clear()
                guest.offered = None  # the rest of the copy is worthless now

    def asked(self, link: Link, frame: InGroup) -> None:
        """Take a frame of the dialogue. Only a member answers it."""
        if self._channel.engine is not None:
            super().asked(link, frame)

    @property
    def _engine(self) -> GroupEngine:
        engine = self._channel.engine
        assert engine is not None
        return engine

    def _copy(self, link: Link, frame: Copy) -> None:
        engine = self._engine
        engine.check_reader(link.name, frame.reads)
        if not engine.standing.can_send:
            raise HandshakeError(f"{engine.me} is leaving the group: ask another member")
        if self._application.witness:
            raise HandshakeError(
                f"{engine.me} is a witness and has no state to transfer: ask another member"
            )
        try:
            state = self._application.state()
        except Exception as error:
            raise self._machine_failed(error) from error
        if state is None:
            raise HandshakeError(
                f"{engine.me} has no state machine whose state it could transfer: join through a "
                "member that runs one"
            )
        self._offer(self._receive(_Guest(link, dict(engine.vector))), frame.serial, state)

    def _admit(self, link: Link, frame: Admit) -> None:
        guest = self._guest(link)
        if guest is not None and guest.lapsed:
            raise NotReadyError("this copy is too old: start again")
        engine = self._engine
        check_crowd(engine, frame.base)
        if self._in_memory:
            check_begun(engine, frame.base)
        try:
            # The copied application must know all notices of stability.
            self._application.settle()
        except Exception as error:
            raise self._machine_failed(error) from error
        try:
            admission = engine.admit(
                frame.base,
                covered=None if guest is None else guest.vector,
                copied_from=engine.me,
                replaces=whose_place(engine, frame.base, frame.replaces, self._channel.here),
                witness=frame.witness,
                reads=frame.reads,
            )
        except NotReadyError:
            raise
        except (LocalProtocolError, RemoteProtocolError) as error:
            raise HandshakeError(str(error)) from error
        if guest is None:
            guest = self._receive(_Guest(link, {}))
        group_id, since = self._channel.group_id, tuple(guest.since)
        entry = JoinerEntry(admission.incarnation, group_id, admission.state, since)
        self._offer(guest, frame.serial, pack_entry(entry))

    def _machine_failed(self, error: Exception) -> HandshakeError:
        """The failure of this member's own application, not of the joiner."""
        self._application.fail(error)
        return HandshakeError(
            f"the state machine of {self._engine.me} has failed: ask another member"
        )


def whose_place(
    engine: GroupEngine, base: str, replaces: Sequence[str], linked: Container[str]
) -> list[str]:
    """The incarnations that a joiner replaces: its former lives, and those that the operator calls lost.

    base: the joiner's.
    replaces: what the joiner asks for: ids, bases, or names of members.
    linked: names of living members.

    Raises HandshakeError if `replaces` names another member that is alive, or if no member has a name.
    """
    ids = [each for each in replaces if "." in each]
    named = {m for m in engine.members if name_of(m) in replaces and base_of(m) != base}
    others = {each for each in replaces if each not in ids and each != name_of(base)}
    if alive := sorted(each for each in others if each in linked or each == name_of(engine.me)):
        raise HandshakeError(
            f"{name_of(engine.me)} still hears {', '.join(alive)}: stop it before another node "
            "takes its place"
        )
    # The joiner may have been admitted before, under another id; the members that it replaced may be forgotten since.
    is_in = any(base_of(m) in set(map(base_of, ids)) for m in engine.members)
    if not is_in and (unknown := sorted(others - set(map(name_of, named)))):
        known = ", ".join(sorted(map(name_of, engine.members)))
        raise HandshakeError(
            f"cannot replace {', '.join(unknown)}: not a member: name one of {known}"
        )
    return [*ids, *sorted(named)]
