"""Which incarnation continues after a start or a reconnection: a pure decision from the local file and the server.

The same incarnation continues only if its journal (the server's data) is provably intact; a dot is never reused. See
the table of durability in docs/redis.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crdtcast.adapters.redis.store.local_file import LocalFile
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.exceptions import ConfigurationError


class Durability(enum.Enum):
    """What an acknowledged write survives, by the server's settings."""

    ALWAYS = "always"
    """appendfsync always: survives the loss of this machine's memory."""
    EVERYSEC = "everysec"
    """An append-only file synced later, with WAITAOF: survives SIGKILL; a power loss may cost the last second."""
    VOLATILE = "volatile"
    """No append-only file, or no way to know what is synced: only the other regions' copies survive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundState:
    """What a gateway finds at its server."""

    run_id: str
    role: str
    durability: Durability
    state: StoredState | None
    keys: int
    """Keys in the clients' databases."""
    metadata_keys: int
    unsettled: int = 0
    """Number of messages that are not stable, and of keys that wait for repair."""
    address: str = ""
    """The server's address as text."""
    never_syncs: bool = False
    """Whether it has a file that it never syncs by itself, so that it never says that something is synced."""
    joining: frozenset[str] | None = None
    """After an interrupted join: the ids under which this gateway asked to join; None: there was none."""

    @property
    def is_primary(self) -> bool:
        """Whether the server is a primary."""
        return self.role in ("master", "primary")


class Identity(enum.Enum):
    """How a gateway with fixed members continues."""

    FRESH = "first start on an empty server"
    SAME = "same incarnation: the journal is intact"
    RENEWED = "new incarnation: the journal cannot be proven intact"


class Way(enum.Enum):
    """How a gateway continues in a group whose members come and go."""

    FOUND = "first member of a new group"
    ADOPT = "first member of a new group, with the data that its server holds"
    CONVERT = "first member of a new group, with the data of a group of fixed members"
    JOIN = "joined"
    SAME = "same incarnation: the journal is intact"


def decide(
    group: str, name: str, file: LocalFile | None, found: FoundState, level: int = 1
) -> Identity:
    """Decide how to continue with fixed members. level: the operator's format level.

    Raises ConfigurationError, with the remedy, if no way is safe.
    """
    _refuse_others(group, file, found)
    if found.state is None:
        if found.joining is not None:
            raise ConfigurationError(
                "this server holds an incomplete copy of a group whose members come and go: "
                "complete it with --join, or empty the server (FLUSHALL at its own port)"
            )
        return _decide_without_state(name, file, found)
    _refuse_foreign(group, name, found.state)
    if found.state.founding:
        raise ConfigurationError(
            "this server belongs to a group whose members come and go: start the gateway with "
            "--join HOST:PORT of another member (or --found, as before) instead of --peer"
        )
    if level < found.state.level:
        raise ConfigurationError(
            f"--format-level {level}: this server has used format level {found.state.level}, and "
            "the level of a group cannot fall: start the gateway with --format-level "
            f"{found.state.level}"
        )
    if file is None or file.incarnation != found.state.incarnation:
        return Identity.RENEWED
    if file.run_id == found.run_id:
        return Identity.SAME
    # Another server, promoted to replace it, may lack the last writes.
    if file.durability == Durability.ALWAYS.value and file.server in ("", found.address):
        return Identity.SAME
    return Identity.RENEWED


def decide_member(
    group: str,
    name: str,
    file: LocalFile | None,
    found: FoundState,
    *,
    founds: bool,
    others: bool | None = None,
    discards: bool = False,
) -> Way:
    """Decide how to continue where members come and go.

    founds: whether the operator wants a new group with this first member.
    others: whether the group that this one was in has other members; None if it cannot know.
    discards: whether a first join may remove data that the server holds.

    Raises ConfigurationError, with the remedy, if no way is safe.
    """
    _refuse_others(group, file, found)
    if found.state is None:
        if file is not None and file.left:
            if founds:
                raise ConfigurationError(
                    f"{file.incarnation} has left its group: to come back, start with --join HOST:PORT of a member; "
                    f"to found a new group with this server, delete {name}.json in the state directory"
                )
            file = None
        elif file is not None and not file.begun:
            file = None  # it was about to found a group
        return _decide_emptied(name, file, found, founds, others, discards=discards)
    _refuse_foreign(group, name, found.state)
    if not found.state.founding:
        return _decide_conversion(found, founds=founds)
    if file is not None and file.incarnation == found.state.incarnation:
        if file.left and founds:
            raise ConfigurationError(
                f"{file.incarnation} has left its group: to come back, start with --join "
                "HOST:PORT of a member; to found a new group, empty the server (FLUSHALL at its "
                "own port) and the state directory"
            )
        if file.left:
            return Way.JOIN
        # Nothing was sent that was not synced.
        synced = (Durability.ALWAYS.value, Durability.EVERYSEC.value)
        if file.run_id == found.run_id or file.durability in synced:
            return Way.SAME
    raise ConfigurationError(
        f"this server may lack data that {found.state.incarnation} has sent to the other members "
        "(it has no append-only file and was restarted, or the state directory is not the one "
        "used with it): if the other members have the data, empty the server (FLUSHALL at its "
        f"own port) and start with --join HOST:PORT --replaces {name}"
    )


