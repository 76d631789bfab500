"""Who a node is after a start: the whole table of decisions, and what is refused with the way out."""

from dataclasses import asdict
from pathlib import Path

import pytest

from crdtcast.adapters.redis.group.recovery import (
    Durability,
    FoundState,
    Identity,
    Way,
    decide,
    decide_member,
)
from crdtcast.adapters.redis.store.local_file import LocalFile
from crdtcast.adapters.redis.store.metadata import StoredState, pack_membership
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import ConfigurationError


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
        "level": 1,
    }
    return StoredState(**(fields | changes))  # type: ignore[arg-type]


def file(**changes: object) -> LocalFile:
    fields: dict[str, object] = {
        "group": "g",
        "name": "a",
        "incarnation": "a.1",
        "run_id": "r1",
        "role": "master",
        "durability": "everysec",
        "level": 1,
    }
    return LocalFile(**(fields | changes))  # type: ignore[arg-type]


def found(**changes: object) -> FoundState:
    fields: dict[str, object] = {
        "run_id": "r1",
        "role": "master",
        "durability": Durability.EVERYSEC,
        "state": state(),
        "keys": 10,
        "metadata_keys": 3,
    }
    return FoundState(**(fields | changes))  # type: ignore[arg-type]


EMPTY = found(state=None, keys=0, metadata_keys=0)


def test_a_first_start_on_an_empty_server_is_fresh() -> None:
    assert decide("g", "a", None, EMPTY) is Identity.FRESH


def test_gateway_restarted_with_its_server_keeps_its_incarnation() -> None:
    assert decide("g", "a", file(), found()) is Identity.SAME


def test_a_server_restarted_under_always_keeps_the_incarnation() -> None:
    assert decide("g", "a", file(durability="always"), found(run_id="r2")) is Identity.SAME


def test_another_server_in_its_place_means_a_new_incarnation() -> None:
    """Promoted by Sentinel, it may lack what was replicated to it last, whatever the old one had synced."""
    left = file(durability="always", server="one:6379")
    assert decide("g", "a", left, found(run_id="r2", address="two:6379")) is Identity.RENEWED
    assert decide("g", "a", left, found(run_id="r2", address="one:6379")) is Identity.SAME


@pytest.mark.parametrize("durability", ["everysec", "volatile"])
def test_a_server_restarted_otherwise_means_a_new_incarnation(durability: str) -> None:
    assert decide("g", "a", file(durability=durability), found(run_id="r2")) is Identity.RENEWED


def test_a_lost_or_older_local_file_means_a_new_incarnation() -> None:
    assert decide("g", "a", None, found()) is Identity.RENEWED
    assert decide("g", "a", file(incarnation="a.0"), found()) is Identity.RENEWED


@pytest.mark.parametrize(
    ("given_file", "given_found", "said"),
    [
        (file(), found(role="slave"), "connect the gateway to the primary"),
        (file(group="other"), found(), "state directory belongs to group 'other'"),
        (None, found(state=state(name="b")), "the server of node 'b'"),
        (None, found(state=state(group="h")), "of group 'h'"),
        (file(), EMPTY, "has lost its data"),
        (None, found(state=None, keys=0), "that crdtcast did not write"),
        (None, found(state=None, metadata_keys=0), "10 keys that the other regions do not have"),
    ],
)
def test_unsafe_start_is_refused_with_a_remedy(
    given_file: LocalFile | None, given_found: FoundState, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        decide("g", "a", given_file, given_found)


def test_stored_state_survives_encoding() -> None:
    assert StoredState.decode(state().encode()) == state()


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"hello", b"\x80", b"\x81\xa6format\x02"])
def test_a_foreign_or_earlier_state_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"metadata-db|another server"):
        StoredState.decode(raw)


MEMBER = state(founding="a.1", membership=[])


def test_start_founds_joins_or_resumes() -> None:
    assert decide_member("g", "a", None, EMPTY, founds=True) is Way.FOUND
    assert decide_member("g", "a", None, EMPTY, founds=False) is Way.JOIN
    for founds in (True, False):
        known = found(state=MEMBER)
        assert decide_member("g", "a", file(), known, founds=founds) is Way.SAME
        elsewhere = found(state=MEMBER, run_id="r2")
        # Nothing has left that was not synced, so a restart of the server takes back nothing.
        assert decide_member("g", "a", file(), elsewhere, founds=founds) is Way.SAME


def test_empty_or_half_copied_server_is_filled_by_a_join() -> None:
    assert decide_member("g", "a", file(), EMPTY, founds=False) is Way.JOIN
    half = found(state=None, keys=7, metadata_keys=2, joining=frozenset({"a.2"}))
    assert decide_member("g", "a", None, half, founds=False) is Way.JOIN
    with pytest.raises(ConfigurationError, match="incomplete copy"):
        decide_member("g", "a", None, half, founds=True)
    with pytest.raises(ConfigurationError, match="incomplete copy"):
        decide("g", "a", None, half)


