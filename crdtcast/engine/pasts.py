"""The exact past of a message, from its reduced context and what this member has delivered.

Whatever is stable here lies in the past of every message delivered from now on (that is what stable means), and a dot
of the context that is not stable yet is still stored with its own past. So the past is the least upper bound of the
stable vector and, for each such dot, its past and itself: no walk over the graph of dependencies.
"""

from collections.abc import Iterable

from crdtcast.engine.store import Store
from crdtcast.tags import Dot, Vector


def causal_past(context: Iterable[Dot], store: Store, stable: dict[str, int]) -> Vector:
    """The vector of the past of a message with this reduced context, all of it delivered here."""
    past: dict[str, int] | None = None
    by_origin = store.by_origin
    for origin, counter in context:
        by_counter = by_origin.get(origin)
        stored = by_counter.get(counter) if by_counter is not None else None
        if stored is None:
            continue
        if past is None:
            # The first one lies above most of the stable vector: start from it, not from below.
            past = dict(stored.tag.past)
            for o, n in stable.items():
                if past.get(o, 0) < n:
                    past[o] = n
        else:
            for o, n in stored.tag.past.items():
                if past.get(o, 0) < n:
                    past[o] = n
        if past.get(origin, 0) < counter:
            past[origin] = counter
    return stable if past is None else past
