"""What a node observes about its peers while it runs, several times in each keep-alive interval: silent members, and
members that hold stability back. It informs, and changes nothing.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crdtcast.causality.member_id import name_of
from crdtcast.engine import Engine, GroupEngine
from crdtcast.engine.core import Core
from crdtcast.engine.failure_detector import FailureDetector, Suspect, Suspected
from crdtcast.engine.stability_lag import HeldBack, Holding
from crdtcast.transport.link import Link

LOOKS = 4
"""Looks per keep-alive interval."""


class Since(NamedTuple):
    """For how many seconds a member has known the open change of its view, and has had its present wish."""

    change: float = 0.0
    want: float = 0.0


@dataclass(slots=True)
class _Begun:
    """A value, and the time since which it lasts."""

    what: object = None
    at: float = 0.0

    def look(self, what: object, now: float) -> float:
        if what != self.what:
            self.what, self.at = what, now
        return now - self.at


class Monitor:
    """Of one endpoint, for all of its groups. interval: of keep-alives, in seconds."""

    def __init__(self, interval: float, logger: logging.Logger) -> None:
        self.period: float = interval / LOOKS
        self._detector = FailureDetector(interval)
        self._holding: dict[str, Holding] = {}
        self._held: dict[str, HeldBack] = {}
        self._begun: dict[str, tuple[_Begun, _Begun]] = {}
        self._since: dict[str, Since] = {}
        self._logger = logger
        self._now = 0.0

    def look(self, now: float, me: str, links: Iterable[Link], engines: Mapping[str, Core]) -> None:
        """Take in what has happened since the last look.

        me: own name.
        links: those whose peers speak for members.
        engines: by group.
        """
        names = {name for engine in engines.values() for name in member_names(engine)}
        self._detector.watch(names - {me}, now)
        for link in links:
            # A paused link is not read, so its peer cannot be heard.
            self._detector.heard(link.name, now if link.paused else link.last_heard)
        for change in self._detector.observe(now):
            if isinstance(change, Suspected):
                live = len(names) - len(names & self._detector.suspects(now).keys())
                self._logger.warning(
                    "%s is silent for %.1f s: suspected (%d members, %d live)",
                    change.peer,
                    change.silence,
                    len(names),
                    live,
                    extra={"peer": change.peer},
                )
            else:
                self._logger.info(
                    "%s speaks again, after %.1f s as a suspect",
                    change.peer,
                    change.after,
                    extra={"peer": change.peer},
                )
        self._holding = {group: self._holding.get(group) or Holding() for group in engines}
        self._held = {group: self._holding[group].look(e, now) for group, e in engines.items()}
        self._look_at_views(now, engines)
        self._now = now

    def _look_at_views(self, now: float, engines: Mapping[str, Core]) -> None:
        self._since = {}
        for group, engine in engines.items():
            if isinstance(engine, GroupEngine):
                change, want = self._begun.setdefault(group, (_Begun(), _Begun()))
                open_view = None if engine.open_change is None else engine.view.name
                wants = engine.wants or None
                self._since[group] = Since(change.look(open_view, now), want.look(wants, now))
        self._begun = {group: begun for group, begun in self._begun.items() if group in engines}

    @property
    def suspects(self) -> dict[str, Suspect]:
        """The suspects, by name, as of the last look."""
        return self._detector.suspects(self._now)

    def held(self, group: str) -> HeldBack:
        """What is held back in a group, and by which members, as of the last look."""
        return self._held.get(group, HeldBack(0.0, {}))

    def since(self, group: str) -> Since:
        """How long the open change and the present wish have lasted, as of the last look."""
        return self._since.get(group, Since())


def member_names(engine: Core) -> set[str]:
    """Names of all members of the engine's group, itself included."""
    if isinstance(engine, GroupEngine):
        return set(map(name_of, engine.members))
    return set(engine.names) if isinstance(engine, Engine) else {name_of(engine.me)}
