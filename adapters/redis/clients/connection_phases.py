"""What a connection has been told so far, and what that makes of its next command: one table.

Two rules. A refused command must not let its context go on: what a client sends behind a refused SELECT or MULTI rests
on it, so it is refused as well, until the client says that it goes on without. (Behind a refused WATCH, EXEC answers
null.) And MULTI is answered as the server answers it: a command that cannot be queued makes EXEC discard the whole
transaction.

This file knows no sockets and no texts; `clients/command_context.py` classifies the commands and says what is answered.
"""

from enum import Enum
from typing import NamedTuple

from crdtcast.exceptions import LocalProtocolError


class Phase(Enum):
    """Where a connection stands. In a phase `…_MULTI`, a MULTI was refused because of what was refused before it."""

    OPEN = "open"
    QUEUING = "in MULTI"
    ABORTING = "in MULTI, with a command that could not be queued"
    DATABASE_REFUSED = "behind a refused SELECT"
    DATABASE_REFUSED_MULTI = "behind a refused SELECT, in MULTI"


IN_MULTI = frozenset((Phase.QUEUING, Phase.ABORTING, Phase.DATABASE_REFUSED_MULTI))
"""Phases in which the client has begun a transaction, as far as it knows."""


class Event(Enum):
    """What kind of command comes."""

    COMMAND = "a command that can be carried out"
    REJECTED = "a command that cannot: unknown, malformed, or refused"
    MULTI = "MULTI"
    EXEC = "EXEC"
    EXEC_REJECTED = "EXEC with arguments"
    DISCARD = "DISCARD"
    WATCH = "WATCH"
    UNWATCH = "UNWATCH"
    SELECT = "SELECT of a database of the clients"
    SELECT_OURS = "SELECT of the gateway's own database"
    RESET = "RESET"


class Answer(Enum):
    """What becomes of the command."""

    CARRY_OUT = "it is carried out"
    OK = "OK"
    WATCH = "its keys are watched"
    ERROR = "its own error"
    MISPLACED = "the error of a command at the wrong place: EXEC without MULTI, MULTI inside MULTI"
    QUEUE = "QUEUED, and kept for EXEC"
    QUEUE_IN_VAIN = "QUEUED, but the transaction is lost already"
    EXECUTE = "what was queued is executed"
    DISCARDED = "EXECABORT: the transaction was discarded because of previous errors"
    REFUSE = "refused because of the phase that it leads to, with the way out of it"


class Step(NamedTuple):
    """One cell of the table."""

    answer: Answer
    next: Phase


