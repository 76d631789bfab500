"""The place of an object: the identity and the clock that a few types ship with their operations."""

from dataclasses import dataclass

from crdtcast.causality.hlc import HLC


@dataclass(slots=True)
class Site:
    """What a replica sets in its objects. A pure type does not need it.

    owner: an operation of the bounded counter spends its rights. Unique in the group, and never used by two
        processes at a time. An incarnation id fits; a name does not while messages of an earlier process of that name
        may be on their way. It changes when the replica continues under another incarnation.
    clock: for times (of the last-writer-wins register).
    """

    owner: str
    clock: HLC
