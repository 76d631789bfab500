"""Looks at the slots of one large key, a page at a time: which of them may be worth something else at a peer.

They need not be of one instant: what differs is examined exactly (`key_comparison`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import msgpack

from crdtcast.adapters.redis.contents import ROWS
from crdtcast.adapters.redis.databases import check_name, in_home
from crdtcast.adapters.redis.effects import WHOLE, RedisType
from crdtcast.adapters.redis.key_digests import DIGEST_BYTES
from crdtcast.adapters.redis.key_pages import slots_of_a_page
from crdtcast.adapters.redis.key_states import Slots
from crdtcast.adapters.redis.keyspace import Keyspace
from crdtcast.adapters.redis.sizes import weighing
from crdtcast.adapters.redis.steps import Read, Steps, taken
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import BEGINNING, PAGE_BYTES
from crdtcast.adapters.redis.worth import Worth
from crdtcast.exceptions import NotReadyError, RemoteProtocolError
from crdtcast.msgpack_limits import unpacked

MOST_SLOTS = 2_000
"""That are examined together."""
Ask: TypeAlias = Callable[[str, bytes], Awaitable[bytes]]
_pack: Callable[[object], bytes] = msgpack.packb


class SlotLook(NamedTuple):
    """One slot that is there. size: bytes of it."""

    digest: bytes
    size: int


Looks: TypeAlias = dict[bytes, SlotLook]


class SlotLooks:
    """Of one gateway. keyspace: the one in use. ask: a question to a peer. read: own reads."""

    def __init__(self, keyspace: Callable[[], Keyspace], ask: Ask, read: Read) -> None:
        self._keyspace = keyspace
        self._ask = ask
        self._read = read

    async def answer(self, question: Sequence[Any]) -> bytes | None:
        """What a peer has asked; None if it is another question. Raises NotReadyError, RemoteProtocolError."""
        match question:
            case ["slots" | "differ", bytes(key), *_]:
                _check(key)
        match question:
            case ["slots", bytes(key), int(number), bytes(start)] if number in list(TYPES):
                return _pack(await self._page(key, RedisType(number), start))
            case ["differ", bytes(key), int(number), dict(looks)] if number in list(TYPES):
                own = await self._looks(key, RedisType(number), list(looks))
                return _pack([_differing(_decoded(looks), own)])
        return None

    async def candidates(self, peer: str, key: bytes) -> AsyncGenerator[Slots, None]:
        """Slots that may be worth something else at a peer, so many at a time as are a page. Those of types that have
        only one are among the first.
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
                (names,) = await self._told(peer, ["differ", key, type_, own])
                for name in names:
                    if (look := own.get(name)) is not None:
                        yield name, look.size
        start = BEGINNING
        while start is not None:
            start, told = await self._told(peer, ["slots", key, type_, start])
            theirs = _decoded(told)
            own = await self._looks(key, type_, list(theirs))
            for name in _differing(theirs, own):
                yield name, theirs[name].size

    async def _told(self, peer: str, question: list[Any]) -> list[Any]:
        try:
            answer = unpacked(await self._ask(peer, _pack(question)), ROWS, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise RemoteProtocolError(f"{peer} does not tell its slots: {error}") from error
        if isinstance(answer, list) and answer:
            return answer
        raise NotReadyError(f"{peer} does not tell its slots")

    async def _page(self, key: bytes, type_: RedisType, start: bytes) -> tuple[bytes | None, Looks]:
        return await taken(self._page_steps(key, type_, start), self._read)

    def _page_steps(
        self, key: bytes, type_: RedisType, start: bytes
    ) -> Steps[tuple[bytes | None, Looks]]:
        native, home = TYPES[type_], self._keyspace().place_of(key, type_)
        sizes = yield from in_home(home, [[native.size, home.key], weighing(home.key)])
        slots = min(slots_of_a_page(*sizes), MOST_SLOTS)
        (reply,) = yield from in_home(home, [native.page_reading(home.key, start, slots)])
        page = native.page_of(start, reply)
        if page is None:
            return None, {}  # another type stands there
        return page.following, {s: _look(s, worth) for s, worth in page.content.items()}

    async def _looks(self, key: bytes, type_: RedisType, slots: Sequence[bytes]) -> Looks:
        """Of those that are there."""
        if not slots:
            return {}
        return await taken(self._looks_steps(key, type_, slots), self._read)

    def _looks_steps(self, key: bytes, type_: RedisType, slots: Sequence[bytes]) -> Steps[Looks]:
        native, home = TYPES[type_], self._keyspace().place_of(key, type_)
        replies = yield from in_home(home, [native.asking(home.key, slot) for slot in slots])
        found: Looks = {}
        for slot, reply in zip(slots, replies, strict=True):
            if (worth := native.slot_of(reply)) is not None:
                found[slot] = _look(slot, worth)
        return found


def _check(key: bytes) -> None:
    """Raises RemoteProtocolError."""
    try:
        check_name(key)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from error


def _look(slot: bytes, worth: Worth) -> SlotLook:
    digest = blake2b(worth, digest_size=DIGEST_BYTES).digest()
    return SlotLook(digest, len(slot) + len(worth))


def _differing(looks: Mapping[bytes, SlotLook], own: Mapping[bytes, SlotLook]) -> list[bytes]:
    """Which of the former are not the same in the latter."""
    return [slot for slot, look in looks.items() if own.get(slot) != look]


def _decoded(raw: Any) -> Looks:
    """Raises RemoteProtocolError."""
    try:
        looks = {slot: SlotLook(digest, int(size)) for slot, (digest, size) in raw.items()}
        if all(type(slot) is type(look.digest) is bytes for slot, look in looks.items()):
            return looks
    except (ValueError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(f"no looks at slots: {error}") from error
    raise RemoteProtocolError("no looks at slots")
