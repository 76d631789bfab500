"""MULTI to EXEC: the commands that a client has queued, and their execution as one request.

All writes of a transaction are effects of one causal message, which is never divided. So every region applies all of
them at one instant, or none. Its reads see its own earlier writes and no other client's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from crdtcast.adapters.redis.clients.client import NO_REPLY, Request
from crdtcast.adapters.redis.clients.client_state import Queue, Watch
from crdtcast.adapters.redis.commands.table import Command, CommandKind
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.server.parsing import Args
from crdtcast.adapters.redis.server.resp import Raw, ReplyError, encode
from crdtcast.adapters.redis.store.effects import WHOLE, RedisType
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.types.native import NOTHING, Holds
from crdtcast.exceptions import LocalProtocolError

DISCARDED = ReplyError("EXECABORT Transaction discarded because of previous errors.")


def discarded_because(error: ReplyError) -> ReplyError:
    """EXEC's reply when the whole transaction is refused for `error`, in the server's words."""
    reason = str(error).removeprefix("ERR ")
    return ReplyError(f"EXECABORT Transaction discarded because of: {reason}")


ABORTED = object()
"""Answer of an EXEC with a watched key that has been written."""


class Call(Request):
    """One command of a transaction. Its answer is an element of EXEC's reply, in the protocol at its place."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Transaction, args: Args, command: Command) -> None:
        super().__init__(transaction.client, args, command)
        self._transaction: Transaction | None = transaction

    def answer(self, value: object) -> None:
        """Set the element; only the first answer counts."""
        if not self.answered:
            self.value = value
            self.answered = True
            if self._transaction is not None:
                self._transaction.note_answer()

    @property
    def transaction(self) -> Transaction | None:
        """Its transaction; None once that is answered."""
        return self._transaction

    def release(self) -> None:
        """Forget the answer, which may be large, and the transaction: a cycle would keep the whole reply in memory."""
        self.forget()
        self._transaction = None


