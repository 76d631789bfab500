"""The oracle: causal delivery, exact tags and stability, checked from their definitions over application events only.

It sees what applications did (sent, delivered, got a stable notice) in one global order that respects each member's
own, and keeps the true past of every message as a set: what its sender had sent or delivered before. It knows nothing
of vectors, contexts or digests of the algorithm it checks. (The printed checkers, thesis Alg. 14 and Dias Alg. 16,
test in the wrong direction and never notice a lost message.)
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from crdtcast.exceptions import LocalProtocolError
from crdtcast.tags import Dot, Tag


class Kind(enum.Enum):
    """What can be wrong. The values are the words used in verdicts and reports."""

    GHOST = "ghost"  # delivered, though nobody sent it
    DUPLICATE = "duplicate"  # delivered (or sent) a second time at one member
    CAUSAL = "causal"  # delivered before something of its past
    TAG = "tag"  # the tag's past is not what the sender had sent or delivered
    UNSAFE_STABLE = (
        "unsafe-stable"  # delivered after something concurrent was reported stable there
    )
    STABLE_ORDER = "stable-order"  # reported stable before something of its past
    STABLE_TWICE = "stable-twice"
    STABLE_UNDELIVERED = "stable-undelivered"
    LOSS = "loss"  # at quiescence: known to one member, never delivered at another
    STALL = "stall"  # at quiescence: delivered, never reported stable


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: what, at which member, of which message, and which other messages prove it."""

    kind: Kind
    member: str
    dot: Dot | None
    others: tuple[Dot, ...] = ()

    def __str__(self) -> str:
        text = f"{self.kind.value}: {self.dot} at {self.member}"
        return f"{text}: {', '.join(map(str, self.others))}" if self.others else text


class _View:
    """One member's application: sets are integers with one bit a message; the log makes rollback possible."""

    __slots__ = ("known", "log", "stable", "start", "vector")

    def __init__(self, known: int = 0, stable: int = 0, vector: dict[str, int] | None = None):
        self.start = (known, stable, dict(vector or {}))
        self.log: list[tuple[bool, int, Dot]] = []  # (a stable notice?, index, dot)
        self.known = known
        self.stable = stable
        self.vector = dict(vector or {})

    def add(self, index: int, dot: Dot) -> None:
        self.log.append((False, index, dot))
        self.known |= 1 << index
        self.vector[dot.origin] = max(self.vector.get(dot.origin, 0), dot.counter)

    def add_stable(self, index: int, dot: Dot) -> None:
        self.log.append((True, index, dot))
        self.stable |= 1 << index

    def cut(self, position: int) -> None:
        log = self.log[:position]
        self.known, self.stable, vector = self.start
        self.vector = dict(vector)
        self.log = []
        for stable, index, dot in log:
            (self.add_stable if stable else self.add)(index, dot)


