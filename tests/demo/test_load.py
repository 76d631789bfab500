"""The demo's clients: everything is written once, a failure is heard, leaving early ends the
threads.
"""

import itertools
import threading
from collections.abc import Iterator

import pytest

from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.demo import plan
from crdtcast.demo.load import Load, Stream
from crdtcast.exceptions import ServerError

pytestmark = pytest.mark.process


def test_every_command_is_sent_once_by_several_threads(server: EmbeddedServer) -> None:
    words = ["spam", "eggs", "spam"] * 500
    stream = Stream(server.port, plan.counting(words, 7))
    with Load({"eu": stream}, connections=3) as load:
        assert load.wait(60)
    with RawClient(server.port) as client:
        assert client.call("MGET", "count:spam", "count:eggs") == [b"1000", b"500"]
        assert client.call("SCARD", "vocabulary") == 2
    assert load.operations == stream.operations == 1500 + 215


def test_error_reply_ends_the_load_and_is_reported(server: EmbeddedServer) -> None:
    with RawClient(server.port) as client:
        client.call("SADD", "count:spam", "not a number")
    endless = plan.counting(["spam"] * 1_000_000, 10)
    with (
        pytest.raises(ServerError, match="WRONGTYPE"),
        Load({"eu": Stream(server.port, endless)}, connections=2) as load,
    ):
        load.wait(60)
    assert not any(thread.is_alive() for thread in load.threads)


def test_death_of_a_server_is_reported(server: EmbeddedServer) -> None:
    begun = threading.Event()

    def batches() -> Iterator[plan.Batch]:
        for number in itertools.count():
            if number == 20:
                begun.set()
            yield [("INCR", "count:x")]

    with (
        pytest.raises(ServerError, match="a client failed"),
        Load({"eu": Stream(server.port, batches())}, connections=1) as load,
    ):
        assert begun.wait(60)
        server.kill()
        load.wait(60)


def test_leaving_early_ends_the_threads(server: EmbeddedServer) -> None:
    endless: Iterator[plan.Batch] = itertools.repeat([("INCR", "count:x")])
    with Load({"eu": Stream(server.port, endless)}, connections=2) as load:
        assert not load.wait(0)
    assert not any(thread.is_alive() for thread in load.threads)
