"""Founds a group over links: one process's part in the founding round (`crdtcast.engine.founding`)."""

import logging
from collections.abc import Collection

import trio

from crdtcast.causality.member_id import fresh_incarnation
from crdtcast.engine.founding import Announcement, Begun, FoundingRound, Late
from crdtcast.exceptions import ConfigurationError, NotReadyError
from crdtcast.transport.channel import Channel
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Here

_LOOK = 1.0
"""Seconds between two looks at the links."""
_REPEAT = 10.0
"""Seconds between two log lines that name the missing founders."""
_UNTIL_ALL_HEARD = 1.0
"""Seconds for which a founder with a different list stays, so that the others learn of it, too."""


class GroupFounding:
    """The founding, until the group has started. names: of all founders; the own one may be missing."""

    def __init__(
        self, channel: Channel, names: Collection[str], *, witness: bool, logger: logging.Logger
    ) -> None:
        self._channel = channel
        self._logger = logger
        self._over = trio.Event()
        self._wrong: ConfigurationError | None = None
        self._round = FoundingRound(
            channel.name,
            names,
            lambda previous: fresh_incarnation(channel.name, previous=previous),
            witness=witness,
        )
        channel.on_founding = self._heard
        channel.on_here = self._heard_here
        shared = channel.shared
        for link, here in shared.present(channel.group).items():
            self._heard_here(link, here)
        for link, founding in shared.founders(channel.group).items():
            self._heard(link, founding.announcement)
        self._look()

    async def outcome(self) -> Begun | Late:
        """Return when the group has started; meanwhile log the missing founders.

        Raises ConfigurationError if the founders' lists differ, or two processes have one name; HandshakeError if no
        founder links with this process, and only an operator can change that.
        """
        told = trio.current_time()
        while not self._over.is_set():
            with trio.move_on_after(_LOOK):
                await self._over.wait()
            self._channel.check_not_refused("found")
            if not self._over.is_set() and trio.current_time() >= told + _REPEAT:
                told = trio.current_time()
                self._logger.warning("%s", self.why_not())
        if self._wrong is not None:
            await trio.sleep(_UNTIL_ALL_HEARD)
            raise self._wrong
        assert self._round.outcome is not None
        return self._round.outcome

    @property
    def outcome_now(self) -> Begun | Late | None:
        """The outcome; None while a founder is missing."""
        return self._round.outcome

    def why_not(self) -> NotReadyError:
        """The error that names the founders that are missing."""
        up, missing = self._channel.shared.links().up, self._round.missing()
        away = [name for name in missing if name not in up]
        waits_for = f"a link with {', '.join(away)}" if away else ", ".join(missing)
        return NotReadyError(
            f"group {self._channel.group!r} has not started: {self._channel.name!r} waits for "
            f"{waits_for}: start all founders, and keep them running until the group has started"
        )

    def gone(self, link: Link) -> None:
        """Note that this link is down."""
        self._round.gone(link.name)

    def _heard(self, link: Link, announcement: Announcement) -> None:
        try:
            self._round.heard(link.name, announcement)
        except ConfigurationError as error:
            self._wrong = error
            self._over.set()
        self._look()

    def _heard_here(self, link: Link, here: Here) -> None:
        if here.group_id and here.incarnation is not None:
            self._round.heard_of_group(here.group_id)
            self._look()

    def _look(self) -> None:
        announcement = self._round.announcement()
        if self._round.outcome is not None:
            self._channel.announcement = None  # from now on it announces itself as a member
            self._over.set()
        elif announcement != self._channel.announcement:
            self._channel.announcement = announcement
            self._channel.shared.announce_founding(self._channel.group, announcement)