def _decide_emptied(
    name: str,
    file: LocalFile | None,
    found: FoundState,
    founds: bool,
    others: bool | None,
    *,
    discards: bool,
) -> Way:
    """For a server without a member's state: new, with data to take over, emptied directly, or with half a copy."""
    was_ours = file is not None and file.run_id == found.run_id
    is_new = found.joining is None and not was_ours
    if is_new:
        _refuse_occupied(found)
    first = Way.ADOPT if found.keys else Way.FOUND
    if others is False:
        return first
    if not founds or (others and file is not None):
        if is_new and found.keys and not (discards and file is None):
            raise ConfigurationError(_with_data(found, file))
        return Way.JOIN
    if found.joining is not None:
        raise ConfigurationError(
            "this server holds an incomplete copy of an existing group: complete it with --join, "
            "or empty it (FLUSHALL at its own port) to found a new group"
        )
    if file is not None:
        raise ConfigurationError(
            f"the server has lost its data: node {name!r} was a member before (incarnation "
            f"{file.incarnation}), and knows no other member to copy from: start with --join "
            "HOST:PORT of a running member; if there is none, restore the server's data, or "
            "empty the state directory to found a new group"
        )
    return first


def _with_data(found: FoundState, file: LocalFile | None) -> str:
    begun = f"the server holds {found.keys} keys, and a join replaces all data with the group's"
    if file is not None:
        return (
            f"{begun}: node {file.name!r} was a member with another server: connect the gateway to that one, or, if "
            "you do not need these keys, empty this server (FLUSHALL at its own port)"
        )
    return (
        f"{begun}: to keep these keys, found a group with this server (--found) and let the others join it; if you "
        "do not need them, start with --discard-data. Nothing was changed"
    )


def _decide_conversion(found: FoundState, *, founds: bool) -> Way:
    """For a server with the data of a group of fixed members."""
    if not founds:
        raise ConfigurationError(
            "this server belongs to a group of fixed members: start the gateway with --peer, as "
            "before. To change to a group whose members come and go: stop all gateways once "
            "every message is stable, start one with --found, and empty the other servers "
            "(FLUSHALL at their own ports) before their gateways start with --join"
        )
    if found.unsettled:
        raise ConfigurationError(
            f"this server has {found.unsettled} messages of a group of fixed members that some "
            "members may lack: start its gateways with --peer, as before; stop them once "
            'CRDTCAST STATUS shows "unstable": 0 at each; then start one with --found'
        )
    return Way.CONVERT


def _refuse_others(group: str, file: LocalFile | None, found: FoundState) -> None:
    if not found.is_primary:
        raise ConfigurationError(
            f"the server is a {found.role}: connect the gateway to the primary that it replicates"
        )
    if file is not None and file.group != group:
        raise ConfigurationError(
            f"the state directory belongs to group {file.group!r}, not {group!r}: use another "
            "--state-dir for another group"
        )


def _refuse_foreign(group: str, name: str, state: StoredState) -> None:
    if (state.group, state.name) != (group, name):
        raise ConfigurationError(
            f"this is the server of node {state.name!r} of group {state.group!r}: give {name!r} of group {group!r} its "
            "own with --server. If it is meant for this gateway, it holds an unfinished bootstrap, or a restored or "
            "cloned backup: if no gateway runs on it, and you do not need its data, empty it (FLUSHALL at its own port)"
        )


def _decide_without_state(name: str, file: LocalFile | None, found: FoundState) -> Identity:
    if file is not None:
        raise ConfigurationError(
            f"the server has lost its data: node {name!r} has run before (incarnation "
            f"{file.incarnation}), but its metadata is missing: restore the server's append-only "
            "file or snapshot and start again. A group of fixed members cannot refill an empty "
            "server: otherwise the whole group must start again, with empty servers and state "
            "directories"
        )
    _refuse_occupied(found)
    if found.keys:
        raise ConfigurationError(
            f"the server holds {found.keys} keys that the other regions do not have, and fixed members cannot copy "
            "them: found a group with this server (--found instead of --peer) and let the others join it (--join), "
            "or start with empty servers"
        )
    return Identity.FRESH


def _refuse_occupied(found: FoundState) -> None:
    if found.metadata_keys:
        raise ConfigurationError(
            f"the metadata database holds {found.metadata_keys} keys that crdtcast did not write: "
            "choose an unused one with --metadata-db; if all are in use, raise `databases` in the configuration of "
            "all servers of the group"
        )
