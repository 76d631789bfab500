"""Planted faults: gateways that leave one rule out. The campaign must find each."""

from collections.abc import Sequence

from .digest import Digest, held_behind
from .effects import DEADLINE, NONE, Add, Effect, Kill, Kind, Message, Scope, Slot
from .gateway import Gateway, expired_keys
from .keystate import Contents, KeyState
from .prepare import Command
from .reassertion import Held
from .server import Server


class DropsWithoutX(Gateway):
    """What the server has dropped is gone without a message."""

    def expire(self) -> None:
        index, time = self.server.own.index, self.server.time
        for key in index.due(time, mine=True) + index.due(time, mine=False):
            if self.server.get(key) is None:
                number = index.passed_bucket(key, time)
                index.remove(key, number or 0)

    def in_front(self, key: str) -> list[Effect]:
        state = self.state(key)
        return [] if state.contents is Contents.DROPPED else super().in_front(key)


class NoKillInFront(Gateway):
    """F is left out: a creation kills nothing."""

    def in_front(self, key: str) -> list[Effect]:
        return []


class KillsOwnWrite(Gateway):
    """X follows the client's write that has found the key gone."""

    def write(self, commands: Sequence[Command]) -> list[int]:
        dropped = [c.key for c in commands if self.state(c.key).contents is Contents.DROPPED]
        replies = super().write(commands)
        self.issue([self.expiry(key) for key in dropped if self.state(key).exists])
        self.finish()
        return replies


class PlainKillInFront(Gateway):
    """F where X is due: the one that has extended the deadline takes it for a deletion."""

    def in_front(self, key: str) -> list[Effect]:
        return [] if self.state(key).exists else [Kill(key, Scope.KEY)]


class LeavesEntries(Gateway):
    """A client's write looks for the entry by the native deadline, which a dropped key has no more."""

    def write(self, commands: Sequence[Command]) -> list[int]:
        dropped = {c.key for c in commands if self.state(c.key).contents is Contents.DROPPED}
        for key in dropped:
            self.state(key).bucket = None
        return super().write(commands)


class MovesEntriesLater(Gateway):
    """The index is written in the step behind the one of the write."""

    def __init__(self, me: int, server: Server) -> None:
        super().__init__(me, server)
        self.later: list[tuple[str, KeyState]] = []

    def begin(self) -> None:
        super().begin()
        later, self.later = self.later, []
        for key, state in later:
            super().move_entry(key, state)

    def move_entry(self, key: str, state: KeyState) -> None:
        self.later.append((key, state))

    def restart(self) -> None:
        self.later = []
        super().restart()


class DropsOrphansEarly(Gateway):
    """A deadline without data goes at its own stability."""

    def needs_orphan(self, key: str) -> bool:
        return bool(self.log.of(key, DEADLINE))


class ForgetsNone(Gateway):
    """That there is no deadline is not kept as an atom."""

    def apply(self, message: Message, place: int, effect: Effect) -> None:
        super().apply(message, place, effect)
        if isinstance(effect, Add) and effect.kind is Kind.AT and effect.value == NONE:
            atoms = self.log.of(effect.key, DEADLINE)
            self.log.keep(effect.key, DEADLINE, [a for a in atoms if a.value != NONE])

    def log_again(self, message: Message, place: int, effect: Effect) -> None:
        if not (isinstance(effect, Add) and effect.kind is Kind.AT and effect.value == NONE):
            super().log_again(message, place, effect)


class NoGrace(Gateway):
    """Everybody issues X at once."""

    def __init__(self, me: int, server: Server) -> None:
        super().__init__(me, server)
        self.grace = 0


class NotStoppedByX(Gateway):
    """An X that arrives leaves the entry, so this member issues another."""

    def receive(self, message: Message) -> None:
        for key in expired_keys(message):
            if self.state(key).contents is Contents.DROPPED:
                self.state(key).bucket = None
        super().receive(message)


class NeverReasserts(Gateway):
    """An extension that X had not seen keeps nothing."""

    def reassertion(self, message: Message, before: dict[str, dict[Slot, Held]]) -> list[Effect]:
        return []


class ReassertsTheDead(Gateway):
    """Contents come back although their deadline is over."""

    def is_over(self, state: KeyState) -> bool:
        return False


class ReassertsDataOnly(Gateway):
    """Contents come back without their deadline."""

    def deadline_again(self, key: str, state: KeyState) -> list[Effect]:
        return []


class ReassertsAsNew(Gateway):
    """An old value that comes back wins against a new one."""

    def reassertion(self, message: Message, before: dict[str, dict[Slot, Held]]) -> list[Effect]:
        effects = super().reassertion(message, before)
        return [
            Add(e.key, e.slot, e.kind, e.value, e.only) if isinstance(e, Add) else e
            for e in effects
        ]


