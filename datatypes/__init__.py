"""Pure operation-based CRDTs: replicated objects that know tags, not networks.

Subclass `PureOpCRDT` to define your own (docs/datatypes.md); test it with
`crdtcast.testing.check_crdt`.
"""

from crdtcast.datatypes.counters import ResettableCounter
from crdtcast.datatypes.memory import Memory
from crdtcast.datatypes.operations import (
    MAX_DEPTH,
    Check,
    Operation,
    collection_of,
    element,
    exact,
    integer,
    text,
)
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything, POLog
from crdtcast.datatypes.pure import Arrival, Arrived, Change, Observer, PureOpCRDT
from crdtcast.datatypes.sets import AWSet, Element
from crdtcast.datatypes.site import Site

__all__ = [
    "EVERYTHING",
    "MAX_DEPTH",
    "AWSet",
    "Arrival",
    "Arrived",
    "Change",
    "Check",
    "Element",
    "Entry",
    "Everything",
    "Memory",
    "Observer",
    "Operation",
    "POLog",
    "PureOpCRDT",
    "ResettableCounter",
    "Site",
    "collection_of",
    "element",
    "exact",
    "integer",
    "text",
]
