"""The contact that refused a first join because its server holds keys that are not replicated.

It is kept over restarts, so that the next start asks that contact first. Another contact, without such keys, would
admit the joiner, and the keys that the operator was warned of would silently be missing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from crdtcast.exceptions import ConfigurationError
from crdtcast.journal.atomic_file import replace_file


class JoinRefusal:
    """The file `<state-dir>/<name>.refused`: the contact's name, until a join succeeds."""

    def __init__(self, state_dir: Path, name: str) -> None:
        self._path = state_dir / f"{name}.refused"

    def contact(self) -> str:
        """The contact's name; empty if none has refused. Raises ConfigurationError if the file cannot be read."""
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"cannot read {self._path} ({error}): delete it, and check the permissions of "
                "--state-dir"
            ) from error

    def note(self, contact: str) -> None:
        """Write the contact's name, durable when this returns. Raises ConfigurationError if that fails."""
        try:
            replace_file(self._path, contact.encode())
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {self._path}: {error.strerror}: use a writable --state-dir"
            ) from error

    def forget(self) -> None:
        """Remove the file after a successful join. If that fails, it only delays a next first join."""
        with suppress(OSError):
            self._path.unlink()
