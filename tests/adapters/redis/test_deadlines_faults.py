"""Each rule of deadlines that is left out is found by the random schedules (docs/redis-deadlines.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from crdtcast.adapters.redis.commit import committer
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.commit.plan import Expect, Plan
from crdtcast.adapters.redis.deadlines.atoms import DeadlineLog
from crdtcast.adapters.redis.deadlines.dates import Dates
from crdtcast.adapters.redis.deadlines.index import (
    ORPHANS,
    FoundDeadlines,
    Move,
    drop_entries,
)
from crdtcast.adapters.redis.recorded import segments
from crdtcast.adapters.redis.recorded.record import RecordEntry
from crdtcast.adapters.redis.store import keyspace
from crdtcast.adapters.redis.store.effects import NEVER, KillKey
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import Only
from crdtcast.adapters.redis.store.unstable import UnstableLog
from crdtcast.causality.tags import Tag, Vector
from tests import servers
from tests.adapters.redis.stage import Stage
from tests.adapters.redis.test_deadlines_model import (
    ANY,
    ON_LIMITER,
    ON_SESSION,
    Schedule,
)

pytestmark = pytest.mark.process

_SEEDS_TRIED = 400
Patch = pytest.MonkeyPatch


def no_kill_in_front(patch: Patch) -> None:
    patch.setattr(LocalBatch, "_begin", lambda self, key: None)


def no_kill_in_front_of_the_recorded(patch: Patch) -> None:
    """The record does not tell that a key was not there."""
    decode = RecordEntry.decode
    patch.setattr(RecordEntry, "decode", lambda *parts: decode(*parts)._replace(fresh=()))


def kills_own_write(patch: Patch) -> None:
    """X follows the client's write that has found the key gone."""
    begin, close = LocalBatch._begin, LocalBatch._close
    dropped: list[bytes] = []

    def begin_dropped(self: LocalBatch, key: bytes) -> None:
        dropped.extend([key] * self.keyspace.dates.is_dropped(key))
        begin(self, key)

    def close_behind(self: LocalBatch) -> None:
        for key in dropped:
            self._seal(key)
            self.expire([key])
        dropped.clear()
        close(self)

    patch.setattr(LocalBatch, "_begin", begin_dropped)
    patch.setattr(LocalBatch, "_close", close_behind)


def leaves_entries(patch: Patch) -> None:
    """A write to a key that the server has dropped does not find its entry in the index."""
    learn = Dates.learn

    def learn_no_bucket(self: Dates, key: bytes, found: FoundDeadlines, now: int) -> None:
        learn(self, key, found, now)
        if self.is_dropped(key):
            self.touched[key].bucket = b""

    patch.setattr(Dates, "learn", learn_no_bucket)


def leaves_entries_of_the_replaced(patch: Patch) -> None:
    """A SET, which does not look at its key, leaves that where the index has it."""
    patch.setattr(keyspace, "drop_entries", lambda *_: (b"ECHO", b""))


def leaves_entries_of_the_dropped(patch: Patch) -> None:
    """The same only if the server has dropped the key."""
    patch.setattr(keyspace, "drop_entries", partial(drop_entries, dropped=False))


def forgets_orphans_of_the_replaced(patch: Patch) -> None:
    """A SET leaves a deadline that its key has without data."""
    patch.setattr(Dates, "recall", lambda self, key: None)


def leaves_entries_in_records(patch: Patch) -> None:
    """The same if the server carries the SET out by itself."""
    patch.setattr(segments, "drop_entries", lambda *_, **__: (b"ECHO", b""))


def forgets_none(patch: Patch) -> None:
    """ "None" is no atom: a concurrent deadline wins over it where it is not stable."""
    set_ = DeadlineLog.set

    def without_none(
        self: DeadlineLog, key: bytes, at: int, only: Only, tag: Tag, stamp: int, place: int
    ) -> Any:
        if at != NEVER:
            return set_(self, key, at, only, tag, stamp, place)
        return self.kill(key, tag)

    patch.setattr(DeadlineLog, "set", without_none)


def drops_orphans_early(patch: Patch) -> None:
    def moved(self: Dates, move: Move, *_: object) -> bool:
        self.orphans.pop(move.key, None)
        return True

    patch.setattr(Dates, "moved", moved)


def drops_orphans_when_stable(patch: Patch) -> None:
    """A deadline without data goes when it is stable itself, whatever else was delivered on its key."""

    def drop(self: Keyspace, stable: Vector, delivered: Vector, plan: Plan) -> None:
        orphans = self.dates.orphans
        gone = [key for key in orphans if key not in self.log.deadlines]
        for key in gone:
            del orphans[key]
            plan.metadata(Expect.INTEGER, b"HDEL", ORPHANS, key)

    patch.setattr(Keyspace, "drop_orphans", drop)


def no_x_where_moved(patch: Patch) -> None:
    def forget(self: LocalBatch, keys: Sequence[bytes], before: Sequence[Tag]) -> None:
        for key in keys:
            self.keyspace.expire(key, self.tag, self.plan, whole=False)

    patch.setattr(LocalBatch, "expire_behind", forget)


def x_behind_the_extension(patch: Patch) -> None:
    expire_behind = LocalBatch.expire_behind
    patch.setattr(
        LocalBatch,
        "expire_behind",
        lambda self, keys, before: expire_behind(self, keys, None),  # type: ignore[arg-type]
    )


