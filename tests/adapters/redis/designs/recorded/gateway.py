"""One gateway process beside a server: one commit at a time, what is recorded derived before all else."""

from collections import deque
from dataclasses import replace

from crdtcast.adapters.redis.store.metadata import pack_membership
from crdtcast.causality.member_id import name_of
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, covers
from crdtcast.engine import (
    Durability,
    Engine,
    EngineState,
    GroupEngine,
    GroupState,
    Parked,
    ParkedOperation,
    Standing,
)
from crdtcast.engine.operations import OperationKind
from tests.adapters.redis.designs.recorded.commands import (
    Entry,
    Refused,
    derive,
    execute,
    has_data,
    whole,
)
from tests.adapters.redis.designs.recorded.commit import Commit, Held, Request, Surroundings
from tests.adapters.redis.designs.recorded.effects import Asked, Letter, Values, decode, encode
from tests.adapters.redis.designs.recorded.faults import Fault
from tests.adapters.redis.designs.recorded.log import Log
from tests.adapters.redis.designs.recorded.rebase import rebased
from tests.adapters.redis.designs.recorded.restless import RestlessEngine, RestlessGroupEngine
from tests.adapters.redis.designs.recorded.server import (
    Exec,
    Image,
    Record,
    Segment,
    Server,
    Stored,
)

MOST_DELIVERED = 3
MOST_REQUESTS = 4
_RESTLESS = frozenset({Fault.OWN_OPERATIONS_BETWEEN, Fault.DERIVED_AFTER_DELIVERIES})


