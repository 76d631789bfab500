"""The receiving side of one key's copy: it waits until it covers the copy, then applies what it has beyond it."""

from dataclasses import dataclass, field

from crdtcast.causality.tags import Tag, Vector, covers, dominates
from tests.adapters.redis.designs.copied.faults import CopyFault
from tests.adapters.redis.designs.copied.giver import Copy
from tests.adapters.redis.designs.recorded.effects import Letter, Values
from tests.adapters.redis.designs.recorded.log import Log


@dataclass(slots=True)
class Receiving:
    """One key that waits for its copy.

    kept: messages that were unstable here when it was asked for, and all that were sent or delivered since, in order.
    The copy may lack any of them, and they may become stable before it is here.
    """

    key: str
    faults: frozenset[CopyFault]
    kept: list[tuple[Letter, Tag]] = field(default_factory=list)
    copy: Copy | None = None

    def became_stable(self, tag: Tag) -> None:
        """No reason to forget it."""
        if CopyFault.DROPS_STABLE in self.faults:
            self.kept = [(letter, known) for letter, known in self.kept if known != tag]

    def may_install(self, vector: Vector) -> bool:
        """Whether the copy is here, and holds nothing that has not been delivered here."""
        if self.copy is None:
            return False
        return CopyFault.APPLIED_EARLY in self.faults or dominates(vector, self.copy.vector)

    @property
    def is_ahead(self) -> bool:
        """Whether anything is here that the copy lacks."""
        copy = self.copy
        return copy is not None and any(not covers(copy.vector, tag.dot) for _, tag in self.kept)

    def state(self) -> tuple[Values, Log]:
        """What the key is worth here, and its atoms."""
        copy = self.copy
        assert copy is not None
        values, log = dict(copy.rows), Log()
        log.atoms = {slot: list(atoms) for slot, atoms in copy.atoms.items()}
        if CopyFault.NOTHING_BEYOND not in self.faults:
            for letter, tag in self.kept:
                if not covers(copy.vector, tag.dot):
                    log.apply(letter, tag, values)
        return {slot: value for slot, value in values.items() if slot[0] == self.key}, log
