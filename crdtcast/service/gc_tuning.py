"""Garbage collections of a process that holds very much: full ones, which look at all of it, are made rare."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

SHARE = 0.001
_NEVER = 1 << 30
"""More young collections than there will be."""


@contextmanager
def rare_full_collections(
    share: float = SHARE, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """While this is entered, Python's full garbage collections take at most `share` of the time.

    For the process as a whole: one that is mainly a node. CPython makes a full collection whenever the objects have
    become a quarter more, and it takes as long as there are objects: two to three seconds with a million unstable
    messages, in which nothing else happens. Here the next one has to wait `1 / share` times as long as the last one
    took; and they do not look at what is there at the beginning, which is mostly what was imported. Young collections,
    and all that is freed without a collection, are as before; what is in cycles that live long is kept for so much
    longer.
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
