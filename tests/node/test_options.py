"""Options of links, groups and replicas: a misspelt one is an error that names the right word."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import trio

from crdtcast import ConfigurationError, Limits, open_host, open_member, open_replica
from crdtcast.group.open import MemberOptions
from crdtcast.lowlevel import NodeOptions
from crdtcast.option_checks import fits, words_of
from crdtcast.short_repr import shown
from crdtcast.transport.options import LinkOptions

NOT_OF_LINKS = {"name", "listen", "group", "peers", "level", "reads"}
"""What an opener says in another way, or is a gateway's alone."""


async def _opens(opened: Any) -> None:
    async with opened:
        pass


async def _found(**options: Any) -> None:
    async with open_host("eu") as links:
        links.found("orders", **options)


async def _join(**options: Any) -> None:
    async with open_host("eu") as links:
        await links.join("orders", **options)


OPENERS: dict[str, Callable[..., Awaitable[None]]] = {
    "open_replica": lambda **options: _opens(open_replica("eu", **options)),
    "open_member": lambda **options: _opens(open_member("eu", **options)),
    "open_host": lambda **options: _opens(open_host("eu", **options)),
    "found": _found,
    "join": _join,
}
MISSPELT = [
    ("open_replica", "journl", "'eu': unknown option 'journl': did you mean journal"),
    ("open_replica", "type", "did you mean types"),
    ("open_replica", "peers", "unknown option 'peers'"),
    ("open_replica", "witness", "unknown option 'witness'"),
    ("open_member", "founder", "did you mean founders"),
    ("open_member", "keepalive", "did you mean keepalive_interval"),
    ("open_member", "machin", "did you mean machine"),
    ("open_host", "sekrets", "did you mean secrets"),
    ("open_host", "nettwork", "did you mean network"),
    ("open_host", "journal", "unknown option 'journal'"),
    (
        "found",
        "event_log",
        "group 'orders': unknown option 'event_log': did you mean event_logs",
    ),
    ("found", "replace", "unknown option 'replace'"),
    ("join", "limit", "did you mean limits"),
    ("join", "founders", "unknown option 'founders'"),
    ("join", "zzz", "choose one of compact_bytes, event_logs, journal"),
]


@pytest.mark.parametrize(("opener", "option", "why"), MISSPELT)
def test_a_misspelt_option_is_an_error_that_names_the_right_one(
    opener: str, option: str, why: str
) -> None:
    async def main() -> None:
        with trio.fail_after(10), pytest.raises(ConfigurationError, match=why):
            await OPENERS[opener](**{option: None})

    trio.run(main)


def test_links_have_the_options_of_nodes() -> None:
    """Each is typed twice, so that type checkers know it: in `LinkOptions` and in `NodeOptions`."""
    of_nodes = get_type_hints(NodeOptions)
    assert {field.name for field in fields(NodeOptions)} == of_nodes.keys()
    expected = {name: kind for name, kind in of_nodes.items() if name not in NOT_OF_LINKS}
    assert get_type_hints(LinkOptions) == expected
    assert of_nodes.keys() >= NOT_OF_LINKS


@pytest.mark.parametrize("option", sorted(get_type_hints(MemberOptions)))
def test_option_of_a_wrong_type_is_an_error_that_names_it(option: str) -> None:
    async def main() -> None:
        for opener in ("open_replica", "open_member"):
            why = f"'eu': option {option} has the value <object object .*>: give [A-Za-z]|invalid "
            with trio.fail_after(10), pytest.raises(ConfigurationError, match=why):
                await OPENERS[opener](**{"found": True, option: object()})

    trio.run(main)


@pytest.mark.parametrize(
    "options",
    [
        {"join": [1]},
        {"join": ("a", "b")},
        {"founders": {"eu": 1, "us": 2}},
        {"founders": {"us": 3}},
        {"founders": ["eu", "us"]},
        {"join": None},
        {"join": 5},
        {"found": True, "secrets": b"0123456789abcdef"},
    ],
)
def test_wrong_types_within_an_option_are_errors(options: dict[str, Any]) -> None:
    async def main() -> None:
        with trio.fail_after(10), pytest.raises(ConfigurationError):
            await OPENERS["open_member"](**options)

    trio.run(main)


