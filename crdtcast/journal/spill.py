"""Payloads of messages that are not stable yet, on disk beyond a limit. What is there no restart needs: a
journal has it, or nothing survives the process anyway.
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
"""Shorter payloads stay in memory: what is kept of their messages there is more."""
_FILE_BYTES = 64 * 2**20
"""A file of that size gets no more, and goes when none of its payloads is needed."""


class _File:
    """A file without a name, so that nothing is left of it when the process ends."""

    def __init__(self, directory: Path) -> None:
        with tempfile.TemporaryFile(dir=directory) as file:
            self.descriptor: int = os.dup(file.fileno())
        self.close: Callable[[], object] = weakref.finalize(self, os.close, self.descriptor)
        self.end = 0
        self.needed = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a payload is."""

    file: _File
    offset: int
    size: int


@dataclass(slots=True, unsafe_hash=True)
class Spilled(Message):
    """A message whose payload is on disk, and empty here."""

    place: _Place | None = field(default=None, compare=False, repr=False)

    def loaded(self) -> Message:
        """As it was. JournalError: the disk does not give it back."""
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
    """Files in a directory. above: payloads go there when a store holds more than so many bytes."""

    def __init__(self, directory: Path, above: int) -> None:
        self.above = above
        self.bytes: int = 0
        """Of all payloads that are here."""
        self.failure: OSError | None = None
        """Why the last payload is not here."""
        self._directory = directory
        self._current: _File | None = None

    def put(self, message: Message) -> Message:
        """What to keep in its place: itself, if the disk does not take it."""
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
        """It is not needed any more."""
        place = message.place
        assert place is not None
        self.bytes -= place.size
        place.file.needed -= 1
        if not place.file.needed:
            place.file.close()
            if place.file is self._current:
                self._current = None


class SpillingStore(Store):
    """A `Store` that counts in `bytes` what is in memory. spill: None keeps all of it there. What its engine wants sent
    has to be `loaded` before it leaves.
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
        """With their payloads, from wherever they are."""
        ordered = super().in_order()
        if self.spill is None or not self.spill.bytes:
            return ordered
        return [
            stored._replace(message=stored.message.loaded())
            if type(stored.message) is Spilled
            else stored
            for stored in ordered
        ]
