"""The index of the deadlines that a database had before a gateway took it over.

It is made in steps while clients write. A step takes some keys of the server's SCAN, gives each of them that has a
deadline its entry, and notes where the next step begins: all at one instant, behind everything else of a commit. So a
key has its entry, or no step has come to it. A write in between looks at the key, and makes the entry by itself.

    adopting    hash, while steps are left: `run`, the run of the server whose cursor counts; `at`, where the next step
                begins; `seen`, the keys passed so far; `total`, the keys when the gateway took over

Another run of the server has other cursors: then the steps begin again, and find most entries made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crdtcast.adapters.redis.adoption.left_out import LUA_LEFT_OUT, LeftOut
from crdtcast.adapters.redis.deadlines.index import COMMON, MINE
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.group.status import AdoptionStatus

ADOPTING = b"adopting"
AT_ONCE = 250
"""Keys of one step: a client's write waits for about 2 ms."""

# seen: SCAN returns keys in no order, perhaps twice. A deadline that a gateway has postponed, in a database that is a
# copy of another server's, is set again.
_STEP = (
    COMMON
    + LUA_LEFT_OUT
    + b"""
local of, cursor, count, next = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local mine = ARGV[7]
local types, patterns = kept_types_and_patterns(8)
to(of)
local page = redis.call('SCAN', cursor, 'COUNT', count)
local buckets, due, far, made = {}, {}, {}, 0
for _, key in ipairs(page[2]) do
  local at = ends(key)
  if at >= 0 and types[redis.call('TYPE', key).ok] and not is_left_out(key, patterns) then
    local name = key
    if of > 0 or string.byte(key) == 255 then name = string.char(255, of) .. key end
    local second = text(math.floor(unpinned(at) / 1000))
    local entries = buckets[second]
    if not entries then
      entries = {}
      buckets[second] = entries
      due[#due + 1], due[#due + 2] = second, second
    end
    entries[#entries + 1], entries[#entries + 2] = name, mine
    made = made + 1
    if at >= pin then far[#far + 1] = {name, key, unpinned(at)} end
  end
end
to(db)
for second, entries in pairs(buckets) do
  for i = 1, #entries, 1000 do
    index('HSET', 'due:' .. second, unpack(entries, i, math.min(i + 999, #entries)))
  end
end
for i = 1, #due, 1000 do
  index('ZADD', 'due', unpack(due, i, math.min(i + 999, #due)))
end
local loose = {}
for _, each in ipairs(far) do
  if not index('HGET', 'pinned', each[1]) then loose[#loose + 1] = each end
end
local at = page[1] ~= '0' and text(of) .. ':' .. page[1] or next
if at == '' then
  redis.call('DEL', 'adopting')
else
  redis.call('HSET', 'adopting', 'at', at)
  redis.call('HINCRBY', 'adopting', 'seen', #page[2])
end
to(of)
for _, each in ipairs(loose) do set(each[2], each[3]) end
to(0)
return {at, #page[2], made}
"""
)


@dataclass(slots=True)
class AdoptedIndex:
    """How far the index is made.

    run: the server's run.
    at: where the next step begins, `database:cursor`; empty: every deadline has its entry.
    """

    run: str
    at: bytes
    seen: int
    total: int
    made: int = 0
    """Entries made by this process."""

    @classmethod
    def read(cls, rows: Sequence[bytes], run: str, databases: Sequence[int]) -> AdoptedIndex | None:
        """From the hash `adopting`; None if that is missing. Begins again if it is of another run of the server.

        databases: those that have keys with deadlines.

        Raises ValueError if the hash is damaged.
        """
        if not rows:
            return None
        told = dict(zip(rows[::2], rows[1::2], strict=True))
        try:
            if told[b"run"].decode() == run:
                db, _, cursor = told[b"at"].partition(b":")
                int(db), int(cursor)
                return cls(run, told[b"at"], int(told[b"seen"]), int(told[b"total"]))
            return cls(run, b"%d:0" % min(databases, default=0), 0, int(told[b"total"]))
        except KeyError as error:
            raise ValueError(f"its field {error} is missing") from error

    @property
    def is_whole(self) -> bool:
        """Whether every deadline has its entry."""
        return not self.at

    @property
    def fields(self) -> list[bytes]:
        """The fields of the hash `adopting`."""
        numbers = b"%d" % self.seen, b"%d" % self.total
        return [
            b"run",
            self.run.encode(),
            b"at",
            self.at,
            b"seen",
            numbers[0],
            b"total",
            numbers[1],
        ]

    def step(
        self, metadata_db: int, offset_ms: int, databases: Sequence[int], left_out: LeftOut
    ) -> list[bytes]:
        """The next step. databases: all of the clients."""
        db, _, cursor = self.at.partition(b":")
        following = next((each for each in databases if each > int(db)), None)
        further = b"" if following is None else b"%d:0" % following
        numbers = b"%d" % metadata_db, b"%d" % offset_ms
        words = db, cursor, b"%d" % AT_ONCE, further, MINE
        return [b"EVAL", _STEP, b"0", *numbers, *words, *left_out.words(BY_NAME)]

    def stepped(self, reply: Sequence[Any]) -> None:
        """Take in the reply to a step."""
        self.at, seen, made = reply
        self.seen += seen
        self.made += made

    def outline(self) -> AdoptionStatus | None:
        """For status output; None once the index is whole."""
        if self.is_whole:
            return None
        return AdoptionStatus(self.total, min(self.seen, self.total))


def begun(run: str, total: int, databases: Sequence[int]) -> AdoptedIndex:
    """Nothing of the index is made. databases: those that have keys with deadlines."""
    return AdoptedIndex(run, b"%d:0" % min(databases), 0, total)
