"""Who a node is after a start: the whole table of decisions, and what is refused with the way out."""

import pytest

from crdtcast.adapters.redis.localfile import LocalFile
from crdtcast.adapters.redis.metadata import StoredState
from crdtcast.adapters.redis.recovery import Durability, Found, Identity, decide
from crdtcast.exceptions import ConfigurationError
from crdtcast.tags import Dot


def state(**changes: object) -> StoredState:
    fields: dict[str, object] = {
        "group": "g",
        "name": "a",
        "incarnation": "a.1",
        "members": ("a", "b"),
        "counter": 3,
        "vector": {"a.1": 3, "b.1": 2},
        "context": (Dot("a.1", 3),),
        "stable": {"a.1": 1},
        "clock": 99,
        "order": 5,
    }
    return StoredState(**(fields | changes))  # type: ignore[arg-type]


def file(**changes: str) -> LocalFile:
    fields = {
        "group": "g",
        "name": "a",
        "incarnation": "a.1",
        "run_id": "r1",
        "role": "master",
        "durability": "everysec",
    }
    return LocalFile(**(fields | changes))  # type: ignore[arg-type]


def found(**changes: object) -> Found:
    fields: dict[str, object] = {
        "run_id": "r1",
        "role": "master",
        "durability": Durability.EVERYSEC,
        "state": state(),
        "keys": 10,
        "metadata_keys": 3,
    }
    return Found(**(fields | changes))  # type: ignore[arg-type]


EMPTY = found(state=None, keys=0, metadata_keys=0)


def test_a_first_start_on_an_empty_server_is_fresh() -> None:
    assert decide("g", "a", None, EMPTY) is Identity.FRESH


def test_a_restarted_gateway_beside_the_same_server_is_the_same() -> None:
    assert decide("g", "a", file(), found()) is Identity.SAME


def test_a_server_restarted_under_always_keeps_the_incarnation() -> None:
    assert decide("g", "a", file(durability="always"), found(run_id="r2")) is Identity.SAME


@pytest.mark.parametrize("durability", ["everysec", "volatile"])
def test_a_server_restarted_otherwise_means_a_new_incarnation(durability: str) -> None:
    assert decide("g", "a", file(durability=durability), found(run_id="r2")) is Identity.RENEWED


def test_a_lost_or_older_local_file_means_a_new_incarnation() -> None:
    assert decide("g", "a", None, found()) is Identity.RENEWED
    assert decide("g", "a", file(incarnation="a.0"), found()) is Identity.RENEWED


@pytest.mark.parametrize(
    ("given_file", "given_found", "said"),
    [
        (file(), found(role="slave"), "point the gateway at the primary"),
        (file(group="other"), found(), "state directory belongs to group 'other'"),
        (None, found(state=state(name="b")), "belongs to node 'b'"),
        (None, found(state=state(group="h")), "of group 'h'"),
        (file(), EMPTY, "has lost its data"),
        (None, found(state=None, keys=0), "not crdtcast's"),
        (None, found(state=None, metadata_keys=0), "10 keys that the other regions do not have"),
    ],
)
def test_what_is_not_safe_is_refused_with_the_way_out(
    given_file: LocalFile | None, given_found: Found, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        decide("g", "a", given_file, given_found)


def test_stored_state_comes_back_as_it_was() -> None:
    assert StoredState.decode(state().encode()) == state()


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"hello", b"\x80", b"\x81\xa6format\x02"])
def test_a_foreign_or_later_state_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"metadata-db|upgrade"):
        StoredState.decode(raw)
