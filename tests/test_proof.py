"""The proof of a shared secret: bound to everything, worth nothing anywhere else."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.engine.level import Span
from crdtcast.exceptions import ConfigurationError
from crdtcast.options import NodeOptions
from crdtcast.proof import Role, proof, proves, read_secret
from crdtcast.wire import Hello

SECRET = b"sixteen bytes at least"
A = Hello(group="g", name="a", incarnation="a.01", process=b"pa", nonce=bytes(32))
B = Hello(group="g", name="b", incarnation="b.01", process=b"pb", nonce=bytes([1] * 32))


def test_it_is_accepted_from_who_has_made_it() -> None:
    for role in Role:
        assert proves(proof(SECRET, role, A, B), SECRET, role, A, B)


CHANGES = st.sampled_from(
    [
        {"group": "h"},
        {"name": "c"},
        {"incarnation": "a.02"},
        {"process": b"px"},
        {"fence": 1},
        {"version": 2},
        {"oldest": 3},
        {"shared": True},
        {"address": "x:1"},
        {"nonce": bytes([2] * 32)},
        {"level": 2},
        {"reads": Span(1, 9)},
    ]
)


@given(st.sampled_from(list(Role)), CHANGES, st.booleans())
def test_whatever_is_changed_on_the_way_shows(
    role: Role, change: dict[str, object], dialler: bool
) -> None:
    made = proof(SECRET, role, A, B)
    dialled, accepted = (replace(A, **change), B) if dialler else (A, replace(B, **change))  # type: ignore[arg-type]
    assert not proves(made, SECRET, role, dialled, accepted)


@given(st.sampled_from(list(Role)))
def test_sent_back_or_turned_round_it_is_worth_nothing(role: Role) -> None:
    other = Role.ACCEPTOR if role is Role.DIALLER else Role.DIALLER
    made = proof(SECRET, role, A, B)
    assert not proves(made, SECRET, other, A, B)
    assert not proves(made, SECRET, role, B, A)
    assert not proves(made, SECRET + b"!", role, A, B)


@given(st.binary(max_size=200))
def test_other_bytes_are_no_proof(mac: bytes) -> None:
    assert not proves(mac, SECRET, Role.DIALLER, A, B)


def test_the_secret_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    environment = {"CRDTCAST_SECRET": "from the environment"}
    assert read_secret(file, environment) == SECRET
    assert read_secret(None, environment) == b"from the environment"
    assert read_secret(None, {}) is None
    with pytest.raises(ConfigurationError, match=r"cannot read the secret in .*No such file"):
        read_secret(tmp_path / "none")
    file.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="has 5 bytes, 16 are the least: make one with"):
        read_secret(file)


def test_options_neither_show_the_secret_nor_take_a_short_one() -> None:
    options = NodeOptions(name="a", listen=("127.0.0.1", 0), secret=SECRET)
    assert "sixteen" not in repr(options)
    with pytest.raises(ConfigurationError, match="the secret has 5 bytes"):
        NodeOptions(name="a", listen=("127.0.0.1", 0), secret=b"short")
