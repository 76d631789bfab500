"""A gateway tells of itself as a member what every other one does, and has the same probes."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.adapters.redis.store.effects import READS
from crdtcast.group.status import Status
from tests.operations.test_supervisor import manager, told


@pytest.mark.process
def test_gateway_has_the_status_probes_and_log_of_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--metrics", "127.0.0.1:0", "--log-json", "--log-level", "info"]
    place = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", os.fspath(place))
    with (
        manager(os.fspath(place)) as listening,
        LocalCluster(tmp_path, ["a"], group="shop", arguments=more) as cluster,
    ):
        assert told(listening) == ["STATUS=starts", "READY=1", "STATUS=serves"]
        region = cluster["a"]
        probes = region.gateway.metrics
        with RawClient(region.gateway.port) as client:
            assert client.call("SADD", "s", "x") == 1
        while (found := region.status()["member"])["unstable"]:
            pass
        assert set(found) == set(Status.__dataclass_fields__)
        assert (found["node"], found["group"], found["standing"]) == ("a", "shop", "member")
        assert [member["name"] for member in found["members"]] == ["a"]
        assert found["sent"] >= 1 and found["caught_up"]
        with urllib.request.urlopen(f"http://{probes}/ready", timeout=10) as answer:
            assert answer.read() == b"ready\n"
        with urllib.request.urlopen(f"http://{probes}/metrics", timeout=10) as answer:
            page = answer.read()
        assert b'crdtcast_sent_total{group="shop",node="a"}' in page
        level = f'crdtcast_format_level{{group="shop",node="a"}} {float(READS.highest)}'
        assert level.encode() in page
        assert b'crdtcast_compare_rounds_total{group="shop",node="a"} 0.0' in page
        region.server.kill()
        code = 200
        while code == 200:
            try:
                urllib.request.urlopen(f"http://{probes}/ready", timeout=10).close()
            except urllib.error.HTTPError as error:
                with error:
                    code, why = error.code, error.read().decode()
        assert (code, why) == (503, f"the server {region.status()['server']} does not answer\n")
        lines = region.gateway.log.read_text().splitlines()
        assert {json.loads(line)["node"] for line in lines} == {"a"}
