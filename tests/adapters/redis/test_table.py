"""The table of commands: nothing that writes passes through, every refusal says why and what else."""

from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.commands import WRITES, geo, register
from crdtcast.adapters.redis.commands.refusals import KNOWN
from crdtcast.adapters.redis.commands.table import Command, CommandKind, Table, describe
from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from crdtcast.adapters.redis.server.resp import ReplyError, encode
from crdtcast.adapters.redis.store.effects import LEVELS
from tests.adapters.redis.front_support import connection

ROWS = [
    [b"append", 3, [b"write", b"denyoom"], 1, 1, 1, [], [], [], []],
    [b"newwrite", -2, [b"write"], 1, 1, 1, [], [], [], []],
    [b"hget", 3, [b"readonly", b"fast"], 1, 1, 1, [], [], [], []],
    [b"mget", -2, [b"readonly", b"fast"], 1, -1, 1, [], [], [], []],
    [b"xread", -4, [b"readonly", b"blocking", b"movablekeys"], 0, 0, 0, [], [], [], []],
    [b"eval_ro", -3, [b"noscript", b"readonly"], 0, 0, 0, [], [], [], []],
    [b"pfcount", -2, [b"readonly"], 1, -1, 1, [], [], [], []],
    [b"sadd", -3, [b"write", b"denyoom", b"fast"], 1, 1, 1, [], [], [], []],
    [b"shutdown", -1, [b"admin"], 0, 0, 0, [], [], [], []],
    [
        *(b"object", -2, [], 0, 0, 0, [], [], []),
        [
            [b"object|encoding", 3, [b"readonly"], 2, 2, 1, [], [], [], []],
            [b"object|help", 2, [b"loading"], 0, 0, 0, [], [], [], []],
        ],
    ],
    [
        *(b"client", -2, [], 0, 0, 0, [], [], []),
        [
            [b"client|kill", -3, [b"admin"], 0, 0, 0, [], [], [], []],
            [b"client|id", 2, [b"admin"], 0, 0, 0, [], [], [], []],
        ],
    ],
]


@pytest.fixture
def table() -> Table:
    table = Table()
    table.extend_from_server(ROWS)
    return table


def resolved(table: Table, *args: bytes) -> Command:
    command = table.resolve(args)
    assert isinstance(command, Command), command
    return command


def test_reads_of_the_server_pass_and_writes_do_not(table: Table) -> None:
    for args in ((b"HGET", b"k", b"f"), (b"mget", b"a", b"b"), (b"Object", b"EnCoding", b"k")):
        assert resolved(table, *args).kind is CommandKind.READ
    assert resolved(table, b"object", b"encoding", b"k").name == "OBJECT ENCODING"
    assert resolved(table, b"mget", b"a", b"b").keys_of([b"mget", b"a", b"b"]) == [b"a", b"b"]
    assert resolved(table, b"object", b"encoding", b"k").keys_of([b"", b"", b"k"]) == [b"k"]
    for refused in (b"setbit", b"newwrite", b"xread", b"eval_ro", b"pfcount"):
        assert resolved(table, refused, b"a", b"b", b"c").kind is CommandKind.REFUSED
    assert resolved(table, b"client", b"kill", b"x").kind is CommandKind.REFUSED
    assert resolved(table, b"client", b"id").kind is CommandKind.SESSION
    assert table.get("SADD").kind is CommandKind.WRITE, "the server does not decide about ours"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([b"append", b"a", b"b"], "'APPEND' is not replicated, so it would change this region"),
        ([b"newwrite", b"a"], "use SET, INCRBY (strings), HSET"),
        ([b"blpop", b"k", b"0"], "command 'BLPOP' is not replicated"),
        ([b"hexpire", b"k", b"1"], "command 'HEXPIRE' is not replicated"),
        ([b"shutdown"], "it concerns one server only; send it to the server's own port"),
        ([b"client", b"kill", b"x"], "command 'CLIENT KILL' is not replicated"),
        ([b"swapdb", b"0", b"1"], "use COPY with DB, or MOVE"),
        ([b"copy", b"a", b"b"], "command 'COPY' is not replicated"),
    ],
)
def test_refusal_names_the_command_and_an_alternative(
    table: Table, args: list[bytes], text: str
) -> None:
    error = table.refusal_of(resolved(table, *args))
    assert str(error).startswith("ERR crdtcast: command '")
    assert text in str(error)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([b"sadd", b"k"], "ERR wrong number of arguments for 'sadd' command"),
        ([b"INCR"], "ERR wrong number of arguments for 'incr' command"),
        ([b"SET", b"k"], "ERR wrong number of arguments for 'set' command"),
        ([b"object"], "ERR wrong number of arguments for 'object' command"),
        ([b"object", b"encoding"], "ERR wrong number of arguments for 'object|encoding' command"),
        ([b"object", b"foo"], "ERR unknown subcommand 'foo'. Try OBJECT HELP."),
        (
            [b"foo", b"bar", b"baz qux"],
            "ERR unknown command 'foo', with args beginning with: 'bar' 'baz qux' ",
        ),
    ],
)
def test_errors_are_the_servers_own(table: Table, args: list[bytes], text: str) -> None:
    assert str(table.resolve(args)) == text


