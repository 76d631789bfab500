"""docs/redis-commands.md, made from the one table of commands: what works, what differs, what is refused.

`python -m tests.adapters.redis.command_reference PAGE` writes PAGE anew; a server is started for its list.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crdtcast.adapters.redis.commands.refusals import text_of
from crdtcast.adapters.redis.commands.table import Command, CommandKind, Table
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import RawClient
from tests.adapters.redis.differences import DIFFERENCES

PROGRAM = "python -m tests.adapters.redis.command_reference docs/redis-commands.md"

_SECTIONS = {
    "string": "Strings and numbers",
    "hash": "Hashes",
    "set": "Sets",
    "generic": "Keys of any type",
    "transactions": "Transactions",
    "pubsub": "Messages",
    "connection": "Connection",
    "server": "Server",
    "crdtcast": "The gateway's own",
    "list": "Lists",
    "sorted-set": "Sorted sets",
    "geo": "Places",
    "bitmap": "Bits",
    "hyperloglog": "HyperLogLogs",
    "stream": "Streams",
    "scripting": "Scripts",
    "cluster": "Cluster",
}
"""By the server's own groups. Another group gets a section of its own name behind them."""
_NEWER = "Not in that server"

_HEAD = """# Commands of a gateway

For programmers of clients. After this page you know what each command of the server does at a gateway, and what to use
instead of a refused one.

```
 command ──> gateway ── works ──────────> as at the server itself
                     ├─ works, but … ───> with the named difference
                     └─ refused ────────> an error that names the alternative; nothing changes
```

In every region all writes mean what [redis-rules.md](redis-rules.md) says. The gateway passes on reads that are new in
a later server, and refuses its new writes until it knows them. This page is generated from the gateway's own table and
the list of {server}, by
`{program}`.
"""


class ServerList(NamedTuple):
    """What a server says of itself. rows: its reply to `COMMAND`. groups: of each command, as `COMMAND DOCS` has it."""

    name: str
    rows: Sequence[Any]
    groups: Mapping[str, str]


class CommandEntry(NamedTuple):
    """Of commands that share everything: `status` is one of "works", "works, but" and "refused"."""

    names: tuple[str, ...]
    status: str
    text: str


def ask(server: EmbeddedServer) -> ServerList:
    """A server's own list."""
    with RawClient(server.port) as client:
        rows, docs, info = client.pipeline([("COMMAND",), ("COMMAND", "DOCS"), ("INFO", "server")])
    assert isinstance(rows, list) and isinstance(docs, list) and isinstance(info, bytes)
    fields = dict(line.partition(":")[::2] for line in info.decode().splitlines())
    version = fields.get("valkey_version")
    name = f"Valkey {version}" if version else f"Redis {fields['redis_version']}"
    return ServerList(name, rows, dict(_groups(docs)))


def _groups(docs: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for command, told in zip(docs[::2], docs[1::2], strict=True):
        about = dict(zip(told[::2], told[1::2], strict=True))
        yield command.decode().upper(), about[b"group"].decode()


def page(server: ServerList) -> str:
    """The whole page."""
    table = Table()
    table.extend_from_server(server.rows)
    by_section: dict[str, list[Command]] = {}
    for command in table.commands():
        if not command.subcommands:
            by_section.setdefault(_section(command, server.groups), []).append(command)
    known = [*_SECTIONS.values()]
    parts = [_HEAD.format(program=PROGRAM, server=server.name)]
    for section in sorted(by_section, key=lambda each: (_place(each, known), each)):
        parts += [f"\n## {section}\n\n| command | | |\n|---|---|---|\n"]
        parts += [_line(entry) for entry in entries(table, by_section[section])]
    return "".join(parts)


def entries(table: Table, commands: Iterable[Command]) -> list[CommandEntry]:
    """Commands with the same text in one entry each; first what works, then what is refused."""
    found: dict[tuple[str, str], list[str]] = {}
    for command in sorted(commands, key=lambda each: each.name):
        found.setdefault(_said(command), []).append(command.name)
    rows = [CommandEntry(_folded(table, names), *said) for said, names in found.items()]
    order = ("works", "works, but", "refused")
    return sorted(rows, key=lambda row: (order.index(row.status), row.names))


def _said(command: Command) -> tuple[str, str]:
    if command.kind is CommandKind.REFUSED:
        return "refused", text_of(command.name, writes="write" in command.flags)[1]
    text = DIFFERENCES.get(command.name) or DIFFERENCES.get(command.name.partition(" ")[0], "")
    return ("works, but" if text else "works"), text


def _folded(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """A command in the place of its subcommands, where all of them stand here."""
    folded: list[str] = []
    for name in names:
        container = table.get(name.partition(" ")[0])
        every = [sub.name for sub in (container.subcommands or {}).values()]
        if " " in name and set(every) <= set(names):
            if container.name not in folded:
                folded.append(container.name)
        else:
            folded.append(name)
    return tuple(folded)


def _section(command: Command, groups: Mapping[str, str]) -> str:
    if command.kind is CommandKind.ADMIN:
        return _SECTIONS["crdtcast"]
    group = groups.get(command.name.partition(" ")[0])
    return _NEWER if group is None else _SECTIONS.get(group, group)


def _place(section: str, known: Sequence[str]) -> int:
    return known.index(section) if section in known else len(known)


def _line(entry: CommandEntry) -> str:
    names = " ".join(f"`{name}`" for name in entry.names)
    return f"| {names} | {entry.status} | {entry.text} |\n".replace("|  |", "| |")


def names_on(text: str) -> Iterator[str]:
    """The commands that have a row on a page."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield from (
                line.split("|")[1].replace("` `", "`\n`").replace("`", "").strip().split("\n")
            )


def main(path: str) -> None:
    """Write the page at `path` anew."""
    with tempfile.TemporaryDirectory() as directory:
        server = start_server(Path(directory))
        try:
            told = ask(server)
        finally:
            server.stop()
    Path(path).write_text(page(told), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
