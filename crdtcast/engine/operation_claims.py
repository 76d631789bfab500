"""Checks what a membership operation of another member claims against the past of its message.

A cut or a vector in an operation is what its sender had delivered when it sent it: exactly the past of that message.
This member has delivered that past, so it proves or refutes them. What is left without the false parts is the same
wherever the same was delivered, so members that have met a liar still agree:

- A join counts, with a vector that claims nothing beyond its past; not one under a base that its past knows.
- The end of an incarnation counts if it has ended, or will, after as many of its messages as that past has.
- A settlement counts if it is from the same node's successor.
"""

from collections.abc import Callable
from typing import NamedTuple

from crdtcast.causality.member_id import base_of, joined_by, name_of
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.blames import Blames
from crdtcast.engine.membership import Membership
from crdtcast.engine.operations import Cut, How, Join, Operation, Settled, Sweep, decode
from crdtcast.exceptions import RemoteProtocolError

Known = Callable[[str], int]
"""Origin -> how many of its messages the past of a message covers."""


class Wrong(NamedTuple):
    """What is wrong with an operation. proven: whether its own past proves it. If only what this member has concluded
    does, another liar may have had a part in that: the operation has no effect, and its sender is not blamed.
    """

    text: str
    proven: bool = True


Judged = tuple[Operation | None, Wrong | None]


class Claims:
    """Judges operations for one member. membership, vector: those of its engine, read only. past_of: returns the past
    of a message that could be delivered now. blames: where to note what is wrong.
    """

    def __init__(
        self,
        membership: Membership,
        vector: Vector,
        past_of: Callable[[Message], Vector],
        blames: Blames,
    ) -> None:
        self._membership = membership
        self._vector = vector
        self._past_of = past_of
        self._blames = blames
        self.senders: dict[Dot, str] = {}
        """Dot of a membership operation that waits -> the peer that has sent it."""

    def check(self, sender: str, message: Message) -> None:
        """Refuse a membership operation that is impossible, as far as this member can tell by now.

        One that another member forwards is judged when it is delivered: that member may have taken it in good faith.
        """
        try:
            operation = decode(message.kind, message.payload)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{sender} sent {message.dot}: {error}") from error
        if operation is None or sender != message.dot.origin:
            return
        vector = self._vector
        origin, counter = message.dot
        if vector.get(origin) != counter - 1:
            return
        if any(vector.get(depended, 0) < n for depended, n in message.context):
            return
        _, wrong = self.judge(operation, message.dot, self._past_of(message))
        if wrong is not None and wrong.proven:
            raise RemoteProtocolError(f"{sender} {wrong.text} (its message {counter:,})")

    def counts(self, message: Message) -> Operation | None:
        """What counts of the operation in a message that is about to be delivered. The rest is noted."""
        origin, counter = dot = message.dot
        sender = self.senders.pop(dot, origin)
        operation = decode(message.kind, message.payload)
        if operation is None:
            return None
        operation, wrong = self.judge(operation, dot, self._past_of(message))
        if wrong is not None:
            text = f"{origin} {wrong.text} (its message {counter:,}"
            if not wrong.proven:
                self._blames.doubt(origin, f"{text}): it has no effect at this member")
            elif sender == origin:
                self._blames.note_late(origin, f"{text})")
            else:
                self._blames.note(origin, f"{text}, forwarded by {sender})")
        return operation

    def judge(self, operation: Operation, dot: Dot, past: Vector) -> Judged:
        """What is left of an operation, or None; and what is wrong with it, or None.

        past: of the message `dot`, which brings the operation, its sender's earlier messages included.
        """

        def known(origin: str) -> int:
            return dot.counter - 1 if origin == dot.origin else past.get(origin, 0)

        match operation:
            case Join():
                return self._join(operation, dot, known)
            case Sweep(ended):
                kept, wrong = self._cuts(ended, dot, known)
                return Sweep(kept), wrong
            case Settled(incarnation, counter):
                wrong = self._settled(incarnation, counter, dot, known)
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
            return None, Wrong(f"admits {base}, which is replaced by that join, or is its contact")
        before = self._membership.incarnation(base)
        if before is not None and self._covers_join(before, known):
            return None, Wrong(f"admits {base}, which was admitted before as {before}")
        row: dict[str, int] = {}
        wrong = None
        for origin, counter in join.vector.items():
            if origin not in self._vector:
                continue  # forgotten here, so all of it is before this
            row[origin] = min(counter, known(origin))
            if counter != known(origin):
                had = known(origin)
                wrong = Wrong(f"admits {base} with {origin}:{counter}, but had {had} of them")
        return Join(base, join.replaces, join.witness, row, join.reads), wrong

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
            return Wrong("reports its own end")
        what = f"cuts {incarnation} at {cut.counter:,}"
        if cut.counter != known(incarnation):
            return Wrong(f"{what}, but had {known(incarnation):,} messages of it")
        if incarnation == membership.me:
            return None  # a frame of views, or an `Ended`, tells a member of its own end
        ended = membership.cut(incarnation)
        if ended is None:
            if membership.limit(incarnation) is not None:
                return None  # it may have been decided elsewhere
            return Wrong(f"{what}, which has not ended", proven=False)
        if incarnation in membership.cuts or ended.counter == cut.counter:
            return None
        return Wrong(f"{what}, which ended at {ended.counter:,}", proven=False)

    def _settled(self, incarnation: str, counter: int, dot: Dot, known: Known) -> Wrong | None:
        if name_of(dot.origin) != name_of(incarnation):
            return Wrong(f"settles {incarnation}, which is another node's")
        tomb = self._membership.tombs.get(incarnation)
        if tomb is not None and tomb.counter != counter:
            text = f"settles {incarnation} at {counter:,}, which ended at {tomb.counter:,}"
            return Wrong(text, proven=False)
        return self._cut(incarnation, Cut(counter, How.EVICTED), dot, known)
