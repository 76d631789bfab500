"""The events of a simulated group, for an observer. `crdtcast.simulator.group.logs` writes them to event logs."""

from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Dot, Tag
from crdtcast.simulator.group.machine import Machine


class RunObserver:
    """Ignores everything. Events of one machine come in the order of its application; those of ghosts do not come."""

    def started(self, machine: Machine) -> None:
        """A process runs: a founder, a joiner, or one that continues from its journal."""

    def sent(self, machine: Machine, tag: Tag, reissues: Dot | None = None) -> None:
        """It has sent a message, of its application or a membership operation."""

    def delivered(self, machine: Machine, delivery: Delivery) -> None:
        """Its application got a message."""

    def stable(self, machine: Machine, tag: Tag) -> None:
        """Its application got a stable notice."""

    def changed(self, machine: Machine) -> None:
        """Its members, or its list of ended incarnations, may have changed."""

    def synced(self, machine: Machine) -> None:
        """Its journal has everything so far."""

    def stopped(self, machine: Machine, *, cleanly: bool) -> None:
        """Its process is gone; if not cleanly, with all that was not synced."""