OF_LINKS = get_type_hints(LinkOptions)
OUT_OF_RANGE = [
    *(
        (option, wrong)
        for option, kind in OF_LINKS.items()
        if fits(0.5, kind)
        for wrong in (math.nan, math.inf, -1.0, 0, 10**400, -(10**5000))
    ),
    *((option, -1) for option, kind in OF_LINKS.items() if fits(1, kind) and option != "seed"),
    ("queue_bytes", 0),
    ("backlog_bytes", 0),
    ("max_handshakes", 0),
    ("max_host_connections", 0),
    ("compact_bytes", 0),
    ("compact_bytes", -(10**5000)),
    ("join_timeout", -(10**5000)),
    ("journal", ""),
    ("journal", "a\0b"),
    ("journal", "\ud800"),
    ("event_logs", Path("a\0b")),
    ("ca", "a\0b"),
    ("secrets", ("x" * 40,)),
]


@pytest.mark.parametrize(("option", "wrong"), OUT_OF_RANGE, ids=shown)
def test_number_that_makes_no_sense_is_an_error(option: str, wrong: object) -> None:
    async def main() -> None:
        with trio.fail_after(10), pytest.raises(ConfigurationError, match=option):
            await OPENERS["open_member"](found=True, **{option: wrong})

    trio.run(main)


TOO_LARGE = 10**5000  # for Python to print
TOO_DEEP: list[Any] = []
for _ in range(5000):
    TOO_DEEP = [TOO_DEEP]


@pytest.mark.parametrize("wrong", [TOO_LARGE, TOO_DEEP], ids=["large", "deep"])
@pytest.mark.parametrize("option", ["name", "listen", "journal", "found", "replaces", "secrets"])
def test_option_that_python_cannot_print_is_named(option: str, wrong: Any) -> None:
    async def main() -> None:
        given: dict[str, Any] = {"name": "eu", "join": "127.0.0.1:1", option: wrong}
        for door in open_replica, open_member:
            with trio.fail_after(10), pytest.raises(ConfigurationError, match=r"of 1661|\[{6}"):
                await _opens(door(**given))

    trio.run(main)


@pytest.mark.parametrize("clock", [5, None, lambda: "noon", lambda: 0.5, lambda: 2**63])
def test_clock_that_tells_no_time_is_refused_when_it_is_given(clock: Any) -> None:
    async def main() -> None:
        with trio.fail_after(10), pytest.raises(ConfigurationError, match=r"clock_us (is|tells)"):
            await OPENERS["open_replica"](found=True, clock_us=clock)

    trio.run(main)


@pytest.mark.parametrize("bytes_", [10**400, -1, math.nan, "1"])
def test_limit_that_is_no_number_of_bytes_is_an_error(bytes_: Any) -> None:
    for option in "memory_bytes", "most_bytes":
        with pytest.raises(ConfigurationError, match=f"{option} is .*: give a number of bytes"):
            Limits(**{option: bytes_})


@pytest.mark.parametrize("replaces", ["us", b"us", [5], ["u s"], [""]])
def test_what_a_joiner_replaces_is_a_list_of_names(replaces: Any) -> None:
    async def main() -> None:
        for opener, more in ("open_replica", {"join": "127.0.0.1:1"}), ("join", {}):
            with trio.fail_after(10), pytest.raises(ConfigurationError, match="list of names"):
                await OPENERS[opener](replaces=replaces, **more)

    trio.run(main)


def test_a_whole_number_is_a_duration_but_no_boolean_is() -> None:
    assert fits(3, float) and fits(0.5, float) and fits(None, float | None)
    assert not fits(True, float) and not fits(True, int) and not fits(0.5, int)
    assert words_of(float | None) == "float or None"
