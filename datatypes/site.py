"""Where an object lives: the identity and the clock that a few types ship with their operations."""

from dataclasses import dataclass

from crdtcast.causality.hlc import HLC


@dataclass(slots=True)
class Site:
    """What a replica gives its objects. A pure type needs none of it.

    owner: whose rights an operation spends (the bounded counter); unique in the group, and never
        used by two processes at a time. An incarnation id is; a name is not while messages of an
        earlier process of that name may be on their way. It is another one when the replica goes on under
        another incarnation.
    clock: what time it is (the last-writer-wins register).
    """

    owner: str
    clock: HLC
