"""The small local file for what must survive the *server*. Written rarely, atomically and with fsync.

It tells a restart whether the server is the one that it left (same run id), which incarnation was the last, and which
durability was promised. The group's secret is never in it.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crdtcast.adapters.redis.group.format_level import check_stored
from crdtcast.exceptions import ConfigurationError
from crdtcast.journal.atomic_file import replace_file
from crdtcast.journal.format import check_format

FORMAT = 2
_ROOM = 4096
"""Bytes; the file is smaller."""


def check_state_directory(directory: Path) -> None:
    """Create the directory if it is missing, and try to write a file to it. Raises ConfigurationError if that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(bytes(_ROOM))
            probe.flush()
    except OSError as error:
        raise _unwritable(directory, error) from error


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"cannot write {path}: {error.strerror}: use a writable --state-dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """Contents of `<state-dir>/<name>.json`."""

    group: str
    name: str
    incarnation: str
    run_id: str
    role: str
    durability: str
    """Name of the `Durability` when the file was written."""
    level: int
    """The format level that a program must read to continue with that server."""
    server: str = ""
    """The server's address, for people."""
    addresses: dict[str, str] = field(default_factory=dict)
    """The last known addresses of other members, by name; only where members come and go."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Keys that this member's join did not copy, by type (`census`)."""
    left: bool = False
    """Whether this incarnation has properly left its group."""
    plain: bool = False
    """With `left`: the server becomes a plain one, or is one already."""
    begun: bool = True
    """False while this incarnation is about to found its group: it has served no client yet."""
    format: int = FORMAT

    def write(self, directory: Path) -> None:
        """Replace the file atomically; durable when this returns. Raises ConfigurationError if that fails."""
        path = directory / f"{self.name}.json"
        try:
            replace_file(path, json.dumps(asdict(self), indent=1).encode())
        except OSError as error:
            raise _unwritable(path, error) from error

    @classmethod
    def read(cls, directory: Path, name: str) -> LocalFile | None:
        """The file of this node, None if it is missing.

        Raises ConfigurationError if it is damaged or written by a newer program, OutdatedError if its level is not
        readable.
        """
        path = directory / f"{name}.json"
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            check_format(str(path), fields.get("format"), FORMAT)
            check_stored(str(path), int(fields["level"]))
            return cls(**fields)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(
                f"cannot read {path}: {error.strerror}: use another --state-dir, or correct its "
                "permissions"
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigurationError(
                f"{path} is damaged ({error}): move it away; the node then starts as a new "
                "incarnation"
            ) from error
