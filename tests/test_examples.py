"""What the examples show: the same each time, over real sockets, in less than eighty lines."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.datatypes import Arrival, Arrived, Entry
from crdtcast.testing import VisibleOperation, check_crdt, check_every_order
from tests.effort import examples, first_seed

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

SHOWN = {
    "shopping_cart": """\
phone sees: ['bread', 'milk']
apart: ['bread', 'milk', 'tea'] and []
together: ['milk', 'tea'] and ['milk', 'tea']
phone has: ['order:1', 'orders'] ['milk', 'tea']
""",
    "chat": """\
ann's screen: ann: who brings the cake? / bob: I do / cem: then I bring tea
bob's screen: ann: who brings the cake? / bob: I do / cem: then I bring tea
cem's screen: ann: who brings the cake? / bob: I do / cem: then I bring tea
""",
    "option_monitor": """\
share 115, option 12 (stale: computed from an older share, false crossing)
share 115, option 27 (consistent)
""",
    "moderated_poll": """\
struck: {'tea': 1} and {'tea': 1}
back: {'spam': 1, 'tea': 1}
""",
    "shared_document": """\
ann, bob and cem have bread milk tea
seen by {'ann': 5.0, 'bob': 4.0, 'cem': 6.0}
""",
    "durable_crdt": """\
after a restart: {'coffee': 2}
""",
}


@pytest.fixture
def log_level() -> Iterator[None]:
    """Examples that break their own links quieten the log."""
    logger = logging.getLogger("crdtcast")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.usefixtures("log_level")
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_example_prints_its_documented_output(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # as when it is run
    run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr() == (SHOWN[name], "")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80


Poll: Any = run_path(str(EXAMPLES / "moderated_poll.py"))["ModeratedPoll"]


def counted(visible: Sequence[VisibleOperation]) -> dict[str, int]:
    """Of each voter the greatest vote that none replaced, unless a strike is left that no
    admission had seen.
    """

    def replaced(old: VisibleOperation, by: str) -> bool:
        return any(o.name == by and old < o and o.args[0] == old.args[0] for o in visible)

    struck = {s.args[0] for s in visible if s.name == "strike" and not replaced(s, "admit")}
    votes: dict[str, str] = {}
    for vote in visible:
        if vote.name == "vote" and not replaced(vote, "vote"):
            voter, option = vote.args
            votes[voter] = max(votes.get(voter, ""), option)
    return dict(Counter(option for option in votes.values() if option not in struck))


voters, options = st.sampled_from(["ann", "bob"]), st.sampled_from(["spam", "tea"])
operations = st.one_of(
    st.tuples(st.just("vote"), voters, options),
    st.tuples(st.sampled_from(["strike", "admit"]), options),
)


def test_the_poll_holds_its_specification() -> None:
    check_crdt(Poll, operations, counted, examples=examples(60), seed=first_seed())
    calls = [("vote", "ann", "tea"), ("vote", "ann", "spam"), ("strike", "tea"), ("admit", "tea")]
    check_every_order(Poll, calls, counted, operations=2)
    check_every_order(Poll, calls[2:], counted)


class AdmitWins(Poll):  # type: ignore[misc]
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return new.name == "admit" or old.before(new.tag, new.index)


class StrikesRemoveVotes(Poll):  # type: ignore[misc]
    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        self._votes = {v: o for v, o in self._votes.items() if o not in self._struck}


class LastVoteWins(Poll):  # type: ignore[misc]
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return new.name == "vote" or old.before(new.tag, new.index)


class StrikeNeedsNoLog(Poll):  # type: ignore[misc]
    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "strike":
            return Arrival([("option", operation.args[0])])
        arrival: Arrival = super().arrival(operation)
        return arrival


@pytest.mark.parametrize("mutant", [AdmitWins, StrikesRemoveVotes, LastVoteWins, StrikeNeedsNoLog])
def test_a_poll_with_other_rules_is_caught(mutant: Any) -> None:
    calls = [("vote", "ann", "tea"), ("vote", "ann", "spam"), ("strike", "tea"), ("admit", "tea")]
    with pytest.raises(AssertionError, match="should be"):
        check_every_order(mutant, calls, counted)
