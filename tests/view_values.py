"""What members note of views and pass on: values for Hypothesis, and places in a document for junk."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from crdtcast.causality.tags import MAX_COUNTER
from crdtcast.engine import Cut, How
from crdtcast.engine.views import (
    Accepted,
    Asked,
    Ballot,
    Decided,
    Promise,
    Proposal,
    Record,
    View,
    ViewChange,
    Views,
    Wants,
    Word,
)

A, B, C = "a.0001", "b.0002+a.0001+1", "c.0003+b.0002+7"

numbers = st.integers(0, MAX_COUNTER)
levels = st.none() | st.integers(1, 9)
ids = st.sampled_from([A, B, C, "d.0004"])
several = st.lists(ids, max_size=3).map(tuple)
names = st.text("0123456789abcdef", max_size=16)
cuts = st.builds(Cut, numbers, st.sampled_from(How))
ballots = st.builds(Ballot, numbers, ids | st.just(""))
words = st.builds(Word, several, several)
changes = st.builds(
    ViewChange, st.lists(st.tuples(ids, cuts), max_size=3).map(tuple), several, several, levels
)
proposals = st.builds(Proposal, ballots, several, levels, st.booleans(), words, st.none() | changes)
promises = st.builds(Promise, ballots, st.dictionaries(ids, numbers), several)
records = st.builds(
    Record,
    ids,
    numbers,
    numbers,
    names,
    numbers,
    ballots,
    st.none() | promises,
    st.none() | st.builds(Accepted, ballots, changes, words),
    st.none() | proposals,
)
decisions = st.builds(Decided, numbers, names, changes, st.booleans())
frames_of_views = st.builds(
    Views,
    numbers,
    names,
    st.dictionaries(ids, numbers),
    st.lists(records, max_size=3).map(tuple),
    st.lists(decisions, max_size=3).map(tuple),
    st.lists(st.builds(Asked, ids, numbers, st.frozensets(ids)), max_size=3).map(tuple),
)
views = st.builds(View, numbers, names, st.frozensets(ids), st.integers(1, 9))
wants = st.builds(Wants, st.dictionaries(ids, st.booleans()), st.booleans(), levels)

BALLOT = Ballot(3, A)
CHANGE = ViewChange(((B, Cut(9, How.EVICTED)), (C, Cut(4, How.LEFT))), (B,), (C,), 2)
WORD = Word((B,), (C,))
RECORD = Record(
    A,
    7,
    2,
    "89ab",
    5,
    BALLOT,
    Promise(BALLOT, {B: 9}, (A, C)),
    Accepted(BALLOT, CHANGE, WORD),
    Proposal(BALLOT, (B,), 2, True, WORD, CHANGE),
)
DECIDED = Decided(1, "4567", CHANGE, True)
VIEW = View(2, "89ab", frozenset({A, B}), 1)
WANTS = Wants({B: True, C: False}, True, 2)
FRAME = Views(2, "89ab", {A: 7, B: 1}, (RECORD,), (DECIDED,), (Asked(A, 3, frozenset({A, B})),))
"""Nothing in it is left out, so that every field has a value that junk can take the place of."""


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in a document of lists and maps."""
    yield path
    if isinstance(document, list):
        for index, each in enumerate(document):
            yield from places(each, (*path, index))
    elif isinstance(document, dict):
        for key, each in document.items():
            yield from places(each, (*path, key))


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with something else at that place."""
    if not path:
        return value
    first, *rest = path
    changed = list(document) if isinstance(document, list) else dict(document)
    changed[first] = put(document[first], tuple(rest), value)
    return changed


def at(document: Any, path: tuple[Any, ...]) -> Any:
    """What is there."""
    for each in path:
        document = document[each]
    return document


JUNK = (
    True,
    1.5,
    -1,
    2**64 - 1,
    b"\xff",
    "not an id: \x00",
    [[]],
    [None],
    {"?": None},
    {"a.1": -1},
)
"""None of it is right anywhere, but for `True` in the place of a truth value."""
