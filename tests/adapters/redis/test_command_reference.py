"""docs/redis-commands.md: made from the gateway's table, complete, and as it would be made now."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.commands import WRITES
from crdtcast.adapters.redis.commands.refusals import KNOWN
from crdtcast.adapters.redis.commands.table import CommandKind, Table
from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from tests.adapters.redis.command_reference import PROGRAM, ServerList, ask, names_on, page
from tests.adapters.redis.differences import DIFFERENCES

PAGE = Path(__file__).parents[3] / "docs" / "redis-commands.md"
ROWS = [
    [b"get", 2, [b"readonly"], 1, 1, 1, [], [], [], []],
    [b"lpush", -3, [b"write"], 1, 1, 1, [], [], [], []],
    [
        *(b"object", -2, [], 0, 0, 0, [], [], []),
        [
            [b"object|encoding", 3, [b"readonly"], 2, 2, 1, [], [], [], []],
            [b"object|help", 2, [b"loading"], 0, 0, 0, [], [], [], []],
        ],
    ],
    [
        *(b"xgroup", -2, [], 0, 0, 0, [], [], []),
        [
            [b"xgroup|create", -5, [b"write"], 2, 2, 1, [], [], [], []],
            [b"xgroup|help", 2, [b"loading"], 0, 0, 0, [], [], [], []],
        ],
    ],
]
SMALL = ServerList("Toy 1", ROWS, {"GET": "string", "LPUSH": "list", "OBJECT": "generic"})


@pytest.fixture
def listed(server: EmbeddedServer) -> Iterator[ServerList]:
    yield ask(server)


@pytest.mark.process
def test_every_command_has_a_row_and_the_page_is_up_to_date(listed: ServerList) -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = list(names_on(text))
    assert len(names) == len(set(names)), "a command stands twice"
    for row in listed.rows:
        name = row[0].decode().upper()
        subcommands = {sub[0].decode().upper().replace("|", " ") for sub in row[9]}
        assert name in names or subcommands <= {*names}, f"{name} has no row: {PROGRAM}"
    assert WRITES.keys() | KNOWN <= {name.partition(" ")[0] for name in names}
    if listed.name in text:  # what another server knows is another page
        assert text == page(listed), f"it would be made otherwise now: {PROGRAM}"


def test_row_names_working_differing_and_refused_commands() -> None:
    lines = page(SMALL).splitlines()
    assert "| `GET` | works | |" in lines
    (counted,) = (line for line in lines if "`INCR`" in line)
    assert f"| works, but | {DIFFERENCES['INCR']} |" in counted
    (refused,) = (line for line in lines if "`LPUSH`" in line)
    assert "| refused | use SADD and SREM" in refused
    assert any(line.startswith("| `OBJECT ENCODING` |") for line in lines)
    assert any(line.startswith("| `OBJECT HELP` | refused |") for line in lines)
    assert any("`XGROUP`" in line for line in lines), "all of it is refused: one name"


def test_a_command_that_the_server_lacks_stands_apart() -> None:
    _, _, newer = page(SMALL).partition("## Not in that server")
    assert "`BITOP`" in newer and "`LPUSH`" not in newer


def test_differences_are_of_commands_that_work() -> None:
    table = Table()
    for name in DIFFERENCES:
        command = table.by_name.get(name.encode())
        assert command is None or command.subcommands or command.kind is not CommandKind.REFUSED, (
            name
        )
