"""A row for each write: all that the gateway knows about a command that changes keys. A family's file lists its
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from crdtcast.adapters.redis.clients.large_request import slots_of
from crdtcast.adapters.redis.commands.errors import may_hold, refused_for_its_type
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.recorded.record import ServerLook
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import Effect, Opcode, RedisType
from crdtcast.adapters.redis.types.native import NOTHING, NativeType

Keys: TypeAlias = tuple[int, int, int]
"""Positions of a command's keys: the first, the last (negative: from the end) and the step; all 0 if there are none."""
NO_KEY: Keys = (0, 0, 0)
ONE_KEY: Keys = (1, 1, 1)
ALL_KEYS: Keys = (1, -1, 1)

BEHIND_KEY = slice(2, None)
NO_SLOTS = slice(0, 0)
IN_PAIRS = slice(2, None, 2)
"""Slots that are each followed by a value."""

Sends: TypeAlias = tuple[Opcode, RedisType | None]
"""An effect that a command may send, and on which type; None for whole keys."""
WHOLE_KEY: Sends = (Opcode.KILL_KEY, None)
NEW_KEY: Sends = (Opcode.REPLACE, None)
NEW_TEXT: Sends = (Opcode.ASSIGN, RedisType.STRING)
ENDS_KEY: frozenset[Sends] = frozenset((WHOLE_KEY, NEW_KEY, NEW_TEXT))
DEADLINE: Sends = (Opcode.UNTIL, None)

Plain: TypeAlias = Callable[[LocalBatch, Answerable], bool]
"""Adds the effects of a request, and its answer, to the batch, and returns True. Returns False, and changes nothing, if
the server must be asked about the key first.
"""
Looks: TypeAlias = Callable[[Sequence[bytes]], ServerLook]
"""The reads in the same step as a write, by its arguments."""
Derive: TypeAlias = Callable[[Sequence[bytes], Any, Any], Sequence[Effect]]
"""The effects of a command that the server has executed and not refused: by its arguments, its reply, and what its look
found before.
"""


def removes(native: type[NativeType]) -> Plain:
    """`COMMAND key slot [slot …]`: removes slots of one type as far as this replica has seen them."""

    def remove(batch: LocalBatch, request: Answerable) -> bool:
        key = request.args[1]
        if not may_hold(batch, key, native):
            return refused_for_its_type(batch, request)
        if batch.keyspace.known(key) is NOTHING:
            batch.plan.answer_with(request, 0)
        else:
            batch.plan.answer_from(request, batch.remove(key, native.type, slots_of(request.args)))
        return True

    return remove


def key_places(keys: Keys, numbered: int, args: Sequence[bytes]) -> list[int]:
    """Positions of the keys among a command's arguments. numbered: see `WriteCommand`."""
    first, last, step = keys
    places: list[int] = []
    if first:
        places += range(first, last + 1 if last >= 0 else len(args) + last + 1, step)
    if numbered and numbered < len(args) and args[numbered].isdigit():
        begin = numbered + 1
        places += range(begin, min(begin + int(args[numbered][:9]), len(args)))
    return places


class WriteCommand(NamedTuple):
    """arity: as in the server's own table: with the name, negative for "at least".

    A command with `plain` is decided before EXEC. One with only `derive` is executed by the server, and recorded. So is
    one with both, if it follows a recorded command or its `plain` cannot know what it finds.
    """

    name: str
    arity: int
    sends: tuple[Sends, ...]
    """All effects that it may send, which give its format level."""
    plain: Plain | None = None
    sends_recorded: tuple[Sends, ...] = ()
    """Further effects that it may send if the server executes it."""
    keys: Keys = ONE_KEY
    numbered: int = 0
    """Position of the number of further keys, which follow it; 0: there are none."""
    slots: slice = BEHIND_KEY
    """Which arguments are slots, if it writes slots of its one key."""
    grows: bool = False
    """Whether it needs memory."""
    derive: Derive | None = None
    looks_at: Looks | None = None
    records: Callable[[Sequence[bytes]], bool] | None = None
    """Whether only the server can decide a call with these arguments, although `plain` decides the others."""
    idle: bool | Callable[[Sequence[bytes]], bool] = False
    """Whether a null reply, 0, or no elements means that it has written nothing."""
    begins: tuple[int, ...] = (1,)
    """Positions of keys that it may create. Writes on whole keys may create any."""
    divides: int = 0
    """How many words after the key belong together, if the command can be executed in pieces; 0: it cannot."""
    empties: bool = False
    """Whether it may remove the last slots of a key, without ending all that is under it."""
    draws: Callable[[Sequence[bytes]], int] | None = None
    """How many slots `plain` takes at random, by its arguments; 0 if only the server can decide them."""
    flushes: bool = False
    """Whether it empties a database."""
    crosses: bool = False
    """Whether one of its words names another database."""
    refuses: Callable[[Sequence[bytes]], ReplyError | None] | None = None
    """The error for arguments that cannot be executed."""
    shape: Callable[[Sequence[bytes], Any], Any] | None = None
    """The form of its reply, if a script gets it in a different one: from its arguments and what the script gets."""
    took: Callable[[Sequence[bytes], Any, Any], Contents | None] | None = None
    """What it removed or overwrote, if the key existed, None if that is not known: from its arguments, its reply, and
    what its look found.
    """
    timed: Callable[[Sequence[bytes], int], Sequence[bytes] | ReplyError] | None = None
    """For a command that may set a deadline: the command with an absolute one, in milliseconds since the epoch, by its
    arguments and the server's time; or the error in it.
    """

    @property
    def level(self) -> int:
        """The format level that introduced all that it may send."""
        return max(map(effects.LEVELS.__getitem__, (*self.sends, *self.sends_recorded)))

    @property
    def removes_keys(self) -> bool:
        """Whether it removes whole keys, and does nothing else."""
        return self.sends == (WHOLE_KEY,)

    @property
    def looks(self) -> bool:
        """Whether its `plain` must know what its key holds. Writes on whole keys need not."""
        return self.plain is not None and (WHOLE_KEY not in self.sends or DEADLINE in self.sends)

    @property
    def replaces(self) -> bool:
        """Whether its `plain` replaces the key whatever that holds, also one that has a deadline."""
        return self.plain is not None and NEW_TEXT in self.sends

    @property
    def type(self) -> RedisType | None:
        """The type that it writes; None if it only removes keys."""
        return next((type_ for _, type_ in self.sends if type_ is not None), None)

    @property
    def removes_slots(self) -> bool:
        """Whether its key may be empty afterwards, which only the server knows."""
        return any(opcode is Opcode.KILL_SLOTS for opcode, _ in self.sends)

    @property
    def counts(self) -> bool:
        """Whether it adds to a number that is the whole key."""
        return (Opcode.INC, RedisType.STRING) in self.sends

    @property
    def counts_in(self) -> RedisType | None:
        """The type, other than string, whose slots it counts: its `plain` must know what they hold."""
        if self.plain is None:
            return None
        counted = (type_ for opcode, type_ in self.sends if opcode is Opcode.INC)
        return next((type_ for type_ in counted if type_ is not RedisType.STRING), None)

    @property
    def is_list(self) -> bool:
        """Whether all its arguments after the key go unchanged into one effect, however many."""
        begins_behind_key = self.slots.start == BEHIND_KEY.start
        counts = any(opcode is Opcode.INC for opcode, _ in self.sends)
        return self.looks and begins_behind_key and not counts
