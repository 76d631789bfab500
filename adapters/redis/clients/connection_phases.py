"""The phase of a connection, and what it makes of the next command: one table.

Two rules. First, a refused command must end its context: what a client sends after a refused SELECT or MULTI depends on
it. So that is refused, too, until the client shows that it continues without. (After a refused WATCH, EXEC answers
null.) Second, MULTI is answered as a server answers it: a command that cannot be queued makes EXEC discard the whole
transaction.

This file knows no sockets and no texts; `clients/command_context.py` classifies the commands and chooses the texts.
"""

from enum import Enum
from typing import NamedTuple

from crdtcast.exceptions import LocalProtocolError


class ConnectionPhase(Enum):
    """The phase of a connection. In a phase `…_MULTI`, a MULTI was refused because of an earlier refusal."""

    OPEN = "open"
    QUEUING = "in MULTI"
    ABORTING = "in MULTI, with a command that could not be queued"
    DATABASE_REFUSED = "behind a refused SELECT"
    DATABASE_REFUSED_MULTI = "behind a refused SELECT, in MULTI"


IN_MULTI = frozenset(
    (ConnectionPhase.QUEUING, ConnectionPhase.ABORTING, ConnectionPhase.DATABASE_REFUSED_MULTI)
)
"""Phases in which the client is in a transaction, as far as it knows."""


class ConnectionEvent(Enum):
    """The kind of a command."""

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
    """What happens to the command."""

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


class ConnectionStep(NamedTuple):
    """One cell of the table."""

    answer: Answer
    next: ConnectionPhase


TRANSITIONS: dict[ConnectionPhase, dict[ConnectionEvent, ConnectionStep]] = {
    ConnectionPhase.OPEN: {
        ConnectionEvent.COMMAND: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
        ConnectionEvent.REJECTED: ConnectionStep(Answer.ERROR, ConnectionPhase.OPEN),
        ConnectionEvent.MULTI: ConnectionStep(Answer.OK, ConnectionPhase.QUEUING),
        ConnectionEvent.EXEC: ConnectionStep(Answer.MISPLACED, ConnectionPhase.OPEN),
        ConnectionEvent.EXEC_REJECTED: ConnectionStep(Answer.ERROR, ConnectionPhase.OPEN),
        ConnectionEvent.DISCARD: ConnectionStep(Answer.MISPLACED, ConnectionPhase.OPEN),
        ConnectionEvent.WATCH: ConnectionStep(Answer.WATCH, ConnectionPhase.OPEN),
        ConnectionEvent.UNWATCH: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
        ConnectionEvent.SELECT: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
        ConnectionEvent.SELECT_OURS: ConnectionStep(Answer.ERROR, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.RESET: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
    },
    ConnectionPhase.QUEUING: {
        ConnectionEvent.COMMAND: ConnectionStep(Answer.QUEUE, ConnectionPhase.QUEUING),
        ConnectionEvent.REJECTED: ConnectionStep(Answer.ERROR, ConnectionPhase.ABORTING),
        ConnectionEvent.MULTI: ConnectionStep(Answer.MISPLACED, ConnectionPhase.QUEUING),
        ConnectionEvent.EXEC: ConnectionStep(Answer.EXECUTE, ConnectionPhase.OPEN),
        ConnectionEvent.EXEC_REJECTED: ConnectionStep(Answer.ERROR, ConnectionPhase.OPEN),
        ConnectionEvent.DISCARD: ConnectionStep(Answer.OK, ConnectionPhase.OPEN),
        ConnectionEvent.WATCH: ConnectionStep(Answer.MISPLACED, ConnectionPhase.QUEUING),
        ConnectionEvent.UNWATCH: ConnectionStep(Answer.QUEUE, ConnectionPhase.QUEUING),
        ConnectionEvent.SELECT: ConnectionStep(Answer.QUEUE, ConnectionPhase.QUEUING),
        ConnectionEvent.SELECT_OURS: ConnectionStep(Answer.ERROR, ConnectionPhase.ABORTING),
        ConnectionEvent.RESET: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
    },
    ConnectionPhase.ABORTING: {
        ConnectionEvent.COMMAND: ConnectionStep(Answer.QUEUE_IN_VAIN, ConnectionPhase.ABORTING),
        ConnectionEvent.REJECTED: ConnectionStep(Answer.ERROR, ConnectionPhase.ABORTING),
        ConnectionEvent.MULTI: ConnectionStep(Answer.MISPLACED, ConnectionPhase.ABORTING),
        ConnectionEvent.EXEC: ConnectionStep(Answer.DISCARDED, ConnectionPhase.OPEN),
        ConnectionEvent.EXEC_REJECTED: ConnectionStep(Answer.ERROR, ConnectionPhase.OPEN),
        ConnectionEvent.DISCARD: ConnectionStep(Answer.OK, ConnectionPhase.OPEN),
        ConnectionEvent.WATCH: ConnectionStep(Answer.MISPLACED, ConnectionPhase.ABORTING),
        ConnectionEvent.UNWATCH: ConnectionStep(Answer.QUEUE_IN_VAIN, ConnectionPhase.ABORTING),
        ConnectionEvent.SELECT: ConnectionStep(Answer.QUEUE_IN_VAIN, ConnectionPhase.ABORTING),
        ConnectionEvent.SELECT_OURS: ConnectionStep(Answer.ERROR, ConnectionPhase.ABORTING),
        ConnectionEvent.RESET: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
    },
    ConnectionPhase.DATABASE_REFUSED: {
        ConnectionEvent.COMMAND: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.REJECTED: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.MULTI: ConnectionStep(
            Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED_MULTI
        ),
        ConnectionEvent.EXEC: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.EXEC_REJECTED: ConnectionStep(
            Answer.ERROR, ConnectionPhase.DATABASE_REFUSED
        ),
        ConnectionEvent.DISCARD: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.WATCH: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.UNWATCH: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.SELECT: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
        ConnectionEvent.SELECT_OURS: ConnectionStep(Answer.ERROR, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.RESET: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
    },
    # Only the end of the transaction has a meaning.
    ConnectionPhase.DATABASE_REFUSED_MULTI: {
        event: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED_MULTI)
        for event in ConnectionEvent
    }
    | {
        ConnectionEvent.EXEC: ConnectionStep(Answer.DISCARDED, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.EXEC_REJECTED: ConnectionStep(
            Answer.ERROR, ConnectionPhase.DATABASE_REFUSED
        ),
        ConnectionEvent.DISCARD: ConnectionStep(Answer.REFUSE, ConnectionPhase.DATABASE_REFUSED),
        ConnectionEvent.RESET: ConnectionStep(Answer.CARRY_OUT, ConnectionPhase.OPEN),
    },
}


def ends_watch(phase: ConnectionPhase, event: ConnectionEvent, following: ConnectionPhase) -> bool:
    """Whether this step ends the client's watch: EXEC takes it over, any other step gives it up."""
    if phase in IN_MULTI:
        return following not in IN_MULTI
    return event is ConnectionEvent.RESET or (
        event is ConnectionEvent.UNWATCH and following is ConnectionPhase.OPEN
    )


def step(phase: ConnectionPhase, event: ConnectionEvent) -> ConnectionStep:
    """The cell of the table. Raises LocalProtocolError if it does not exist."""
    try:
        return TRANSITIONS[phase][event]
    except KeyError:
        raise LocalProtocolError(f"no step from {phase!r} by {event!r}") from None


class Replies(Enum):
    """Which commands of a connection are answered (CLIENT REPLY)."""

    ON = "all"
    OFF = "none"
    SKIP = "all but the next one"
