"""The deadlines of keys within one commit: what a look found, what effects make of it, and what the server gets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from crdtcast.adapters.redis.deadlines.atoms import Deadline
from crdtcast.adapters.redis.deadlines.index import (
    BEGINNING,
    MINE,
    OTHER,
    PIN_BELOW_MS,
    DeadlinePlace,
    Due,
    FoundDeadlines,
    GoneDeadline,
    Move,
)
from crdtcast.adapters.redis.store.databases import names_in
from crdtcast.adapters.redis.store.effects import NEVER
from crdtcast.causality.tags import Vector, make_tuple

_MOVED_AT_ONCE = 500
"""Keys of one script."""
_FORGOTTEN_AT_ONCE = 2_000


class Dated:
    """A key that has a deadline, or had one when the commit began. `at` is updated, never computed again: its stable
    part is stored nowhere else.

    is_mine: whether this member has set it.
    bucket: where the index has the key, empty if nowhere.
    is_dropped: the server has dropped the key at its deadline; only an `Expire` may follow, or the end of everything in
        it.
    was_dropped: the server had dropped the key, and the deadline has stayed.
    """

    bucket = b""
    is_dropped = is_new = was_pinned = was_orphan = was_dropped = False

    def __init__(self, at: int, *, is_mine: bool) -> None:
        self.at = at
        self.is_mine = is_mine


class Orphan:
    """A deadline without data. until: once all of this is stable, no effect can need the deadline any more."""

    __slots__ = ("at", "is_mine", "until")

    def __init__(self, at: int, until: Vector, *, is_mine: bool) -> None:
        self.at: int = at
        self.until: Mapping[str, int] = until
        self.is_mine: bool = is_mine


class Dates:
    """Deadlines by key. me: this incarnation, which owns the deadlines that it sets."""

    def __init__(self) -> None:
        self.me: str = ""
        self.offset_ms: int = 0
        """How far an administrator has moved the clock."""
        self.in_use: bool = False
        """Whether the server may hold deadlines: then a look at a key includes its deadline."""
        self.adopts: bool = False
        """Whether keys that this member has taken over may have deadlines without an entry in the index."""
        self._ahead_ms = 0
        """How far the server's clock is ahead of this machine's."""
        self.touched: dict[bytes, Dated] = {}
        self.orphans: dict[bytes, Orphan] = {}
        self.looks_on: DeadlinePlace = BEGINNING
        """Where the next search for dropped keys begins; unless that is the beginning, there may be more now."""
        self.none_of_mine: int = 0
        """The buckets up to this second have been searched, and have no deadline that this member has set."""
        self._may_have_none = 0
        """The same for the round under way, as far as it has come."""
        self.others_tell = False
        """Other members have sent expiries of keys since this was reset."""

    def resume(
        self, me: str, orphans: Mapping[bytes, bytes], delivered: Vector, *, in_use: bool
    ) -> None:
        """Continue from what the server holds. delivered: the vector."""
        self.me, self.in_use = me, in_use
        until = dict(delivered)
        for key, raw in orphans.items():
            self.orphans[key] = Orphan(int(raw[:-1]), until, is_mine=raw[-1:] == MINE)

    @property
    def now(self) -> int:
        """The server's TIME, in milliseconds since the epoch."""
        return _clock_ms() + self._ahead_ms

    def told(self, now: int) -> None:
        """Take in the server's TIME."""
        self._ahead_ms = now - _clock_ms()

    def looked(self, now: int, place: DeadlinePlace, found: Sequence[Due]) -> None:
        """Take in a search for dropped keys. place: where the next one continues."""
        self.told(now)
        if self.looks_on == BEGINNING:
            self._may_have_none = now // 1000 - 1
        if any(each.owner == MINE for each in found):
            self._may_have_none = 0
        self.looks_on = place
        if place == BEGINNING:
            self.none_of_mine = self._may_have_none

    def advance(self, by_ms: int) -> None:
        """Move the clock that deadlines are judged by."""
        self.none_of_mine = self._may_have_none = 0
        self.offset_ms += by_ms
        self._ahead_ms += by_ms

    def learn(self, key: bytes, found: FoundDeadlines, now: int) -> None:
        """Take in a look at a key."""
        self.told(now)
        self.touched.pop(key, None)
        orphan = self.orphans.get(key)
        if found.at is not None:
            is_mine = found.owner == MINE or (self.adopts and not found.owner)
            dated = Dated(found.at, is_mine=is_mine)
            dated.was_pinned = found.at - now < PIN_BELOW_MS
        elif found.bucket:
            dated = Dated(int(found.bucket) * 1000, is_mine=found.owner == MINE)
            dated.is_dropped = True
        elif orphan is not None:
            dated = Dated(orphan.at, is_mine=orphan.is_mine)
        else:
            return
        dated.bucket = found.bucket
        dated.was_orphan = orphan is not None
        self.touched[key] = dated

    def recall(self, key: bytes) -> None:
        """A key is replaced without a look at it: note its deadline if it has one without data."""
        orphan = self.orphans.get(key)
        if orphan is not None and key not in self.touched:
            self.touched[key] = dated = Dated(orphan.at, is_mine=orphan.is_mine)
            dated.was_orphan = True

    def learn_due(self, due: Due) -> None:
        """Note that the server has dropped a key."""
        dated = Dated(int(due.second) * 1000, is_mine=due.owner == MINE)
        dated.bucket, dated.is_dropped = due.second, True
        self.touched[due.key] = dated

    def dropped(self) -> list[bytes]:
        """Keys that the server has dropped, and no expiry message (X) has followed."""
        return [key for key, dated in self.touched.items() if dated.is_dropped]

    def at(self, key: bytes) -> int:
        """The deadline of a known key."""
        dated = self.touched.get(key)
        return NEVER if dated is None else dated.at

    def is_dropped(self, key: bytes) -> bool:
        """Whether the server has dropped the key, and no X has followed."""
        dated = self.touched.get(key)
        return dated is not None and dated.is_dropped

    def is_known_again(self, key: bytes) -> None:
        """All that the server dropped with the key has ended."""
        if (dated := self.touched.get(key)) is not None:
            if dated.is_dropped:
                dated.was_dropped = not dated.was_orphan
                dated.is_new = True
                dated.is_dropped = False
            else:
                dated.was_dropped = False

    def set(self, key: bytes, deadline: Deadline | None) -> None:
        """Set the deadline, None for none: the stable part is gone."""
        at = NEVER if deadline is None else deadline.at
        dated = self.touched.get(key)
        if dated is None:
            if at == NEVER:
                return
            dated = self.touched[key] = Dated(NEVER, is_mine=False)
            self.in_use = True
        dated.is_new |= at != dated.at
        dated.was_dropped &= at == dated.at
        dated.at = at
        dated.is_mine = deadline is not None and deadline.dot.origin == self.me

    def replaced(self, key: bytes, at: int, *, is_mine: bool) -> None:
        """A write that has seen all that the key held gives it this deadline."""
        dated = self.touched.get(key)
        if dated is None:
            if at == NEVER:
                return
            dated = self.touched[key] = Dated(NEVER, is_mine=is_mine)
            self.in_use = True
        else:
            self.is_known_again(key)
        dated.is_new |= at != dated.at
        dated.was_dropped &= at == dated.at
        dated.at, dated.is_mine = at, is_mine

    def put(self, key: bytes, at: int) -> None:
        """Set the deadline of a key that was taken over from another member."""
        if key in self.touched or at != NEVER:
            dated = self.touched.setdefault(key, Dated(NEVER, is_mine=False))
            dated.is_new |= dated.at != at
            dated.at, dated.is_mine = at, False
            dated.is_dropped = dated.was_dropped = False
            self.in_use = True

    def moves(self, found: Mapping[bytes, GoneDeadline]) -> Iterator[list[Move]]:
        """The changes that the server must get, some keys at a time. found: keys whose deadline only the server
        knows.
        """
        known = chain(
            [_move(key, self.touched.get(key), gone) for key, gone in found.items()],
            [
                _move(key, dated)
                for key, dated in self.touched.items()
                if key not in found and not dated.is_dropped
            ],
        )
        while some := list(islice(known, _MOVED_AT_ONCE)):
            yield some

    def flushed(self, db: int | None) -> None:
        """Forget all deadlines of a database, or of all: none is left, nor an entry in the index."""
        dated: dict[bytes, Dated] | dict[bytes, Orphan]
        for dated in (self.touched, self.orphans):
            for key in names_in(dated, db):
                del dated[key]

    def pinned(self) -> None:
        """In the middle of a commit, the server got all deadlines, and near ones were postponed."""
        for dated in self.touched.values():
            dated.was_pinned = dated.was_orphan = True
            if not dated.is_dropped:
                dated.bucket = b"" if dated.at == NEVER else b"%d" % (dated.at // 1000)

    def ended(self, key: bytes, deadline: Deadline | None) -> None:
        """A message that is now stored has ended all that was under the key; this deadline counts."""
        if key in self.orphans and key not in self.touched:
            self.touched[key] = dated = Dated(NEVER, is_mine=False)
            dated.was_orphan = True
        if key in self.touched:
            self.set(key, deadline)

    def moved(self, move: Move, found: bytes, delivered: Vector) -> bool:
        """Take in the server's answer to a change. Returns whether the server must be asked before the key is used
        again.

        delivered: the vector now, which is kept.
        """
        self.orphans.pop(move.key, None)
        if not found and move.at is not None:  # the last entry is the newest
            self.orphans[move.key] = Orphan(move.at, delivered, is_mine=move.owner == MINE)
            return True
        return len(found) > 1 or (not found and move.gone is not None)

    def has_unneeded(self, stable: Vector, delivered: Vector) -> bool:
        """Whether any orphans can be forgotten: see `unneeded`."""
        oldest = next(iter(self.orphans.values()), None)
        return oldest is not None and _reaches(stable, delivered, oldest)

    def unneeded(self, stable: Vector, delivered: Vector) -> list[bytes]:
        """Remove and return the orphans whose effects are all stable.

        delivered: the vector without ended and forgotten incarnations.
        """
        gone: list[bytes] = []
        until: Vector | None = None
        for key, orphan in islice(self.orphans.items(), _FORGOTTEN_AT_ONCE):
            if orphan.until is not until and not _reaches(stable, delivered, orphan):
                break
            until = orphan.until
            gone.append(key)
        for key in gone:
            del self.orphans[key]
        return gone


def _reaches(stable: Vector, delivered: Vector, orphan: Orphan) -> bool:
    return all(
        origin not in delivered or stable.get(origin, 0) >= counter
        for origin, counter in orphan.until.items()
    )


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _move(key: bytes, dated: Dated | None, gone: GoneDeadline | None = None) -> Move:
    if dated is None:
        dated = Dated(NEVER, is_mine=False)
    # A command that found no data has ended nothing. Had another one added data, its message would have ended what is
    # kept.
    has_none = dated.at == NEVER or (gone is GoneDeadline.ENDS and not dated.was_orphan)
    move: Move = make_tuple(
        Move,
        (
            key,
            None if has_none else dated.at,
            MINE if dated.is_mine else OTHER,
            dated.bucket,
            dated.was_pinned,
            dated.was_orphan,
            dated.is_new,
            gone,
            dated.was_dropped and gone is None and not has_none,
        ),
    )
    return move
