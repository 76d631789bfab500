"""Pure operation-based CRDTs: replicated objects that use tags, and know nothing of the network.

Subclass `PureOpCRDT` to define your own type (docs/datatypes.md); test it with `crdtcast.testing.check_crdt`.
"""

from crdtcast.datatypes.counters import (
    BoundedCounter,
    GCounter,
    PNCounter,
    ResettableCounter,
    Rights,
)
from crdtcast.datatypes.differences import (
    Added,
    Assigned,
    Became,
    Difference,
    Removed,
    Spliced,
    Unassigned,
    Within,
)
from crdtcast.datatypes.flags import DWFlag, EWFlag
from crdtcast.datatypes.identities import Identity, Run
from crdtcast.datatypes.maps import (
    AWMap,
    GOMap,
    NestedOperation,
    NestedRemoval,
    NestedType,
    NestedUpdate,
)
from crdtcast.datatypes.memory import Memory
from crdtcast.datatypes.numbers import Number, Numeric
from crdtcast.datatypes.operations import (
    MAX_DEPTH,
    Check,
    Element,
    Operation,
    Plain,
    PlainLike,
    Several,
    collection_of,
    element,
    exact,
    integer,
    natural,
    positive,
    text,
)
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything, POLog
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import Arrival, Arrived, Change, Observer, PureOpCRDT
from crdtcast.datatypes.registers import LWWRegister, MVRegister
from crdtcast.datatypes.scores import SortedMap
from crdtcast.datatypes.sequence import SharedList
from crdtcast.datatypes.sets import AWSet, GSet, RWSet, TwoPhaseSet
from crdtcast.datatypes.site import Site
from crdtcast.datatypes.texts import SharedText

__all__ = [
    "EVERYTHING",
    "MAX_DEPTH",
    "AWMap",
    "AWSet",
    "Added",
    "Arrival",
    "Arrived",
    "Assigned",
    "Became",
    "BoundedCounter",
    "Change",
    "Check",
    "DWFlag",
    "Difference",
    "EWFlag",
    "Element",
    "Entry",
    "Everything",
    "Former",
    "GCounter",
    "GOMap",
    "GSet",
    "Identity",
    "LWWRegister",
    "MVRegister",
    "Memory",
    "NestedOperation",
    "NestedRemoval",
    "NestedType",
    "NestedUpdate",
    "Number",
    "Numeric",
    "Observer",
    "Operation",
    "PNCounter",
    "POLog",
    "Plain",
    "PlainLike",
    "PureOpCRDT",
    "RWSet",
    "Removed",
    "ResettableCounter",
    "Rights",
    "Run",
    "Several",
    "SharedList",
    "SharedText",
    "Site",
    "SortedMap",
    "Spliced",
    "TwoPhaseSet",
    "Unassigned",
    "Within",
    "collection_of",
    "element",
    "exact",
    "integer",
    "natural",
    "positive",
    "text",
]
