"""What a membership operation of another member claims, held against the past of the message that carries it.

A cut, a report or a vector in an operation is what its sender had delivered when it sent it: exactly the past of that
message, which is delivered here, so it proves or refutes them. What is left when the false parts are taken away is the
same wherever the same was delivered, so members that have met a liar still agree:

- a join counts, with a vector that claims nothing beyond its past; not one under an id that is known before it;
- a report on somebody who is evicted in its past counts, with no more than its past has: it makes nobody wait for what
  does not exist;
- that a member has ended counts if it is being evicted and all others have reported on it, all of that within its past,
  with a cut that covers these reports: then everybody will cut it off there;
- a settlement counts if it is by the same node's successor;
- a raise of the format level counts if all members have said that they read that level.
"""

from collections.abc import Callable
from typing import NamedTuple

from crdtcast.engine.membership import Membership
from crdtcast.engine.operations import (
    Cut,
    Evict,
    Frozen,
    How,
    Join,
    Leave,
    Operation,
    Raise,
    Settled,
    Sweep,
)
from crdtcast.incarnation import base_of, joined_by, name_of
from crdtcast.tags import Dot, Vector

Known = Callable[[str], int]
"""Origin -> how many of its messages the past of a message covers."""


class Wrong(NamedTuple):
    """What is wrong with an operation. proven: by its own past; otherwise by what this member has made of what it got,
    which another liar may have had a part in: then it has no effect, and its sender is not blamed.
    """

    text: str
    proven: bool = True


Judged = tuple[Operation | None, Wrong | None]


