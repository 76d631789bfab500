"""Two gateways at one server, in a group whose members come and go: the others know which of them owns it."""

import logging
from pathlib import Path

import pytest

from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.exceptions import SupersededError
from tests.adapters.redis.gateways import Gateways, RunningGateway, error_of, until
from tests.adapters.redis.test_views import engine_of, wait_voters

pytestmark = pytest.mark.process


def refusals(running: RunningGateway) -> dict[str, int]:
    belonging = running.gateway.belonging
    assert belonging is not None
    return belonging.peers.shared.refusals()


def test_superseded_gateway_is_refused_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.call("a", "SADD", "s", "1")
        old = town.start("b", "a")
        town.start("c", "a")
        town.wait_equal("a", "b", "c")
        wait_voters(town, "a", "b", "c")
        until(lambda: all(not engine_of(town, name).outline().decided for name in "abc"))
        # No client writes: others tell the old one, or the fence at its server if it has something to note.
        caplog.set_level(logging.INFO)
        town.start("b", "a")
        error = error_of(old)
        assert isinstance(error, SupersededError)
        assert str(error).endswith(": run one gateway for each server")

        def lines() -> list[logging.LogRecord]:
            records = [r for r in caplog.records if "fence epoch" in r.getMessage()]
            return [r for r in records if r.name in ("gateway.a", "gateway.c")]

        # A refusal is counted and logged after it was sent, so the old one may end before that.
        until(lambda: sum(refusals(town.running[name]).get("superseded", 0) for name in "ac"))
        until(lines)
        town.call("b", "SADD", "s", "2")
        town.call("c", "SADD", "s", "3")
        town.wait_equal("a", "b", "c")
        assert sorted(town.call("a", "SMEMBERS", "s")) == [b"1", b"2", b"3"]
        assert town.status("a")["links"]["c"]["reconnects"] == 0
        assert len({line.name for line in lines()}) == len(lines()), "one line at each peer"


def test_gateway_of_an_emptied_server_is_not_superseded(tmp_path: Path) -> None:
    """The fence goes with the rest, and the others remember how high it was."""
    with Gateways(tmp_path) as town:
        town.start("a")
        for _ in range(2):
            b = town.start("b", "a")
            town.wait_equal("a", "b")
            b.stop()
        with RawClient(town.server("b").port) as client:
            client.call("FLUSHALL")
        town.start("b", "a")
        town.call("b", "SADD", "s", "1")
        until(lambda: town.call("a", "SMEMBERS", "s") == [b"1"])
