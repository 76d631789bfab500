"""Reads after the writes of their commit: which go with a commit, how it asks them, and what their replies become."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commit.replies import in_protocol
from crdtcast.adapters.redis.server.resp import Raw, ReplyError, StatusReply
from crdtcast.adapters.redis.store.effects import Effect, One

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from crdtcast.adapters.redis.clients.client import Request
    from crdtcast.adapters.redis.commit.batch import LocalBatch
    from crdtcast.adapters.redis.commit.plan import Answerable


def _as_it_is(reply: object) -> object:
    return reply


def _as_status(reply: object) -> object:
    return StatusReply(reply) if isinstance(reply, bytes) else reply


def _as_set(reply: object) -> object:
    return frozenset(reply) if isinstance(reply, list) else reply


_SHAPES: dict[str, Callable[[object], object]] = {
    "GET": _as_it_is,
    "EXISTS": _as_it_is,
    "SCARD": _as_it_is,
    "SISMEMBER": _as_it_is,
    "SMISMEMBER": _as_it_is,
    "SMEMBERS": _as_set,
    "TYPE": _as_status,
    "DBSIZE": _as_it_is,
    "SCAN": _as_it_is,
}
"""Reads whose replies hiredis decodes without loss, apart from what this table restores. They go with commits, many
clients' reads in one pipeline, at half the cost of relaying the bytes of each. Any other read goes with a commit only
after requests of its own client there, and its bytes are cut out of the replies.
"""
_ANY_SIZE = frozenset({"SMEMBERS", "SCAN"})
"""Those whose reply may be large: they go only after requests of their own client, and not on keys known as large."""
_LARGE_MEMBERS, _LARGE_BYTES = 16_384, 1 << 20
_REMEMBERED = 10_000
_MOST_WORDS = 1024


class CommitReads:
    """Decides which reads go with commits. It remembers keys whose replies are too large for that."""

    def __init__(self) -> None:
        self.large: OrderedDict[bytes, None] = OrderedDict()
        """Keys with a large reply, past or expected: reads of them are relayed."""

    def is_relayed(self, request: Request, *, behind_own: bool) -> bool:
        """Whether to relay this read instead of adding it to a commit. behind_own: its client has requests in there."""
        command = request.command
        if len(request.args) > _MOST_WORDS or command.denied is not None:
            return True
        if command.tells_deadline:
            return True
        if self.large and any(map(self.large.__contains__, _subjects(request))):
            return True
        return not behind_own and (command.name not in _SHAPES or command.name in _ANY_SIZE)

    def note_large_sets(self, applied: Sequence[Effect]) -> None:
        """Note keys to which these prepared effects add many members: reads of them will be large."""
        for effect in applied if One in map(type, applied) else ():
            if type(effect) is One and len(effect.slots) > _LARGE_MEMBERS:
                self._note(effect.key)

    def shaped(self, request: Answerable, value: object) -> object:
        """The reply to a read as our own value; any other reply unchanged."""
        if request.command.is_read and _is_large(value):
            for subject in _subjects(request):
                self._note(subject)
        shape = _SHAPES.get(request.command.name)
        if shape is None:
            return value
        if type(value) is Raw:
            return in_protocol(value, request.protocol, is_set=shape is _as_set)
        return shape(value)

    def _note(self, key: bytes) -> None:
        self.large[key] = None
        if len(self.large) > _REMEMBERED:
            self.large.popitem(last=False)


def holds_many(size: int) -> bool:
    """Whether requests of so many bytes may hold more members than a reply in a commit may have."""
    return size > _LARGE_MEMBERS  # a member has at least one byte, except the empty one


def add_read(batch: LocalBatch, request: Request) -> None:
    """Add a client's read after what is in the batch so far."""
    plan, command, args = batch.plan, request.command, request.args
    # SORT_RO … BY names only some of the keys that it reads.
    batch.show(() if command.hides_keys else command.keys_of(args))
    if command.name not in _SHAPES or plan.protocol == request.protocol == 3:
        plan.read_as_it_is(request, args, request.protocol)
        return
    if plan.protocol != 2:
        plan.speak(2)
    plan.read(request, args)


def add_read_at_one_instant(batch: LocalBatch, call: Request) -> None:
    """Like `add_read`, for one call of a transaction."""
    batch.plan.atomic = True
    add_read(batch, call)


def _is_large(value: object) -> bool:
    if type(value) is Raw and value[:1] == b"*":
        return int(value[1 : value.index(b"\r")]) > _LARGE_MEMBERS or len(value) > _LARGE_BYTES
    if isinstance(value, list):
        return len(value) > _LARGE_MEMBERS
    if isinstance(value, bytes):
        return len(value) > _LARGE_BYTES
    return type(value) is ReplyError  # the large reply was dropped


def _subjects(request: Answerable) -> Sequence[bytes]:
    """The keys under which a reply's size is remembered; for a command without keys, its name."""
    command = request.command
    return command.keys_of(request.args) or (command.name.encode(),)
