"""Very many slots of one effect. All work on them is done in pieces, so that no other client waits for the whole.

They have three forms: the slots themselves, the words of a native command, and in a payload one string of msgpack
lists, each a piece. `SlotFolding` makes the last form from a client's request, which has the other two; `Unfolding`
makes the other two from a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import hiredis
import msgpack

from crdtcast.adapters.redis.crash_points import crash_point

PIECE = 32_768
"""Slots in one turn of the loop: about ten milliseconds."""
_encode: Callable[[object], bytes] = msgpack.packb
_pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class ManySlots(list[bytes]):
    """All slots.

    encoded: their form in a payload.
    words: their form in a native command, after its name and key.
    """

    __slots__ = ("encoded", "words")

    def __init__(
        self, slots: Iterable[bytes] = (), encoded: bytes = b"", words: bytes | memoryview = b""
    ) -> None:
        super().__init__(slots)
        self.encoded: bytes = encoded
        self.words: bytes | memoryview[int] = words

    @classmethod
    def of(cls, slots: Sequence[bytes]) -> ManySlots:
        """The slots in all forms, made at once."""
        folding = SlotFolding(slots, words_of(slots))
        while not folding.step():
            pass
        return folding.slots


class SlotFolding:
    """Encodes slots of a client's request. Once `step` has returned True, `slots` is complete.

    words: as they came.
    """

    def __init__(self, slots: Sequence[bytes], words: bytes | memoryview) -> None:
        self.slots: ManySlots = ManySlots(slots, words=words)
        self._at = 0
        self._pieces: list[bytes] = []

    def step(self) -> bool:
        """Encode one more piece. Returns whether it was the last one."""
        self._pieces.append(_encode(self.slots[self._at : self._at + PIECE]))
        self._at += PIECE
        if self._at < len(self.slots):
            crash_point("piece-encoded")
            return False
        self.slots.encoded = b"".join(self._pieces)
        return True


class Unfolding:
    """Fills slots that have only the encoded form."""

    def __init__(self, slots: ManySlots, each: int = 1) -> None:
        """each: the number of slots is a multiple of it."""
        self.slots: ManySlots = slots
        self._each = each
        self._lists = msgpack.Unpacker(max_buffer_size=len(slots.encoded), max_array_len=PIECE)
        self._lists.feed(slots.encoded)
        self._pieces: list[bytes] = []

    def step(self) -> bool:
        """Decode one more piece. Returns whether it was the last one.

        Raises ValueError or TypeError if no gateway encoded it.
        """
        room = PIECE
        for piece in self._lists:
            if type(piece) is not list or not piece or set(map(type, piece)) != {bytes}:
                raise TypeError("slots that are not strings")
            self.slots += piece
            self._pieces.append(words_of(piece))
            room -= len(piece)
            if room <= 0:
                break
        if room <= 0 and self._lists.tell() < len(self.slots.encoded):
            crash_point("piece-decoded")
            return False
        complete = self._lists.tell() == len(self.slots.encoded) and self.slots
        if not complete or len(self.slots) % self._each:
            raise ValueError("slots that break off")
        self.slots.words = b"".join(self._pieces)
        return True


def command_of(name: bytes, key: bytes, slots: Collection[bytes]) -> bytes:
    """The native command `name key slot…`, packed."""
    if type(slots) is not ManySlots:
        return _pack((name, key, *slots))
    return b"".join((b"*%d\r\n" % (2 + len(slots)), words_of((name, key)), slots.words))


def words_of(words: Sequence[bytes]) -> bytes:
    """The packed words of a command, without its header."""
    packed = _pack(tuple(words))
    return packed[packed.index(b"\n") + 1 :]
