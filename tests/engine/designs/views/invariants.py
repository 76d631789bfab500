"""What must hold in each state of a small scope."""

from tests.engine.designs.views.scopes import Scope
from tests.engine.designs.views.state import (
    UNENDED,
    History,
    State,
    X,
    cut_of,
    goes_on,
    gone,
    most,
)
from tests.engine.designs.views.steps import chosen


def wrong(state: State, scope: Scope) -> str | None:
    """What is wrong, if anything is."""
    histories = {record.history for record in state.members if record is not None}
    newest = max(histories, key=len)
    if any(history != newest[: len(history)] for history in histories):
        return "two changes of one epoch"
    for history in histories:
        values = chosen(state, scope.epochs[len(history)], history, scope.without)
        if len(values) > 1 or (values and history != newest and values[0] != newest[len(history)]):
            return "two changes of one epoch"
        for value in values if history == newest else ():
            if (why := _wrong_behind(state, (*history, value))) is not None:
                return why
    return _wrong_behind(state, newest)


def _wrong_behind(state: State, history: History) -> str | None:
    """What is wrong with a change that somebody has learned, or may learn now."""
    cut = cut_of(history)
    if cut == UNENDED or X not in gone(history):
        return None
    is_whole = cut == 0
    for who, record in enumerate(state.members):
        if record is None or not goes_on(who, state.join, history):
            continue
        if state.is_silent(who):
            is_whole = True  # what its disk has lost, nobody can have
            continue
        if max(record.delivered, most(record)) > cut:
            return "somebody who goes on is beyond the cut, or may get there"
        is_whole = is_whole or record.delivered == cut
    return None if is_whole else "nobody who goes on has all of the cut"
