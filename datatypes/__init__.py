"""Pure operation-based CRDTs: replicated objects that know tags, not networks.

Subclass `PureOpCRDT` to define your own (docs/datatypes.md); test it with
`crdtcast.testing.check_crdt`.
"""

from crdtcast.datatypes.counters import BoundedCounter, GCounter, PNCounter, ResettableCounter
from crdtcast.datatypes.flags import DWFlag, EWFlag
from crdtcast.datatypes.former import Former
from crdtcast.datatypes.maps import AWMap, GOMap
from crdtcast.datatypes.memory import Memory
from crdtcast.datatypes.numbers import Number
from crdtcast.datatypes.operations import (
    MAX_DEPTH,
    Check,
    Operation,
    collection_of,
    element,
    exact,
    integer,
    natural,
    positive,
    text,
)
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything, POLog
from crdtcast.datatypes.pure import Arrival, Arrived, Change, Observer, PureOpCRDT
from crdtcast.datatypes.registers import LWWRegister, MVRegister
from crdtcast.datatypes.scores import SortedMap
from crdtcast.datatypes.sequence import SharedList
from crdtcast.datatypes.sets import AWSet, Element, GSet, RWSet, TwoPhaseSet
from crdtcast.datatypes.site import Site
from crdtcast.datatypes.texts import SharedText

__all__ = [
    "EVERYTHING",
    "MAX_DEPTH",
    "AWMap",
    "AWSet",
    "Arrival",
    "Arrived",
    "BoundedCounter",
    "Change",
    "Check",
    "DWFlag",
    "EWFlag",
    "Element",
    "Entry",
    "Everything",
    "Former",
    "GCounter",
    "GOMap",
    "GSet",
    "LWWRegister",
    "MVRegister",
    "Memory",
    "Number",
    "Observer",
    "Operation",
    "PNCounter",
    "POLog",
    "PureOpCRDT",
    "RWSet",
    "ResettableCounter",
    "SharedList",
    "SharedText",
    "Site",
    "SortedMap",
    "TwoPhaseSet",
    "collection_of",
    "element",
    "exact",
    "integer",
    "natural",
    "positive",
    "text",
]
