"""Two regions that clients of all kinds use at the same time."""

from crdtcast.adapters.redis.cluster import LocalCluster

HERE, THERE = "eu", "us"


class TwoRegions:
    """Ports of the two gateways."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.here = cluster[HERE].gateway.port
        self.there = cluster[THERE].gateway.port

    def settle(self) -> None:
        """Return when both hold the same."""
        self._cluster.wait_equal((HERE, THERE), quiet=False, timeout=60)

    def cut(self) -> None:
        """Until `heal` neither hears the other."""
        self._cluster.cut(HERE, THERE)

    def heal(self) -> None:
        """And return when both hold the same."""
        self._cluster.heal(HERE, THERE)
        self.settle()

    def pass_seconds(self, seconds: float) -> None:
        """Move the clocks of both."""
        for name in (HERE, THERE):
            self._cluster[name].command("ADVANCE", str(round(seconds * 1000)))