def never_reasserts(patch: Patch) -> None:
    patch.setattr(committer, "reassert", lambda *_: None)


def writes_to_the_dropped(patch: Patch) -> None:
    patch.setattr(Dates, "is_dropped", lambda self, key: False)


def drops_without_x(patch: Patch) -> None:
    patch.setattr(Committer, "expire", lambda self, grace_ms: None)


def expires_the_deadline(patch: Patch) -> None:
    """X by the clock takes the deadline along."""

    def expire(self: LocalBatch, keys: Collection[bytes]) -> None:
        for key in keys:
            self._effects.append(KillKey(key))
            self.keyspace.kill_key(key, self.tag, self.plan)

    patch.setattr(LocalBatch, "expire", expire)


def latest_of_lt(patch: Patch) -> None:
    until = Keyspace.until

    def forget(self: Keyspace, key: bytes, at: int, only: Only, *rest: Any) -> None:
        until(self, key, at, Only.ALWAYS, *rest)

    patch.setattr(Keyspace, "until", forget)


def removes_the_unseen(patch: Patch) -> None:
    """FLUSHALL of another region takes what that had not seen, too."""
    kill_all = Keyspace.kill_all

    def all_of_it(self: Keyspace, db: int | None, tag: Tag, plan: Plan) -> None:
        self.log._keys.clear()
        kill_all(self, db, tag, plan)

    patch.setattr(Keyspace, "kill_all", all_of_it)


def keeps_the_unstable(patch: Patch) -> None:
    patch.setattr(UnstableLog, "kill_all", lambda self, db, tag: None)


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    borrowed = [servers.borrow() for _ in range(3)]
    yield [server.port for server in borrowed]
    for server in borrowed:
        servers.give_back(server)


@pytest.mark.parametrize(
    ("fault", "focus", "first"),
    [
        (no_kill_in_front, ANY, 3),
        (no_kill_in_front_of_the_recorded, ANY, 27),
        (kills_own_write, ON_SESSION, 3),
        (leaves_entries, ANY, 1),
        (leaves_entries_of_the_replaced, ANY, 1),
        (leaves_entries_of_the_dropped, ANY, 66),
        (leaves_entries_in_records, ANY, 285),
        (forgets_orphans_of_the_replaced, ANY, 63),
        (forgets_none, ANY, 7),
        (drops_orphans_early, ANY, 1),
        (no_x_where_moved, ANY, 19),
        (x_behind_the_extension, ON_SESSION, 19),
        (never_reasserts, ON_SESSION, 9),
        (expires_the_deadline, ON_LIMITER, 109),
        (writes_to_the_dropped, ANY, 50),
        (drops_without_x, ANY, 1),
        (latest_of_lt, ANY, 84),
        (removes_the_unseen, ANY, 14),
        (keeps_the_unstable, ANY, 14),
    ],
)
def test_fault_is_found(
    ports: list[int],
    monkeypatch: Patch,
    fault: Callable[[Patch], None],
    focus: tuple[int, ...],
    first: int,
) -> None:
    """first: a seed that has found it, from which on others are tried."""
    fault(monkeypatch)
    for seed in range(first, first + _SEEDS_TRIED):
        schedule = Schedule(ports, seed, focus)
        try:
            schedule.run()
        except (AssertionError, KeyError):
            print("found with seed", seed)
            return
        finally:
            schedule.stage.close()
    pytest.fail("no schedule finds it")


def deleted_while_a_deadline_moves(ports: list[int]) -> None:
    """a deletes what b sets a deadline of, and c, which has seen that and not the deletion, writes. Whoever has
    forgotten the deadline by then shows c's write without one.
    """
    stage = Stage(ports, [0, 0, 0])
    a, b, c = stage.sites.values()

    def deliver(*links: tuple[str, str]) -> None:
        stage.collect()
        for link in links:
            while link in stage.waiting():
                stage.arrive(link)
            stage.sites[link[1]].run()
            stage.collect()

    def settle() -> None:
        for _ in range(6):
            deliver(*stage.links)
            for site in (a, b, c):
                site.tick()

    try:
        a.call((b"SADD", b"k", b"x"))
        settle()
        b.call((b"EXPIRE", b"k", b"1000"))
        a.call((b"DEL", b"k"))
        deliver(("b", "c"), ("b", "a"))
        while b"k" in a.committer.keyspace.log.deadlines:  # until it is stable there
            b.tick()
            c.tick()
            deliver(("b", "a"), ("c", "a"), ("b", "c"), ("c", "b"))
            a.tick()
        a.tick()
        c.call((b"SADD", b"k", b"y"))
        settle()
        for site in (a, b, c):
            assert site.server.ask(b"SMEMBERS", b"k") == [b"y"]
            assert site.server.ask(b"PTTL", b"k") > 0, site.name
    finally:
        stage.close()


def test_deadline_without_data_is_kept_while_needed(ports: list[int]) -> None:
    deleted_while_a_deadline_moves(ports)


@pytest.mark.parametrize("fault", [drops_orphans_early, drops_orphans_when_stable])
def test_a_deadline_that_is_dropped_too_early_is_missed(
    ports: list[int], monkeypatch: Patch, fault: Callable[[Patch], None]
) -> None:
    """No schedule in a few thousand finds the second."""
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        deleted_while_a_deadline_moves(ports)
