"""A gateway: the steps that it takes on its server, and the rules of deadlines, a method each."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .atoms import AtomLog, stamp, winner
from .digest import BOUND, Digest, differs, tell
from .effects import DEADLINE, Add, Dot, Effect, Kill, Message, Scope, Slot
from .keystate import Contents, KeyState
from .prepare import Command, moved, prepare
from .reassertion import Held, again, taken
from .server import Server
from .step import Step

GRACE = 6
"""How long after a deadline the first of those that did not set it waits for an X; the next one as long again."""


class Reassertion(NamedTuple):
    """What came back, under which deadline, at what TIME, in answer to which message."""

    key: str
    deadline: int
    time: int
    expiry: Dot


class Gateway(Step):
    """One member, over its server."""

    def __init__(self, me: int, server: Server) -> None:
        super().__init__(me, server)
        self.grace = GRACE * (1 + me)
        self.reasserted: list[Reassertion] = []
        """What was re-asserted, for the checks."""

    # Steps

    def write(self, commands: Sequence[Command]) -> list[int]:
        """A client's command, or its MULTI: one message."""
        draft, replies = self.draft(), []
        effects: list[Effect] = []
        for command in commands:
            some, reply = prepare(command, self.state, self.in_front, self.server.time)
            for effect in some:
                self.apply(draft, len(effects), effect)
                effects.append(effect)
            replies.append(reply)
        self.send(draft, effects)
        self.finish()
        return replies

    def deliver(self, batch: Sequence[Message]) -> None:
        """Messages of others, in causal order. One that has to be answered is the last of its step."""
        self.expire_in_front_of(batch)
        for message in batch:
            before = {key: self.held(key) for key in self.expired_by(message)}
            self.receive(message)
            answer = self.reassertion(message, before)
            if answer:
                self.issue(answer)
                break
        self.finish()

    def expire(self) -> None:
        """By the clock: X for each key that the server has dropped, own deadlines at once, others after the grace."""
        index, time = self.server.own.index, self.server.time
        due = index.due(time, mine=True) + index.due(time - self.grace, mine=False)
        dropped = [key for key in due if self.state(key).contents is Contents.DROPPED]
        self.issue([self.expiry(key) for key in dropped])
        self.finish()

    def stabilise(self, messages: Iterable[Message]) -> None:
        """Nothing that is concurrent with these can arrive any more."""
        own = self.server.own
        for message in messages:
            self.log.stabilise(message)
            own.unstable.remove(message)
            for key in message.keys:
                if key in own.orphans and not self.needs_orphan(key):
                    del own.orphans[key]
        self.finish()

    def clock_is_right(self) -> bool:
        """Each step compares TIME with a clock of the gateway's own. Further apart, and it does nothing."""
        return abs(self.server.offset) <= BOUND

    def tell_digest(self) -> Digest:
        return tell(self.server)

    def differs(self, digest: Digest) -> bool:
        return differs(self.server, digest)

    # The rules

    def in_front(self, key: str) -> list[Effect]:
        """F and X are one rule: a partial write to a key that is gone begins with a kill of it."""
        state = self.state(key)
        if state.exists:
            return []
        return [Kill(key, Scope.KEY, expired=state.contents is Contents.DROPPED)]

    def expiry(self, key: str) -> Effect:
        """X by the clock. The deadline stays: what is concurrent with X is under it."""
        return Kill(key, Scope.DATA, expired=True)

    def expire_in_front_of(self, batch: Sequence[Message]) -> None:
        """X for what the server has dropped, if a deadline that has not seen it pass would show the key again."""
        keys = dict.fromkeys(key for message in batch for key in message.keys)
        dropped = [
            key
            for key in keys
            if self.state(key).contents is Contents.DROPPED and self.shows_again(key, batch)
        ]
        self.issue([self.expiry(key) for key in dropped])

    def shows_again(self, key: str, batch: Sequence[Message]) -> bool:
        """Whether a message of these moves the deadline ahead, before the contents are known again."""
        deadlines = AtomLog()
        deadlines.by_key[key] = {DEADLINE: list(self.log.of(key, DEADLINE))}
        for message in batch:
            for place, effect in enumerate(message.effects):
                if effect.key != key:
                    continue
                if isinstance(effect, Add):
                    if effect.slot is DEADLINE:
                        deadlines.add(message, place, effect)
                elif effect.scope in (Scope.KEY, Scope.DATA):
                    return False
                elif effect.scope is Scope.TTL:
                    deadlines.kill(message, place, effect)
            moved_to = winner(deadlines.of(key, DEADLINE))
            if moved_to is not None and int(moved_to.value) > self.server.time:
                return True
        return False

    def reassertion(self, message: Message, before: dict[str, dict[Slot, Held]]) -> list[Effect]:
        """What an X has taken here, whose origin had not seen a deadline that this member has set."""
        effects: list[Effect] = []
        for key, held in before.items():
            state = self.state(key)
            if not self.has_extended(key, message) or self.is_over(state):
                continue
            slots = taken(message, key, held, state.slots)
            if slots:
                time = self.server.time
                self.reasserted.append(Reassertion(key, state.deadline, time, message.dot))
                effects += again(key, slots) + self.deadline_again(key, state)
        return effects

    def expired_by(self, message: Message) -> list[str]:
        return expired_keys(message)

    def held(self, key: str) -> dict[Slot, Held]:
        slots = self.state(key).slots
        return {s: Held(value, stamp(self.log.of(key, s))) for s, value in slots.items()}

    def deadline_again(self, key: str, state: KeyState) -> list[Effect]:
        """A creation that has seen the extension, but not its contents, has killed it without a word of its own."""
        return moved(key, state.deadline)

    def has_extended(self, key: str, expiry: Message) -> bool:
        """Whether a deadline that this member has set still counts, and X had not seen it."""
        return any(
            atom.dot.origin == self.me and not expiry.has_seen(atom.dot)
            for atom in self.log.of(key, DEADLINE)
        )

    def is_over(self, state: KeyState) -> bool:
        return state.deadline <= self.server.time

    def needs_orphan(self, key: str) -> bool:
        """A deadline without data stays until every effect that was delivered on the key is stable."""
        return any(message.touches(key) for message in self.server.own.unstable)


def expired_keys(message: Message) -> list[str]:
    return [e.key for e in message.effects if isinstance(e, Kill) and e.expired]
