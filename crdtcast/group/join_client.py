"""The joiner's side of a join. `Joining` is one attempt with one contact: fetch a copy of the application's state, ask
to be admitted, fetch what has happened meanwhile. `JoinClient` decides which member to ask, when to ask another one,
and when to give up.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from itertools import count
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
_WAIT_FOR_SOURCE = 5.0  # and for members being dialled, when all others have refused
MOST_ASKED = 500
"""Bases that a join names as its own earlier attempts, newest first: the rest of what it may replace is the operator's.
"""


class _Partial(NamedTuple):
    """The received part of a copy, and the process that offered it."""

    process: bytes
    offer: Offer
    copied: bytearray


@dataclass(frozen=True, slots=True)
class Wish:
    """The request for admission: see `crdtcast.wire.group_frames.Admit`. copies: whether there is an application."""

    base: str
    replaces: tuple[str, ...]
    witness: bool
    copies: bool


class Joining:
    """One attempt to join. Takes the frames of the dialogue from the channel while it lasts.

    progress: called with the received bytes of the copy, and their total. The share never falls, though a copy may have
        to start again with another contact.
    """

    def __init__(self, channel: Channel, reads: Span = PROGRAM) -> None:
        self.progress: Progress = unseen
        self.asked: bool = False
        """Whether the contact was asked to admit us, so that it may have done so."""
        self.source: str = ""
        """The sender of an incomplete copy: waiting for it saves copying."""
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
        """Return the copy and the admission.

        Raises NotReadyError (ask again), HandshakeError (ask another member), ContactLostError if the link breaks, or
        RemoteProtocolError if an answer is invalid.
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
        """Start an attempt over this link; a newer link may replace it meanwhile."""
        self._link = link
        self._fetcher = Fetcher(lambda frame: self._channel.send_to([link.name], frame))
        if link.closed is not None:
            self._fetcher.lost()
        self.asked = False

    async def _copy(self, link: Link) -> bytes:
        """The whole copy, continued where the last link with the same process broke."""
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


async def _note_nothing(asked: tuple[str, ...]) -> None:
    pass


