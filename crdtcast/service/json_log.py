"""Log lines as JSON objects, one a line; and the set-up of a process's log."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import IO

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """time, level, logger, node, message; the fields of `extra`; the traceback of an unexpected error."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message contains."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "node": self._node,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _ORDINARY and k not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, default=str)


def log_to_stderr(node: str, level: str, *, as_json: bool, stream: IO[str] | None = None) -> None:
    """Make the whole process log to stderr, or to `stream`, from this level on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        JsonFormatter(node)
        if as_json
        else logging.Formatter(f"%(asctime)s {node} %(levelname)s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
