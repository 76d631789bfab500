"""The regions that the tests of a file share."""

from collections.abc import Iterator

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster
from tests.clients.regions import HERE, THERE, TwoRegions


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRegions]:
    """Real gateways and servers; each test has its own keys."""
    directory = tmp_path_factory.mktemp("clients")
    with LocalCluster(directory, (HERE, THERE), group="clients") as cluster:
        yield TwoRegions(cluster)
