"""Writes on sets (rules H1, H4, H5): add-wins, observed remove. No read is needed: replies come from EXEC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from crdtcast.adapters.redis.clients.large_request import slots_of
from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import may_hold, refused_for_its_type
from crdtcast.adapters.redis.commands.write_command import (
    ALL_KEYS,
    NEW_KEY,
    NO_SLOTS,
    WHOLE_KEY,
    WriteCommand,
    removes,
)
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.recorded.record import ServerLook
from crdtcast.adapters.redis.store.effects import NEVER, Effect, KillSlots, One, Opcode, Replace
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.adapters.redis.types.sets import Set

Args: TypeAlias = Sequence[bytes]

MOST_DRAWN = 100
"""Members of one SPOP that are drawn before the commit. For more the server's own way takes less time."""
_SETS = (NOTHING, Set.here, Set.perhaps)


def sadd(batch: LocalBatch, request: Answerable) -> bool:
    """SADD: each member becomes present; a present one is added again (a concurrent SREM has not seen this add)."""
    args = request.args
    key = args[1]
    if batch.keyspace.types[key] not in _SETS:
        return refused_for_its_type(batch, request)
    members = args[2:] if type(args) is list else slots_of(args)
    batch.plan.from_reply.append((request, batch.add(key, Set.type, members)))
    return True


def _drawn(args: Args) -> int:
    """How many members SPOP takes at random; 0 if the server decides that."""
    if len(args) == 2:
        return 1
    count = integer(args[2]) if len(args) == 3 else None
    return count if count is not None and 0 < count <= MOST_DRAWN else 0


def spop(batch: LocalBatch, request: Answerable) -> bool:
    """SPOP key [count]: removes members that were drawn before the commit."""
    args = request.args
    number = _drawn(args)
    if not number:
        return False
    key = args[1]
    if not may_hold(batch, key, Set):
        return refused_for_its_type(batch, request)
    nothing = None if len(args) == 2 else frozenset[bytes]()
    if batch.keyspace.known(key) is NOTHING:
        batch.plan.answer_with(request, nothing)
        return True
    taken = batch.take_any(key, Set.type, number)
    if taken is None:
        return False
    members, places = taken
    if members:
        value = members[0] if len(args) == 2 else frozenset(members)
        batch.plan.drawn.append((request, places, len(members), value))
    else:
        batch.plan.answer_with(request, nothing)
    return True


def _added(args: Args, _reply: int, _before: None) -> Sequence[Effect]:
    return (One(args[1], Set.type, tuple(args[2:])),)


def _removed(args: Args, reply: int, _before: None) -> Sequence[Effect]:
    return (KillSlots(args[1], Set.type, tuple(args[2:])),) if reply else ()


def _popped(args: Args, reply: bytes | list[bytes] | None, _before: None) -> Sequence[Effect]:
    if not reply and reply != b"":
        return ()
    return (KillSlots(args[1], Set.type, (reply,) if isinstance(reply, bytes) else tuple(reply)),)


def _as_set(args: Args, reply: Any) -> Any:
    """The reply; with a count, as a set."""
    return frozenset(reply) if len(args) > 2 and isinstance(reply, list) else reply


def _moved(args: Args, reply: int, _before: None) -> Sequence[Effect]:
    _, source, target, member = args
    if not reply:
        return ()
    return KillSlots(source, Set.type, (member,)), One(target, Set.type, (member,))


def _stored(args: Args, _reply: int, before: list[bytes] | None) -> Sequence[Effect]:
    """Sends the result by value, because another region may have other sources by then."""
    kill = Replace(args[1], NEVER)
    return (kill, One(args[1], Set.type, tuple(before))) if before else (kill,)


def _look(args: Args) -> ServerLook:
    return ServerLook(before=(args[0][: -len(b"STORE")], *args[2:]), weighs=args[2:])


_REMOVES = ((Opcode.KILL_SLOTS, Set.type),)
COMMANDS = (
    WriteCommand("SADD", -3, ((Opcode.ONE, Set.type),), sadd, grows=True, derive=_added, divides=1),
    WriteCommand(
        "SREM",
        -3,
        _REMOVES,
        removes(Set),
        derive=_removed,
        divides=1,
        idle=True,
        begins=(),
        empties=True,
    ),
    WriteCommand(
        "SPOP",
        -2,
        _REMOVES,
        spop,
        slots=NO_SLOTS,
        derive=_popped,
        records=lambda _: True,
        draws=_drawn,
        idle=True,
        begins=(),
        empties=True,
        shape=_as_set,
    ),
    WriteCommand(
        "SMOVE",
        4,
        (*_REMOVES, (Opcode.ONE, Set.type)),
        keys=(1, 2, 1),
        derive=_moved,
        idle=True,
        begins=(2,),
        empties=True,
    ),
    *(
        WriteCommand(
            name,
            -3,
            (WHOLE_KEY, NEW_KEY, (Opcode.ONE, Set.type)),
            keys=ALL_KEYS,
            grows=True,
            derive=_stored,
            looks_at=_look,
        )
        for name in ("SDIFFSTORE", "SINTERSTORE", "SUNIONSTORE")
    ),
)
