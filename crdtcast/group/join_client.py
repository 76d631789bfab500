"""A joiner's side: fetch a copy of the application's state from a member, ask to be let in, fetch what has happened
meanwhile (`Joining`, one attempt with one contact); which member to ask, when to ask another one, and when to give up
(`JoinClient`).
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import trio

from crdtcast.causality.member_id import fresh_incarnation
from crdtcast.engine import PROGRAM, Span
from crdtcast.exceptions import HandshakeError, NotReadyError, RemoteProtocolError
from crdtcast.transport.channel import Channel
from crdtcast.transport.link import Link
from crdtcast.transport.peers import LinkPhase
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.offer_frames import Offer, Part, Unable
from crdtcast.wire.offers import ContactLostError, Fetcher, Progress, unseen
from crdtcast.wire.state import JoinerEntry, unpack_entry

_AGAIN = 0.05
_LONGEST = 2.0
_LOOK_AGAIN = 0.2
_WAIT_FOR_SOURCE = 5.0  # and for who is being dialled, when all others have refused


class _Partial(NamedTuple):
    """What is here of a copy, of the process that offered it."""

    process: bytes
    offer: Offer
    copied: bytearray


@dataclass(frozen=True, slots=True)
class Wish:
    """What to ask for: see `crdtcast.wire.group_frames.Admit`. copies: whether there is an application."""

    base: str
    replaces: tuple[str, ...]
    witness: bool
    copies: bool


class Joining:
    """Takes the frames of the dialogue from the channel while it lasts. progress: called with the
    bytes of the copy that are here, and of how many; the share never falls, though a copy may have
    to begin anew with another contact.
    """

    def __init__(self, channel: Channel, reads: Span = PROGRAM) -> None:
        self.progress: Progress = unseen
        self.asked: bool = False
        """Whether the contact was asked to let us in, so that it may have."""
        self.source: str = ""
        """Whom a part of a copy is from that is not complete: it is worth waiting for."""
        self.reads = reads
        self._channel = channel
        self._partial: _Partial | None = None
        self._link: Link | None = None
        self._fetcher = Fetcher(_nowhere)
        self._reported = (0, 1)

    def heard(self, link: Link, frame: InGroup) -> None:
        """Take a frame of the dialogue."""
        if link is self._link and isinstance(frame, Offer | Unable | Part):
            self._fetcher.heard(frame)

    def gone(self, link: Link) -> None:
        """The peer of that link is not in the dialogue any more, or has become a member."""
        if link is self._link:
            self._fetcher.lost()

    async def through(self, link: Link, wish: Wish) -> tuple[bytes, JoinerEntry]:
        """The copy, and the admission. Raises NotReadyError (ask again), HandshakeError (ask somebody
        else), ContactLostError, RemoteProtocolError.
        """
        self._use(link)
        copy = await self._copy(link) if wish.copies else b""
        self.asked = True
        return copy, unpack_entry(await self._fetcher.get(self._admit(wish)))

    def _admit(self, wish: Wish) -> Admit:
        serial = next(self._channel.serials)
        return Admit(serial, wish.base, wish.replaces, wish.witness, self.reads)

    def _copying(self) -> Copy:
        return Copy(next(self._channel.serials), self.reads)

    def _use(self, link: Link) -> None:
        """Begin an attempt over this link; a newer one may have its place by now."""
        self._link = link
        self._fetcher = Fetcher(lambda frame: self._channel.send_to([link.name], frame))
        if link.closed is not None:
            self._fetcher.lost()
        self.asked = False

    async def _copy(self, link: Link) -> bytes:
        """All of it, from where the link with the same process broke before."""
        partial = self._partial
        if partial is None or partial.process != link.peer.process:
            offer = await self._fetcher.ask(self._copying())
            partial = _Partial(link.peer.process, offer, bytearray())
        self._partial, self.source = None, ""
        try:
            return await self._fetcher.fetch(partial.offer, partial.copied, self._report)
        except ContactLostError:
            self._partial, self.source = partial, link.name
            raise

    def _report(self, received: int, size: int) -> None:
        before, of = self._reported
        if received * of > before * size:
            self._reported = received, size
            self.progress(received, size)


def _nowhere(frame: InGroup) -> None:
    raise ContactLostError("the link is closed")


async def _note_nothing(base: str) -> None:
    pass


class JoinClient:
    """Joins a group through any member that is linked. A contact that was asked to let us in and did
    not answer may have done so: the next one is told that the new id replaces that one.

    joining: how one attempt goes; by default, with a copy of the state in one piece.
    """

    def __init__(
        self, channel: Channel, logger: logging.Logger, joining: Joining | None = None
    ) -> None:
        self._channel = channel
        self._joining = joining or Joining(channel)
        self._logger = logger
        self._entries = 0
        self._let_in: dict[str, int] = {}  # who has let us in, and when last
        self._said: dict[str, str] = {}  # why others do not let us in
        self.before_asking: Callable[[str], Awaitable[None]] = _note_nothing
        """Awaited with the base before a contact is asked to let it in."""

    def report_to(self, progress: Progress) -> None:
        """Call this with the bytes that have been copied, and of how many."""
        self._joining.progress = progress

    @property
    def kept_out(self) -> str | None:
        """What those say who have not let us in this time; None if nobody has been asked, or it was let in."""
        return "; ".join(dict.fromkeys(self._said.values())) or None

    def heard(self, link: Link, frame: InGroup) -> None:
        """Take a frame of the dialogue."""
        self._joining.heard(link, frame)

    def gone(self, link: Link) -> None:
        """The peer of that link is not in the dialogue any more, or has become a member."""
        self._joining.gone(link)

    async def enter(
        self, replaces: tuple[str, ...], witness: bool, *, copies: bool, for_ever: bool = False
    ) -> tuple[bytes, JoinerEntry]:
        """The copy and the admission. for_ever: ask again whatever the others say.

        HandshakeError: all members that are linked have said no, or none of those linked is in the group; the message
            is the last one's.
        """
        name = self._channel.name
        base, asked = "", ""
        refused: dict[str, str] = {}
        unready = ""
        delay = _AGAIN
        while True:
            link = await self._contact(asked, refused, unready, for_ever)
            if link.name != asked:
                if asked:
                    replaces = (*replaces, base)
                base, asked = fresh_incarnation(name, previous=base or None), ""
            wish = Wish(base, replaces, witness, copies)
            await self.before_asking(base)
            try:
                copy, entry = await self._joining.through(link, wish)
                self._entries += 1
                self._let_in[link.name] = self._entries
                self._channel.group_id = entry.group_id
                self._said.clear()
                return copy, entry
            except HandshakeError as error:
                self._joining.asked = False  # it has said that it did not let us in
                if asked == link.name:  # or that whom it had let in has ended
                    replaces, asked = (*replaces, base), ""
                refused[link.name] = str(error)
                again = self._said.get(link.name) == str(error)
                self._said[link.name] = str(error)
                level = logging.INFO
                if for_ever:  # nobody but the log and the status can be told
                    level = logging.DEBUG if again else logging.WARNING
                self._logger.log(level, "%s refuses our join: %s", link.name, error)
            except NotReadyError as error:
                self._logger.debug("%s cannot accept our join yet: %s", link.name, error)
                # It may wait for us: its own join is not stable while it lacks the member whose place we take.
                unready = link.name if delay == _LONGEST else ""
            except ContactLostError:
                self._logger.info("the link with %s broke during our join", link.name)
            except RemoteProtocolError as error:
                refused[link.name] = f"{link.name} sent an invalid answer: {error}"
            if self._joining.asked:
                asked = link.name
            self._look_for_others()
            await trio.sleep(delay)
            delay = min(2 * delay, _LONGEST)

    async def _contact(
        self, asked: str, refused: dict[str, str], unready: str, for_ever: bool
    ) -> Link:
        """Whom to ask next: the one asked before if it is there, or one that has not refused yet. unready: rather
        not this one.
        """
        shared, group = self._channel.shared, self._channel.group
        began: float | None = None
        source = self._joining.source
        waits_until = trio.current_time() + _WAIT_FOR_SOURCE
        while True:
            present = {
                link.name: link
                for link, here in shared.present(group).items()
                if here.group_id and self._channel.group_id in ("", here.group_id)
            }
            # Who has let us in before may have been cut off with us and not know it, so that we are out again.
            willing = sorted(
                present.keys() - refused.keys(),
                key=lambda name: (name == unready, self._let_in.get(name, 0), name),
            )
            if asked in willing and (asked != unready or len(willing) == 1):
                return present[asked]
            if source in willing:
                return present[source]
            if source and source not in refused and trio.current_time() < waits_until:
                self._look_for_others()
                with trio.move_on_after(_LOOK_AGAIN):
                    await shared.news()
                continue
            if willing:
                return present[willing[0]]
            if present and for_ever:
                refused.clear()
                await trio.sleep(_LONGEST)
                continue
            if present and self._is_on_the_way(present) and trio.current_time() < waits_until:
                with trio.move_on_after(_LOOK_AGAIN):
                    await shared.news()
                continue
            if present:
                raise self._refused(refused)
            self._look_for_others()
            if not for_ever:
                self._channel.check_not_refused("join")
                if shared.links().up or refused:
                    began = began or trio.current_time()
                    if trio.current_time() - began > shared.options.handshake_timeout:
                        if refused:
                            raise self._refused(refused)
                        raise HandshakeError(
                            f"no process linked with {self._channel.name!r} "
                            f"({', '.join(sorted(shared.links().up))}) is in group {group!r}: "
                            "correct the group's name or the address, or found the group on one "
                            "of them"
                        )
            with trio.move_on_after(_LONGEST if for_ever else _LOOK_AGAIN):
                await shared.news()

    def _is_on_the_way(self, present: Collection[str]) -> bool:
        """Whether somebody of whom a member has told is being dialled, and nothing has come of it yet."""
        links = self._channel.shared.status()
        return any(
            link.state in (LinkPhase.DOWN, LinkPhase.DIALLING) and link.error is None
            for name, link in links.items()
            if name not in present
        )

    def _refused(self, refused: dict[str, str]) -> HandshakeError:
        return HandshakeError(
            f"node {self._channel.name!r} cannot join group {self._channel.group!r}: "
            f"{'; '.join(dict.fromkeys(refused.values()))}"
        )

    def _look_for_others(self) -> None:
        """Whoever is linked may not be the one; dial those that it has told of."""
        shared = self._channel.shared
        for name in sorted(shared.known):
            shared.want(name)
