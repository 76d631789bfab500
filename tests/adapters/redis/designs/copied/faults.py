"""Planted faults of a copy: each drops one rule, and has to be found."""

from enum import Enum, auto


class CopyFault(Enum):
    """The rule that is broken."""

    NOT_READ_AGAIN = auto()
    """What was written while pages were read is not read again."""
    REMOVED_NOT_READ_AGAIN = auto()
    """Of what was written meanwhile only what is there is read again: what was removed stays in its page."""
    FLUSH_NOT_MARKED = auto()
    """A removal of everything does not count as a write of this key."""
    RUN_NOT_MARKED = auto()
    """What a recorded stretch writes does not count as written."""
    READ_UNDERIVED = auto()
    """The last read happens while something is recorded and not derived: its vector lacks what its rows have."""
    APPLIED_EARLY = auto()
    """The receiver does not wait until it covers the giver's vector."""
    NOTHING_BEYOND = auto()
    """The receiver takes the rows as they are, without what it has beyond them."""
    WITHOUT_ATOMS = auto()
    """The giver's unstable atoms stay behind."""
    WITHOUT_DEADLINE = auto()
    WITHOUT_HIDDEN = auto()
    DROPS_STABLE = auto()
    """The receiver forgets what becomes stable while it waits."""
