"""The interface of a journal: an ordered list of records after a snapshot, and whether anything is missing."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of a journal when it was loaded.

    snapshot: the last durable one, or None.
    records: those appended after it, in order.
    damage: why it is not certain that this is all that ever was durable; empty if it is.
    run: how many times this journal has begun a segment, this time included; it only rises.
    """

    snapshot: bytes | None
    records: tuple[bytes, ...]
    damage: str = ""
    run: int = 1


class Journal(ABC):
    """One writer's journal. `check_journal` of `crdtcast.testing` checks your own implementation.

    `append` and `compact` never block and may be called while `sync` runs in another thread; `sync`, `load` and `close`
    are called by one thread at a time.
    """

    volatile: ClassVar[bool]
    """Whether it is lost with the process."""
    blocks: ClassVar[bool] = True
    """Whether `sync` may take long, so that it belongs into a thread."""

    @abstractmethod
    def load(self) -> Recovered:
        """Open the journal and return its content. Call it once, before anything else.

        Raises ConfigurationError if another process uses it or a newer program wrote it, UnusableInputError if nothing
        in it is usable, JournalError if the disk fails.
        """

    @abstractmethod
    def append(self, batch: Sequence[bytes]) -> None:
        """Add records, which the next `sync` writes. After a crash all of them are there, or none."""

    @abstractmethod
    def compact(self, snapshot: bytes) -> None:
        """Replace everything before by `snapshot`, damage included. The next `sync` writes it."""

    @abstractmethod
    def sync(self) -> None:
        """Block until everything appended before the call is durable.

        Raises JournalError if it fails: none of it counts as durable, and the journal is unusable from then on.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the journal. Unsynced records are dropped."""

    @property
    @abstractmethod
    def grown(self) -> int:
        """Bytes written since the snapshot: how much `compact` would save."""
