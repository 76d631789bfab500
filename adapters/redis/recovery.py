"""Who am I, after a start or a reconnection? A pure decision from the local file and what the server says.

The same incarnation goes on only if its journal (the server's data) is provably intact; a dot is never reused. See the
table of durability in docs/redis.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crdtcast.adapters.redis.localfile import LocalFile
from crdtcast.adapters.redis.metadata import StoredState
from crdtcast.exceptions import ConfigurationError


class Durability(enum.Enum):
    """What an acknowledged write survives, by the server's settings."""

    ALWAYS = "always"
    """appendfsync always: the loss of this machine's memory."""
    EVERYSEC = "everysec"
    """An append-only file synced later, and WAITAOF to know when: SIGKILL; power loss may cost the last second."""
    VOLATILE = "volatile"
    """No append-only file, or no way to know what is synced: whatever the other regions hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a gateway finds at its server."""

    run_id: str
    role: str
    durability: Durability
    state: StoredState | None
    keys: int
    """Keys in database 0."""
    metadata_keys: int


class Identity(enum.Enum):
    """How the node goes on."""

    FRESH = "first start on an empty server"
    SAME = "same incarnation: the journal is intact"
    RENEWED = "new incarnation: the journal cannot be proven intact"


def decide(group: str, name: str, file: LocalFile | None, found: Found) -> Identity:
    """The way to go on. Raises ConfigurationError, with the way out, where none is safe."""
    if found.role not in ("master", "primary"):
        raise ConfigurationError(
            f"the server is a {found.role}: point the gateway at the primary it replicates"
        )
    if file is not None and file.group != group:
        raise ConfigurationError(
            f"the state directory belongs to group {file.group!r}, not {group!r}: "
            "use another --state-dir for another group"
        )
    if found.state is None:
        return _decide_without_state(name, file, found)
    if (found.state.group, found.state.name) != (group, name):
        raise ConfigurationError(
            f"the server's metadata belongs to node {found.state.name!r} of group "
            f"{found.state.group!r}, not to {name!r} of {group!r}: an unfinished bootstrap, or a "
            "restored or cloned backup. Point the gateway at its own server, or empty this one "
            "(FLUSHALL at the server's port) if its data is not needed"
        )
    if file is None or file.incarnation != found.state.incarnation:
        return Identity.RENEWED
    if file.run_id == found.run_id or file.durability == Durability.ALWAYS.value:
        return Identity.SAME
    return Identity.RENEWED


def _decide_without_state(name: str, file: LocalFile | None, found: Found) -> Identity:
    if file is not None:
        raise ConfigurationError(
            f"the server has lost its data: node {name!r} has run before (incarnation "
            f"{file.incarnation}), but its metadata is gone. Restore the server's append-only file "
            "or snapshot and start again. To refill an empty server from the group is not possible "
            "in this version: the whole group must start afresh, with empty state directories"
        )
    if found.metadata_keys:
        raise ConfigurationError(
            f"the metadata database holds {found.metadata_keys} keys that are not crdtcast's: "
            "choose an unused one with --metadata-db"
        )
    if found.keys:
        raise ConfigurationError(
            f"database 0 holds {found.keys} keys that the other regions do not have: start with an "
            "empty server and write the data through the gateway (taking over an existing database "
            "is not possible in this version)"
        )
    return Identity.FRESH
