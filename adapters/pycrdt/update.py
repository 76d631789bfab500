"""Updates of Yjs documents, in their first encoding (v1): what an update contains, and what it needs.

An update is a list of *structs* for each client that wrote, then the ranges that it deletes. A struct has a place in
the numbering of its client, its clock: an item of a length, which names the items that it stands between or the part
that it is in, or a hole where something was. The encoding is that of Yjs (`encodeStateAsUpdate`), as yrs reads it.

This file knows no document. It reads every byte, and refuses what is not exactly one update: pycrdt ignores bytes at
the end. It also refuses values in the form of before 2020 (ContentJSON), which pycrdt 0.14 reads wrongly.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

MAX_CLIENT: Final = 2**53 - 1
MAX_CLOCK: Final = 2**32 - 1
MAX_DEPTH: Final = 64
"""Most levels of nested lists and maps in one value: readers are recursive."""

StateVector: TypeAlias = Mapping[int, int]
"""Client -> the number of its clocks that are known, from 0 on."""

GC: Final = 0
DELETED: Final = 1
BINARY: Final = 3
STRING: Final = 4
EMBED: Final = 5
FORMAT: Final = 6
TYPE: Final = 7
ANY: Final = 8
SUBDOCUMENT: Final = 9
SKIP: Final = 10

MAP: Final = 118
"""The first byte of a plain map."""

XML_ELEMENT: Final = 3
XML_HOOK: Final = 5
LAST_TYPE: Final = 6

_HAS_ORIGIN: Final = 0x80
_HAS_RIGHT_ORIGIN: Final = 0x40
_HAS_KEY: Final = 0x20
_KIND: Final = 0x1F


class Id(NamedTuple):
    """The name of one element of a document."""

    client: int
    clock: int


class Struct(NamedTuple):
    """One struct of an update.

    parent: the name of a root, the id of the item that it is in, or None if its neighbours say that.
    key: under which it stands in a map; None in a sequence.
    body: where its content lies in the update.
    """

    clock: int
    length: int
    kind: int
    origin: Id | None
    right_origin: Id | None
    parent: str | Id | None
    key: str | None
    body: slice

    @property
    def end(self) -> int:
        """The clock after it."""
        return self.clock + self.length


@dataclass(slots=True)
class Update:
    """What one update contains.

    structs: of each client, by rising clocks; holes that it leaves out are not in there.
    deletions: of each client, ranges from a clock to before another one.
    """

    encoded: bytes
    deletions_at: int = 0
    """Where the deletions begin in the encoded update."""
    structs: dict[int, list[Struct]] = field(default_factory=dict)
    deletions: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def missing(self, known: Callable[[int], int]) -> "Missing | None":
        """The first thing that it needs and that is neither known nor in itself; None if nothing.

        known: of a client, how many of its clocks are known, from 0 on.
        """
        ends = {client: known(client) for client in self.structs}
        waiting: dict[int, list[int]] = {}
        """Client -> clients whose next struct needs one of its clocks."""
        at = dict.fromkeys(self.structs, 0)
        lacks: dict[int, Missing] = {}
        ready = list(self.structs)
        while ready:
            client = ready.pop()
            structs = self.structs[client]
            end, begun = ends[client], at[client]
            lack = None
            for place in range(begun, len(structs)):
                each = structs[place]
                if each.end > end:
                    lack = _lack(client, each, end, ends, known)
                    if lack is not None:
                        break
                    end = each.end
                at[client] = place + 1
            ends[client] = end
            if lack is not None:
                lacks[client] = lack
                waiting.setdefault(lack.client, []).append(client)
            else:
                lacks.pop(client, None)
            if at[client] > begun:
                ready += waiting.pop(client, ())
        if lacks:
            outside = [lack for lack in lacks.values() if not self._has(lack)]
            return outside[0] if outside else next(iter(lacks.values()))._replace(circular=True)
        for client, ranges in self.deletions.items():
            has = ends.get(client)
            has = known(client) if has is None else has
            for _, until in ranges:
                if until > has:
                    return Missing(client, has, until)
        return None

    def _has(self, lack: "Missing") -> bool:
        """Whether it contains itself what one of its structs waits for."""
        structs = self.structs.get(lack.client, ())
        return any(each.clock < lack.until <= each.end for each in structs)

    def text(self, each: Struct) -> str:
        """The text of a struct that is one."""
        read = _Reader(self.encoded)
        read.at = each.body.start
        return read.text()

    def type_of(self, each: Struct) -> int:
        """Which type a struct with a type makes."""
        kind: int = self.encoded[each.body.start]
        return kind

    def ends(self) -> dict[int, int]:
        """Of each client that wrote in it, the clock after its last struct."""
        return {client: structs[-1].end for client, structs in self.structs.items() if structs}


class Missing(NamedTuple):
    """Clocks of a client that an update needs: from the first unknown one to before `until`.

    circular: the update has them itself, behind what needs them.
    """

    client: int
    known: int
    until: int
    circular: bool = False


def _lack(
    client: int, each: Struct, end: int, ends: dict[int, int], known: Callable[[int], int]
) -> Missing | None:
    """What a struct needs that comes later, or is not there."""
    if each.clock > end:
        return Missing(client, end, each.clock)
    for needed in (each.origin, each.right_origin, each.parent):
        if isinstance(needed, Id):
            if needed.client == client:
                has = max(each.clock, end)
            else:
                found = ends.get(needed.client)
                has = known(needed.client) if found is None else found
            if needed.clock >= has:
                return Missing(needed.client, has, needed.clock + 1)
    return None


class _Reader:
    """Reads numbers and texts one after the other. Raises ValueError, or IndexError at the end of the bytes."""

    __slots__ = ("_left", "_most", "at", "data")

    def __init__(self, data: bytes, most: int = sys.maxsize) -> None:
        self.data: bytes = data
        self.at: int = 0
        self._left = self._most = most

    def count(self, most: int = MAX_CLIENT) -> int:
        """How many pieces follow: they are counted before any of them is read."""
        count = self.number(most)
        self._left -= count
        if self._left < 0:
            raise ValueError(f"it has more than {self._most:,} items, deletions and values")
        return count

    def number(self, most: int = MAX_CLIENT) -> int:
        data, at = self.data, self.at
        byte = data[at]
        if byte < 0x80:
            self.at = at + 1
            return byte
        value, shift = byte & 0x7F, 7
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 56:
                raise ValueError("a number is too long")
        if value > most:
            raise ValueError(f"{value} is beyond {most}")
        self.at = at + 1
        return value

    def signed(self) -> None:
        """Skip a number with a sign: yrs reads 64 bits."""
        for length in range(10):
            if self.data[self.at + length] < 0x80:
                self.at += length + 1
                return
        raise ValueError("a number is too long")

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.data):
            raise IndexError

    def raw(self) -> bytes:
        """Bytes, after their number."""
        length = self.number()
        begin = self.at
        self.skip(length)
        return self.data[begin : self.at]

    def text(self) -> str:
        return self.raw().decode()

    def id(self) -> Id:
        return Id(self.number(), self.number(MAX_CLOCK))

    def sorted_plain(self) -> bytes:
        """A plain value as it is encoded, but with the keys of maps in order."""
        begin = self.at
        kind = self.data[begin]
        if kind not in (MAP, 117):
            self.plain()
            return self.data[begin : self.at]
        self.at += 1
        count = self.number()
        if kind == MAP:
            items: dict[bytes, bytes] = {}
            for _ in range(count):
                key = self.raw()
                items[key] = self.sorted_plain()
            parts = [number(len(key)) + key + item for key, item in sorted(items.items())]
        else:
            parts = [self.sorted_plain() for _ in range(count)]
        return bytes([kind]) + number(len(parts)) + b"".join(parts)

    def plain(self, depth: int = 0) -> None:
        """Skip a plain value, as lib0 encodes any."""
        kind = self.data[self.at]
        self.at += 1
        if kind in (127, 126, 121, 120):
            return
        if kind == 125:
            self.signed()
        elif kind == 124:
            self.skip(4)
        elif kind in (123, 122):
            self.skip(8)
        elif kind == 119:
            self.text()
        elif kind == 116:
            self.raw()
        elif kind in (MAP, 117):
            if depth == MAX_DEPTH:
                raise ValueError(f"a value is nested deeper than {MAX_DEPTH} levels")
            for _ in range(self.count()):
                if kind == MAP:
                    self.text()
                self.plain(depth + 1)
        else:
            raise ValueError(f"{kind} is not a kind of value")


def utf16_length(text: str) -> int:
    """Its length as Yjs counts: characters beyond the 16-bit ones count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def parsed(encoded: bytes, most: int = sys.maxsize) -> Update:
    """What an update contains. Raises ValueError if these bytes are not exactly one update, or have more than so many
    items, deletions and values.
    """
    read = _Reader(encoded, most)
    update = Update(encoded)
    try:
        _structs(read, update)
        update.deletions_at = read.at
        _deletions(read, update)
    except IndexError:
        raise ValueError("it ends too early") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"a text is not UTF-8: {error.reason}") from None
    if read.at != len(encoded):
        raise ValueError(f"it goes on after its end, at byte {read.at:,} of {len(encoded):,}")
    return update


