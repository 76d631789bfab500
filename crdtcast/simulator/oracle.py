"""The oracle: causal delivery, exact tags and stability, checked from their definitions over application events only.

It sees what applications did (sent, delivered, got a stable notice) in one global order that respects the order at each
member. It keeps the true past of every message as a set: what its sender had sent or delivered before. It does not use
vectors, contexts or digests of the algorithm that it checks. (The published checkers, thesis Alg. 14 and Dias Alg. 16,
test in the wrong direction and never notice a lost message.)

Members come and go. A joiner starts from another member's application (`snapshot`, `joined_from`). An incarnation ends
with a cut (`ended`): its messages beyond the cut are void, and once the others are stable, tags may omit its name.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.exceptions import LocalProtocolError


class FailureKind(enum.Enum):
    """What can be wrong. The values are the words of verdicts and reports."""

    GHOST = "ghost"  # delivered, but never sent
    DUPLICATE = "duplicate"  # delivered (or sent) twice at one member
    CAUSAL = "causal"  # delivered before something of its past
    TAG = "tag"  # the tag's past is not what the sender had sent or delivered
    UNSAFE_STABLE = "unsafe-stable"  # something concurrent can still come after the report
    STABLE_ORDER = "stable-order"  # reported stable before something of its past
    STABLE_TWICE = "stable-twice"
    STABLE_UNDELIVERED = "stable-undelivered"
    CUT = "cut"  # at quiescence: two members have different cuts, or one knows more than its cut
    TWICE = "twice"  # an operation is applied under its first dot and again under a later one
    LOSS = "loss"  # at quiescence: known at one member, never delivered at another
    STALL = "stall"  # at quiescence: delivered, never reported stable


@dataclass(frozen=True, slots=True)
class OracleFinding:
    """One violation: its kind, its member, its message, and the other messages that prove it."""

    kind: FailureKind
    member: str
    dot: Dot | None
    others: tuple[Dot, ...] = ()

    def __str__(self) -> str:
        text = f"{self.kind.value}: {self.dot} at {self.member}"
        return f"{text}: {', '.join(map(str, self.others))}" if self.others else text


@dataclass(frozen=True, slots=True)
class OracleSnapshot:
    """What one application knew at one instant, as the start of another one. Each message is one bit."""

    known: int = 0
    stable: int = 0
    vector: Vector = field(default_factory=dict)
    cuts: Vector = field(default_factory=dict)


class _View:
    """One member's application: sets are integers with one bit for each message; the log allows a rollback."""

    __slots__ = ("cuts", "known", "log", "stable", "start", "vector")

    def __init__(self, start: OracleSnapshot | None = None) -> None:
        self.start = start = start or OracleSnapshot()
        # (whether it is a stable notice, index, dot); or (None, 0, an ended incarnation with its cut).
        self.log: list[tuple[bool | None, int, Dot]] = []
        self.known = start.known
        self.stable = start.stable
        self.vector = dict(start.vector)
        self.cuts = dict(start.cuts)

    def add(self, index: int, dot: Dot) -> None:
        self.log.append((False, index, dot))
        self.known |= 1 << index
        self.vector[dot.origin] = max(self.vector.get(dot.origin, 0), dot.counter)

    def add_stable(self, index: int, dot: Dot) -> None:
        self.log.append((True, index, dot))
        self.stable |= 1 << index

    def add_end(self, end: Dot) -> None:
        self.log.append((None, 0, end))
        self.cuts[end.origin] = end.counter

    def cut(self, position: int) -> None:
        log = self.log[:position]
        self.known, self.stable = self.start.known, self.start.stable
        self.vector = dict(self.start.vector)
        self.cuts = dict(self.start.cuts)
        self.log = []
        for stable, index, dot in log:
            if stable is None:
                self.add_end(dot)
            else:
                (self.add_stable if stable else self.add)(index, dot)


