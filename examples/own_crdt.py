"""How to write a CRDT: a poll in which each voter has one vote and may change it.

A vote replaces the voter's earlier votes that it has seen. Two votes of one voter, cast on two devices that had not
heard of each other, are in conflict: until the voter votes again, the greater option counts, at every replica.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Any, ClassVar

from crdtcast.datatypes import EVERYTHING, Arrival, Arrived, Entry, Operation, PureOpCRDT, text
from crdtcast.testing import Call, Group


class Poll(PureOpCRDT[dict[str, int]]):
    TYPE: ClassVar[str] = "poll_revisable"
    OPERATIONS = {  # noqa: RUF012
        "vote": Operation("Vote, in the place of an earlier vote.", voter=text, option=text),
        "withdraw": Operation("Take a vote back.", voter=text),
        "close": Operation("Forget all votes that have been seen."),
    }

    def __init__(self) -> None:
        super().__init__()
        self._stable: dict[str, str] = {}

    # Question one: what is redundant when an operation arrives, and what does it leave?
    def arrival(self, operation: Arrived) -> Arrival:
        match operation.name, operation.args:
            case "vote", (voter, option):
                return Arrival(clears=[voter], leaves=[(voter, option)])
            case "withdraw", (voter,):
                return Arrival(clears=[voter])
        return Arrival(clears=EVERYTHING)

    def clear_stable(self, slot: Any) -> None:
        if slot is EVERYTHING:
            self._stable.clear()
        else:
            self._stable.pop(slot, None)

    # Question two: what does a stable operation still mean?
    def stabilise(self, entry: Entry) -> None:
        self._count(self._stable, entry.slot, entry.content)

    @property
    def value(self) -> dict[str, int]:
        votes = dict(self._stable)
        for entry in self.log:
            self._count(votes, entry.slot, entry.content)
        return dict(Counter(votes.values()))

    @staticmethod
    def _count(votes: dict[str, str], voter: Hashable, option: str) -> None:
        votes[str(voter)] = max(votes.get(str(voter), ""), option)

    def dump_stable(self) -> Any:
        return dict(sorted(self._stable.items()))

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = dict(dumped)


def main() -> None:
    group = Group(Poll, 2)
    phone, laptop = group.members
    group.issue(phone, [Call("vote", "ann", "tea")])
    group.issue(laptop, [Call("vote", "ann", "coffee"), Call("vote", "bob", "coffee")])
    group.deliver_all()
    print("in conflict:", phone.crdt.value)
    group.issue(laptop, [Call("vote", "ann", "coffee")])
    group.deliver_all()
    print("settled:", phone.crdt.value, "and", laptop.crdt.value)


if __name__ == "__main__":
    main()
