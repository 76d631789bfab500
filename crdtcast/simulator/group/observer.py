"""What a simulated group tells whoever watches it: nothing here, lines of event logs in
`crdtcast.simulator.group.logs`.
"""

from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Dot, Tag
from crdtcast.simulator.group.machine import Machine


class RunObserver:
    """Ignores everything. Events of one machine come in the order of its application; ghosts are not told of."""

    def started(self, machine: Machine) -> None:
        """A process runs: a founder, a joiner, or one that goes on from its journal."""

    def sent(self, machine: Machine, tag: Tag, reissues: Dot | None = None) -> None:
        """It has sent a message, of its application's or of the group's."""

    def delivered(self, machine: Machine, delivery: Delivery) -> None:
        """Its application was given a message."""

    def stable(self, machine: Machine, tag: Tag) -> None:
        """Its application was told that this is stable."""

    def changed(self, machine: Machine) -> None:
        """Its members, or those that have ended, may have changed."""

    def synced(self, machine: Machine) -> None:
        """Its journal has everything so far."""

    def stopped(self, machine: Machine, *, cleanly: bool) -> None:
        """Its process is gone, cleanly, or with all that was not synced."""
