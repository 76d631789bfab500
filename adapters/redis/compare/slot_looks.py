"""Compares the slots of one large key, a page at a time: which of them may have another value at a peer.

They need not be of one instant: slots that differ are compared exactly (`comparison`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import msgpack

from crdtcast.adapters.redis.compare.key_digests import DIGEST_BYTES
from crdtcast.adapters.redis.server.steps import Read, taken
from crdtcast.adapters.redis.store.contents import ROWS, Slots
from crdtcast.adapters.redis.store.databases import check_name
from crdtcast.adapters.redis.store.effects import WHOLE, RedisType
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import Worth
from crdtcast.adapters.redis.store.value_pages import ValuePages
from crdtcast.adapters.redis.transfer.row_reads import Subject, reading
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import BEGINNING, PAGE_BYTES, Content
from crdtcast.exceptions import NotReadyError, RemoteProtocolError
from crdtcast.msgpack_limits import unpacked

MOST_SLOTS = 2_000
"""Slots that are examined together."""
_LONGEST_START = 20
"""Most digits of the place at which a page begins."""
Ask: TypeAlias = Callable[[str, bytes], Awaitable[bytes]]
_pack: Callable[[object], bytes] = msgpack.packb


class SlotLook(NamedTuple):
    """One existing slot. size: bytes of it."""

    digest: bytes
    size: int


Looks: TypeAlias = dict[bytes, SlotLook]


class SlotLooks:
    """The slot comparison of one gateway.

    keyspace: returns the current one.
    ask: sends a question to a peer.
    read: reads the gateway's own server.
    """

    def __init__(self, keyspace: Callable[[], Keyspace], ask: Ask, read: Read) -> None:
        self._keyspace = keyspace
        self._ask = ask
        self._read = read

    async def answer(self, question: Sequence[Any]) -> bytes | None:
        """The answer to a peer's question; None if it is another kind of question.

        Raises RemoteProtocolError if the question is invalid, NotReadyError if the server does not answer.
        """
        match question:
            case ["slots" | "differ", bytes(key), *_]:
                _check(key)
        match question:
            case ["slots", bytes(key), int(number), bytes(start)] if number in list(TYPES):
                if not start.isdigit() or len(start) > _LONGEST_START:
                    raise RemoteProtocolError(f"{start!r:.40} is not a position in a value")
                return _pack(await self._page(key, RedisType(number), start))
            case ["differ", bytes(key), int(number), dict(looks)] if number in list(TYPES):
                own = await self._looks(key, RedisType(number), list(looks))
                return _pack([_differing(_decoded(looks), own)])
        return None

    async def candidates(self, peer: str, key: bytes) -> AsyncGenerator[Slots, None]:
        """Slots whose value may differ at a peer, a page at a time. The first page also has all single slots of types
        with only one.
        """
        some: dict[RedisType, list[bytes]] = {}
        left, room = MOST_SLOTS, PAGE_BYTES
        for native in TYPES.values():
            if native.get is None:
                some[native.type] = [WHOLE]
                continue
            async with aclosing(self._of_type(peer, key, native.type)) as differing:
                async for slot, size in differing:
                    if not left or (size > room and left < MOST_SLOTS):
                        yield some
                        some, left, room = {}, MOST_SLOTS, PAGE_BYTES
                    some.setdefault(native.type, []).append(slot)
                    left -= 1
                    room -= size
        yield some

    async def _of_type(
        self, peer: str, key: bytes, type_: RedisType
    ) -> AsyncGenerator[tuple[bytes, int], None]:
        start: bytes | None = BEGINNING
        while start is not None:
            start, own = await self._page(key, type_, start)
            if own:
                match await self._told(peer, ["differ", key, type_, own]):
                    case [[*names]] if set(map(type, names)) <= {bytes}:
                        pass
                    case _:
                        raise RemoteProtocolError(f"{peer} does not report the slots that differ")
                for name in names:
                    if (look := own.get(name)) is not None:
                        yield name, look.size
        start, been = BEGINNING, set[bytes]()
        while start is not None:
            been.add(start)
            match await self._told(peer, ["slots", key, type_, start]):
                case [None | bytes() as start, told] if start not in been:
                    theirs = _decoded(told)
                case _:
                    raise RemoteProtocolError(f"{peer} does not report its slots in order")
            own = await self._looks(key, type_, list(theirs))
            for name in _differing(theirs, own):
                yield name, theirs[name].size

    async def _told(self, peer: str, question: list[Any]) -> list[Any]:
        try:
            answer = unpacked(await self._ask(peer, _pack(question)), ROWS, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise RemoteProtocolError(f"{peer} does not report its slots: {error}") from error
        if isinstance(answer, list) and answer:
            return answer
        raise NotReadyError(f"{peer} does not report its slots")

    async def _page(self, key: bytes, type_: RedisType, start: bytes) -> tuple[bytes | None, Looks]:
        walk = ValuePages(TYPES[type_], self._keyspace().place_of(key, type_), start, MOST_SLOTS)
        page = await taken(walk.page(), self._read)
        if page is None:
            return walk.following, {}
        return walk.following, _looks_at(self._keyspace().exact.over(key, type_, page.content))

    async def _looks(self, key: bytes, type_: RedisType, slots: Sequence[bytes]) -> Looks:
        """Digests of the existing ones."""
        if not slots:
            return {}
        subject = Subject(key, {type_: slots})
        (row,) = await taken(reading([subject], self._keyspace()), self._read)
        return _looks_at((row.contents or {}).get(type_, {}))


def _check(key: bytes) -> None:
    """Raises RemoteProtocolError if it is invalid."""
    try:
        check_name(key)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from error


def _looks_at(content: Content) -> Looks:
    return {slot: _look(slot, worth) for slot, worth in content.items()}


def _look(slot: bytes, worth: Worth) -> SlotLook:
    digest = blake2b(worth, digest_size=DIGEST_BYTES).digest()
    return SlotLook(digest, len(slot) + len(worth))


def _differing(looks: Mapping[bytes, SlotLook], own: Mapping[bytes, SlotLook]) -> list[bytes]:
    """The slots in `looks` that are missing in `own` or differ there."""
    return [slot for slot, look in looks.items() if own.get(slot) != look]


def _decoded(raw: Any) -> Looks:
    """Raises RemoteProtocolError if it is invalid."""
    try:
        looks = {slot: SlotLook(digest, int(size)) for slot, (digest, size) in raw.items()}
        if all(type(slot) is type(look.digest) is bytes for slot, look in looks.items()):
            return looks
    except (ValueError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(f"invalid slots: {error}") from error
    raise RemoteProtocolError("invalid slots")
