"""Reads behind the writes of their commit: which go with it, how they are asked there, what their replies become."""

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
"""Reads of which hiredis loses nothing that the table does not give back. They go along with the commits, many clients'
in one pipeline, at half the price of passing each one's bytes. Any other goes with a commit only behind what its own
client has there, and its bytes are cut out of the replies.
"""
_ANY_SIZE = frozenset({"SMEMBERS", "SCAN"})
"""Of these, reads whose reply may be large: only behind their own client's writes, and not on keys known as large."""
_LARGE_MEMBERS, _LARGE_BYTES = 16_384, 1 << 20
_REMEMBERED = 10_000
_MOST_WORDS = 1024


class CommitReads:
    """Which reads go with commits; it remembers the keys about which replies are too large for that."""

    def __init__(self) -> None:
        self.large: OrderedDict[bytes, None] = OrderedDict()
        """Keys about which a reply was, or will be, so large that it is relayed from then on."""

    def is_relayed(self, request: Request, *, behind_own: bool) -> bool:
        """Whether this read goes past the commits. behind_own: its client has something in this one."""
        command = request.command
        if len(request.args) > _MOST_WORDS or command.denied is not None:
            return True
        if command.tells_deadline:
            return True
        if self.large and any(map(self.large.__contains__, _subjects(request))):
            return True
        return not behind_own and (command.name not in _SHAPES or command.name in _ANY_SIZE)

    def note_large_sets(self, applied: Sequence[Effect]) -> None:
        """These effects were prepared: a read of what they add many members to will be large."""
        for effect in applied if One in map(type, applied) else ():
            if type(effect) is One and len(effect.slots) > _LARGE_MEMBERS:
                self._note(effect.key)

    def shaped(self, request: Answerable, value: object) -> object:
        """What a read has given, as a value of our own; as it is for any other request."""
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
    return size > _LARGE_MEMBERS  # a member has a byte at least, but for the empty one


def add_read(batch: LocalBatch, request: Request) -> None:
    """Ask it behind what is in the batch by now."""
    plan, command, args = batch.plan, request.command, request.args
    batch.increments.show(command.keys_of(args))
    if command.name not in _SHAPES or plan.protocol == request.protocol == 3:
        plan.read_as_it_is(request, args, request.protocol)
        return
    if plan.protocol != 2:
        plan.speak(2)
    plan.read(request, args)


def add_read_at_one_instant(batch: LocalBatch, call: Request) -> None:
    """The same, for one call of a transaction."""
    batch.plan.atomic = True
    add_read(batch, call)


def _is_large(value: object) -> bool:
    if type(value) is Raw and value[:1] == b"*":
        return int(value[1 : value.index(b"\r")]) > _LARGE_MEMBERS or len(value) > _LARGE_BYTES
    if isinstance(value, list):
        return len(value) > _LARGE_MEMBERS
    if isinstance(value, bytes):
        return len(value) > _LARGE_BYTES
    return type(value) is ReplyError  # it was dropped


def _subjects(request: Answerable) -> Sequence[bytes]:
    """What a reply's size is remembered by: the keys, or the name of a command that has none."""
    command = request.command
    return command.keys_of(request.args) or (command.name.encode(),)
