"""Fault models as values: how likely each kind of fault is in a step of a run. They do not depend on the system."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from crdtcast.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Weights relative to those of ordinary actions (a packet's arrival weighs 100); 0 switches a fault off."""

    loss: int = 0
    """A packet in flight is dropped."""
    duplicate: int = 0
    """A packet arrives and stays in flight."""
    reorder: int = 0
    """A packet overtakes others that were sent earlier on the same link."""
    partition: int = 0
    """The link between two members goes down; packets in flight may still arrive. Links come up again by chance."""
    restart: int = 0
    """A member dies and restarts from its last sync. (A fixed member that lost anything gets a new incarnation.)"""
    asymmetric: int = 0
    """Packets from one member to another are lost for a while, and neither notices."""
    slow: int = 0
    """Some links take many times as long as others (per cent of the links)."""
    clock: int = 0
    """A timer jumps: many ticks at once. Others hardly tick at all."""
    torn: int = 0
    """A member dies and its journal lacks the last syncs: it must come back as a new incarnation."""
    setback: int = 0
    """A member continues from an older state of its disk, as the same incarnation, without noticing."""
    crash: int = 0
    """A member dies and does not come back."""
    join: int = 0
    """A new member joins, with or without a copy fetched before; it may ask again, or ask another contact."""
    leave: int = 0
    """A member leaves."""
    evict: int = 0
    """A member's operator evicts another one, dead or alive, which comes back if it is alive."""
    withdraw: int = 0
    """A member's operator withdraws all evictions that are not decided yet."""
    force: int = 0
    """A member's operator evicts another one by force, without a majority. Two sides may do this to each other."""
    ghost: int = 0
    """A copy of a process that ended long ago dials again."""
    upgrade: int = 0
    """A member gets a later program, or an older one again; an operator raises the format level."""
    whisper: int = 0
    """A member whispers. Whispers arrive in any order, and are lost and doubled as packets are."""

    @classmethod
    def named(cls, names: Iterable[str]) -> "Faults":
        """The named faults at their default strength. Raises ConfigurationError if a name is unknown."""
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
"""The faults of a run for which no others are chosen."""

NETWORK = ("loss", "duplicate", "reorder", "partition", "asymmetric", "slow", "clock")
"""Faults of the network and of timers, which change no member."""

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
    whisper=40,
)
