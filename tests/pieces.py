"""Pieces and pages of the gateways under test: with `ci` an eighth of the program's, so that what takes several of them
is an eighth as large, and proves the same. All gateways that the tests start have the same ones.
"""

import sys

from crdtcast.adapters.redis.store import many_slots
from crdtcast.adapters.redis.types import native
from tests.effort import size

PIECE = size(ci=1 << 12, release=many_slots.PIECE)
PAGE_BYTES = size(ci=1 << 17, release=native.PAGE_BYTES)
MAY_DIFFER = sys.platform == "linux"
"""Elsewhere gateways are started, not forked (`preloaded.py`), and have the program's."""


def use() -> None:
    """Have them in this process, and in those that are forked from it."""
    if MAY_DIFFER:
        _replace("PIECE", many_slots.PIECE, PIECE)
        _replace("PAGE_BYTES", native.PAGE_BYTES, PAGE_BYTES)


def _replace(name: str, before: int, number: int) -> None:
    """Where it is defined, and in modules that have taken it from there."""
    for module in [*sys.modules.values()]:
        if module.__name__.startswith("crdtcast.") and vars(module).get(name) == before:
            setattr(module, name, number)
