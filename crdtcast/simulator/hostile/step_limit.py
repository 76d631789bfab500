"""A limit on the work of one call, in executed lines of the engine, so that an endless loop is found on any machine.

A wall clock would find it only on some machines, and would have false alarms.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import crdtcast.engine
from crdtcast.engine.group import GroupEngine
from crdtcast.simulator.failure import Failure

LINES = 100_000
"""Limit for one call. An honest step of a small group runs some hundreds of lines, seldom some thousands."""
_ENGINE = str(Path(crdtcast.engine.__file__).parent)


class _TooLong(BaseException):
    """Not an Exception, so that no handler on the way takes it for a refusal."""


@contextmanager
def limited(
    what: str, engine_type: type[GroupEngine] = GroupEngine, lines: int = LINES
) -> Iterator[None]:
    """Limit the lines that the engine may run in this context. Raises Failure of the kind `hang` at the limit.

    what: the call, for the failure's text.
    """
    left = lines
    watched = (_ENGINE, inspect.getfile(engine_type))

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "call":
            return count if frame.f_code.co_filename.startswith(watched) else None
        left -= 1
        if left < 0:
            raise _TooLong(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    except _TooLong as place:
        raise Failure("hang", f"{what} runs {lines:,} lines, at {place} last") from None
    finally:
        sys.settrace(before)
