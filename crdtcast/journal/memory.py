"""A journal for tests and demonstrations: it outlives a member, not its process."""

from collections.abc import Sequence
from typing import ClassVar

from crdtcast.exceptions import ConfigurationError, LocalProtocolError
from crdtcast.journal.interface import Journal, Recovered


class MemoryJournal(Journal):
    """A volatile journal. To continue from it after `close`, in the same process, `load` it again."""

    volatile: ClassVar[bool] = True
    blocks: ClassVar[bool] = False

    def __init__(self) -> None:
        self._snapshot: bytes | None = None
        self._records: list[bytes] = []
        self._appended: list[bytes] = []
        self._compacted: bytes | None = None
        self._run = 0
        self._open = False

    def load(self) -> Recovered:
        """See `Journal.load`. Raises ConfigurationError if it was not closed."""
        if self._open:
            raise ConfigurationError(
                "this in-memory journal is in use: close it, or create another one"
            )
        self._open = True
        self._run += 1
        self._appended, self._compacted = [], None
        return Recovered(self._snapshot, tuple(self._records), run=self._run)

    def append(self, batch: Sequence[bytes]) -> None:
        self._appended += batch

    def compact(self, snapshot: bytes) -> None:
        self._compacted, self._appended = snapshot, []

    def sync(self) -> None:
        """Make what was appended part of the next `load`."""
        if not self._open:
            raise LocalProtocolError("this in-memory journal is not open: load it first")
        if self._compacted is not None:
            self._snapshot, self._records = self._compacted, []
            self._compacted = None
        appended, self._appended = self._appended, []
        self._records += appended

    def close(self) -> None:
        self._open = False

    @property
    def grown(self) -> int:
        return sum(map(len, self._records))
