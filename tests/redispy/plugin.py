"""Loaded into redis-py's own pytest (`-p plugin`), which knows nothing of this project.

Their default addresses, ports 6379 and 6380 of this machine, lead to the gateway. Each outcome is a line of JSON in the
file that `REDISPY_OUTCOMES` names.
"""

import ast
import inspect
import json
import os
import socket
import textwrap
from typing import Any

import pytest
from redis.commands.core import (
    GeoCommands,
    HashCommands,
    ManagementCommands,
    PubSubCommands,
    ScanCommands,
    SetCommands,
    SortedSetCommands,
)

COUNTERS = {"incr", "incrby", "decr", "decrby", "incrbyfloat"}
STRINGS = {
    *(
        "append",
        "get",
        "getdel",
        "getex",
        "getrange",
        "getset",
        "lcs",
        "mget",
        "mset",
        "msetex",
        "msetnx",
    ),
    *("psetex", "set", "setex", "setnx", "setrange", "strlen", "substr", "delex", "digest"),
}
HASHES = {name for name in vars(HashCommands) if not name.startswith("_")}
MESSAGES = {name for name in vars(PubSubCommands) if not name.startswith("_")}
KEYS = {
    *("copy", "delete", "dump", "exists", "expire", "expireat", "expiretime", "persist", "pexpire"),
    *("pexpireat", "pexpiretime", "pttl", "keys", "move", "object", "randomkey", "rename"),
    *("renamenx", "restore", "touch", "ttl", "type", "unlink", "dbsize"),
}
SETS = {name for name in vars(SetCommands) if not name.startswith("_")}
SORTED_SETS = {name for name in vars(SortedSetCommands) if not name.startswith("_")}
PLACES = {name for name in vars(GeoCommands) if not name.startswith("_")}
SCANS = {name for name in vars(ScanCommands) if not name.startswith("_")}
CONNECTIONS = {
    name
    for name in vars(ManagementCommands)
    if name.startswith(
        ("client_", "command", "config_get", "info", "ping", "echo", "select", "time")
    )
}
CHOSEN = COUNTERS | STRINGS | HASHES | KEYS | SETS | SORTED_SETS | PLACES | SCANS
CHOSEN |= MESSAGES | CONNECTIONS

_url = ""
_connect = socket.socket.connect


def _connect_to_gateway(self: socket.socket, address: Any) -> None:
    if address in (("127.0.0.1", 6379), ("127.0.0.1", 6380)):
        address = ("127.0.0.1", int(_url.rpartition(":")[2].partition("/")[0]))
    _connect(self, address)


def pytest_configure(config: pytest.Config) -> None:
    global _url
    _url = config.getoption("--redis-url")
    socket.socket.connect = _connect_to_gateway  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests of commands, those that call a method of the families above."""
    left_out = [
        item
        for item in items
        if item.path.name == "test_commands.py" and not _methods(item) & CHOSEN
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


_found: dict[Any, set[str]] = {}


def _methods(item: pytest.Item) -> set[str]:
    function = inspect.unwrap(item.function)  # type: ignore[attr-defined]
    if function not in _found:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        _found[function] = {call.attr for call in called if isinstance(call, ast.Attribute)}
    return _found[function]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        errors, error = [], call.excinfo and call.excinfo.value
        while error is not None and len(errors) < 10:
            errors.append(f"{type(error).__name__}: {error}"[:1000])
            error = error.__cause__ or error.__context__
        if hasattr(report, "wasxfail"):
            errors = [f"marked as expected to fail, by redis-py: {report.wasxfail or errors}"]
        line = {"test": report.nodeid, "outcome": report.outcome, "errors": errors}
        with open(os.environ["REDISPY_OUTCOMES"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return report