class Claims:
    """Judges for one member. membership, vector: its engine's, read only."""

    def __init__(self, membership: Membership, vector: Vector) -> None:
        self._membership = membership
        self._vector = vector

    def judge(self, operation: Operation, dot: Dot, past: Vector) -> Judged:
        """What is left of an operation, None if nothing is; and what is wrong with it, None if nothing is.

        past: of the message `dot`, which brings the operation, its sender's earlier messages included.
        """

        def known(origin: str) -> int:
            return dot.counter - 1 if origin == dot.origin else past.get(origin, 0)

        match operation:
            case Join():
                return self._join(operation, dot, known)
            case Evict(victim):
                wrong = self._evict(victim, dot, known)
                return (None if wrong else operation), wrong
            case Frozen(victim, counter):
                return self._report(victim, counter, dot, known)
            case Sweep(ended):
                kept, wrong = self._cuts(ended, dot, known)
                return Sweep(kept), wrong
            case Leave(ended):
                kept, wrong = self._cuts(ended, dot, known)
                return Leave(kept), wrong
            case Settled(incarnation, counter):
                wrong = self._settled(incarnation, counter, dot, known)
                return (None if wrong else operation), wrong
            case Raise(level):
                wrong = self._raise(level, dot, known)
                return (None if wrong else operation), wrong
            case _:
                return operation, None

    def _covers_join(self, incarnation: str, known: Known) -> bool:
        """Whether the join of a member is in that past."""
        join = joined_by(incarnation)
        if join is None:
            return True
        contact = self._membership.incarnation(join[0])
        return contact is None or known(contact) >= join[1]

    def _join(self, join: Join, dot: Dot, known: Known) -> Judged:
        base, contact = join.base, base_of(dot.origin)
        if base in (contact, *join.replaces) or contact in join.replaces:
            return None, Wrong(f"lets {base} in, which is replaced by it, or its contact")
        before = self._membership.incarnation(base)
        if before is not None and self._covers_join(before, known):
            return None, Wrong(f"lets {base} in, under which {before} was let in before")
        row: dict[str, int] = {}
        wrong = None
        for origin, counter in join.vector.items():
            if origin not in self._vector:
                continue  # forgotten here, so all of it is before this
            row[origin] = min(counter, known(origin))
            if counter != known(origin):
                had = known(origin)
                wrong = Wrong(f"lets {base} in with {origin}:{counter}, of which it had {had}")
        return Join(base, join.replaces, join.witness, row, join.reads), wrong

    def _is_unknown(self, incarnation: str, known: Known) -> bool:
        """Whether that past has no join of it. What is forgotten here is in every past."""
        if incarnation in self._vector:
            return not self._covers_join(incarnation, known)
        return not self._membership.is_past(incarnation)

    def _evict(self, victim: str, dot: Dot, known: Known) -> Wrong | None:
        if victim == dot.origin:
            return Wrong("evicts itself")
        if self._is_unknown(victim, known):
            return Wrong(f"evicts {victim}, which nobody has let in")
        return None

    def _report(self, victim: str, counter: int, dot: Dot, known: Known) -> Judged:
        if victim == dot.origin:
            return None, Wrong("reports on itself")
        if self._is_unknown(victim, known):
            return None, Wrong(f"reports on {victim}, which nobody has let in")
        if victim not in self._vector:
            return None, None  # forgotten here
        had = known(victim)
        wrong = None
        if counter != had:
            wrong = Wrong(f"reports {counter:,} messages of {victim}, of which it had {had:,}")
        membership = self._membership
        if victim in membership.evictions and not membership.is_victim_within(known, victim):
            early = Wrong(f"reports on {victim} before anybody evicts it", proven=False)
            return None, wrong or early
        return Frozen(victim, min(counter, had)), wrong

    def _cuts(
        self, ended: tuple[tuple[str, Cut], ...], dot: Dot, known: Known
    ) -> tuple[tuple[tuple[str, Cut], ...], Wrong | None]:
        kept = []
        first = None
        for incarnation, cut in ended:
            wrong = self._cut(incarnation, cut, dot, known)
            if wrong is None:
                kept.append((incarnation, cut))
            first = first or wrong
        return tuple(kept), first

    def _cut(self, incarnation: str, cut: Cut, dot: Dot, known: Known) -> Wrong | None:
        membership = self._membership
        delivered = self._vector.get(incarnation)
        if delivered is None:
            return None  # forgotten here, or never met: it changes nothing
        if incarnation == dot.origin:
            return Wrong("says of itself that it has ended")
        what = f"cuts {incarnation} at {cut.counter:,}"
        if cut.counter != known(incarnation):
            return Wrong(f"{what}, of which it had {known(incarnation):,}")
        ended = membership.ended.get(incarnation)
        if ended is None:
            return self._conclusion(incarnation, cut, what, dot, known)
        if ended.counter == cut.counter:
            return None
        if delivered > cut.counter and self._may_be_cut_off(known):
            return None
        return Wrong(f"{what}, which has ended at {ended.counter:,}", proven=False)

    def _may_be_cut_off(self, known: Known) -> bool:
        """Whether this member may have been cut off, and have delivered what the others have not."""
        membership = self._membership
        me = membership.me
        return (
            me in membership.evictions or me in membership.ended or not self._covers_join(me, known)
        )

    def _conclusion(self, victim: str, cut: Cut, what: str, dot: Dot, known: Known) -> Wrong | None:
        """A member that concludes an eviction has the reports of all whom it knows, but the victims.

        Nothing counts that is not in its past, neither reports nor victims: else a member that has delivered more would
        believe what others do not. Its victims are those on whom it has reported itself.
        """
        membership, evictions = self._membership, self._membership.evictions
        if victim not in membership.members:
            return None
        if victim not in evictions:
            return Wrong(f"{what}, a member that nobody evicts")
        if cut.how is How.LEFT:
            return Wrong(f"{what}, which has not left")
        for member in membership.members:
            is_victim = member == victim or dot.origin in evictions.get(member, ())
            if is_victim or not self._covers_join(member, known):
                continue
            reported = membership.report_within(known, victim, member)
            if reported is None:
                return Wrong(f"{what}, on which {member} has not reported", proven=False)
            if reported > cut.counter:
                return Wrong(f"{what}, of which {member} has reported {reported:,}", proven=False)
        return None

    def _settled(self, incarnation: str, counter: int, dot: Dot, known: Known) -> Wrong | None:
        if name_of(dot.origin) != name_of(incarnation):
            return Wrong(f"has settled {incarnation}, which is another node's")
        tomb = self._membership.tombs.get(incarnation)
        if tomb is not None and tomb.counter != counter and not self._may_be_cut_off(known):
            text = f"has settled {incarnation} at {counter:,}, which has ended at {tomb.counter:,}"
            return Wrong(text, proven=False)
        return self._cut(incarnation, Cut(counter, How.EVICTED), dot, known)

    def _raise(self, level: int, dot: Dot, known: Known) -> Wrong | None:
        evictions = self._membership.evictions
        # The sender may have cut a victim off if it has reported on it before.
        ended = {victim for victim, reports in evictions.items() if dot.origin in reports}
        for who, member in self._membership.members.items():
            if (
                who not in (dot.origin, *ended)
                and level not in member.reads
                and self._covers_join(who, known)
                and known(who) >= member.said_at
            ):
                return Wrong(f"raises the format level to {level}, and {who} reads {member.reads}")
        return None