def _structs(read: _Reader, update: Update) -> None:
    for _ in range(read.count()):
        count, client, clock = read.count(), read.number(), read.number(MAX_CLOCK)
        if client in update.structs:
            raise ValueError(f"client {client} occurs twice")
        found: list[Struct] = []
        update.structs[client] = found
        for _ in range(count):
            each = _struct(read, clock)
            if not 0 < each.length <= MAX_CLOCK - clock:
                raise ValueError(f"a struct of client {client} has length {each.length}")
            clock += each.length
            if each.kind != SKIP:
                found.append(each)


def _struct(read: _Reader, clock: int) -> Struct:
    info = read.data[read.at]
    read.at += 1
    kind = info & _KIND
    if kind in (GC, SKIP):
        if info != kind:
            raise ValueError(f"{info} is not a kind of struct")
        begin = read.at
        length = read.number(MAX_CLOCK)
        return Struct(clock, length, kind, None, None, None, None, slice(begin, read.at))
    origin = read.id() if info & _HAS_ORIGIN else None
    right_origin = read.id() if info & _HAS_RIGHT_ORIGIN else None
    parent: str | Id | None = None
    key = None
    if origin is None and right_origin is None:
        of_root = read.number()
        if of_root > 1:
            raise ValueError(f"{of_root} is not a kind of parent")
        parent = read.text() if of_root else read.id()
        if info & _HAS_KEY:
            key = read.text()
    begin = read.at
    length = _content(read, kind)
    body = slice(begin, read.at)
    return Struct(clock, length, kind, origin, right_origin, parent, key, body)


