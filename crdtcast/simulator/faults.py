"""Fault models as values: how likely each kind of trouble is per step of a run. They know nothing of the system."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

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
    asymmetric: int = 0
    """What one member sends another is lost for a while, and neither notices."""
    slow: int = 0
    """Some links take many times as long as others (per cent of the links)."""
    clock: int = 0
    """A timer jumps: many ticks at once. Others hardly tick at all."""
    torn: int = 0
    """A journal is lost, or older than it should be: the member must come back as a new incarnation."""
    setback: int = 0
    """A member goes on from an older state of its disk, as the same incarnation, and does not know it."""
    crash: int = 0
    """A member dies for good."""
    join: int = 0
    """Somebody new joins, with or without a copy fetched before; asks again, or elsewhere."""
    leave: int = 0
    """A member leaves."""
    evict: int = 0
    """A member's operator evicts another one, dead or alive, which comes back if it is alive."""
    withdraw: int = 0
    """It takes back all that it has not evicted yet."""
    force: int = 0
    """… by force, whatever the majority. Two sides may do it to each other."""
    ghost: int = 0
    """A copy of a process that has ended long ago dials again."""
    upgrade: int = 0
    """A member gets a later program, or an older one again; somebody raises the format level."""

    @classmethod
    def named(cls, names: Iterable[str]) -> "Faults":
        """The default strength of each fault named. Raises ConfigurationError for an unknown one."""
        chosen = cls()
        for name in names:
            if name not in KINDS:
                raise ConfigurationError(f"unknown fault {name!r}: choose from {', '.join(KINDS)}")
            chosen = replace(chosen, **{name: getattr(STRONG, name)})
        return chosen

    @property
    def names(self) -> tuple[str, ...]:
        """The faults that are on."""
        return tuple(name for name in KINDS if getattr(self, name))


KINDS = tuple(field.name for field in fields(Faults))
"""Every kind of fault."""

DEFAULT = ("loss", "duplicate", "reorder", "partition", "restart")
"""Those of a run for which no other faults are chosen."""

NETWORK = ("loss", "duplicate", "reorder", "partition", "asymmetric", "slow", "clock")
"""Trouble that changes no member."""

STRONG = Faults(
    loss=35,
    duplicate=20,
    reorder=60,
    partition=6,
    restart=5,
    asymmetric=4,
    slow=20,
    clock=3,
    torn=5,
    setback=8,
    crash=2,
    join=6,
    leave=4,
    evict=5,
    withdraw=5,
    force=2,
    ghost=20,
    upgrade=8,
)
