"""All states of a small scope."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.engine.designs.views.equivalence import name, tidied
from tests.engine.designs.views.invariants import wrong
from tests.engine.designs.views.scopes import Scope
from tests.engine.designs.views.steps import Deed, begin, steps


@dataclass
class Explored:
    """states: how many there are. failure, trace: the first thing that is wrong, and how it came to it."""

    states: int = 0
    failure: str = ""
    trace: list[str] = field(default_factory=list)


def explore(scope: Scope, told: Callable[[int, int], None] = lambda states, left: None) -> Explored:
    """All states of the scope, or those up to a failure. told: called with how many there were, and are next.

    States are known by their hashes, of 64 bits: with a hundred million of them, two are taken for one in one of four
    thousand explorations.
    """
    layer = [begin(scope)]
    came = {name(layer[0], scope)}
    found = Explored()
    while layer:
        following = []
        for state in layer:
            found.states += 1
            for _, step in steps(state, scope):
                after = tidied(step, scope)
                key = name(after, scope)
                if key in came:
                    continue
                came.add(key)
                if (why := wrong(after, scope)) is not None:
                    found.failure = why
                    found.trace = _way_to(key, scope)
                    return found
                following.append(after)
        layer = following
        told(found.states, len(layer))
    return found


def _way_to(key: int, scope: Scope) -> list[str]:
    """The steps to a state, found by going there once more."""
    ways: dict[int, tuple[int, Deed]] = {}
    layer = [begin(scope)]
    known = {name(layer[0], scope)}
    while key not in ways:
        following = []
        for state in layer:
            before = name(state, scope)
            for deed, step in steps(state, scope):
                after = tidied(step, scope)
                if (reached := name(after, scope)) not in known:
                    known.add(reached)
                    ways[reached] = before, deed
                    following.append(after)
        layer = following
    deeds: list[str] = []
    while key in ways:
        key, deed = ways[key]
        deeds.append(" ".join(map(str, deed)))
    return deeds[::-1]
