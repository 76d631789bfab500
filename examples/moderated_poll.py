"""A CRDT from scratch: a poll with moderators, who remove options or admit them again.

A vote replaces the voter's earlier votes that it has seen; of two concurrent votes of one voter the greater option
counts. A removal wins over a concurrent admission, and over votes: these are kept, and count again if the option comes
back. Operations travel without any metadata.
"""

from collections import Counter
from typing import Any, ClassVar

from crdtcast.datatypes import EVERYTHING, Arrival, Arrived, Entry, Operation, PureOpCRDT, text
from crdtcast.testing import Call, Group


class ModeratedPoll(PureOpCRDT[dict[str, int]]):
    TYPE: ClassVar[str] = "poll_moderated"
    OPERATIONS = {  # noqa: RUF012
        "vote": Operation("Vote, in the place of an earlier vote.", voter=text, option=text),
        "strike": Operation("Strike an option off.", option=text),
        "admit": Operation("Let an option back in.", option=text),
    }

    def __init__(self) -> None:
        super().__init__()
        self._votes: dict[str, str] = {}
        self._struck: set[str] = set()

    # Two kinds of slots: what a voter said, and what moderators said of an option.
    def arrival(self, operation: Arrived) -> Arrival:
        match operation.name, operation.args:
            case "vote", (voter, option):
                return Arrival([("voter", voter)], [(("voter", voter), option)])
            case "strike", (option,):
                return Arrival([("option", option)], [(("option", option), None)])
        return Arrival([("option", operation.args[0])])  # admit: what it has not seen stays

    def clear_stable(self, slot: Any) -> None:
        if slot is EVERYTHING:
            self._votes, self._struck = {}, set()
        else:
            self._votes.pop(slot[1], None) if slot[0] == "voter" else self._struck.discard(slot[1])

    def stabilise(self, entry: Entry) -> None:
        self._note(self._votes, self._struck, entry)

    @property
    def value(self) -> dict[str, int]:
        votes, struck = dict(self._votes), set(self._struck)
        for entry in self.log:
            self._note(votes, struck, entry)
        return dict(Counter(option for option in votes.values() if option not in struck))

    @staticmethod
    def _note(votes: dict[str, str], struck: set[str], entry: Entry) -> None:
        match entry.slot:
            case ("option", str(option)):
                struck.add(option)
            case (_, str(voter)):
                votes[voter] = max(votes.get(voter, ""), entry.content)

    def dump_stable(self) -> Any:
        return [dict(sorted(self._votes.items())), sorted(self._struck)]

    def load_stable(self, dumped: Any, version: int) -> None:
        self._votes, self._struck = dict(dumped[0]), set(dumped[1])


def main() -> None:
    ann, moderator = (group := Group(ModeratedPoll, 2)).members
    group.issue(ann, [Call("vote", "ann", "spam"), Call("vote", "bob", "tea")])
    group.issue(moderator, [Call("strike", "spam")])
    group.deliver_all()
    print("struck:", ann.crdt.value, "and", moderator.crdt.value)
    group.issue(moderator, [Call("admit", "spam")])
    print("back:", moderator.crdt.value)


if __name__ == "__main__":
    main()
