"""The table of a connection's phases: every cell, and what holds for every sequence of commands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.clients.connection_phases import (
    TRANSITIONS,
    Answer,
    ConnectionEvent,
    ConnectionPhase,
    ends_watch,
    step,
)
from crdtcast.exceptions import LocalProtocolError

LETTERS = {
    "c": Answer.CARRY_OUT,
    "o": Answer.OK,
    "w": Answer.WATCH,
    "e": Answer.ERROR,
    "m": Answer.MISPLACED,
    "q": Answer.QUEUE,
    "v": Answer.QUEUE_IN_VAIN,
    "x": Answer.EXECUTE,
    "d": Answer.DISCARDED,
    "r": Answer.REFUSE,
}
SHORT = {
    "O": ConnectionPhase.OPEN,
    "Q": ConnectionPhase.QUEUING,
    "A": ConnectionPhase.ABORTING,
    "D": ConnectionPhase.DATABASE_REFUSED,
    "d": ConnectionPhase.DATABASE_REFUSED_MULTI,
}
EXPECTED = """
   COMMAND REJECTED MULTI EXEC EXEC_REJECTED DISCARD WATCH UNWATCH SELECT SELECT_OURS RESET
O  cO      eO       oQ    mO   eO            mO      wO    cO      cO          eD           cO
Q  qQ      eA       mQ    xO   eO            oO      mQ    qQ      qQ          eA           cO
A  vA      eA       mA    dO   eO            oO      mA    vA      vA          eA           cO
D  rD      rD       rd    rD   eD            rD      rD    rD      cO          eD           cO
d  rd      rd       rd    dD   eD            rD      rd    rd      rd          rd           cO
"""


def expected_cells() -> list[tuple[ConnectionPhase, ConnectionEvent, Answer, ConnectionPhase]]:
    head, *rows = (line.split() for line in EXPECTED.strip().splitlines())
    return [
        (SHORT[row[0]], ConnectionEvent[name], LETTERS[cell[0]], SHORT[cell[1]])
        for row in rows
        for name, cell in zip(head, row[1:], strict=True)
    ]


@pytest.mark.parametrize(("phase", "event", "answer", "following"), expected_cells())
def test_cell(
    phase: ConnectionPhase, event: ConnectionEvent, answer: Answer, following: ConnectionPhase
) -> None:
    assert step(phase, event) == (answer, following)


def test_the_table_has_a_cell_for_each_phase_and_event() -> None:
    expected = {(phase, event) for phase, event, _, _ in expected_cells()}
    assert expected == {(phase, event) for phase in ConnectionPhase for event in ConnectionEvent}
    assert {(p, e) for p, row in TRANSITIONS.items() for e in row} == expected


def test_an_event_without_a_cell_is_one_error() -> None:
    with pytest.raises(LocalProtocolError, match=r"Phase\.OPEN.*'nonsense'"):
        step(ConnectionPhase.OPEN, "nonsense")  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(ConnectionEvent), max_size=12))
def test_nothing_is_done_in_a_context_that_was_refused(events: list[ConnectionEvent]) -> None:
    """A server that refuses nothing is followed beside the table: what it would do elsewhere is never done here."""
    phase, in_multi, watching, other_database = ConnectionPhase.OPEN, False, False, False
    does_watch = False
    for event in events:
        before = phase
        answer, phase = step(phase, event)
        if answer is Answer.WATCH:
            does_watch = True
        elif ends_watch(before, event, phase):
            does_watch = False
        if event is ConnectionEvent.RESET:
            in_multi = watching = other_database = False
            assert not does_watch
            continue
        if in_multi:
            if event in (
                ConnectionEvent.EXEC,
                ConnectionEvent.DISCARD,
                ConnectionEvent.EXEC_REJECTED,
            ):
                in_multi = watching = False
        elif event is ConnectionEvent.MULTI:
            in_multi = True
        elif event is ConnectionEvent.WATCH:
            watching = True
        elif event is ConnectionEvent.UNWATCH:
            watching = watching and other_database  # it is refused behind a refused SELECT
        elif event in (ConnectionEvent.SELECT, ConnectionEvent.SELECT_OURS):
            other_database = event is ConnectionEvent.SELECT_OURS
        assert watching or not does_watch
        if other_database:
            assert answer not in (Answer.QUEUE, Answer.EXECUTE, Answer.QUEUE_IN_VAIN, Answer.WATCH)
            assert answer is not Answer.CARRY_OUT
        if answer in (Answer.CARRY_OUT, Answer.WATCH):
            assert not in_multi
        if answer in (Answer.QUEUE, Answer.QUEUE_IN_VAIN):
            assert in_multi
    assert (phase is ConnectionPhase.OPEN) == (not (in_multi or other_database))
