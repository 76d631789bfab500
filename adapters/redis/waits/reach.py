"""What other regions have of this one, and this one of a session token. Only decisions; `blocked` waits for them."""

from __future__ import annotations

from collections.abc import Iterable

from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Dot, covers
from crdtcast.engine import Engine, Fate, GroupEngine, known_deliveries
from crdtcast.replica.session import Token, token


def holders(engine: Engine | GroupEngine, counter: int) -> int:
    """How many other regions are known to hold the first `counter` messages of this one.

    A region that is down counts as long as it is a member: it has acknowledged them. One without data (a witness), and
    one that the group goes on without, do not count.
    """
    return sum(each >= counter for each in _held(engine))


def held_by(engine: Engine | GroupEngine, others: int) -> int:
    """How many messages of this region so many other regions are known to hold."""
    counters = sorted(_held(engine), reverse=True)
    return counters[others - 1] if others <= len(counters) else -1


def others(engine: Engine | GroupEngine) -> int:
    """How many other regions can hold messages of this one, as far as they have said anything yet."""
    return len(_held(engine))


def _held(engine: Engine | GroupEngine) -> list[int]:
    told = known_deliveries.told(engine, engine.me)
    if isinstance(engine, GroupEngine):
        members, going_on = engine.members, engine.going_on()
        return [n for who, n in told.items() if who in going_on and not members[who].witness]
    return [*told.values()]


def token_of(engine: Engine | GroupEngine, group: str) -> Token:
    """All that this region's server shows, as a token. What is stable is in every region, so it need not be named."""
    stable = engine.stable
    return token(
        group,
        (dot for dot in engine.context if dot.origin in engine.vector and not covers(stable, dot)),
    )


def missing(engine: Engine | GroupEngine, dots: Iterable[Dot]) -> list[Dot]:
    """Those of them that this region has not delivered, and that may exist."""
    return [dot for dot in dots if not _has(engine, dot)]


def _has(engine: Engine | GroupEngine, dot: Dot) -> bool:
    if covers(engine.vector, dot):
        return True
    if not isinstance(engine, GroupEngine):
        return False
    # No counters are kept of ended members that have left, or have settled: these have sent again all that the group
    # lacked. One of which something is lost, or may be, never settles.
    fate = engine.fate(dot.origin)
    if fate is Fate.SETTLED:
        return True
    return isinstance(fate, int) and dot.counter <= fate and dot.origin not in engine.vector


def never(engine: Engine | GroupEngine, dots: Iterable[Dot]) -> str | None:
    """Why this region will not have some missing message; None if it may come."""
    for origin, counter in dots:
        name = name_of(origin)
        if origin == engine.me:
            return (
                f"it has seen more writes of {name} than {name} knows: its server or its files were set back: read "
                "again, and take a new token"
            )
        if isinstance(engine, GroupEngine):
            fate = engine.fate(origin)
            if isinstance(fate, int) and counter > fate:
                return (
                    f"it has seen writes of {name} that the group does not have: {name} was evicted, or its server has "
                    f"lost data: they are lost unless {name} sends them again: read again, and take a new token"
                )
        elif name not in engine.names:
            return f"it has seen writes of {name}, which is not a member of this group: take a new token"
    return None


def described(dots: Iterable[Dot]) -> str:
    """Whose messages these are, for people."""
    return ", ".join(sorted({name_of(dot.origin) for dot in dots}))
