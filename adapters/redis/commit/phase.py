"""The phases of a gateway's connection to its server, and what clients get in each: a table."""

from collections.abc import Mapping
from enum import StrEnum


class ServerPhase(StrEnum):
    """In the first three the gateway cannot write to the server."""

    WAITING = "clients wait"
    REFUSING = "clients get errors"
    READ_ONLY = "the server takes no writes: clients' reads are relayed to it, writes get errors"
    READY = "ready"
    COMMITTING = "a commit is under way"


class ServerEvent(StrEnum):
    """Moves a gateway from one phase to another."""

    OWN = "inspected, and its fence taken"
    BEGIN = "commit begins"
    END = "commit answered, or empty"
    LOSE = "connection lost"
    GIVE_UP = "out of reach for long"
    FIND_FULL = "reached, takes no writes"


TRANSITIONS: Mapping[tuple[ServerPhase, ServerEvent], ServerPhase] = {
    (ServerPhase.WAITING, ServerEvent.OWN): ServerPhase.READY,
    (ServerPhase.WAITING, ServerEvent.GIVE_UP): ServerPhase.REFUSING,
    (ServerPhase.WAITING, ServerEvent.FIND_FULL): ServerPhase.READ_ONLY,
    # Each attempt may fail for another reason; clients get the latest.
    (ServerPhase.REFUSING, ServerEvent.GIVE_UP): ServerPhase.REFUSING,
    (ServerPhase.REFUSING, ServerEvent.FIND_FULL): ServerPhase.READ_ONLY,
    (ServerPhase.REFUSING, ServerEvent.OWN): ServerPhase.READY,
    (ServerPhase.READ_ONLY, ServerEvent.GIVE_UP): ServerPhase.REFUSING,
    (ServerPhase.READ_ONLY, ServerEvent.FIND_FULL): ServerPhase.READ_ONLY,
    (ServerPhase.READ_ONLY, ServerEvent.OWN): ServerPhase.READY,
    (ServerPhase.READY, ServerEvent.BEGIN): ServerPhase.COMMITTING,
    (ServerPhase.READY, ServerEvent.LOSE): ServerPhase.WAITING,
    (ServerPhase.COMMITTING, ServerEvent.END): ServerPhase.READY,
    (ServerPhase.COMMITTING, ServerEvent.LOSE): ServerPhase.WAITING,
}

SERVING = (ServerPhase.READY, ServerPhase.COMMITTING)
"""Phases in which this gateway owns the server."""
REFUSES = (ServerPhase.REFUSING, ServerPhase.READ_ONLY)
"""Phases in which clients get errors that say why."""
