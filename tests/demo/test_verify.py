"""The demo's comparison: it finds every kind of difference, and metadata that should not be there."""

import pytest

from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.demo.plan import Expected
from crdtcast.demo.verify import (
    CONSTANT_BYTES,
    Content,
    MetadataLeft,
    between_regions,
    differences,
    metadata_beyond,
    read_content,
)

RIGHT = Expected({"one": 1, "two": 2}, frozenset(("one", "two")))
SAME = Content({"two": 2, "one": 1}, frozenset(("two", "one")), ())


def test_equal_content_has_no_differences() -> None:
    assert differences("eu", SAME, RIGHT) == []
    assert between_regions({"eu": SAME, "us": SAME, "asia": SAME}) == []


def test_every_kind_of_difference_is_a_line() -> None:
    wrong = Content({"one": 3, "more": 1}, frozenset(("one", "more")), ("stray",))
    assert differences("eu", wrong, RIGHT) == [
        "eu: count:more is 1, but should be None",
        "eu: count:one is 3, but should be 1",
        "eu: count:two is None, but should be 2",
        "eu: 'more' should not be in vocabulary",
        "eu: 'two' is missing in vocabulary",
        "eu: unexpected key 'stray'",
    ]
    assert between_regions({"eu": SAME, "us": wrong}) == ["us and eu hold different data"]


def test_constant_metadata_counts_only_if_it_grows() -> None:
    quiet = MetadataLeft(keys=0, bytes=0, constant_keys=3, constant_bytes=CONSTANT_BYTES)
    grown = MetadataLeft(keys=2, bytes=100, constant_keys=3, constant_bytes=CONSTANT_BYTES + 7)
    assert metadata_beyond([quiet, quiet, quiet]) == {"keys": 0, "bytes": 0}
    assert metadata_beyond([quiet, grown]) == {"keys": 2, "bytes": 107}


@pytest.mark.process
def test_a_server_is_read_completely(server: EmbeddedServer) -> None:
    with RawClient(server.port) as client:
        words = [f"w{number}" for number in range(2500)]
        client.pipeline([("INCRBY", f"count:{word}", "7") for word in words])
        client.call("SADD", "vocabulary", *words)
        client.call("SET", "stray", "x")
        assert read_content(server.port) == Content(
            dict.fromkeys(words, 7), frozenset(words), ("stray",)
        )
