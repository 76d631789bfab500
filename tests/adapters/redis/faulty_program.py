"""Stands for a gateway that leaves one rule of recorded commands out (docs/redis-recorded.md).

python faulty_program.py FAULT gateway …
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from crdtcast.adapters.redis.group import fixed
from crdtcast.adapters.redis.recorded.answer import ParkedRecord


def takes_the_next_dot() -> None:
    """Another incarnation derives what it finds recorded as a message of its own (R4, R11)."""
    fixed._hand_on = lambda state, inspection, record: (state, inspection, [])


def drops_the_record() -> None:
    """Of an incarnation that has ended, what is recorded is not parked (R11)."""

    def nothing(cls: type[ParkedRecord], record: Any) -> None:
        return None

    ParkedRecord.of = classmethod(nothing)  # type: ignore[method-assign,assignment]


FAULTS: Mapping[str, Callable[[], None]] = {
    each.__name__: each for each in (takes_the_next_dot, drops_the_record)
}


if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    from crdtcast.cli import main

    sys.argv[0] = "crdtcast"
    sys.exit(main())
