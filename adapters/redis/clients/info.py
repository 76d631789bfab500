"""INFO: the gateway's own figures, added to the last ones of its server.

The server's figures (memory, persistence, keyspace, CPU) are at most a second old. Paths and addresses of the server
are left out: clients have no need to know them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commands.table import Table
from crdtcast.adapters.redis.server.monitor import Sections
from crdtcast.adapters.redis.store.databases import USUAL, Databases

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.listener import Front

_ON_REQUEST = frozenset({"commandstats"})
"""Sections that a plain INFO does not show."""
_PRIVATE = ("executable", "config_file", "listener", "process_supervised", "slave")
_LINKS_OF_THE_SERVER = ("total_net_", "instantaneous_", "client_", "io_threaded_", "acl_")
"""Prefixes of figures about the server's connections: the gateway is that client, ours are not."""

Fields = Mapping[str, object]


class Info:
    """Answers INFO.

    identity: name and versions of the server.
    status: the values of section `crdtcast`.
    """

    def __init__(
        self, table: Table, *, identity: Callable[[], Fields], status: Callable[[], Fields]
    ) -> None:
        self.server: Sections = {}
        """The server's last figures."""
        self.databases: Databases = Databases(USUAL, USUAL - 1)
        self.front: Front | None = None
        self._table = table
        self._identity = identity
        self._started = time.monotonic()
        self._calls = 0
        self._counted_at = self._started
        self._rate = 0
        self._sections: dict[str, Callable[[], Fields]] = {
            "server": self._server,
            "clients": self._clients,
            "memory": lambda: self.server.get("memory", {}),
            "persistence": lambda: {"loading": 0, **self.server.get("persistence", {})},
            "stats": self._stats,
            "replication": self._replication,
            "cpu": lambda: self.server.get("cpu", {}),
            "commandstats": self._commandstats,
            "cluster": lambda: {"cluster_enabled": 0},
            "keyspace": self._keyspace,
            "crdtcast": status,
        }

    def look(self, sections: Sections) -> None:
        """Take in new figures of the server, and count the commands since the last time."""
        self.server = sections
        now, calls = time.monotonic(), self._total_calls()
        self._rate = round((calls - self._calls) / max(now - self._counted_at, 0.001))
        self._calls, self._counted_at = calls, now

    def text(self, wanted: Iterable[bytes]) -> bytes:
        """The sections of these names (in any case); without names the default ones; for `all` and `everything` every
        one.
        """
        names = {name.lower().decode("utf-8", "replace") for name in wanted}
        everything = bool(names & {"all", "everything"})
        usual = not names or "default" in names
        parts = []
        for name, fields in self._sections.items():
            if everything or name in names or (usual and name not in _ON_REQUEST):
                parts.append(f"# {name.capitalize()}\r\n" + "".join(_lines(fields())))
        return "\r\n".join(parts).encode("utf-8", "surrogateescape")

    def _server(self) -> Fields:
        assert self.front is not None
        uptime = int(time.monotonic() - self._started)
        return {
            **self._identity(),
            "redis_mode": "standalone",
            **_without(self.server.get("server", {}), _PRIVATE),
            "process_id": os.getpid(),
            "tcp_port": self.front.port,
            "uptime_in_seconds": uptime,
            "uptime_in_days": uptime // 86_400,
        }

    def _clients(self) -> Fields:
        assert self.front is not None
        return {
            "connected_clients": len(self.front.clients),
            "cluster_connections": 0,
            "maxclients": self.front.limits.clients,
            "blocked_clients": sum(c.blocked is not None for c in self.front.clients.values()),
            "tracking_clients": 0,
            "pubsub_clients": sum(c.subscriptions > 0 for c in self.front.clients.values()),
        }

    def _stats(self) -> Fields:
        assert self.front is not None
        return {
            **_without(self.server.get("stats", {}), _LINKS_OF_THE_SERVER),
            "total_connections_received": self.front.accepted,
            "total_commands_processed": self._total_calls(),
            "instantaneous_ops_per_sec": self._rate,
            "total_net_input_bytes": self.front.bytes_in,
            "total_net_output_bytes": self.front.bytes_out,
            "rejected_connections": self.front.refused,
        }

    def _replication(self) -> Fields:
        told = self.server.get("replication", {})
        ours = {"role": "master", "connected_slaves": 0}
        return ours | {
            name: told[name] for name in ("master_replid", "master_repl_offset") if name in told
        }

    def _keyspace(self) -> Fields:
        names = {f"db{db}" for db in self.databases.clients}
        told = self.server.get("keyspace", {})
        return {name: value for name, value in told.items() if name in names}

    def _commandstats(self) -> Fields:
        """Calls are the gateway's; the time per call is the server's mean for that command."""
        native = self.server.get("commandstats", {})
        lines: dict[str, object] = {}
        for command in self._table.commands():
            if not command.calls and not command.rejected:
                continue
            name = "cmdstat_" + command.name.lower().replace(" ", "|")
            each = float(_part(native.get(name, ""), "usec_per_call") or 0)
            lines[name] = (
                f"calls={command.calls},usec={round(command.calls * each)},usec_per_call={each:.2f},"
                f"rejected_calls={command.rejected},failed_calls=0"
            )
        return lines

    def _total_calls(self) -> int:
        return sum(command.calls for command in self._table.commands())


def _part(line: str, name: str) -> str:
    return dict(part.partition("=")[::2] for part in line.split(",")).get(name, "")


def _without(fields: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if not name.startswith(prefixes)}


def _lines(values: Fields, prefix: str = "") -> list[str]:
    lines: list[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += _lines(value, f"{prefix}{name}_")
            continue
        if isinstance(value, bool):
            value = int(value)
        elif value is None:
            value = ""
        elif isinstance(value, (list, tuple, set, frozenset)):
            value = ",".join(map(str, value))
        lines.append(f"{prefix}{name}:{value}".replace("\r", " ").replace("\n", " ") + "\r\n")
    return lines
