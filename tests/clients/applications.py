"""What each application sends to a gateway: recorded by its tests, and shown by docs/redis-clients.md."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from crdtcast.adapters.redis.server.raw_client import RawClient
from tests.clients.regions import TwoRegions

PAGE = Path(__file__).parents[2] / "docs" / "redis-clients.md"
_LEFT_OUT = {"CRDTCAST", "INFO", "HELLO", "CLIENT SETINFO", "SELECT"}
"""Commands of the tests themselves, and those that begin a connection."""


@contextlib.contextmanager
def recorded(regions: TwoRegions, application: str) -> Iterator[None]:
    """The commands that both gateways get in the block are those of the application's row."""
    before = _calls(regions)
    yield
    sent = {name for name, calls in _calls(regions).items() if calls > before.get(name, 0)}
    shown = shown_commands(application)
    extra = sent - _LEFT_OUT - shown
    assert not extra, f"{PAGE.name} does not show what {application} sends: {sorted(extra)}"
    unsent = shown - sent
    assert not unsent, f"{application} does not send what {PAGE.name} shows: {sorted(unsent)}"


def shown_commands(application: str) -> set[str]:
    """The commands in the row of an application."""
    (row,) = (
        line for line in PAGE.read_text().splitlines() if line.startswith(f"| [{application}](")
    )
    return set(re.findall(r"`([A-Z ]+)`", row.split("|")[2]))


def _calls(regions: TwoRegions) -> dict[str, int]:
    """Calls of each command, with those that were refused."""
    found: dict[str, int] = {}
    for port in (regions.here, regions.there):
        with RawClient(port) as client:
            told = client.call("INFO", "commandstats")
        assert isinstance(told, bytes)
        for name, calls, rejected in re.findall(
            r"cmdstat_([^:]+):calls=(\d+),.*rejected_calls=(\d+)", told.decode()
        ):
            shown = name.upper().replace("|", " ")
            found[shown] = found.get(shown, 0) + int(calls) + int(rejected)
    return found