def test_write_command_matches_its_row(table: Table) -> None:
    for row in WRITES.values():
        command = table.by_name[row.name.lower().encode()]
        assert (command.kind, command.arity, command.keys) == (
            CommandKind.WRITE,
            row.arity,
            row.keys,
        )
        assert command.level == max(LEVELS[effect] for effect in (*row.sends, *row.sends_recorded))
        assert row.name not in KNOWN, "it is carried out, not refused"
    assert table.get("SADD").looks and not table.get("SADD").removes_keys
    assert table.get("DEL").removes_keys and not table.get("DEL").looks
    assert table.get("INCR").counts and table.get("INCR").grows
    with pytest.raises(ValueError, match="SADD is already registered"):
        register(WRITES["SADD"])


def test_known_writes_are_refused_before_any_server_was_seen() -> None:
    table = Table()
    assert {"SETBIT", "HGETDEL", "LPUSH", "BZPOPMIN", "XADD", "EVAL"} <= KNOWN
    for name in KNOWN:
        assert resolved(table, name.encode(), b"x").kind is CommandKind.REFUSED
        assert str(table.refusal_of(table.get(name))).startswith(
            f"ERR crdtcast: command '{name}' is not replicated"
        )


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_any_name_gets_a_reply_in_one_line(args: list[bytes]) -> None:
    command = Table().resolve(args)
    if isinstance(command, ReplyError):
        assert encode(command, 2).count(b"\r\n") == 1


@pytest.fixture
def server_rows(server: EmbeddedServer) -> Iterator[list[list[Any]]]:
    with connection(server.port) as wire:
        rows = wire.call("COMMAND")
        assert isinstance(rows, list)
        yield rows


@pytest.mark.process
def test_no_write_of_a_real_server_passes_through(server_rows: list[list[Any]]) -> None:
    table = Table()
    table.extend_from_server(server_rows)
    for row in [*server_rows, *(sub for entry in server_rows for sub in entry[9])]:
        name, _, sub = row[0].decode().upper().partition("|")
        command = table.get(name)
        if sub:
            assert command.subcommands is not None
            command = command.subcommands[sub.encode()]
        elif command.subcommands:
            continue
        flags = set(row[2])
        if b"write" in flags:
            is_known = name in WRITES or name in geo.REWRITTEN
            assert command.kind is (CommandKind.WRITE if is_known else CommandKind.REFUSED), name
        if command.kind is CommandKind.READ and name not in ("TIME", "PUBSUB"):
            assert b"readonly" in flags, name
            assert not flags & {b"blocking", b"admin", b"pubsub", b"noscript"}, name
        assert table.by_name[name.lower().encode()] is table.get(name)
    for name in (
        "HGETALL",
        "LRANGE",
        "ZRANGE",
        "MGET",
        "TTL",
        "KEYS",
        "SINTER",
        "XRANGE",
        "STRLEN",
    ):
        assert table.get(name).kind is CommandKind.READ
    for command in table.supported():
        reader = hiredis.Reader()
        reader.feed(encode(describe(command), 2))
        assert reader.gets()[0] == command.name.lower().encode()
