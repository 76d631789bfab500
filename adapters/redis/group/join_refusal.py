"""Which contact has refused a first join since its server holds what is not replicated.

It is kept over restarts: the next start asks that contact first, whichever others it could ask. Another one, which has
nothing of it, would let the joiner in without a word about what the operator was told of.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from crdtcast.exceptions import ConfigurationError
from crdtcast.journal.atomic_file import replace_file


class JoinRefusal:
    """The file `<state-dir>/<name>.refused`: the contact's name, as long as no join has succeeded since."""

    def __init__(self, state_dir: Path, name: str) -> None:
        self._path = state_dir / f"{name}.refused"

    def contact(self) -> str:
        """The contact's name; empty if there was no refusal. Raises ConfigurationError."""
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
        """Durable when this returns. Raises ConfigurationError."""
        try:
            replace_file(self._path, contact.encode())
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {self._path}: {error.strerror}: use a writable --state-dir"
            ) from error

    def forget(self) -> None:
        """A join has succeeded. A file that cannot be removed only delays a next first join."""
        with suppress(OSError):
            self._path.unlink()
