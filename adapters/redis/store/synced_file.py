"""How far the server's data was last known to be synced, in a file next to the local one. A server that comes back with
less has lost data that other members may have received. Only where members come and go.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from crdtcast.exceptions import ConfigurationError
from crdtcast.journal.atomic_file import replace_file


@dataclass(frozen=True, slots=True)
class Synced:
    """Contents of `<state-dir>/<name>.synced`. order: see `StoredState`."""

    incarnation: str
    order: int

    def write(self, directory: Path, name: str) -> None:
        """Replace the file; durable when this returns. Raises ConfigurationError if that fails."""
        path = directory / f"{name}.synced"
        try:
            replace_file(path, json.dumps(asdict(self)).encode())
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {path}: {error.strerror}: use a writable --state-dir"
            ) from error

    @classmethod
    def read(cls, directory: Path, name: str) -> Synced | None:
        """None if the file is missing or damaged: then it proves nothing."""
        try:
            fields = json.loads((directory / f"{name}.synced").read_text(encoding="utf-8"))
            return cls(str(fields["incarnation"]), int(fields["order"]))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