TRANSITIONS: dict[Phase, dict[Event, Step]] = {
    Phase.OPEN: {
        Event.COMMAND: Step(Answer.CARRY_OUT, Phase.OPEN),
        Event.REJECTED: Step(Answer.ERROR, Phase.OPEN),
        Event.MULTI: Step(Answer.OK, Phase.QUEUING),
        Event.EXEC: Step(Answer.MISPLACED, Phase.OPEN),
        Event.EXEC_REJECTED: Step(Answer.ERROR, Phase.OPEN),
        Event.DISCARD: Step(Answer.MISPLACED, Phase.OPEN),
        Event.WATCH: Step(Answer.WATCH, Phase.OPEN),
        Event.UNWATCH: Step(Answer.CARRY_OUT, Phase.OPEN),
        Event.SELECT: Step(Answer.CARRY_OUT, Phase.OPEN),
        Event.SELECT_OURS: Step(Answer.ERROR, Phase.DATABASE_REFUSED),
        Event.RESET: Step(Answer.CARRY_OUT, Phase.OPEN),
    },
    Phase.QUEUING: {
        Event.COMMAND: Step(Answer.QUEUE, Phase.QUEUING),
        Event.REJECTED: Step(Answer.ERROR, Phase.ABORTING),
        Event.MULTI: Step(Answer.MISPLACED, Phase.QUEUING),
        Event.EXEC: Step(Answer.EXECUTE, Phase.OPEN),
        Event.EXEC_REJECTED: Step(Answer.ERROR, Phase.OPEN),
        Event.DISCARD: Step(Answer.OK, Phase.OPEN),
        Event.WATCH: Step(Answer.MISPLACED, Phase.QUEUING),
        Event.UNWATCH: Step(Answer.QUEUE, Phase.QUEUING),
        Event.SELECT: Step(Answer.QUEUE, Phase.QUEUING),
        Event.SELECT_OURS: Step(Answer.ERROR, Phase.ABORTING),
        Event.RESET: Step(Answer.CARRY_OUT, Phase.OPEN),
    },
    Phase.ABORTING: {
        Event.COMMAND: Step(Answer.QUEUE_IN_VAIN, Phase.ABORTING),
        Event.REJECTED: Step(Answer.ERROR, Phase.ABORTING),
        Event.MULTI: Step(Answer.MISPLACED, Phase.ABORTING),
        Event.EXEC: Step(Answer.DISCARDED, Phase.OPEN),
        Event.EXEC_REJECTED: Step(Answer.ERROR, Phase.OPEN),
        Event.DISCARD: Step(Answer.OK, Phase.OPEN),
        Event.WATCH: Step(Answer.MISPLACED, Phase.ABORTING),
        Event.UNWATCH: Step(Answer.QUEUE_IN_VAIN, Phase.ABORTING),
        Event.SELECT: Step(Answer.QUEUE_IN_VAIN, Phase.ABORTING),
        Event.SELECT_OURS: Step(Answer.ERROR, Phase.ABORTING),
        Event.RESET: Step(Answer.CARRY_OUT, Phase.OPEN),
    },
    Phase.DATABASE_REFUSED: {
        Event.COMMAND: Step(Answer.REFUSE, Phase.DATABASE_REFUSED),
        Event.REJECTED: Step(Answer.REFUSE, Phase.DATABASE_REFUSED),
        Event.MULTI: Step(Answer.REFUSE, Phase.DATABASE_REFUSED_MULTI),
        Event.EXEC: Step(Answer.REFUSE, Phase.DATABASE_REFUSED),
        Event.EXEC_REJECTED: Step(Answer.ERROR, Phase.DATABASE_REFUSED),
        Event.DISCARD: Step(Answer.REFUSE, Phase.DATABASE_REFUSED),
        Event.WATCH: Step(Answer.REFUSE, Phase.DATABASE_REFUSED),
        Event.UNWATCH: Step(Answer.REFUSE, Phase.DATABASE_REFUSED),
        Event.SELECT: Step(Answer.CARRY_OUT, Phase.OPEN),
        Event.SELECT_OURS: Step(Answer.ERROR, Phase.DATABASE_REFUSED),
        Event.RESET: Step(Answer.CARRY_OUT, Phase.OPEN),
    },
    # Nothing but the end of the transaction has a meaning.
    Phase.DATABASE_REFUSED_MULTI: {
        event: Step(Answer.REFUSE, Phase.DATABASE_REFUSED_MULTI) for event in Event
    }
    | {
        Event.EXEC: Step(Answer.DISCARDED, Phase.DATABASE_REFUSED),
        Event.EXEC_REJECTED: Step(Answer.ERROR, Phase.DATABASE_REFUSED),
        Event.DISCARD: Step(Answer.REFUSE, Phase.DATABASE_REFUSED),
        Event.RESET: Step(Answer.CARRY_OUT, Phase.OPEN),
    },
}


def ends_watch(phase: Phase, event: Event, following: Phase) -> bool:
    """Whether what the client watches ends with this step: EXEC takes it along, all else gives it up."""
    if phase in IN_MULTI:
        return following not in IN_MULTI
    return event is Event.RESET or (event is Event.UNWATCH and following is Phase.OPEN)


def step(phase: Phase, event: Event) -> Step:
    """The cell of the table. Raises LocalProtocolError if there is none."""
    try:
        return TRANSITIONS[phase][event]
    except KeyError:
        raise LocalProtocolError(f"no step from {phase!r} by {event!r}") from None


class Replies(Enum):
    """Which commands of a connection are answered (CLIENT REPLY)."""

    ON = "all"
    OFF = "none"
    SKIP = "all but the next one"
