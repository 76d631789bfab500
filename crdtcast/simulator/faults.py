"""Fault models as values: how likely each kind of trouble is per step of a run. They know nothing of the system."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from crdtcast.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Weights beside those of ordinary actions (a packet's arrival weighs 100); 0 switches a fault off."""

    loss: int = 0
    """A packet in flight is dropped."""
    duplicate: int = 0
    """A packet arrives, and stays in flight."""
    reorder: int = 0
    """A packet arrives before others that were sent on the same link earlier."""
    partition: int = 0
    """The link between two members goes down; what is in flight may still arrive. Links come up again by chance."""
    restart: int = 0
    """A member dies and starts again from what was synced: as a new incarnation, or, if that was all, as the same."""

    @classmethod
    def named(cls, names: Iterable[str]) -> "Faults":
        """The default strength of each fault named. Raises ConfigurationError for an unknown one."""
        chosen = cls()
        for name in names:
            if name not in ALL:
                raise ConfigurationError(f"unknown fault {name!r}: choose from {', '.join(ALL)}")
            chosen = replace(chosen, **{name: getattr(STRONG, name)})
        return chosen

    @property
    def names(self) -> tuple[str, ...]:
        """The faults that are on."""
        return tuple(name for name in ALL if getattr(self, name))


ALL = ("loss", "duplicate", "reorder", "partition", "restart")
STRONG = Faults(loss=35, duplicate=20, reorder=60, partition=6, restart=5)
