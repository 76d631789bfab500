"""The PO-Log: unstable operations with their tags, found by slot, by message, and by the past of a tag.

Rule: no method scans the log. Its unit is the *entry*: what one operation leaves in one slot (the element of a set, the
field of a map; a type without parts has one slot). Baquero, Almeida and Shoker, "Pure Operation-Based Replicated Data
Types", 2017, section 4; the index is ours.
"""

import enum
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, KeysView
from dataclasses import dataclass
from typing import Any, Final

from crdtcast.causality.tags import Dot, Tag


class Everything(enum.Enum):
    """The scope of an operation that touches all slots."""

    EVERYTHING = "everything"


EVERYTHING: Final = Everything.EVERYTHING


@dataclass(slots=True, eq=False)
class Entry:
    """One operation in one slot: the tag of its message, its index in the message, the slot, and the content that it
    left there.
    """

    tag: Tag
    index: int
    slot: Hashable
    content: Any

    def before(self, tag: Tag, index: int) -> bool:
        """Whether this operation happened before operation `index` of the message tagged `tag`."""
        dot = self.tag.dot
        if dot == tag.dot:
            return self.index < index
        return tag.past.get(dot.origin, 0) >= dot.counter


class POLog:
    """The unstable entries of one object.

    Messages of one origin must arrive in the order of their counters (causal delivery guarantees it): then the past of
    a tag is a prefix of every origin's messages.
    """

    __slots__ = ("_origins", "_size", "_slots")

    def __init__(self) -> None:
        self._size = 0
        # An entry hashes by identity and a dict keeps delivery order: iteration is the same for every hash seed.
        self._slots: dict[Hashable, dict[Entry, None]] = {}
        # Ordered by a linked list, not a dict: repeated removal from the front of a dict is quadratic.
        self._origins: dict[str, OrderedDict[int, dict[Entry, None]]] = {}

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry]:
        for messages in self._origins.values():
            for entries in messages.values():
                yield from entries

    @property
    def slots(self) -> KeysView[Hashable]:
        """The slots that hold at least one entry: a live view."""
        return self._slots.keys()

    def in_slot(self, slot: Hashable) -> Collection[Entry]:
        """The entries of one slot in delivery order: a live view, usually of one entry."""
        return self._slots.get(slot, ())

    def of_message(self, dot: Dot) -> list[Entry]:
        """The remaining entries of a message's operations."""
        messages = self._origins.get(dot.origin)
        return [] if messages is None else list(messages.get(dot.counter, {}))

    def before(self, tag: Tag, index: int) -> list[Entry]:
        """All entries that happened before operation `index` of the message tagged `tag`.

        The cost is the entries that it finds, plus one step for each origin.
        """
        found: list[Entry] = []
        for origin, messages in self._origins.items():
            seen = tag.past.get(origin, 0)
            for counter, entries in messages.items():
                if counter > seen:
                    break
                found.extend(entries)
        found.extend(entry for entry in self.of_message(tag.dot) if entry.index < index)
        return found

    def add(self, entry: Entry) -> None:
        slot = self._slots.get(entry.slot)
        if slot is None:
            self._slots[entry.slot] = {entry: None}
        else:
            slot[entry] = None
        origin, counter = entry.tag.dot
        messages = self._origins.get(origin)
        if messages is None:
            messages = self._origins[origin] = OrderedDict()
        message = messages.get(counter)
        if message is None:
            messages[counter] = {entry: None}
        else:
            message[entry] = None
        self._size += 1

    def discard(self, entry: Entry) -> None:
        """Remove an entry that is in the log, with any slot, message and origin that becomes empty."""
        slot = self._slots[entry.slot]
        del slot[entry]
        if not slot:
            del self._slots[entry.slot]
        origin, counter = entry.tag.dot
        messages = self._origins[origin]
        message = messages[counter]
        del message[entry]
        if not message:
            del messages[counter]
            if not messages:
                del self._origins[origin]
        self._size -= 1
        if not self._size:
            self._slots.clear()  # frees the memory of a burst, which deleting keys does not