@pytest.mark.parametrize(
    ("left", "founds", "others", "way"),
    [
        (file(), True, True, Way.JOIN),  # a founder of others comes back through them
        (file(), False, True, Way.JOIN),
        (file(), True, False, Way.FOUND),  # it runs, and knows that it is alone
        (file(), False, False, Way.FOUND),
        (None, True, None, Way.FOUND),
        (None, False, None, Way.JOIN),
    ],
)
def test_emptied_server_is_refilled_from_known_members(
    left: LocalFile | None, founds: bool, others: bool | None, way: Way
) -> None:
    assert decide_member("g", "a", left, EMPTY, founds=founds, others=others) is way


def test_keys_without_metadata_are_taken_from_the_group() -> None:
    lost = found(state=None, metadata_keys=0)
    assert decide_member("g", "a", file(), lost, founds=True, others=True) is Way.JOIN
    with pytest.raises(ConfigurationError, match="'a' was a member with another server"):
        other = found(state=None, metadata_keys=0, run_id="r2")
        decide_member("g", "a", file(), other, founds=True, others=True)


WITH_DATA = found(state=None, metadata_keys=0)


def test_data_is_taken_over_by_a_founder_only() -> None:
    assert decide_member("g", "a", None, WITH_DATA, founds=True) is Way.ADOPT
    assert decide_member("g", "a", file(), WITH_DATA, founds=False, others=False) is Way.ADOPT
    with pytest.raises(ConfigurationError, match="--discard-data"):
        decide_member("g", "a", None, WITH_DATA, founds=False)
    assert decide_member("g", "a", None, WITH_DATA, founds=False, discards=True) is Way.JOIN
    elsewhere = found(state=None, metadata_keys=0, run_id="r2")
    with pytest.raises(ConfigurationError, match="another server"):
        decide_member("g", "a", file(), elsewhere, founds=False, others=True, discards=True)


def test_founder_that_served_no_client_founds_again() -> None:
    begun = file(begun=False)
    for seen in (EMPTY, WITH_DATA):
        way = Way.ADOPT if seen.keys else Way.FOUND
        assert decide_member("g", "a", begun, seen, founds=True) is way
    assert decide_member("g", "a", begun, found(state=MEMBER), founds=True) is Way.SAME


def test_a_member_that_has_left_comes_back_by_a_join_only() -> None:
    gone = LocalFile(**(asdict(file()) | {"left": True}))
    assert decide_member("g", "a", gone, found(state=MEMBER), founds=False) is Way.JOIN
    with pytest.raises(ConfigurationError, match="has left its group"):
        decide_member("g", "a", gone, found(state=MEMBER), founds=True)
    assert decide_member("g", "a", gone, EMPTY, founds=False) is Way.JOIN
    with pytest.raises(ConfigurationError, match=r"delete a\.json"):
        decide_member("g", "a", gone, WITH_DATA, founds=True)
    with pytest.raises(ConfigurationError, match="--discard-data"):
        decide_member("g", "a", gone, WITH_DATA, founds=False)


@pytest.mark.parametrize(
    ("left", "seen", "founds", "said"),
    [
        (file(), EMPTY, True, "has lost its data"),
        (None, found(state=None, keys=1, metadata_keys=0), False, "the server holds 1 keys"),
        (None, found(state=None, keys=0, metadata_keys=3), False, "metadata database holds 3"),
        (file(), found(), False, "a group of fixed members"),
        (None, found(state=MEMBER), False, "may lack data"),
        (file(incarnation="a.0"), found(state=MEMBER), False, "may lack data"),
        (file(durability="volatile"), found(state=MEMBER, run_id="r2"), False, "may lack data"),
        (file(), found(state=state(founding="b.1", name="b")), False, "the server of node 'b'"),
    ],
)
def test_member_refuses_to_resume_from_an_unsafe_state(
    left: LocalFile | None, seen: FoundState, founds: bool, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        decide_member("g", "a", left, seen, founds=founds)


def test_a_member_does_not_go_on_in_a_group_of_fixed_members() -> None:
    with pytest.raises(ConfigurationError, match="--join HOST:PORT"):
        decide("g", "a", file(), found(state=MEMBER))


def test_state_of_a_member_survives_storing() -> None:
    engine = GroupEngine.found("a.0000000000001aaaa", [])
    engine.admit("b.0000000000002bbbb")
    outline = engine.outline()
    stored = StoredState(
        group="g",
        name="a",
        incarnation=engine.me,
        members=("a", "b"),
        counter=outline.counter,
        vector=outline.vector,
        context=outline.context,
        stable=outline.stable,
        clock=5,
        order=1,
        level=1,
        founding=engine.me,
        membership=pack_membership(outline),
    )
    read = StoredState.decode(stored.encode())
    assert read.group_state(engine.state().unstable) == engine.state()


def test_unusable_state_directory_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="another --state-dir"):
        LocalFile.read(tmp_path / "file", "a")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ConfigurationError, match="is damaged"):
        LocalFile.read(tmp_path, "a")
