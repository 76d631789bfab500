"""Garbage collection in a process with very many objects: full collections, which look at all of them, become rare."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

SHARE = 0.001
_NEVER = 1 << 30
"""More young collections than ever happen."""


@contextmanager
def rare_full_collections(
    share: float = SHARE, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """While this is entered, Python's full garbage collections take at most `share` of the time.

    For the whole process, which should be mainly a node. CPython makes a full collection whenever the number of objects
    has grown by a quarter. It takes time in proportion to the objects: two to three seconds with a million unstable
    messages, in which nothing else happens. With this the next one waits `1 / share` times as long as the last one
    took. Full collections also skip the objects that exist at the beginning, which mostly come from imports. Young
    collections and everything freed without a collection stay as before; only long-lived cycles are kept for longer.
    """
    usual = gc.get_threshold()
    begun = again_at = clock()

    def collected(phase: str, info: Mapping[str, int]) -> None:
        nonlocal begun, again_at
        if info["generation"] < 2:
            if phase == "stop" and clock() >= again_at:
                gc.set_threshold(*usual)
        elif phase == "start":
            begun = clock()
        else:
            now = clock()
            again_at = now + (now - begun) / share
            gc.set_threshold(*usual[:2], _NEVER)

    gc.freeze()
    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*usual)
        gc.unfreeze()
