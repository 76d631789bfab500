"""The proof of a shared secret: bound to everything, worth nothing anywhere else."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.engine.level import Span
from crdtcast.exceptions import ConfigurationError
from crdtcast.transport.options import NodeOptions
from crdtcast.wire.auth import Role, proof, proves, read_secrets
from crdtcast.wire.frames import Hello

SECRET = b"sixteen bytes at least"
A = Hello(group="g", name="a", incarnation="a.01", process=b"pa", nonce=bytes(32))
B = Hello(group="g", name="b", incarnation="b.01", process=b"pb", nonce=bytes([1] * 32))


def test_proof_is_accepted_from_its_maker() -> None:
    for role in Role:
        assert proves(proof(SECRET, role, A, B), [b"", SECRET], role, A, B)


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
        {"databases": (16, 15)},
    ]
)


@given(st.sampled_from(list(Role)), CHANGES, st.booleans())
def test_proof_fails_if_any_hello_field_is_changed(
    role: Role, change: dict[str, object], dialler: bool
) -> None:
    made = proof(SECRET, role, A, B)
    dialled, accepted = (replace(A, **change), B) if dialler else (A, replace(B, **change))  # type: ignore[arg-type]
    assert not proves(made, [SECRET], role, dialled, accepted)


@given(st.sampled_from(list(Role)))
def test_reflected_or_reversed_proof_is_refused(role: Role) -> None:
    other = Role.ACCEPTOR if role is Role.DIALLER else Role.DIALLER
    made = proof(SECRET, role, A, B)
    assert not proves(made, [SECRET], other, A, B)
    assert not proves(made, [SECRET], role, B, A)
    assert not proves(made, [SECRET + b"!"], role, A, B)


@given(st.binary(max_size=200))
def test_other_bytes_are_no_proof(mac: bytes) -> None:
    assert not proves(mac, [SECRET], Role.DIALLER, A, B)


def test_the_secret_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    file.chmod(0o600)
    environment = {"CRDTCAST_SECRET": "from the environment"}
    assert read_secrets(file, environment) == (SECRET,)
    assert read_secrets(None, environment) == (b"from the environment",)
    assert read_secrets(None, {}) == ()
    file.write_bytes(b" " + SECRET + b"\r\n\nand the next one of the group\n")
    assert read_secrets(file) == (SECRET, b"and the next one of the group")
    with pytest.raises(
        ConfigurationError, match=r"cannot read the secret in .*No such file.*: correct the path"
    ):
        read_secrets(tmp_path / "none")
    for short in (b"short", SECRET + b"\nshort"):
        file.write_bytes(short)
        with pytest.raises(
            ConfigurationError, match="has 5 bytes, and 16 are needed: create one with"
        ):
            read_secrets(file)
    file.write_bytes(b"\n")
    with pytest.raises(ConfigurationError, match="has 0 bytes"):
        read_secrets(file)
    file.write_bytes(3 * (SECRET + b"\n"))
    with pytest.raises(ConfigurationError, match=r"has 3 secrets: give one, or two while"):
        read_secrets(file)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666])
def test_a_secret_that_others_may_know_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    file.chmod(mode)
    with pytest.raises(
        ConfigurationError, match=r"other users can read or change .*the group's secret: chmod"
    ):
        read_secrets(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_secret_file_must_belong_to_root_or_this_user(
    tmp_path: Path,
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    file.chmod(0o640)
    assert read_secrets(file) == (SECRET,)
    os.chown(file, 12345, 12345)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        read_secrets(file)


def test_secret_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/dev/null")):
        with pytest.raises(
            ConfigurationError, match="is not a file: name the file with the group's secret"
        ):
            read_secrets(place)


def test_options_neither_show_the_secret_nor_take_a_short_one() -> None:
    options = NodeOptions(name="a", listen=("127.0.0.1", 0), secrets=(SECRET,))
    assert "sixteen" not in repr(options)
    with pytest.raises(
        ConfigurationError, match="the secret in secrets is too short: it has 5 bytes"
    ):
        NodeOptions(name="a", listen=("127.0.0.1", 0), secrets=(b"short",))
