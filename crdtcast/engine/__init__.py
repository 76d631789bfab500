"""The causal middleware's core, sans I/O: no sockets, no clock, no randomness, no threads (docs/protocol.md)."""

from crdtcast.engine.engine import Engine
from crdtcast.engine.group import Admission, GroupEngine
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import Fate, GroupState, MemberInfo, Standing
from crdtcast.engine.operations import Cut, How, OperationKind
from crdtcast.engine.reissue import Parked, ParkedOperation
from crdtcast.engine.reservation import Reservation
from crdtcast.engine.state import Durability, EngineCounters, EngineState

__all__ = [
    "PROGRAM",
    "Admission",
    "Cut",
    "Durability",
    "Engine",
    "EngineCounters",
    "EngineState",
    "Fate",
    "GroupEngine",
    "GroupState",
    "How",
    "MemberInfo",
    "OperationKind",
    "Parked",
    "ParkedOperation",
    "Reservation",
    "Span",
    "Standing",
]