class Gateway:
    """One process. It knows what it has read of the server when it has taken the fence, and what it has done since."""

    def __init__(self, world: Surroundings, server: Server, *, renew: bool = False) -> None:
        self.world, self.server = world, server
        self.faults = world.faults
        self.queue: deque[Request] = deque()
        self.wants_leave = False
        self.alive = True
        self.fence = 0
        self.linked: list[Gateway] = []
        """Those that it is connected with: the world's."""
        self._kept: list[Message] = []
        self._former = ""
        """What a server has lost and this process remembers, and the incarnation that knew it."""
        self._load(renew)

    # Beginning

    def _load(self, renew: bool) -> None:
        server = self.server
        if Fault.KEEPS_THE_FENCE not in self.faults or not self.fence:
            server.fence += 1
        self.fence = server.fence
        server.sync()
        image = server.image
        assert image.stored is not None
        self.commit: Commit | None = None
        self.held: list[Held] = []
        self.record, self.parked = image.record, image.parked
        self.clock, self.number = image.stored.clock, image.stored.number
        self.unsaved = False
        self.found = image.record
        self.stored = self._count(image.stored, image.record)
        self.parking = self.parked is not None and image.stored.incarnation in self.parked.ended
        state, me = image.stored.engine, image.stored.incarnation
        if renew:
            me, state = self._renewed(image, me, state)
        self.engine: Engine | GroupEngine = self._engine(me, state)
        self._fill_log(state)
        self.activity, self.named = self.engine.activity, set(state.vector)
        self.saved = self._notes()
        if self.record is not None:
            self._take_up(self.record, image.values)

    def _count(self, stored: Stored, record: Record | None) -> int:
        """How many messages the server has been given in all, a recorded one included."""
        state = stored.engine
        dropped = state.dropped if isinstance(state, GroupState) else 0
        counts = record is not None and Fault.COUNT_WITHOUT_RECORD not in self.faults
        return sum(state.vector.values()) + dropped + counts

    def has_lost(self) -> bool:
        """Whether the server holds less than this process has been told that it has."""
        image = self.server.image
        assert image.stored is not None
        return self._count(image.stored, image.record) < self.stored

    def _fill_log(self, state: EngineState) -> None:
        """The atoms are those of the unstable messages; the values are the server's."""
        self.log = Log()
        for message in state.unstable:
            if message.kind == OperationKind.APPLICATION:
                letter = decode(message.payload)
                self.clock = max(self.clock, letter.time)
                self.log.apply(letter, self.engine.tag(message.dot), None)

    def _notes(self) -> object:
        """What the member has noted of its view, and all else that is no matter of messages."""
        return isinstance(self.engine, GroupEngine) and pack_membership(self.engine.outline())

    def _take_up(self, record: Record, values: Values) -> None:
        """A former process of this incarnation has left a record: others may have its message already."""
        if not self.can_send:
            return
        if record.dot is not None:
            own = Fault.CONTEXT_AT_DERIVATION in self.faults
            self.engine.reserve(None if own else record.context)
        if Fault.LINKS_BEFORE_DERIVING not in self.faults and self.world.early:
            self._derive(values)

    def _engine(self, me: str, state: EngineState) -> Engine | GroupEngine:
        restless = bool(self.faults & _RESTLESS)
        if isinstance(state, GroupState):
            return (RestlessGroupEngine if restless else GroupEngine)(me, state)
        durable = Durability.IMMEDIATE if self.server.always else Durability.DECLARED
        engine_type = RestlessEngine if restless else Engine
        return engine_type(me, self.world.names, state=state, durable=durable)

    def _renewed(self, image: Image, former: str, state: EngineState) -> tuple[str, EngineState]:
        """The server may have lost what others have: go on as another one, with what is left, and what was recorded."""
        me = self.world.fresh(self.server.name, former)
        record, state = self.record, replace(state, counter=0)
        if record is not None and Fault.PARKED_WITHOUT_DOT in self.faults:
            self.record = record = replace(record, dot=None)
        if record is not None and record.dot is not None:
            dot, payload = record.dot, encode(self._letter(record, image.values))
            state = replace(
                state,
                vector={**state.vector, dot.origin: dot.counter},
                context=(dot,),
                unstable=(*state.unstable, Message(dot, record.context, payload)),
            )
            self.record = None
        stored = Stored(me, state, self.clock, self.number)
        self.server.write(replace(image, stored=stored, record=self.record))
        self.server.sync()
        return me, state

    # One commit

    @property
    def is_idle(self) -> bool:
        """Whether the server's values are those of the engine's vector."""
        saved = not self.unsaved and self.engine.activity == self.activity
        return saved and self.saved == self._notes() and self.commit is None and self.record is None

    @property
    def stands_still(self) -> bool:
        """Whether its engine waits for a reserved message."""
        return self.engine.reserved is not None and not self.faults & _RESTLESS

    @property
    def can_send(self) -> bool:
        """Whether its engine is in the group and does not leave."""
        return not isinstance(self.engine, GroupEngine) or self.engine.standing.can_send

    @property
    def derives(self) -> bool:
        """Whether the next commit derives what is recorded, or parks it. Not while others have yet to tell this member
        that it is out.
        """
        return self.record is not None and (self.can_send or self.is_evicted)

    @property
    def is_evicted(self) -> bool:
        """Whether it has to join again."""
        return isinstance(self.engine, GroupEngine) and self.engine.standing is Standing.EVICTED

    def gather(self) -> bool:
        """Put the next commit together; False if there is nothing to commit, or one is in flight."""
        if self.commit is not None or self.parking:
            return False
        engine, values = self.engine, dict(self.server.image.values)
        self.changed, answered = False, engine.vector[engine.me]
        derives = self.derives or self.unsaved
        if self.derives and Fault.DERIVED_AFTER_DELIVERIES not in self.faults:
            self._derive(values)
            if Fault.DERIVED_IS_UNSURE not in self.faults:
                answered = engine.vector[engine.me]
        if self.is_evicted:
            self._park()
        else:
            self._deliver(values)
            if self.derives:
                self._derive(values)
            self.operate()
            self._reissue(values)
        requests = [self.queue.popleft() for _ in range(min(MOST_REQUESTS, len(self.queue)))]
        if not self.can_send:
            for request in requests:
                self.world.not_written(request)
            requests = []
        plain = self._plain(requests, values)
        segments, record = self._recorded(requests[len(plain) :])
        outbox = engine.take_outbox()
        # A digest that names a new incarnation, too, leaves when that is stored: nobody ever stops naming another.
        named = self.named != engine.vector.keys()
        notes = self._notes()
        noted = notes != self.saved
        if not (
            derives
            or requests
            or self.changed
            or named
            or noted
            or engine.activity != self.activity
        ):
            self.held.append(Held(self.server.position, outbox, dict(engine.vector), False))
            self.release()
            return False
        self.activity, self.named, self.saved = engine.activity, set(engine.vector), notes
        stored = Stored(engine.me, engine.state(), self.clock, self.number + 1)
        plan = Exec(self.fence, values, plain, segments, record, stored, self.parked, self.record)
        counters = range(answered + 1, engine.vector[engine.me] + 1)
        unsure = frozenset(Dot(engine.me, counter) for counter in counters)
        self.commit = Commit(plan, requests, outbox, dict(engine.vector), derives, unsure)
        return True

    def _deliver(self, values: Values) -> None:
        engine = self.engine
        for _ in range(MOST_DELIVERED):
            if not engine.has_deliverable():
                break
            delivery = engine.poll()
            assert delivery is not None
            if delivery.kind == OperationKind.APPLICATION:
                letter = decode(delivery.payload)
                self.clock = max(self.clock, letter.time)
                self.log.apply(letter, delivery.tag, values)
        stable = engine.poll_stable()
        for tag in stable:
            self.log.stabilise(tag.dot)
        self.changed |= bool(stable)
        self.log.drop_orphans(values)

    def operate(self) -> None:
        """The operator's wish to leave, which waits for what is recorded."""
        engine = self.engine
        if not isinstance(engine, GroupEngine) or not self.can_send:
            return
        if self.wants_leave and self.parked is None and not self.stands_still:
            engine.leave()
            self.wants_leave = False

    def _plain(self, requests: list[Request], values: Values) -> tuple[Entry, ...]:
        """The commands before the first recorded one: their effects are sent with this commit."""
        entries: list[Entry] = []
        for request in requests:
            if not request.is_plain:
                break
            command = request.commands[0]
            was_there = has_data(values, command.key)
            reply = execute(values, command, self.world.random)
            entries.append(Entry(request.number, command, reply, was_there))
        asked = tuple(Asked(e.request, derive(e)) for e in entries if e.wrote)
        if asked:
            letter = Letter(self._now(), asked)
            tag = self.engine.send(encode(letter))
            self.log.apply(letter, tag, None)
        return tuple(entries)

    def _recorded(self, requests: list[Request]) -> tuple[tuple[Segment, ...], Record | None]:
        """What the server carries out alone, from the first recorded command on, under a dot that is reserved."""
        if not requests:
            return (), None
        segments = tuple(Segment(r.number, r.commands, r.is_script) for r in requests)
        if Fault.DOT_AT_DERIVATION in self.faults:
            return segments, Record(None, (), self._now(), ())
        dot = self.engine.reserve()
        reserved = self.engine.reserved
        assert reserved is not None
        return segments, Record(dot, reserved.context, self._now(), ())

    def _now(self) -> int:
        """Hybrid logical time."""
        self.clock = max(self.clock + 1, self.world.now)
        return self.clock

    # The answer

    def answered(self) -> None:
        """The server's answer is here."""
        commit = self.commit
        assert commit is not None
        self.commit = None
        answer = commit.answer
        if answer is None:
            self.alive = False  # another gateway has taken the server
            return
        self.number = commit.plan.stored.number
        self.stored = self._count(commit.plan.stored, answer.record)
        self._tell_clients(commit.requests, (*commit.plan.plain, *answer.entries))
        self.unsaved = False
        if commit.plan.record is not None:
            self._keep(answer.record)
        self.held.append(Held(self.server.position, commit.outbox, commit.vector, commit.derives))
        if self.record is not None and self.world.early and self.can_send:
            self._derive(dict(self.server.image.values))
            if self.saved == self._notes():
                outbox, vector = self.engine.take_outbox(), dict(self.engine.vector)
                self.held.append(Held(self.server.position, outbox, vector, False))
        if self.parked is not None and self.is_evicted:
            self.parking = True
        self.release()

    def _keep(self, record: Record | None) -> None:
        if Fault.RECORD_IN_A_STEP_OF_ITS_OWN in self.faults:
            self.server.write_with(record)
        self.record = record
        if record is None:
            if Fault.NOT_GIVEN_BACK in self.faults and self.engine.reserved is not None:
                self.engine.vector[self.engine.me] += 1
            self.engine.give_back()
        elif Fault.STILL_UNTIL_THE_ANSWER in self.faults:
            self.engine.give_back()

    def _tell_clients(self, requests: list[Request], entries: tuple[Entry, ...]) -> None:
        for request in requests:
            of_it = [e for e in entries if e.request == request.number]
            if Fault.REPLIES_FROM_DERIVATION in self.faults:
                of_it = [_as_derived(e, entries) for e in of_it]
            if of_it:
                self.world.answered(request, tuple(e.reply for e in of_it))
            else:
                # Its script was not loaded: nothing of it was carried out.
                self.queue.appendleft(request)

    def release(self) -> None:
        """Let out what rests on nothing that a crash could take back; all of it, where the next life is another."""
        synced, engine = self.server.first, self.engine
        declares = isinstance(engine, Engine) and engine.durability is Durability.DECLARED
        for held in self.held:
            if declares or held.position <= synced:
                self.world.leaves(self, held.outbox)
                held.outbox = []
        while self.held and self.held[0].position <= synced:
            held = self.held.pop(0)
            if isinstance(engine, Engine) and declares:
                engine.mark_durable(held.vector)

    # What is recorded

    def _derive(self, values: Values) -> None:
        """The one message of the record: sent under its dot, or parked if this member sends nothing any more."""
        record = self.record
        assert record is not None
        self.record, self.unsaved = None, True
        letter = self._letter(record, values)
        if not self.can_send:
            self.engine.give_back()
            self._recorded_last = self._as_parked(record, letter)
            return
        payload = encode(letter)
        tag = self.engine.use(payload) if self.engine.reserved else self.engine.send(payload)
        if record.dot is not None:
            self.world.derived(record, tag)
        self.log.apply(letter, tag, None)

    _recorded_last: ParkedOperation | None = None

    def _as_parked(self, record: Record, letter: Letter) -> ParkedOperation | None:
        if Fault.DROPPED_WHEN_ENDED in self.faults:
            return None
        dot = record.dot
        if dot is None or Fault.PARKED_WITHOUT_DOT in self.faults:
            dot = Dot(self.engine.me, 10**6)
        return ParkedOperation(dot, 0, encode(letter))

    def set_aside(self) -> ParkedOperation | None:
        """What is recorded and not derived, of an incarnation that has ended."""
        record, self.record = self.record, None
        self.engine.give_back()
        return None if record is None else self._as_parked(record, self._letter(record, {}))

    def _letter(self, record: Record, values: Values) -> Letter:
        entries = record.entries
        if Fault.DERIVED_FROM_MEMORY in self.faults:
            entries = tuple(e._replace(was_there=has_data(values, e.command.key)) for e in entries)
        asked = [Asked(e.request, derive(e)) for e in entries if e.wrote]
        if Fault.FAILED_NX_SENDS in self.faults:
            failed = [e for e in entries if e.command.name == "SETNX" and e.reply == 0]
            asked += [Asked(e.request, whole(e.command.key, e.command.argument)) for e in failed]
        time = self._now() if Fault.OWN_TIME in self.faults else record.time
        return Letter(time, tuple(asked))

    # A connection that breaks

    def reconnect(self, *, renew: bool = False) -> None:
        """The connection broke, with a commit in flight perhaps: ask the server what has become of it.

        renew: the server has died, and may have lost what this process remembers.
        """
        commit, before = self.commit, self.engine
        if renew:
            self._kept += self._remembered()
            self._former = before.me
        self._load(renew)
        # Until the server has them: the connection may break again before.
        self._kept = [m for m in self._kept if not covers(self.engine.vector, m.dot)]
        for message in self._kept:
            self.engine.receive(self._former, message)
        if commit is None:
            return
        plan, stored = commit.plan, self.server.image.stored
        assert stored is not None
        requests = commit.requests
        if Fault.RUNS_AGAIN in self.faults:
            self.queue.extendleft(reversed(requests))
            return
        if Fault.SAYS_NOTHING_WRITTEN in self.faults:
            for request in requests:
                self.world.not_written(request)
            return
        if stored.number < plan.stored.number:
            self.queue.extendleft(reversed(requests))
            return
        told = requests[len(plan.plain) :]  # the replies of plain ones are lost, and said to be
        if self.found is not None:
            self._tell_clients(told, self.found.entries)
        else:
            self.queue.extendleft(reversed(told))

    def _remembered(self) -> list[Message]:
        """What was answered, as messages: of a commit in flight only what had been recorded, and answered, before."""
        if self.record is not None and Fault.MEMORY_WITHOUT_RECORD not in self.faults:
            self._derive({})
        elif self.record is not None:
            self.engine.give_back()
        messages = self.engine.state().unstable
        if self.commit is None:
            return list(messages)
        unsure = self.commit.unsure
        return [m for m in messages if m.dot not in unsure]

    # A former life

    def _park(self) -> None:
        """Own messages that the group may not have, in their order; the recorded one is the last of them."""
        if self.parked is not None and self.engine.me in self.parked.ended:
            return
        engine = self.engine
        assert isinstance(engine, GroupEngine)
        self.parked = park(engine, self.parked, self._recorded_last)
        self.parking = False
        self.changed = True

    def _reissue(self, values: Values) -> None:
        engine, parked = self.engine, self.parked
        if parked is None or not isinstance(engine, GroupEngine) or not self.can_send:
            return
        self.parked = parked = parked.meeting(engine)
        if not parked.is_decided(engine):
            return
        if again := parked.uncovered(engine):
            operation = again[0]
            letter = rebased(
                decode(operation.payload),
                self._now(),
                values,
                self.world.yielded,
                begins=Fault.REISSUED_AS_IT_WAS not in self.faults,
            )
            tag = engine.send(encode(letter))
            self.parked = parked.reissued(operation, tag.dot)
            self.log.apply(letter, tag, values)
            return
        for incarnation in sorted(engine.tombs):
            if name_of(incarnation) == self.server.name:
                tag = engine.settle(incarnation)
                self.parked = parked.settled(incarnation, tag.dot)
                return
        if parked.may_be_dropped(engine):
            self.parked = None
            self.changed = True


def park(
    engine: GroupEngine,
    earlier: Parked | None,
    recorded: ParkedOperation | None,
    unsure: frozenset[Dot] = frozenset(),
) -> Parked:
    """What `engine`, which has ended, takes along. unsure: what nobody was told, and will be asked for again."""
    parked = Parked.of(engine.state(), engine.me, earlier)
    sure = [operation for operation in parked.operations if operation.dot not in unsure]
    return replace(parked, operations=(*sure, *([recorded] if recorded else [])))


def _as_derived(entry: Entry, entries: tuple[Entry, ...]) -> Entry:
    if entry.command.name not in ("INCR", "INCRLIM") or isinstance(entry.reply, Refused):
        return entry
    same = [
        e.reply
        for e in entries
        if e.command.key == entry.command.key
        and e.command.name in ("INCR", "INCRLIM")
        and not isinstance(e.reply, Refused)
    ]
    return entry._replace(reply=same[-1])