class Checker:
    """Feed it the events as they happen; `findings` holds the violations so far, in order.

    members: names whose applications run from the start.
    unsynced_sends_survive: whether a message may stay delivered at others although its sender was rolled back to
        before it had sent it (messages that leave before they are durable); if not, that is a ghost.
    """

    def __init__(self, members: Iterable[str], *, unsynced_sends_survive: bool = False) -> None:
        self._views = {member: _View() for member in members}
        self._survive = unsynced_sends_survive
        self._index: dict[Dot, int] = {}
        self._dots: list[Dot] = []
        self._sender: list[str] = []
        self._past: list[int] = []
        self._past_vector: list[dict[str, int]] = []
        self._rolled_back: set[Dot] = set()
        self.findings: list[Finding] = []

    def sent(self, member: str, dot: Dot, tag: Tag | None = None) -> None:
        """The application at `member` has sent, and so delivered to itself, `dot`."""
        view = self._views[member]
        if dot in self._index:
            self._find(Kind.DUPLICATE, member, dot)
            return
        index = self._index[dot] = len(self._dots)
        self._dots.append(dot)
        self._sender.append(member)
        self._past.append(view.known)
        self._past_vector.append(dict(view.vector))
        if tag is not None:
            self._check_tag(member, index, tag)
        view.add(index, dot)

    def delivered(self, member: str, dot: Dot, tag: Tag | None = None) -> None:
        """The application at `member` has been given `dot`, with `tag` if it is to be checked."""
        view = self._views[member]
        index = self._index.get(dot)
        if index is None or (dot in self._rolled_back and not self._survive):
            self._find(Kind.GHOST, member, dot)
            return
        if view.known >> index & 1:
            self._find(Kind.DUPLICATE, member, dot)
            return
        past = self._past[index]
        if past & ~view.known:
            self._find(Kind.CAUSAL, member, dot, past & ~view.known)
        if view.stable & ~past:
            self._find(Kind.UNSAFE_STABLE, member, dot, view.stable & ~past)
        if tag is not None:
            self._check_tag(member, index, tag)
        view.add(index, dot)

    def stable(self, member: str, dot: Dot) -> None:
        """The application at `member` was told that `dot` is stable."""
        view = self._views[member]
        index = self._index.get(dot)
        if index is None or not view.known >> index & 1:
            self._find(Kind.STABLE_UNDELIVERED, member, dot)
            return
        if view.stable >> index & 1:
            self._find(Kind.STABLE_TWICE, member, dot)
            return
        if self._past[index] & ~view.stable:
            self._find(Kind.STABLE_ORDER, member, dot, self._past[index] & ~view.stable)
        view.add_stable(index, dot)

    def joined(self, member: str, known: Iterable[Dot], stable: Iterable[Dot] = ()) -> None:
        """`member` starts with an application state in which these messages are applied (and stable)."""
        if member in self._views:
            raise LocalProtocolError(f"{member} has joined already")
        bits, vector = 0, dict[str, int]()
        for dot in known:
            bits |= 1 << self._index[dot]
            vector[dot.origin] = max(vector.get(dot.origin, 0), dot.counter)
        was_stable = sum(1 << self._index[dot] for dot in set(stable))
        self._views[member] = _View(bits, was_stable, vector)

    def position(self, member: str) -> int:
        """How many events `member`'s application has had: the argument for `rolled_back`."""
        return len(self._views[member].log)

    def rolled_back(self, member: str, position: int) -> None:
        """The application at `member` has crashed and goes on from the state it had at `position`."""
        view = self._views[member]
        for stable, index, dot in view.log[position:]:
            if not stable and self._sender[index] == member:
                self._rolled_back.add(dot)
        view.cut(position)

    def knows(self, member: str, dot: Dot) -> bool:
        """Whether `dot` is applied in the application state of `member`."""
        index = self._index.get(dot)
        return index is not None and bool(self._views[member].known >> index & 1)

    def before(self, first: Dot, second: Dot) -> bool:
        """The truth about two messages: whether `first` lies in the past of `second`."""
        return bool(self._past[self._index[second]] >> self._index[first] & 1)

    def finish(self, members: Iterable[str] | None = None) -> list[Finding]:
        """Quiescence: what one of `members` (default: all) knows, all of them must, and report it stable."""
        names = list(self._views if members is None else members)
        everything = 0
        for name in names:
            everything |= self._views[name].known
        if members is None:
            # Nobody has left: what was sent and not rolled back counts, whoever still knows it.
            for dot, index in self._index.items():
                if dot not in self._rolled_back:
                    everything |= 1 << index
        for name in names:
            view = self._views[name]
            if lost := everything & ~view.known:
                dots = self._set(lost)
                self.findings.append(Finding(Kind.LOSS, name, dots[0], dots[1:]))
        for name in names:
            view = self._views[name]
            if stalled := everything & view.known & ~view.stable:
                dots = self._set(stalled)
                self.findings.append(Finding(Kind.STALL, name, dots[0], dots[1:]))
        return self.findings

    def _check_tag(self, member: str, index: int, tag: Tag) -> None:
        told = {origin: counter for origin, counter in tag.past.items() if counter}
        truth = self._past_vector[index]
        if told != truth:
            wrong = sorted(
                Dot(origin, max(told.get(origin, 0), truth.get(origin, 0)))
                for origin in {*told, *truth}
                if told.get(origin, 0) != truth.get(origin, 0)
            )
            self.findings.append(Finding(Kind.TAG, member, self._dots[index], tuple(wrong)))

    def _set(self, bits: int) -> tuple[Dot, ...]:
        return tuple(dot for index, dot in enumerate(self._dots) if bits >> index & 1)

    def _find(self, kind: Kind, member: str, dot: Dot, others: int = 0) -> None:
        self.findings.append(Finding(kind, member, dot, self._set(others)))
