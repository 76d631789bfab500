"""Limits for unstable data of a member: warnings long before the limit, and what happens at it."""

import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine, Standing
from crdtcast.exceptions import ConfigurationError, CrdtcastError, StoreFullError
from crdtcast.short_repr import shown

_WARNINGS = (0.5, 0.75, 0.9, 1.0)
_AGAIN_BELOW = 0.4
"""Share of the limit below which the warnings start again."""


class WhenFull(enum.Enum):
    """What happens at `Limits.most_bytes`.

    REFUSE: this member sends nothing until others acknowledge, or the operator evicts them.
    EVICT: unreachable members that delay stability are evicted first (by a majority, as always).
    """

    REFUSE = "refuse"
    EVICT = "evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds for the unstable data of a member.

    memory_bytes: payloads in memory; more are stored on disk, if the journal is on disk.
    most_bytes: all unstable data, in memory and on disk, with 1 KiB for each message in addition to its payload.
    when_full: what happens at `most_bytes`.
    """

    memory_bytes: int = 256 * 2**20
    most_bytes: int = 4 * 2**30
    when_full: WhenFull = WhenFull.REFUSE

    def __post_init__(self) -> None:
        for option in ("memory_bytes", "most_bytes"):
            if type(number := getattr(self, option)) is not int or not 0 <= number < 2**63:
                raise ConfigurationError(
                    f"{option} is {shown(number)}: give a number of bytes, 0 to {2**63 - 1:,}"
                )
        if self.memory_bytes > self.most_bytes:
            raise ConfigurationError(
                f"memory_bytes is {self.memory_bytes:,}: use 0 to most_bytes ({self.most_bytes:,})"
            )


class Bound:
    """Watches the unstable data of one member's engine."""

    def __init__(self, limits: Limits, logger: logging.Logger) -> None:
        self.limits = limits
        self._logger = logger
        self._warned = 0
        self._linked: set[str] = set()
        self.attends_from: float = 0.0
        """Bytes from which `check` or `warns` may respond."""
        self._attend()

    def _attend(self) -> None:
        share = _WARNINGS[self._warned] if self._warned < len(_WARNINGS) else 1.0
        self.attends_from = share * self.limits.most_bytes

    def check(self, engine: GroupEngine) -> None:
        """Raises StoreFullError if there is no room for one more message."""
        if engine.held_bytes >= self.limits.most_bytes:
            raise StoreFullError(
                f"{engine.me} cannot store more: it holds {engine.held_bytes:,} bytes of unstable "
                f"messages, its limit; not acknowledged by {self._holders(engine)}: bring them "
                "back, or evict them"
            )

    def warns(self, engine: GroupEngine) -> bool:
        """Whether it is time to `look`, for a warning."""
        return self._warned < len(_WARNINGS) and engine.held_bytes >= self.attends_from

    def look(self, engine: GroupEngine, linked: set[str]) -> list[str]:
        """Warn if it is time to. Returns the members to evict now. linked: names of members within reach."""
        held, most = engine.held_bytes, self.limits.most_bytes
        self._linked = linked
        if held < _AGAIN_BELOW * most:
            self._warned = 0
            self._attend()
            return []
        while self._warned < len(_WARNINGS) and held >= self.attends_from:
            self._warned += 1
            self._attend()
            self._logger.warning(
                "%s holds %s bytes of unstable messages, %d %% of its limit; not acknowledged by "
                "%s",
                engine.me,
                f"{held:,}",
                100 * held // most,
                self._holders(engine),
            )
        if held < most or self.limits.when_full is WhenFull.REFUSE:
            return []
        if engine.standing is not Standing.MEMBER:
            return []
        return [
            holder
            for holder in engine.held_back_by()
            if name_of(holder) not in linked and holder in engine.members.keys() - engine.victims
        ]

    def evicts(self, engine: GroupEngine, holders: Sequence[str]) -> None:
        """Ask the group to evict the holders, if possible."""
        names = ", ".join(holders)
        try:
            engine.evict(*holders)
        except CrdtcastError as error:
            self._logger.warning("cannot evict %s: %s", names, error)
        else:
            self._logger.warning(
                "%s asks to evict %s, which is unreachable: unstable messages fill the store",
                engine.me,
                names,
            )

    def _holders(self, engine: GroupEngine) -> str:
        """Names of the unreachable holders, if any, otherwise of all: messages to reachable ones are always under
        way.
        """
        holders = set(map(name_of, engine.held_back_by()))
        return (
            ", ".join(sorted(holders - self._linked - {name_of(engine.me)} or holders))
            or "no other member"
        )