def _content(read: _Reader, kind: int) -> int:
    """Read an item's content; returns its length."""
    if kind == STRING:
        return utf16_length(read.text())
    if kind == DELETED:
        return read.number(MAX_CLOCK)
    if kind == ANY:
        length = read.count(MAX_CLOCK)
        for _ in range(length):
            read.plain()
        return length
    if kind == BINARY:
        read.raw()
    elif kind == EMBED:
        read.text()
    elif kind == FORMAT:
        read.text()
        read.text()
    elif kind == TYPE:
        type_of = read.number()
        if type_of > LAST_TYPE:
            raise ValueError(f"{type_of} is not a type of Yjs")
        if type_of in (XML_ELEMENT, XML_HOOK):
            read.text()
    elif kind == SUBDOCUMENT:
        read.text()
        read.plain()
    else:
        raise ValueError(f"{kind} is not a kind of content")
    return 1


def _deletions(read: _Reader, update: Update) -> None:
    for _ in range(read.count()):
        client, count = read.number(), read.count()
        if client in update.deletions:
            raise ValueError(f"the deletions of client {client} occur twice")
        ranges: list[tuple[int, int]] = []
        update.deletions[client] = ranges
        for _ in range(count):
            begin, length = read.number(MAX_CLOCK), read.number(MAX_CLOCK)
            if not 0 < length <= MAX_CLOCK - begin:
                raise ValueError(f"a deletion of client {client} has length {length}")
            ranges.append((begin, begin + length))


def parsed_vector(encoded: bytes) -> dict[int, int]:
    """A state vector. Raises ValueError if these bytes are not exactly one."""
    read = _Reader(encoded)
    vector: dict[int, int] = {}
    try:
        for _ in range(read.number()):
            client, clock = read.number(), read.number(MAX_CLOCK)
            vector[client] = clock
    except IndexError:
        raise ValueError("it ends too early") from None
    if read.at != len(encoded):
        raise ValueError(f"it goes on after its end, at byte {read.at:,} of {len(encoded):,}")
    return vector


def encoded_deletions(deletions: Mapping[int, Iterable[tuple[int, int]]]) -> bytes:
    """The deletions of an update, in one form for equal ones: by client, joined and by rising clocks."""
    encoded = bytearray()
    clients = 0
    for client, ranges in sorted(deletions.items()):
        joined: list[list[int]] = []
        for begin, end in sorted(ranges):
            if joined and begin <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([begin, end])
        if joined:
            clients += 1
            encoded += number(client) + number(len(joined))
            for begin, end in joined:
                encoded += number(begin) + number(end - begin)
    return number(clients) + bytes(encoded)


def deletes_no_more(
    deletions: Mapping[int, Iterable[tuple[int, int]]],
    known: Mapping[int, Iterable[tuple[int, int]]],
) -> bool:
    """Whether all that the first deletions delete is deleted by the others, too."""
    both = {
        client: [*ranges, *deletions.get(client, ())]
        for client, ranges in ({**dict.fromkeys(deletions, ()), **known}).items()
    }
    return encoded_deletions(both) == encoded_deletions(known)


def number(value: int) -> bytes:
    """A number of 0 or more, as lib0 encodes it: seven bits in each byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def with_sorted_maps(body: bytes, kind: int) -> bytes:
    """The content of an item with plain values, with the keys of maps in order."""
    read = _Reader(body)
    if kind == SUBDOCUMENT:
        read.text()
        return body[: read.at] + read.sorted_plain()
    count = read.number()
    return number(count) + b"".join(read.sorted_plain() for _ in range(count))


def with_sorted_json(body: bytes, kind: int) -> bytes:
    """The content of an embedded object or a format, with the keys of its JSON in order."""
    read = _Reader(body)
    if kind == FORMAT:
        read.text()
    begin = read.at
    value = json.loads(read.text())
    ordered = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return body[:begin] + number(len(ordered)) + ordered
