"""Payloads of unstable messages, on disk beyond a limit. No restart needs these files: either a journal has the
payloads, or nothing survives the process anyway.
"""

import os
import tempfile
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Tag
from crdtcast.engine.store import KEPT, Store, Stored
from crdtcast.exceptions import JournalError

LEAST = 256
"""Shorter payloads stay in memory: the rest of their message takes more memory than they do."""
_FILE_BYTES = 64 * 2**20
"""A file of that size takes no more payloads, and is deleted when none of them is needed."""


class _File:
    """A file without a name, so that it disappears when the process ends."""

    def __init__(self, directory: Path) -> None:
        with tempfile.TemporaryFile(dir=directory) as file:
            self.descriptor: int = os.dup(file.fileno())
        self.close: Callable[[], object] = weakref.finalize(self, os.close, self.descriptor)
        self.end = 0
        self.needed = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a payload."""

    file: _File
    offset: int
    size: int


@dataclass(slots=True, unsafe_hash=True)
class Spilled(Message):
    """A message whose payload is on disk; `payload` is empty."""

    place: _Place | None = field(default=None, compare=False, repr=False)

    def loaded(self) -> Message:
        """The message with its payload. Raises JournalError if the disk fails."""
        place = self.place
        assert place is not None
        try:
            payload = os.pread(place.file.descriptor, place.size, place.offset)
            if len(payload) < place.size:
                raise OSError("it ends too early")
        except OSError as error:
            raise JournalError(
                f"cannot read the payload of {self.dot} from disk: {error}: repair the disk, and "
                "start the node again"
            ) from error
        return Message(self.dot, self.context, payload, self.kind)


class Spill:
    """Files in a directory. above: a store with more bytes than that in memory spills further payloads."""

    def __init__(self, directory: Path, above: int) -> None:
        self.above = above
        self.bytes: int = 0
        """Size of all payloads on disk."""
        self.failure: OSError | None = None
        """Why the last payload that failed could not be written."""
        self._directory = directory
        self._current: _File | None = None

    def put(self, message: Message) -> Message:
        """Returns what to keep instead of the message: the message itself if the disk fails."""
        payload = message.payload
        try:
            if self._current is None or self._current.end >= _FILE_BYTES:
                self._current = _File(self._directory)
            file = self._current
            if os.pwrite(file.descriptor, payload, file.end) < len(payload):
                raise OSError("the disk is full")
        except OSError as error:
            self.failure = error
            return message
        place = _Place(file, file.end, len(payload))
        file.end += len(payload)
        file.needed += 1
        self.bytes += len(payload)
        return Spilled(message.dot, message.context, b"", message.kind, place)

    def drop(self, message: Spilled) -> None:
        """Its payload is not needed any more."""
        place = message.place
        assert place is not None
        self.bytes -= place.size
        place.file.needed -= 1
        if not place.file.needed:
            place.file.close()
            if place.file is self._current:
                self._current = None


class SpillingStore(Store):
    """A `Store` whose `bytes` count what is in memory. spill: None keeps all payloads in memory. A message must be
    `loaded` before it is sent.
    """

    __slots__ = ("spill",)

    def __init__(self, spill: Spill | None = None) -> None:
        super().__init__()
        self.spill: Spill | None = spill

    @property
    def spilled_bytes(self) -> int:
        return 0 if self.spill is None else self.spill.bytes

    @property
    def held_bytes(self) -> int:
        return self.bytes + self.spilled_bytes + KEPT * self.size

    def add(self, message: Message, tag: Tag, tick: int) -> Stored:
        spill = self.spill
        if spill is not None and self.bytes > spill.above and len(message.payload) >= LEAST:
            message = spill.put(message)
        return super().add(message, tag, tick)

    def remove(self, reported: Collection[Stored]) -> None:
        super().remove(reported)
        if self.spill is not None and self.spill.bytes:
            for stored in reported:
                if type(stored.message) is Spilled:
                    self.spill.drop(stored.message)

    def in_order(self) -> list[Stored]:
        """All messages with their payloads, from memory or disk."""
        ordered = super().in_order()
        if self.spill is None or not self.spill.bytes:
            return ordered
        return [
            stored._replace(message=stored.message.loaded())
            if type(stored.message) is Spilled
            else stored
            for stored in ordered
        ]
