"""One row a write: all that the gateway knows of a command that changes keys. A family's file lists its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.recorded.record import ServerLook
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import Effect, Opcode, RedisType

Keys: TypeAlias = tuple[int, int, int]
"""Of a command: the first one's position, the last one's (negative: from the end) and the step; all 0 without any."""
NO_KEY: Keys = (0, 0, 0)
ONE_KEY: Keys = (1, 1, 1)
ALL_KEYS: Keys = (1, -1, 1)

BEHIND_KEY = slice(2, None)
IN_PAIRS = slice(2, None, 2)
"""Each followed by a value."""

Sends: TypeAlias = tuple[Opcode, RedisType | None]
"""An effect that a command may send, and on which type; None for whole keys."""
WHOLE_KEY: Sends = (Opcode.KILL_KEY, None)
NEW_KEY: Sends = (Opcode.REPLACE, None)
NEW_TEXT: Sends = (Opcode.ASSIGN, RedisType.STRING)
ENDS_KEY: frozenset[Sends] = frozenset((WHOLE_KEY, NEW_KEY, NEW_TEXT))
DEADLINE: Sends = (Opcode.UNTIL, None)

Plain: TypeAlias = Callable[[LocalBatch, Answerable], bool]
"""Adds the effects of a request, and its answer, to the batch, and returns True; or returns False, having changed
nothing, when the server must be asked about the key first.
"""
Looks: TypeAlias = Callable[[Sequence[bytes]], ServerLook]
"""What is read in the same step as a write, by its arguments."""
Derive: TypeAlias = Callable[[Sequence[bytes], Any, Any], Sequence[Effect]]
"""The effects of a command that the server has executed and has not refused: from its arguments, its reply, and what
its look before it has found.
"""


class WriteCommand(NamedTuple):
    """arity: as in the server's own table: with the name, negative for "at least".

    A command with `plain` is decided before EXEC. One with `derive` only is executed by the server, and recorded; one
    with both, too, behind another that is, and where its `plain` cannot tell what it would find.
    """

    name: str
    arity: int
    sends: tuple[Sends, ...]
    """All that it may send: what gives its format level."""
    plain: Plain | None = None
    keys: Keys = ONE_KEY
    slots: slice = BEHIND_KEY
    """Which of its arguments are slots, if it writes some of its one key."""
    grows: bool = False
    """Whether it needs memory."""
    derive: Derive | None = None
    looks_at: Looks | None = None
    records: Callable[[Sequence[bytes]], bool] | None = None
    """Which of its calls only the server can decide, although it has `plain` for the others; by their arguments."""
    idle: bool | Callable[[Sequence[bytes]], bool] = False
    """Whether a reply of nothing, 0, or no elements says that it has written nothing."""
    begins: tuple[int, ...] = (1,)
    """Places of keys that may begin with it. Whole keys always do."""
    divides: int = 0
    """How many words behind the key belong together, of a command that can be carried out in pieces; 0: it cannot."""
    empties: bool = False
    """Whether it may take the last of what a key holds, without ending all that is under it."""
    flushes: bool = False
    """Whether it empties a database."""
    crosses: bool = False
    """Whether one of its words tells another database."""
    refuses: Callable[[Sequence[bytes]], ReplyError | None] | None = None
    """Which of its arguments cannot be carried out."""
    shape: Callable[[Sequence[bytes], Any], Any] | None = None
    """What its reply is, where that is not told by what a script gets of it: from its arguments and that."""
    took: Callable[[Any, Any], Contents] | None = None
    """What it took away, or wrote over, of a key that was there: from its reply, and what its look has found."""
    timed: Callable[[Sequence[bytes], int], Sequence[bytes] | ReplyError] | None = None
    """Of a command that may set a deadline: the same with an absolute one, in milliseconds since the epoch, by its
    arguments and the server's time; or what is wrong with it.
    """

    @property
    def level(self) -> int:
        """The format level that has brought in all that it may send."""
        return max(map(effects.LEVELS.__getitem__, self.sends))

    @property
    def removes_keys(self) -> bool:
        """Whether it removes whole keys, and does nothing else."""
        return self.sends == (WHOLE_KEY,)

    @property
    def looks(self) -> bool:
        """Whether its `plain` has to know what its key holds. What is written to whole keys has not."""
        return self.plain is not None and (WHOLE_KEY not in self.sends or DEADLINE in self.sends)

    @property
    def type(self) -> RedisType | None:
        """The type of what it writes; None if it only removes keys."""
        return next((type_ for _, type_ in self.sends if type_ is not None), None)

    @property
    def removes_slots(self) -> bool:
        """Whether its key may be empty behind it, and nobody knows."""
        return any(opcode is Opcode.KILL_SLOTS for opcode, _ in self.sends)

    @property
    def counts(self) -> bool:
        """Whether it adds to the number that a key is."""
        return (Opcode.INC, RedisType.STRING) in self.sends

    @property
    def counts_in(self) -> RedisType | None:
        """The type, not a string, whose slots it counts in: it has to know what they hold."""
        counted = (type_ for opcode, type_ in self.sends if opcode is Opcode.INC)
        return next((type_ for type_ in counted if type_ is not RedisType.STRING), None)

    @property
    def is_list(self) -> bool:
        """Whether all its arguments behind the key go into one effect, as they are, however many."""
        return self.looks and not any(opcode is Opcode.INC for opcode, _ in self.sends)
