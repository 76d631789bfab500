"""The format level of a gateway's group: which level is in force, which writes need a higher one, and which members
have sent a message that no program of that level sends.

Where members come and go, the group agrees on the level (docs/protocol.md, *Format level*). Where they are fixed, the
operator sets it with `--format-level`, the same at all gateways.
"""

from __future__ import annotations

import logging
from typing import Any

from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store import effects
from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Dot
from crdtcast.engine import Engine, GroupEngine
from crdtcast.exceptions import ConfigurationError, OutdatedError


def check_stored(where: str, level: int) -> None:
    """Raises OutdatedError if this program does not read the level of stored data. where: names it in the message."""
    if level not in effects.READS:
        raise OutdatedError(
            f"{where} has format level {level}, and this gateway's program reads level "
            f"{effects.READS}: start a gateway that reads level {level}; this one changed nothing"
        )


def check_fixed(level: int | None) -> None:
    """Raises ConfigurationError if this program does not read the operator's level. None: none was set."""
    if level is not None and level not in effects.READS:
        raise ConfigurationError(
            f"format_level is {level}, and this gateway's program reads level {effects.READS}: "
            "choose one of these, the same on all gateways of the group"
        )


class FormatLevel:
    """The level of one group.

    fixed: the operator's level in a group of fixed members (see `check_fixed`); None where members come and go.
    """

    def __init__(self, fixed: int | None, logger: logging.Logger) -> None:
        check_fixed(fixed)
        self._fixed = fixed
        self._log = logger
        self._unreadable: dict[str, tuple[Dot, str]] = {}

    def in_force(self, engine: Engine | GroupEngine) -> int:
        """The level that may be used now."""
        if isinstance(engine, GroupEngine):
            return engine.level
        return effects.READS.lowest if self._fixed is None else self._fixed

    def agreed(self, engine: Engine | GroupEngine) -> int:
        """The level that a program must read to continue from what is stored at this member."""
        return engine.agreed if isinstance(engine, GroupEngine) else self.in_force(engine)

    # Errors for clients

    def refusal(self, engine: Engine | GroupEngine, command: str, level: int) -> ReplyError:
        """The error for a write that needs a level which is not in force, with the remedy."""
        text = f"ERR crdtcast: {command} needs format level {level}, and the group uses {self.in_force(engine)}: "
        if not isinstance(engine, GroupEngine):
            return ReplyError(f"{text}start all gateways of the group with --format-level {level}")
        if lacking := self._who(engine, engine.lacking_level(level)):
            return ReplyError(f"{text}upgrade {lacking}, then run `crdtcast raise`")
        if engine.agreed >= level:
            return ReplyError(f"{text}all members are about to agree on a higher one: try again")
        return ReplyError(f"{text}all members read it: run `crdtcast raise`")

    @staticmethod
    def _who(engine: GroupEngine, members: list[str]) -> str:
        return ", ".join(f"{name_of(x)} (reads level {engine.span_of(x)})" for x in members)

    # Messages of other members

    def refuse(self, engine: Engine | GroupEngine, dot: Dot, error: Exception) -> None:
        """Do not deliver the next message of a member: no program of this level can have sent it."""
        engine.refuse()
        name = name_of(dot.origin)
        if self._unreadable.get(dot.origin, (None,))[0] != dot:
            self._log.error(
                "cannot read message %d of %s, although its group uses format level %d: %s. From "
                "here on this member takes nothing from %s, nor later messages that depend on "
                "it; its writes are not lost, the other members keep them. Check which program "
                "runs as %s, and repair or evict it",
                dot.counter,
                name,
                self.in_force(engine),
                error,
                name,
                name,
            )
        self._unreadable[dot.origin] = dot, str(error)

    def status(self, engine: Engine | GroupEngine) -> dict[str, Any]:
        """The levels as JSON values. lacking: members that do not read the highest level that this program reads."""
        refused = engine.refused
        unreadable = {
            name_of(origin): {"message": dot.counter, "error": error}
            for origin, (dot, error) in self._unreadable.items()
            if origin in refused
        }
        told: dict[str, Any] = {
            "level": self.in_force(engine),
            "agreed": self.agreed(engine),
            "reads": list(effects.READS),
            "unreadable": unreadable,
        }
        if isinstance(engine, GroupEngine):
            told["raisable"] = engine.raisable
            told["lacking"] = {
                name_of(x): list(engine.span_of(x))
                for x in engine.lacking_level(effects.READS.highest)
            }
        return told
