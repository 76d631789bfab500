"""Garbage collection in a process with very many objects: collections become rarer, most of all full ones, which look
at all of them.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

SHARE = 0.001
_NEVER = 1 << 30
"""More young collections than ever happen."""
_YOUNG = 10_000, 3
"""New objects for a young collection, and young collections for one of what these have left, which takes 2 ms then.
What a message needs until it is stable is mostly gone by then, and no collection ever looks at it.
"""
_OFTEN = 2
"""Collections of the second kind for a full one: about as many objects as with CPython's own thresholds."""


@contextmanager
def rare_full_collections(
    share: float = SHARE, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """While this is entered, Python's full garbage collections take at most `share` of the time.

    For the whole process, which should be mainly a node. CPython makes a full collection whenever the number of objects
    has grown by a quarter. It takes time in proportion to the objects: two to three seconds with a million unstable
    messages, in which nothing else happens. With this the next one waits `1 / share` times as long as the last one
    took. Full collections also skip the objects that exist at the beginning, which mostly come from imports. Young
    collections come after 10,000 new objects, not 700, unless the process has set more, or none. Everything freed
    without a collection stays as before; only cycles are kept for longer.
    """
    usual = gc.get_threshold()
    young, often = _YOUNG, _OFTEN
    if not 0 < usual[0] < young[0]:
        young, often = usual[:2], usual[2]
    begun = again_at = clock()

    def collected(phase: str, info: Mapping[str, int]) -> None:
        nonlocal begun, again_at
        if info["generation"] < 2:
            if phase == "stop" and clock() >= again_at:
                gc.set_threshold(*young, often)
        elif phase == "start":
            begun = clock()
        else:
            now = clock()
            again_at = now + (now - begun) / share
            gc.set_threshold(*young, _NEVER)

    gc.freeze()
    gc.set_threshold(*young, often)
    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*usual)
        gc.unfreeze()
