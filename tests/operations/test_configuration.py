"""One configuration from four sources: which counts, and that everything wrong is told at once."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.settings import GatewaySettings
from crdtcast.exceptions import ConfigurationError
from crdtcast.quantities import seconds, size, size_text
from crdtcast.service.configuration import OptionKind, load, option, options_of, with_flags
from crdtcast.service.settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven:
    name: str = option(OptionKind.TEXT, "Whose.")
    heat: int = option(OptionKind.NUMBER, "Degrees.", 200)
    grill: bool = option(OptionKind.FLAG, "From above.", False)
    places: tuple[str, ...] = option(OptionKind.ADDRESSES, "Where.", ())
    wait: float | None = option(OptionKind.SECONDS, "Before.", None)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "oven.toml"
    file.write_text(text)
    return file


def test_command_line_overrides_environment_overrides_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'name = "file"\nheat = 1\nwait = 0.5\nplaces = ["a:1", "b:2"]')
    loaded = load(
        Oven,
        file,
        given={"name": "line", "heat": None},
        environment={"CRDTCAST_NAME": "env", "CRDTCAST_HEAT": "2", "CRDTCAST_GRILL": "yes"},
    )
    assert loaded.get() == Oven(name="line", heat=2, grill=True, wait=0.5, places=("a:1", "b:2"))
    assert loaded.sources == {
        "name": "command line",
        "heat": "environment",
        "grill": "environment",
        "wait": str(file),
        "places": str(file),
    }
    assert load(Oven, given={"name": "x"}, environment={}).sources["heat"] == "default"


def test_all_configuration_errors_are_reported_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, 'haet = 3\ncolour = "red"\nplaces = ["nowhere"]\nwait = true')
    loaded = load(Oven, file, given={"heat": "hot"}, environment={"CRDTCAST_GRILL": "perhaps"})
    assert loaded.settings is None
    assert list(loaded.wrong) == [
        f"unknown option haet in {file}, did you mean heat?",
        f"unknown option colour in {file}: remove it",
        f"places in {file}: invalid address 'nowhere': write host:port, for example 127.0.0.1:7001",
        f"wait in {file}: True is not a duration: write seconds, or a number with ms, s, min, h or d",
        "CRDTCAST_GRILL: 'perhaps' is not a flag: write true or false",
        "--heat: 'hot' is not a whole number",
        "name is missing: set it in the file, as CRDTCAST_NAME or --name",
    ]
    with pytest.raises(ConfigurationError, match=r"did you mean heat\?; .*name is missing"):
        loaded.get()


def test_contradictions_are_reported_with_unreadable_values() -> None:
    given = {"name": "eu", "found": "perhaps", "max_frame": "many", "event_logs": "/logs"}
    assert load(NodeSettings, given=given, environment={}).wrong == (
        "--found: 'perhaps' is not a flag: write true or false",
        "--max-frame: 'many' is not a size: write bytes, or a number with KiB, MiB, GiB, kB, MB or GB",
        "event_logs needs a journal: set journal",
    )


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        (
            "join names only this node: set found = true for it",
            "--join names only this node: --found for it",
        ),
        (
            "replaces needs a group: set join (or found), too",
            "--replaces needs a group: set --join (or --found), too",
        ),
        ("invalid log_level 'x'", "invalid --log-level 'x'"),
        ("founders, found and join are missing", "--founders, --found and --join are missing"),
        ("a founder starts with the name of a group", "a founder starts with the name of a group"),
    ],
)
def test_command_line_errors_have_flags(written: str, typed: str) -> None:
    assert with_flags(written, options_of(NodeSettings)) == typed


def test_names_of_members_may_be_several() -> None:
    for names in ("us, asia", ["us", "asia"]):
        loaded = load(
            NodeSettings, given={"name": "eu", "journal": "/x", "replaces": names}, environment={}
        )
        assert loaded.get().replaces == ("us", "asia")
    assert (
        checked(found=True, replaces=3)[0]
        == '--replaces: 3 is not a list of names: in a file ["name", …]'
    )


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("OFF", False), ("yes", True), ("no", False)]
)
def test_flags_from_the_environment(value: str, expected: bool) -> None:
    environment = {"CRDTCAST_NAME": "x", "CRDTCAST_GRILL": value}
    assert load(Oven, environment=environment).get().grill is expected


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (OptionKind.SECONDS, "90", 90),
        (OptionKind.SECONDS, "500ms", 0.5),
        (OptionKind.SECONDS, "1.5 h", 5400),
        (OptionKind.SECONDS, "2min", 120),
        (OptionKind.SECONDS, "1d", 86_400),
        (OptionKind.SECONDS, 0.25, 0.25),
        (OptionKind.SECONDS, "1e-2", 0.01),
        (OptionKind.BYTES, 4096, 4096),
        (OptionKind.BYTES, "64 MiB", 64 * 2**20),
        (OptionKind.BYTES, "64mb", 64_000_000),
        (OptionKind.BYTES, "1.5GiB", 3 * 2**29),
        (OptionKind.BYTES, "9007199254740993", 2**53 + 1),
    ],
)
def test_sizes_and_durations_may_have_units(
    kind: OptionKind, value: object, expected: float
) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Quantity:
        it: float = option(kind, "It.", 0)

    assert load(Quantity, given={"it": value}, environment={}).get().it == expected


@given(st.integers(0, 2**50))
def test_shown_size_can_be_given_back(number: int) -> None:
    assert size(size_text(number)) == number


@pytest.mark.parametrize(
    "value",
    [
        "1 week",
        "5 MiB s",
        "-1",
        "1,5h",
        "",
        "s",
        "MiB",
        "0x10",
        "nan",
        "1e999",
        None,
        True,
        ["1"],
        "9" * 5000,
        "1" * 20 + "d",
        10**400,
    ],
)
def test_invalid_quantity_is_reported(value: object) -> None:
    for read in (seconds, size):
        with pytest.raises(ConfigurationError, match="is no"):
            read(value)


def test_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a size"):
        size("1.5")


@pytest.mark.parametrize("text", ["heat = nan", "heat = -1", "heat = 1.5", "wait = inf"])
def test_invalid_number_is_one_line(tmp_path: Path, text: str) -> None:
    loaded = load(Oven, written(tmp_path, text), given={"name": "x"}, environment={})
    key = text.partition(" ")[0]
    assert len(loaded.wrong) == 1
    assert loaded.wrong[0].startswith(f"{key} in")


@pytest.mark.parametrize(
    "content",
    [b"name = ", b"\xff\xfe", b"heat = " + b"9" * 5000, b"name = " + b"[" * 100_000],
    ids=["broken", "no text", "long number", "deep"],
)
def test_invalid_or_missing_toml_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.toml"
    for kind in (Oven, NodeSettings):  # what is missing may be in it
        (wrong,) = load(kind, file, environment={}).wrong
        assert re.fullmatch(r"cannot read .*: No such file or directory: correct the path", wrong)
        file.write_bytes(content)
        (wrong,) = load(kind, file, given={"name": "x"}, environment={}).wrong
        assert "is not valid TOML" in wrong
        assert len(load(kind, file, given={"listen": "x", "heat": "x"}, environment={}).wrong) == 2
        file.unlink()


@pytest.mark.parametrize(
    "line", ['password = "hidden"', 'server = "redis://gw:hidden@127.0.0.1:6379"']
)
def test_a_file_with_a_password_is_private(line: str, tmp_path: Path) -> None:
    file = written(tmp_path, f'name = "eu"\nfound = true\n{line}')
    file.chmod(0o644)
    (wrong,) = load(GatewaySettings, file, environment={}).wrong
    assert f"other users can read or change {file}, with a password: chmod 600" in wrong
    assert "hidden" not in wrong
    file.chmod(0o600)
    assert load(GatewaySettings, file, environment={}).wrong == ()


def test_unknown_environment_option_is_only_noted() -> None:
    environment = {"CRDTCAST_GRIL": "1", "CRDTCAST_SECRET": "x", "CRDTCAST_NAME": "x"}
    secret_of_servers = load(GatewaySettings, environment={"CRDTCAST_SECRET": "s" * 32})
    assert not secret_of_servers.notes
    loaded = load(Oven, environment=environment)
    assert loaded.settings is not None
    assert loaded.notes == ("CRDTCAST_GRIL is set but unused: did you mean CRDTCAST_GRILL?",)


# The node's own


def checked(**given: Any) -> tuple[str, ...]:
    return load(NodeSettings, given={"name": "eu", **given}, environment={}).wrong


def test_a_node_needs_a_group_to_found_or_to_join() -> None:
    assert checked(found=True) == checked(join=["127.0.0.1:1"]) == checked(journal="/x") == ()
    assert "founders, found and join" in checked()[0]
    # One file for all machines names the founder among those to join, too.
    assert checked(found=True, join=["127.0.0.1:1"]) == ()
    assert "excludes witness" in checked(found=True, witness=True)[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"certificate": "a.pem"}, "belong together"),
        ({"certificate": "a.pem", "key": "b", "ca": "c"}, "cannot use certificate a.pem"),
        ({"name": "no name"}, "invalid node name"),
        (
            {"replaces": ["us", "x y"], "found": False, "join": ["127.0.0.1:1"]},
            "'x y' is not a member name",
        ),
        ({"evict_after": 10}, "at least three keepalive_intervals"),
        ({"event_logs": "/logs"}, "needs a journal"),
        ({"when_full": "panic"}, "choose refuse or evict"),
        ({"store_memory_bytes": 9, "store_most_bytes": 8}, "is above store_most_bytes"),
        ({"log_level": "loud"}, "choose one of debug, info, warning, error"),
        ({"admin": "0.0.0.0:7000"}, "use 127.0.0.1, or a path"),
        ({"found": False, "join": ["10.0.0.1:7001"]}, "which 10.0.0.1:7001 cannot reach"),
        ({"listen": "0.0.0.0:7001"}, "set advertise to the address that the others dial"),
        ({"admin": "127.0.0.1:7000"}, "open to every user of this machine"),
        ({"admin": "socket"}, "a path with a / or ending in .sock"),
        ({"secret_file": "/no/such/file"}, "cannot read the secret"),
        ({"max_frame": 5}, "max_frame must be from"),
        ({"queue_bytes": 0}, "queue_bytes must be at least 1"),
        ({"queue_bytes": 1}, "queue_bytes must be at least 65,536"),
        ({"listen": ":7001"}, "invalid address ':7001'"),
        ({"join": ["127.0.0.1:7001"], "found": False}, "join names only this node itself"),
    ],
)
def test_invalid_node_option_is_one_line(given: dict[str, Any], expected: str) -> None:
    lines = checked(**{"found": True, **given})
    assert any(expected in line for line in lines), lines
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"listen": "0.0.0.0:7380"}, "listen is 0.0.0.0:7380, every address"),
        ({"listen": "127.0.0.1:7380"}, "which 10.0.0.1:7380 cannot reach"),
    ],
)
def test_gateway_without_a_dialable_address_is_refused(
    given: dict[str, Any], expected: str
) -> None:
    settings = GatewaySettings(name="eu", state_dir="/state", join=("10.0.0.1:7380",), **given)
    (line,) = settings.wrong()
    assert expected in line
    assert not replace(settings, advertise="10.0.1.1:7380").wrong()
    fixed = replace(settings, join=(), peer=("us=10.0.0.1:7380",))
    assert not fixed.wrong()  # the others have its address


def test_every_option_has_a_description_and_a_valid_default() -> None:
    for each in options_of(NodeSettings):
        assert each.about.endswith("."), each
        if not each.required and each.default is not None:
            assert (
                load(
                    NodeSettings, given={"name": "x", "found": True, each.key: each.default}
                ).sources[each.key]
                == "command line"
            )


@pytest.mark.parametrize(
    ("state_home", "expected"),
    [
        ("/var/state", "/var/state/crdtcast/g"),
        ("", "/home/me/.local/state/crdtcast/g"),
        ("state", "/home/me/.local/state/crdtcast/g"),
    ],
)
def test_state_directory_does_not_depend_on_where_one_is(
    monkeypatch: pytest.MonkeyPatch, state_home: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", state_home)
    settings = GatewaySettings(name="eu", group="g", found=True)
    assert settings.state_directory == Path(expected)
