"""Each rule of deadlines that is left out is found by the random schedules (docs/redis-deadlines.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest

from crdtcast.adapters.redis import committer
from crdtcast.adapters.redis.batch import LocalBatch
from crdtcast.adapters.redis.committer import Committer
from crdtcast.adapters.redis.deadlines.atoms import DeadlineLog
from crdtcast.adapters.redis.deadlines.dates import Dates
from crdtcast.adapters.redis.deadlines.index import Move
from crdtcast.adapters.redis.effects import NEVER, KillKey, Only
from crdtcast.adapters.redis.keyspace import Keyspace
from crdtcast.adapters.redis.plan import Plan
from crdtcast.adapters.redis.unstable import UnstableLog
from crdtcast.tags import Tag
from tests import servers
from tests.adapters.redis.test_deadlines_model import ANY, ON_LIMITER, ON_SESSION, Schedule

pytestmark = pytest.mark.process

_SEEDS_TRIED = 400
Patch = pytest.MonkeyPatch


def no_kill_in_front(patch: Patch) -> None:
    patch.setattr(LocalBatch, "_begin", lambda self, key: None)


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
        (no_kill_in_front, ANY, 2),
        (forgets_none, ANY, 3),
        (drops_orphans_early, ANY, 1),
        (no_x_where_moved, ANY, 16),
        (x_behind_the_extension, ON_SESSION, 19),
        (never_reasserts, ON_SESSION, 9),
        (expires_the_deadline, ON_LIMITER, 109),
        (writes_to_the_dropped, ANY, 50),
        (drops_without_x, ANY, 1),
        (latest_of_lt, ANY, 72),
        (removes_the_unseen, ANY, 0),
        (keeps_the_unstable, ANY, 0),
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
