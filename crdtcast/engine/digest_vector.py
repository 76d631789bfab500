"""What a member reports in its digests: never more than a crash leaves, and only names that it can answer for.

A digest *names* an incarnation by having a key for it. That promises two things about the earlier ones of its name,
which it has ended. Its sender takes nothing more of them, except from a member that has delivered it. And the digest
covers all that its sender took before. The first holds once the incarnation is met, the second may have to wait.
"""

from crdtcast.causality.tags import Vector, dominates, merge_into
from crdtcast.engine.members import Members
from crdtcast.engine.state import Durability
from crdtcast.exceptions import LocalProtocolError


class DigestVector:
    """All that is delivered, as digests report it. vector: that of the engine, read only."""

    __slots__ = ("_vector", "cache")

    def __init__(self, vector: dict[str, int]) -> None:
        self._vector = vector
        self.cache: dict[str, int] | None = None  # None after any change

    @property
    def durable(self) -> dict[str, int]:
        """What no crash can take back by the time a digest of it leaves. To be read only."""
        return self._vector

    def vector(self) -> dict[str, int]:
        """What digests report now. A new dictionary when it changes."""
        if self.cache is None:
            self.cache = dict(self.durable)
        return self.cache


class Told(DigestVector):
    """The same where names stay and processes come back. members: those of the engine, read only."""

    __slots__ = ("_declared", "_durability", "_members", "unnamed")

    def __init__(self, vector: dict[str, int], members: Members, durability: Durability) -> None:
        super().__init__(vector)
        self._members = members
        self._durability = durability
        self._declared = dict(vector)
        self.unnamed: dict[str, dict[str, int]] = {}  # what must be covered before it may be named

    @property
    def durable(self) -> dict[str, int]:
        """All that is delivered, or what was declared."""
        return self._vector if self._durability is Durability.IMMEDIATE else self._declared

    def vector(self) -> dict[str, int]:
        """The durable vector with a key for each current incarnation that may be named. A new one at each change."""
        told = self.cache
        if told is None:
            durable, unnamed = self.durable, self.unnamed
            told = dict(durable)
            for incarnation in list(unnamed):
                if dominates(durable, unnamed[incarnation]):
                    del unnamed[incarnation]
            for incarnation in self._members.current.values():
                if incarnation in unnamed:
                    told.pop(incarnation, None)
                else:
                    told.setdefault(incarnation, 0)
            self.cache = told
        return told

    def name_after(self, incarnation: str, covered: Vector) -> None:
        """Do not name `incarnation` before the durable vector covers this, too."""
        merge_into(self.unnamed.setdefault(incarnation, {}), covered)
        self.cache = None

    def give_up(self, incarnation: str) -> None:
        """What has not been delivered by now need not be covered to name `incarnation`: it was dropped."""
        covered = self.unnamed.get(incarnation, {})
        for origin, counter in covered.items():
            covered[origin] = min(counter, self._vector[origin])
        self.cache = None

    def declare(self, vector: Vector) -> None:
        """See `Engine.mark_durable`."""
        if self._durability is not Durability.DECLARED:
            raise LocalProtocolError("mark_durable is for engines with Durability.DECLARED")
        declared = self._declared
        if vector != self._vector:  # all that is delivered is certain to be a point of this history
            if not dominates(self._vector, vector):
                raise LocalProtocolError("a vector beyond what is delivered was declared durable")
            if not dominates(vector, declared):
                if dominates(declared, vector) and len(vector) <= len(declared):
                    return
                raise LocalProtocolError(
                    "a vector that is not a point of this engine's history was declared durable"
                )
        self._declared = {**declared, **vector}
        self.cache = None
