"""The regions that the tests of a file share."""

from collections.abc import Iterator

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster
from tests.clients.regions import HERE, THERE, Regions


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Regions]:
    """Real gateways and servers; each test has its own keys."""
    directory = tmp_path_factory.mktemp("clients")
    with LocalCluster(directory, (HERE, THERE), group="clients") as cluster:
        yield Regions(cluster)