class Transaction(Request):
    """EXEC, with the commands that it executes. It is answered when all of its calls are, or with one error instead.

    calls: reads and writes, which the core executes.
    watch: the keys that it depends on; if set, the core must call `go`.
    on_refused: called if the whole is refused or aborted.
    on_answered: called after any answer.
    """

    __slots__ = (
        "_all",
        "_missing",
        "_on_answered",
        "_on_refused",
        "_silent",
        "_waits",
        "calls",
        "contents",
        "size",
        "steps",
        "uncertain",
        "watch",
    )

    def __init__(
        self,
        request: Request,
        queue: Queue,
        watch: Watch | None,
        *,
        silent: bool,
        on_refused: Callable[[], None],
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(request.client, request.args, request.command)
        self._all = [Call(self, args, command) for args, command in queue.calls]
        self._missing = len(self._all)
        self.watch: Watch | None = watch
        self._waits = watch is not None
        self._silent = silent
        self._on_refused = on_refused
        self._on_answered = on_answered
        self.size: int = queue.size
        self.steps: int = queue.steps
        self.calls: list[Call] = []
        self.uncertain: Uncertain = {}
        """Keys that it may make empty before it writes another type under them, and the slots that it names, by type.
        Only a look at these slots shows what such a write finds.
        """
        self.contents: dict[bytes, SlotContents] | None = None
        """What the server answered about `uncertain` keys, at the instant at which this is prepared."""

    def begin(self, carry_out: Callable[[Call, Callable[[Request], None]], None]) -> bool:
        """Answer, in order, what the gateway answers itself. Returns whether there is work for the core."""
        for call in self._all:
            call.protocol = self.client.protocol  # a HELLO before it may have changed it
            carry_out(call, self._add)
        self.uncertain = _uncertain(self.calls)
        self._compose_if_complete()
        return bool(self.calls) or self._waits

    def _add(self, call: Request) -> None:
        assert isinstance(call, Call)
        self.calls.append(call)

    @property
    def is_recorded(self) -> bool:
        """Whether only the server can execute it: then the server executes all of it."""
        return any(call.command.records(call.args) for call in self.calls) or (
            self.writes and any(call.command.tells_deadline for call in self.calls)
        )

    @property
    def writes(self) -> bool:
        return any(call.command.kind is CommandKind.WRITE for call in self.calls)

    @property
    def publishes(self) -> bool:
        return any(call.command.publishes for call in self.calls)

    @property
    def parts(self) -> Iterable[Request]:
        return self.calls

    def answer(self, value: object) -> None:
        """Answer with one value instead of those of the calls: an error, which refuses the whole, or `ABORTED`."""
        if isinstance(value, ReplyError) or value is ABORTED:
            self._on_refused()
        if self.watch is not None:
            self.watch.end()
        if value is ABORTED:
            value = Raw(b"_\r\n" if self.protocol == 3 else b"*-1\r\n")
        super().answer(NO_REPLY if self._silent else value)
        self._on_answered()

    def go(self) -> None:
        """The watched keys have not been written."""
        if self._waits:
            self._waits = False
            self._compose_if_complete()

    def encoded(self) -> bytes:
        """The encoded reply. Only once: it may be large, and the request outlives it."""
        reply = super().encoded()
        self.forget()
        return reply

    def note_answer(self) -> None:
        """Count the answer of one more call."""
        self._missing -= 1
        self._compose_if_complete()

    def _compose_if_complete(self) -> None:
        if not (self._missing or self._waits or self.answered):
            self._compose()

    def _compose(self) -> None:
        elements = [b"*%d\r\n" % len(self._all)]
        if not self.client.closed:
            elements += [encode(call.value, call.protocol) for call in self._all]
        for call in self._all:
            call.release()
        self.answer(Raw(b"".join(elements)))

    # For the core

    def keys(self) -> Iterable[bytes]:
        """Keys of its reads and writes, with repetitions."""
        return itertools.chain.from_iterable(call.command.keys_of(call.args) for call in self.calls)

    def typed_keys(self) -> Iterable[bytes]:
        """Keys whose type its writes must know."""
        return (call.args[1] for call in self.calls if call.command.looks)

    def counted_slots(self) -> Iterable[tuple[bytes, RedisType, bytes]]:
        """Slots of types other than strings that its writes count."""
        return (
            (call.args[1], type_, call.args[call.command.counted_at])
            for call in self.calls
            if (type_ := call.command.counts_in) is not None
        )


Uncertain: TypeAlias = dict[bytes, dict[RedisType, dict[bytes, None]]]


def _uncertain(calls: Iterable[Call]) -> Uncertain:
    removed: dict[bytes, RedisType | None] = {}
    found: Uncertain = {}
    for call in calls:
        command = call.command
        if not command.looks:
            if removed and command.kind is CommandKind.WRITE:
                for key in command.keys_of(call.args):
                    removed.pop(key, None)
            continue
        key = call.args[1]
        if removed.get(key, command.type) is not command.type:
            found[key] = {}
        if command.removes_slots:
            removed[key] = command.type
    for call in calls if found else ():
        command = call.command
        # A deadline names no slots: the slots of the other commands show whether it finds the key.
        if command.looks and command.type is not None and call.args[1] in found:
            slots = found[call.args[1]].setdefault(command.type, {})
            slots.update(dict.fromkeys(_slots_of(call)))
    return found


def _slots_of(call: Request) -> Sequence[bytes]:
    """The slots that a write names."""
    row = call.command.write
    assert row is not None
    return (WHOLE,) if row.counts else call.args[row.slots]


class SlotContents:
    """A value, as far as a transaction names its slots: enough to know when it is empty. present: the named slots that
    exist.
    """

    def __init__(self, type_: RedisType, size: int, present: Iterable[bytes] = ()) -> None:
        self._type = type_
        self._size = size
        self._present = set(present)

    @property
    def is_empty(self) -> bool:
        return self._size == 0

    def follow(self, call: Request) -> None:
        """Apply one write on the key. It is of the value's type, or finds the value empty."""
        command = call.command
        if command.looks and command.type is None:
            return  # a deadline; if it is over at once, `end` follows
        if command.type is not None and command.type is not self._type:
            self._type, self._size, self._present = command.type, 0, set()
        before = len(self._present)
        if not command.looks:
            self._size = before = 0
            self._present = {WHOLE} if command.type is not None else set()
        elif command.removes_slots:
            self._present.difference_update(_slots_of(call))
        else:
            self._present.update(_slots_of(call))
        self._size += len(self._present) - before

    def end(self) -> None:
        """The key is gone."""
        self._size, self._present = 0, set()


def prepare_transaction(
    batch: LocalBatch, transaction: Transaction, reads: Callable[[Request], None]
) -> bool:
    """Turn all calls into effects of one message, and their answers into those of the plan. reads: adds one read.

    Returns False, and changes nothing, if the server must be asked about a key first.
    """
    keyspace = batch.keyspace
    contents, transaction.contents = transaction.contents, None  # another try must look again
    if contents is None:
        if transaction.uncertain:
            return False
        contents = {}
    for key, found in contents.items():
        keyspace.looked_at(key, is_empty=found.is_empty)
    if not _types_are_certain(transaction, keyspace):
        return False
    with batch.undivided(transaction.steps, transaction.size):
        for call in transaction.calls:
            command = call.command
            if command.kind is CommandKind.READ:
                reads(call)
                continue
            followed = [k for k in command.keys_of(call.args) if k in contents] if contents else []
            followed = [k for k in followed if _takes(keyspace, k, command)]
            if not command.prepare(batch, call):
                raise LocalProtocolError(f"{command.name} in a transaction needs a look")
            for key in () if _is_refused(batch, call) else followed:
                contents[key].follow(call)
                if command.looks and command.type is None and keyspace.known(key) is NOTHING:
                    contents[key].end()
                keyspace.looked_at(key, is_empty=contents[key].is_empty)
    return True


def _is_refused(batch: LocalBatch, call: Call) -> bool:
    """Whether the call prepared last is answered with an error."""
    answers = batch.plan.answers
    return bool(answers) and answers[-1][0] is call and isinstance(answers[-1][1], ReplyError)


def _takes(keyspace: Keyspace, key: bytes, command: Command) -> bool:
    """Whether a key with known contents accepts this write."""
    if not command.looks or command.type is None:
        return True
    known = keyspace.known(key)
    if known is None or isinstance(known, Holds):
        return known is NOTHING or (known is not None and known.type is command.type)
    return command.type is RedisType.STRING


def _types_are_certain(transaction: Transaction, keyspace: Keyspace) -> bool:
    """Whether each write finds a key whose contents are known, or that has the type of the write. Requests a look at
    all other keys.
    """
    unsure: set[bytes] = set()
    for call in transaction.calls:
        if not call.command.looks:
            continue
        known = keyspace.known(call.args[1])
        if known is None or (
            isinstance(known, Holds) and not known.is_sure and known.type is not call.command.type
        ):
            unsure.add(call.args[1])
    for key in unsure:
        keyspace.forget(key)
    return not unsure