class Checker:
    """Takes the events as they happen; `findings` holds the violations so far, in order.

    members: names whose applications run from the start.
    unsynced_sends_survive: whether other members may keep a message although its sender was rolled back to before it
        sent it (messages leave before they are durable). If not, that message is a ghost.
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
        self._sent = 0  # a bit for each message that was not rolled back
        self._set_back = 0  # of these, messages that their sender does not know any more
        self._reissued: list[tuple[Dot, Dot]] = []
        self.findings: list[OracleFinding] = []

    def _is_lost(self, index: int) -> bool:
        """Whether no member has this message: its sender had sent it before its disk was set back."""
        known = any(view.known >> index & 1 for view in self._views.values())
        return bool(self._set_back >> index & 1) and not known

    def sent(self, member: str, dot: Dot, tag: Tag | None = None) -> None:
        """The application at `member` has sent `dot`, and so delivered it to itself."""
        view = self._views[member]
        before = self._index.get(dot)
        if before is not None and not self._is_lost(before):
            self._find(FailureKind.DUPLICATE, member, dot)
            return
        index = self._index[dot] = len(self._dots)
        self._dots.append(dot)
        self._sender.append(member)
        self._past.append(view.known)
        self._past_vector.append(dict(view.vector))
        self._sent |= 1 << index
        if tag is not None:
            self._check_tag(member, index, tag)
        view.add(index, dot)

    def delivered(self, member: str, dot: Dot, tag: Tag | None = None) -> None:
        """The application at `member` has received `dot`; with `tag` if the tag is to be checked."""
        view = self._views[member]
        index = self._index.get(dot)
        if index is None:
            self._find(FailureKind.GHOST, member, dot)
            return
        if view.known >> index & 1:
            self._find(FailureKind.DUPLICATE, member, dot)
            return
        past = self._past[index]
        if past & ~view.known:
            self._find(FailureKind.CAUSAL, member, dot, past & ~view.known)
        if view.stable & ~past and not self._set_back >> index & 1:
            self._find(FailureKind.UNSAFE_STABLE, member, dot, view.stable & ~past)
        if tag is not None:
            self._check_tag(member, index, tag)
        view.add(index, dot)

    def stable(self, member: str, dot: Dot, members: Iterable[str] = ()) -> None:
        """The application at `member` was notified that `dot` is stable.

        Then `member` can deliver nothing concurrent any more. So no concurrent message may be on its way, and each of
        `members`, which may send later, must have delivered `dot`; otherwise the finding is at the one that has not.
        This is checked at once, since `member` may end before something concurrent reaches it.
        """
        view = self._views[member]
        index = self._index.get(dot)
        if index is None or not view.known >> index & 1:
            self._find(FailureKind.STABLE_UNDELIVERED, member, dot)
            return
        if view.stable >> index & 1:
            self._find(FailureKind.STABLE_TWICE, member, dot)
            return
        if self._past[index] & ~view.stable:
            self._find(FailureKind.STABLE_ORDER, member, dot, self._past[index] & ~view.stable)
        if to_come := self._to_come(view, index):
            self._find(FailureKind.UNSAFE_STABLE, member, dot, to_come)
        for other in members:
            if other in self._views and not self.knows(other, dot):
                self._find(FailureKind.UNSAFE_STABLE, other, dot)
        view.add_stable(index, dot)

    def _to_come(self, view: _View, stable: int) -> int:
        """Messages concurrent with a delivered one that this member can still deliver: not those beyond a cut."""
        left = self._sent & ~view.known & ~self._set_back
        found = 0
        while left:
            bit = left & -left
            left ^= bit
            index = bit.bit_length() - 1
            if not self._past[index] >> stable & 1 and not self._is_void(view, index):
                found |= bit
        return found

    def _is_void(self, view: _View, index: int) -> bool:
        """Whether a message lies beyond a cut of this member, or after such a message."""
        dot, past = self._dots[index], self._past_vector[index]
        return any(
            past.get(origin, 0) > cut or (dot.origin == origin and dot.counter > cut)
            for origin, cut in view.cuts.items()
        )

    def joined(self, member: str, known: Iterable[Dot], stable: Iterable[Dot] = ()) -> None:
        """`member` starts with an application state in which these messages are applied (and stable)."""
        bits, vector = 0, dict[str, int]()
        for dot in known:
            bits |= 1 << self._index[dot]
            vector[dot.origin] = max(vector.get(dot.origin, 0), dot.counter)
        was_stable = sum(1 << self._index[dot] for dot in set(stable))
        self.joined_from(member, OracleSnapshot(bits, was_stable, vector))

    @property
    def members(self) -> list[str]:
        """All members whose applications have started."""
        return list(self._views)

    def snapshot(self, member: str) -> OracleSnapshot:
        """What the application of `member`, or a copy of its state, knows at this instant."""
        view = self._views[member]
        return OracleSnapshot(view.known, view.stable, dict(view.vector), dict(view.cuts))

    def joined_from(self, member: str, snapshot: OracleSnapshot) -> None:
        """`member` starts with a copy of another application's state."""
        if member in self._views:
            raise LocalProtocolError(f"{member} has joined already")
        self._views[member] = _View(snapshot)

    def forget(self, member: str) -> None:
        """`member` has not joined after all: its application is gone, and no other member has heard from it."""
        del self._views[member]

    def ended(self, member: str, incarnation: str, cut: int) -> None:
        """`member` has learned that `incarnation` has ended, with its messages up to `cut`."""
        self._views[member].add_end(Dot(incarnation, cut))

    def reissued(self, old: Dot, new: Dot) -> None:
        """The operation of `old`, of an incarnation that has ended, was sent again as `new`."""
        self._reissued.append((old, new))

    def position(self, member: str) -> int:
        """How many events `member`'s application has had: the argument for `rolled_back`."""
        return len(self._views[member].log)

    def rolled_back(self, member: str, position: int) -> None:
        """The application at `member` has crashed and continues from its state at `position`."""
        view = self._views[member]
        for stable, index, dot in view.log[position:]:
            if stable is not False or self._sender[index] != member:
                continue
            self._sent &= ~(1 << index)
            if self._survive:
                self._rolled_back.add(dot)
            else:
                # It never left. The dot may be used again, by the same incarnation, for another message.
                del self._index[dot]
        view.cut(position)

    def set_back(self, member: str, position: int) -> None:
        """Like `rolled_back`, to a state older than the last sync: other members may have what `member` has sent since.

        They need not have it in the end. `member` may send something else under such a dot, if no member has the first.
        """
        view = self._views[member]
        for stable, index, _ in view.log[position:]:
            if stable is False and self._sender[index] == member:
                self._set_back |= 1 << index
        view.cut(position)

    def knows(self, member: str, dot: Dot) -> bool:
        """Whether `dot` is applied in the application state of `member`."""
        index = self._index.get(dot)
        return index is not None and bool(self._views[member].known >> index & 1)

    def before(self, first: Dot, second: Dot) -> bool:
        """Whether `first` is truly in the past of `second`."""
        return bool(self._past[self._index[second]] >> self._index[first] & 1)

    def finish(self, members: Iterable[str] | None = None) -> list[OracleFinding]:
        """At quiescence: what one of `members` (default: all) knows, all must know, and have reported as stable."""
        names = list(self._views if members is None else members)
        everything = 0
        for name in names:
            everything |= self._views[name].known
        if members is None:
            # No member has left: all that was sent and not rolled back counts, even if no member knows it.
            for dot, index in self._index.items():
                if dot not in self._rolled_back:
                    everything |= 1 << index
        for name in names:
            view = self._views[name]
            if lost := everything & ~view.known:
                dots = self._set(lost)
                self.findings.append(OracleFinding(FailureKind.LOSS, name, dots[0], dots[1:]))
        self._finish_ended(names)
        for name in names:
            view = self._views[name]
            if stalled := everything & view.known & ~view.stable:
                dots = self._set(stalled)
                self.findings.append(OracleFinding(FailureKind.STALL, name, dots[0], dots[1:]))
        return self.findings

    def _finish_ended(self, names: list[str]) -> None:
        agreed: dict[str, int] = {}
        for name in names:
            view = self._views[name]
            for incarnation, cut in view.cuts.items():
                last = Dot(incarnation, view.vector.get(incarnation, 0))
                if agreed.setdefault(incarnation, cut) != cut or last.counter > cut:
                    self._find(FailureKind.CUT, name, last)
            for old, new in self._reissued:
                if self.knows(name, old) and self.knows(name, new):
                    self.findings.append(OracleFinding(FailureKind.TWICE, name, new, (old,)))

    def _check_tag(self, member: str, index: int, tag: Tag) -> None:
        if self._set_back >> index & 1:
            return  # its past has by now all that is stable, which was not so when it was sent
        told = {origin: counter for origin, counter in tag.past.items() if counter}
        truth = self._past_vector[index]
        if told != truth:
            wrong = sorted(
                Dot(origin, max(told.get(origin, 0), truth.get(origin, 0)))
                for origin in {*told, *truth}
                if told.get(origin, 0) != truth.get(origin, 0)
                and (origin in told or not self._forgettable(member, origin, truth[origin]))
            )
            if wrong:
                self.findings.append(
                    OracleFinding(FailureKind.TAG, member, self._dots[index], tuple(wrong))
                )

    def _forgettable(self, member: str, origin: str, counter: int) -> bool:
        """Whether a tag's past may omit `origin`: at `member` it has ended, and its messages are stable."""
        view = self._views[member]
        if origin not in view.cuts:
            return False
        return all(
            index is None or view.stable >> index & 1
            for index in (self._index.get(Dot(origin, n)) for n in range(1, counter + 1))
        )

    def _set(self, bits: int) -> tuple[Dot, ...]:
        return tuple(dot for index, dot in enumerate(self._dots) if bits >> index & 1)

    def _find(self, kind: FailureKind, member: str, dot: Dot, others: int = 0) -> None:
        self.findings.append(OracleFinding(kind, member, dot, self._set(others)))
