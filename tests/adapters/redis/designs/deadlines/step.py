"""One step of a member: what it finds in its server, the effects that it applies, what it leaves.

A step is a MULTI: it happens as a whole, at one instant of the server's clock. Own messages of a step have their dot
before it begins, so an X stands in the causal order in front of what is delivered behind it.
"""

from collections.abc import Sequence

from .atoms import AtomLog
from .digest import BOUND
from .effects import Dot, Effect, Kill, Message
from .index import bucket_of
from .keystate import PASSED, Contents, KeyState
from .server import Orphan, Server


class Step:
    """Keys by name as the step has them. Volatile: the log, which a restart makes again from the unstable messages."""

    def __init__(self, me: int, server: Server) -> None:
        self.me = me
        self.server = server
        self.log = AtomLog()
        self.outbox: list[Message] = []
        self.states: dict[str, KeyState] = {}

    def begin(self) -> None:
        self.states = {}

    def state(self, key: str) -> KeyState:
        """The key as the step has it by now."""
        if key not in self.states:
            self.states[key] = self.look(key)
        return self.states[key]

    def look(self, key: str) -> KeyState:
        own = self.server.own
        native = self.server.get(key)
        if native is not None:
            state = KeyState(Contents.KNOWN, dict(native.slots), native.deadline)
            if state.has_deadline:
                state.bucket = bucket_of(native.deadline)
                state.mine = own.index.is_mine(key, state.bucket)
            return state
        if key in own.lost:
            return KeyState(Contents.LOST)
        bucket = self.dropped_bucket(key)
        if bucket is not None:
            mine = own.index.is_mine(key, bucket)
            return KeyState(Contents.DROPPED, deadline=PASSED, mine=mine, bucket=bucket)
        orphan = own.orphans.get(key)
        return (
            KeyState() if orphan is None else KeyState(deadline=orphan.deadline, mine=orphan.mine)
        )

    def dropped_bucket(self, key: str) -> int | None:
        return self.server.own.index.passed_bucket(key, self.server.time + 2 * BOUND)

    def finish(self) -> None:
        """Each key goes to the server once, with its deadline and its place in the index."""
        for key, state in self.states.items():
            if state.contents is Contents.KNOWN:
                self.store(key, state)
            elif state.contents is Contents.DROPPED and state.deadline != PASSED:
                self.move_entry(key, state)
        self.states = {}

    def store(self, key: str, state: KeyState) -> None:
        own = self.server.own
        own.lost.discard(key)
        self.server.put(key, state.slots, state.deadline)
        self.move_entry(key, state)
        if not state.exists and state.has_deadline:
            own.orphans[key] = Orphan(state.deadline, state.mine)
        else:
            own.orphans.pop(key, None)

    def move_entry(self, key: str, state: KeyState) -> None:
        index = self.server.own.index
        if state.bucket is not None:
            index.remove(key, state.bucket)
        if state.contents is Contents.DROPPED or (state.exists and state.has_deadline):
            at = self.server.time if state.deadline == PASSED else state.deadline
            index.insert(key, at, state.mine)

    def draft(self) -> Message:
        own = self.server.own
        own.hlc = max(own.hlc + 1, self.server.time)
        past = tuple(own.vector)
        return Message(Dot(self.me, past[self.me] + 1), past, own.hlc, ())

    def issue(self, effects: Sequence[Effect]) -> None:
        """An own message, at once."""
        draft = self.draft()
        for place, effect in enumerate(effects):
            self.apply(draft, place, effect)
        self.send(draft, effects)

    def send(self, draft: Message, effects: Sequence[Effect]) -> None:
        if effects:
            message = Message(draft.dot, draft.past, draft.ts, tuple(effects))
            self.note(message)
            self.outbox.append(message)

    def receive(self, message: Message) -> None:
        self.server.own.hlc = max(self.server.own.hlc, message.ts)
        for place, effect in enumerate(message.effects):
            self.apply(message, place, effect)
        self.note(message)

    def note(self, message: Message) -> None:
        self.server.own.vector[message.dot.origin] = message.dot.counter
        self.server.own.unstable.append(message)

    def apply(self, message: Message, place: int, effect: Effect) -> None:
        self.state(effect.key).apply(self.log, message, place, effect, self.me)

    def restart(self) -> None:
        """The process ends between two steps and starts again."""
        self.outbox = []
        self.log = AtomLog()
        for message in self.server.own.unstable:
            for place, effect in enumerate(message.effects):
                self.log_again(message, place, effect)

    def log_again(self, message: Message, place: int, effect: Effect) -> None:
        if isinstance(effect, Kill):
            self.log.kill(message, place, effect)
        else:
            self.log.add(message, place, effect)
