"""A gateway tells of itself as a member what every other one does."""

from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.adapters.redis.rawclient import RawClient
from crdtcast.status import Status


@pytest.mark.server
def test_a_gateways_status_holds_that_of_its_member(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ["a", "b"], group="shop") as cluster:
        with RawClient(cluster["a"].gateway.port) as client:
            assert client.call("SADD", "s", "x") == 1
        while (found := cluster["a"].status()["member"])["unstable"]:
            pass
        assert set(found) == set(Status.__dataclass_fields__)
        assert (found["node"], found["group"], found["standing"]) == ("a", "shop", "member")
        assert [member["name"] for member in found["members"]] == ["a", "b"]
        assert found["sent"] >= 1 and found["caught_up"]
