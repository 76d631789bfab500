"""The example of docs/datatypes.md: it runs, holds its specification, and is what the docs show."""

import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st

from crdtcast.testing import VisibleOperation, check_crdt
from tests.effort import examples, first_seed

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "own_crdt.py"

voters, options = st.sampled_from(["ann", "bob"]), st.sampled_from(["tea", "coffee"])
operations = st.one_of(
    st.tuples(st.just("vote"), voters, options),
    st.tuples(st.just("withdraw"), voters),
    st.just(("close",)),
)


def expected(visible: Sequence[VisibleOperation]) -> dict[str, int]:
    """Of each voter, the greatest option among the votes that nothing later replaced."""
    live = [
        vote
        for vote in visible
        if vote.name == "vote"
        and not any(
            vote < other and (other.name == "close" or other.args[0] == vote.args[0])
            for other in visible
        )
    ]
    chosen = {
        voter: max(vote.args[1] for vote in live if vote.args[0] == voter)
        for voter in {vote.args[0] for vote in live}
    }
    return dict(Counter(chosen.values()))


def test_the_poll_holds_its_specification() -> None:
    poll = runpy.run_path(str(EXAMPLE))["Poll"]
    check_crdt(poll, operations, expected, examples=examples(150), seed=first_seed())


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == (
        "in conflict: {'tea': 1, 'coffee': 1}\nsettled: {'coffee': 2} and {'coffee': 2}\n"
    )
    assert len(EXAMPLE.read_text().splitlines()) < 80


def test_docs_show_the_example_verbatim() -> None:
    code = EXAMPLE.read_text()
    shown = code[code.index("class Poll(") : code.index("def main(")].strip()
    assert shown in (ROOT / "docs" / "datatypes.md").read_text()
