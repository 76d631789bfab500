"""Multi-master replication on causal broadcast and pure operation-based CRDTs.

`open_replica` for replicated objects; for causal broadcast alone `open_group`, and `open_links` for several groups.
Names are imported when they are first used, so that a command line that needs none of them starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crdtcast.causality.hlc import HLC
    from crdtcast.causality.tags import Dot, Tag
    from crdtcast.engine import Durability, Engine, EngineState, GroupEngine
    from crdtcast.eventlog.writer import EventLog
    from crdtcast.exceptions import (
        ConfigurationError,
        CrdtcastError,
        EndedError,
        HandshakeError,
        InvalidOperationError,
        JournalError,
        LocalProtocolError,
        NotReadyError,
        RemoteProtocolError,
        RolledBackError,
        ServerError,
        StoreFullError,
        SupersededError,
        TypeClashError,
        UnusableInputError,
    )
    from crdtcast.fixed.node import Node
    from crdtcast.group.events import Delivered, Evicted, Joined, Stable
    from crdtcast.group.limits import StoreLimits, WhenFull
    from crdtcast.group.member import GroupMember
    from crdtcast.group.open import GroupLinks, open_group, open_links
    from crdtcast.group.running import run_until_signal
    from crdtcast.group.state_machine import Process, run_process
    from crdtcast.replica.handle import Handle
    from crdtcast.replica.open import open_replica
    from crdtcast.replica.replica import Replica, Snapshot
    from crdtcast.replica.session import Token
    from crdtcast.service.gc_tuning import rare_full_collections
    from crdtcast.transport.options import NodeOptions
    from crdtcast.transport.peers import LinkStatus

__all__ = [
    "HLC",
    "ConfigurationError",
    "CrdtcastError",
    "Delivered",
    "Dot",
    "Durability",
    "EndedError",
    "Engine",
    "EngineState",
    "EventLog",
    "Evicted",
    "GroupEngine",
    "GroupLinks",
    "GroupMember",
    "Handle",
    "HandshakeError",
    "InvalidOperationError",
    "Joined",
    "JournalError",
    "LinkStatus",
    "LocalProtocolError",
    "Node",
    "NodeOptions",
    "NotReadyError",
    "Process",
    "RemoteProtocolError",
    "Replica",
    "RolledBackError",
    "ServerError",
    "Snapshot",
    "Stable",
    "StoreFullError",
    "StoreLimits",
    "SupersededError",
    "Tag",
    "Token",
    "TypeClashError",
    "UnusableInputError",
    "WhenFull",
    "open_group",
    "open_links",
    "open_replica",
    "rare_full_collections",
    "run_process",
    "run_until_signal",
]

_HOMES = {
    "crdtcast.group.limits": ("StoreLimits", "WhenFull"),
    "crdtcast.service.gc_tuning": ("rare_full_collections",),
    "crdtcast.engine": ("Durability", "Engine", "EngineState", "GroupEngine"),
    "crdtcast.eventlog.writer": ("EventLog",),
    "crdtcast.group.events": ("Delivered", "Evicted", "Joined", "Stable"),
    "crdtcast.exceptions": (
        "ConfigurationError",
        "CrdtcastError",
        "EndedError",
        "HandshakeError",
        "InvalidOperationError",
        "JournalError",
        "LocalProtocolError",
        "NotReadyError",
        "RemoteProtocolError",
        "RolledBackError",
        "ServerError",
        "StoreFullError",
        "SupersededError",
        "TypeClashError",
        "UnusableInputError",
    ),
    "crdtcast.group.open": ("GroupLinks", "open_group", "open_links"),
    "crdtcast.causality.hlc": ("HLC",),
    "crdtcast.transport.peers": ("LinkStatus",),
    "crdtcast.group.state_machine": ("Process", "run_process"),
    "crdtcast.group.member": ("GroupMember",),
    "crdtcast.fixed.node": ("Node",),
    "crdtcast.group.running": ("run_until_signal",),
    "crdtcast.transport.options": ("NodeOptions",),
    "crdtcast.replica.handle": ("Handle",),
    "crdtcast.replica.replica": ("Replica", "Snapshot"),
    "crdtcast.replica.open": ("open_replica",),
    "crdtcast.replica.session": ("Token",),
    "crdtcast.causality.tags": ("Dot", "Tag"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'crdtcast' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
