"""Options of links, groups and replicas: a misspelt one is an error that names the right word."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
import trio

from crdtcast import ConfigurationError, open_host, open_member, open_replica
from crdtcast.group.open import MemberOptions
from crdtcast.lowlevel import NodeOptions
from crdtcast.option_checks import fits, words_of
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
        for wrong in (math.nan, math.inf, -1.0, 0)
    ),
    *((option, -1) for option, kind in OF_LINKS.items() if fits(1, kind) and option != "seed"),
    ("queue_bytes", 0),
    ("backlog_bytes", 0),
    ("max_handshakes", 0),
    ("max_host_connections", 0),
    ("compact_bytes", 0),
    ("journal", ""),
    ("secrets", ("x" * 40,)),
]


@pytest.mark.parametrize(("option", "wrong"), OUT_OF_RANGE)
def test_number_that_makes_no_sense_is_an_error(option: str, wrong: object) -> None:
    async def main() -> None:
        with trio.fail_after(10), pytest.raises(ConfigurationError, match=option):
            await OPENERS["open_member"](found=True, **{option: wrong})

    trio.run(main)


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