class RemembersDeadlines(Gateway):
    """The process remembers deadlines, instead of asking the index what the server has dropped."""

    def __init__(self, me: int, server: Server) -> None:
        super().__init__(me, server)
        self.remembered: set[str] = set()

    def dropped_bucket(self, key: str) -> int | None:
        bucket = super().dropped_bucket(key)
        return bucket if key in self.remembered else None

    def move_entry(self, key: str, state: KeyState) -> None:
        super().move_entry(key, state)
        if state.has_deadline:
            self.remembered.add(key)

    def restart(self) -> None:
        self.remembered = set()
        super().restart()


class JudgesByNativeTime(Gateway):
    """A key that is gone was dropped if its entry is in a bucket that is over by now, without the clocks' bound.

    A clock that was set back shows that it is not.
    """

    def dropped_bucket(self, key: str) -> int | None:
        return self.server.own.index.passed_bucket(key, self.server.time)


class TellsWithinTheBound(Gateway):
    """A digest names no horizon: each replica leaves out what is over by its own clock."""

    def differs(self, digest: Digest) -> bool:
        own = self.server.own
        if tuple(own.vector) != digest.vector or own.lost:
            return False
        return held_behind(self.server, self.server.time) != digest.held

    def tell_digest(self) -> Digest:
        time = self.server.time
        return Digest(tuple(self.server.own.vector), time, held_behind(self.server, time))


class ExpiresBehind(Gateway):
    """X follows the message that has moved the deadline, and has seen it."""

    def deliver(self, batch: Sequence[Message]) -> None:
        keys = dict.fromkeys(key for message in batch for key in message.keys)
        dropped = [
            key
            for key in keys
            if self.state(key).contents is Contents.DROPPED and self.shows_again(key, batch)
        ]
        super().deliver(batch)
        for key in dropped:
            for number, _ in self.server.own.index.of(key):
                self.state(key).bucket = number
        self.issue([self.expiry(key) for key in dropped])
        self.finish()

    def expire_in_front_of(self, batch: Sequence[Message]) -> None:
        pass


class NoXWhereMoved(Gateway):
    """No X if a message has moved the deadline of what the server has dropped."""

    def expire_in_front_of(self, batch: Sequence[Message]) -> None:
        for key in dict.fromkeys(key for message in batch for key in message.keys):
            state = self.state(key)
            if state.contents is Contents.DROPPED and self.shows_again(key, batch):
                state.contents = Contents.KNOWN


class AnswersEveryMove(Gateway):
    """X in front of each message that moves the deadline, though it is over all the same."""

    def shows_again(self, key: str, batch: Sequence[Message]) -> bool:
        return any(
            e.key == key and isinstance(e, Kill) and e.scope is Scope.TTL
            for message in batch
            for e in message.effects
        )


class ExpiresTheDeadline(Gateway):
    """X kills the deadline, too."""

    def expiry(self, key: str) -> Effect:
        return Kill(key, Scope.KEY, expired=True)


class WritesToTheDropped(Gateway):
    """A partial write of another member goes to the server, though it has dropped the key."""

    def receive(self, message: Message) -> None:
        for key in message.keys:
            state = self.state(key)
            if state.contents is Contents.DROPPED:
                state.contents, state.deadline = Contents.KNOWN, NONE
        super().receive(message)


class SetsDeadlinesMidway(Gateway):
    """Each message of a step sets its deadline at once: one that is over drops what the next would extend."""

    def receive(self, message: Message) -> None:
        super().receive(message)
        self.finish()


class TrustsItsClock(Gateway):
    """A clock that leads by any amount counts."""

    def clock_is_right(self) -> bool:
        return True


class RevivesTheDeleted(Gateway):
    """A deletion by a client is taken for an expiry."""

    def expired_by(self, message: Message) -> list[str]:
        return [e.key for e in message.effects if isinstance(e, Kill) and e.scope is Scope.KEY]


class ReassertsTheEmptyOnly(Gateway):
    """Only what X has emptied comes back: not what shows an older value since, or a number of fewer increments."""

    def reassertion(self, message: Message, before: dict[str, dict[Slot, Held]]) -> list[Effect]:
        left = {
            key: {s: h for s, h in held.items() if s not in self.state(key).slots}
            for key, held in before.items()
        }
        return super().reassertion(message, left)


class ReassertsTheReplaced(Gateway):
    """A deadline that this member has set counts as an extension, though it was killed since."""

    def has_extended(self, key: str, expiry: Message) -> bool:
        return any(
            message.dot.origin == self.me
            and not expiry.has_seen(message.dot)
            and any(
                e.key == key and isinstance(e, Add) and e.kind is Kind.AT for e in message.effects
            )
            for message in self.server.own.unstable
        )