class JoinClient:
    """Joins a group through any linked member. A contact that was asked to admit us and did not answer may have done
    so: the next one is asked to replace the id of that attempt. A contact that has answered "not yet" has not, so the
    next one is asked under the same id.

    joining: one attempt; by default, with a copy of the state in one piece.
    """

    def __init__(
        self, channel: Channel, logger: logging.Logger, joining: Joining | None = None
    ) -> None:
        self._channel = channel
        self._joining = joining or Joining(channel)
        self._logger = logger
        self._entries = 0
        self._let_in: dict[str, int] = {}  # members that have admitted us, by the last time
        self._said: dict[str, str] = {}  # why others do not admit us
        self.abandoned: set[str] = set()
        """Bases that may have been admitted without an answer, and that a later attempt replaces: they never began."""
        self.before_asking: Callable[[tuple[str, ...]], Awaitable[None]] = _note_nothing
        """Awaited before a contact is asked, with all bases that may be admitted from then on."""

    def report_to(self, progress: Progress) -> None:
        """Set the function to call with the bytes copied, and their total."""
        self._joining.progress = progress

    @property
    def kept_out(self) -> str | None:
        """The reasons of members that refuse us this time, or that no linked process is a member; None if none was
        asked, or one has admitted us.
        """
        if self._said:
            return "; ".join(dict.fromkeys(self._said.values()))
        shared, group = self._channel.shared, self._channel.group
        linked = sorted(shared.links().up)
        if not linked or any(here.group_id for here in shared.present(group).values()):
            return None
        return (
            f"no process linked with {self._channel.name!r} ({', '.join(linked)}) is a member of group {group!r} "
            "now: start a member that has not left"
        )

    def heard(self, link: Link, frame: InGroup) -> None:
        """Take a frame of the dialogue."""
        self._joining.heard(link, frame)

    def gone(self, link: Link) -> None:
        """The peer of that link is not in the dialogue any more, or has become a member."""
        self._joining.gone(link)

    async def enter(
        self,
        replaces: tuple[str, ...],
        witness: bool,
        *,
        copies: bool,
        asked: tuple[str, ...] = (),
        for_ever: bool = False,
    ) -> tuple[bytes, JoinerEntry]:
        """Return the copy and the admission.

        asked: bases of earlier attempts that may have been admitted, oldest first; they are replaced, too. Beyond
            MOST_ASKED the oldest are left out: a request that names too many is not read at all.
        for_ever: ask again whatever the others answer.

        Raises HandshakeError if all linked members have refused, or none of the linked processes is in the group; its
        message is the last refusal.
        """
        name = self._channel.name
        base, last = "", ""
        undecided = ""  # the contact that may have admitted `base`
        refused: dict[str, str] = {}
        unready: dict[str, int] = {}  # contacts that cannot admit us yet, by the last attempt
        stays = waited_for = ""
        delay = _AGAIN
        for attempt in count(1):
            link = await self._contact(stays, refused, unready, for_ever)
            if undecided not in ("", link.name):
                self.abandoned.add(base)
                asked, base, undecided = (*asked, base), "", ""
            if not base:
                base = last = fresh_incarnation(name, previous=last or None)
            asked = asked[-MOST_ASKED:]
            wish = Wish(base, (*replaces, *asked), witness, copies)
            await self.before_asking((*asked, base))
            try:
                copy, entry = await self._joining.through(link, wish)
                self._entries += 1
                self._let_in[link.name] = self._entries
                self._channel.group_id = entry.group_id
                self._said.clear()
                return copy, entry
            except HandshakeError as error:
                self._joining.asked = False  # it has said that it did not admit us
                if undecided:  # or that the incarnation it had admitted has ended
                    self.abandoned.add(base)
                    asked, undecided = (*asked, base), ""
                base = stays = ""
                refused[link.name] = str(error)
                again = self._said.get(link.name) == str(error)
                self._said[link.name] = str(error)
                level = logging.INFO
                if for_ever:  # only the log and the status can show it
                    level = logging.DEBUG if again else logging.WARNING
                self._logger.log(level, "%s refuses our join: %s", link.name, error)
            except NotReadyError as error:
                self._logger.debug("%s cannot accept our join yet: %s", link.name, error)
                self._joining.asked = False
                stays = link.name
                if delay == _LONGEST:
                    if str(error) != waited_for:
                        waited_for = str(error)
                        self._logger.warning("waits to join: %s", error)
                    # It may wait for us: its own join is not stable while it lacks the member that we replace.
                    stays, unready[link.name] = "", attempt
            except ContactLostError:
                self._logger.info("the link with %s broke during our join", link.name)
            except RemoteProtocolError as error:
                refused[link.name] = f"{link.name} sent an invalid answer: {error}"
            if self._joining.asked:
                undecided = stays = link.name
            self._look_for_others()
            await trio.sleep(delay)
            delay = min(2 * delay, _LONGEST)
        raise AssertionError("unreachable")

    async def _contact(
        self, stays: str, refused: dict[str, str], unready: dict[str, int], for_ever: bool
    ) -> Link:
        """The member to ask next, which has not refused yet: `stays` if it is present, or one that is not in `unready`,
        or the one that is there for longest.
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
            # A member that admitted us before may have been cut off with us without knowing it, so that we are out
            # again.
            willing = sorted(
                present.keys() - refused.keys(),
                key=lambda name: (unready.get(name, 0), self._let_in.get(name, 0), name),
            )
            if stays in willing:
                return present[stays]
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
                        raise self._no_member()
            with trio.move_on_after(_LONGEST if for_ever else _LOOK_AGAIN):
                await shared.news()

    def _is_on_the_way(self, present: Collection[str]) -> bool:
        """Whether a member that we learned of is being dialled, without a result yet."""
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

    def _no_member(self) -> HandshakeError:
        """No linked process can admit this one."""
        shared, group = self._channel.shared, self._channel.group
        if outside := shared.outside(group):
            return HandshakeError(
                f"{', '.join(outside)} cannot admit {self._channel.name!r}: not a member of group "
                f"{group!r} yet: start all of its founders, then join"
            )
        return HandshakeError(
            f"no process linked with {self._channel.name!r} ({', '.join(sorted(shared.links().up))}) "
            f"is in group {group!r}: correct the group's name or the address, or found the group on "
            "one of them"
        )

    def _look_for_others(self) -> None:
        """Dial the members that linked ones have named: the linked ones may not admit us."""
        shared = self._channel.shared
        for name in sorted(shared.known):
            shared.want(name)
