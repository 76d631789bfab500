"""Multi-master replication on causal broadcast and pure operation-based CRDTs.

Use `open_replica` for replicated objects, `open_member` for causal broadcast alone, and `open_host` for several groups.
Parts for runtimes are in `crdtcast.lowlevel`. Names are imported when they are first used, so that a command line that
needs none of them starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crdtcast.causality.tags import Dot, Tag
    from crdtcast.engine.membership import Standing
    from crdtcast.engine.whispers import Whisper
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
    from crdtcast.group.events import Delivered, Evicted, Joined, Stable
    from crdtcast.group.limits import Limits, WhenFull
    from crdtcast.group.member import Member
    from crdtcast.group.open import Host, open_host, open_member
    from crdtcast.group.running import run_until_signal
    from crdtcast.group.state_machine import StateMachine
    from crdtcast.replica.handle import Handle
    from crdtcast.replica.open import open_replica
    from crdtcast.replica.replica import Replica, Snapshot
    from crdtcast.replica.session import Token

    __version__: str

__all__ = [
    "ConfigurationError",
    "CrdtcastError",
    "Delivered",
    "Dot",
    "EndedError",
    "Evicted",
    "Handle",
    "HandshakeError",
    "Host",
    "InvalidOperationError",
    "Joined",
    "JournalError",
    "Limits",
    "LocalProtocolError",
    "Member",
    "NotReadyError",
    "RemoteProtocolError",
    "Replica",
    "RolledBackError",
    "ServerError",
    "Snapshot",
    "Stable",
    "Standing",
    "StateMachine",
    "StoreFullError",
    "SupersededError",
    "Tag",
    "Token",
    "TypeClashError",
    "UnusableInputError",
    "WhenFull",
    "Whisper",
    "__version__",
    "open_host",
    "open_member",
    "open_replica",
    "run_until_signal",
]

_HOMES = {
    "crdtcast.causality.tags": (
        "Dot",
        "Tag",
    ),
    "crdtcast.engine.membership": ("Standing",),
    "crdtcast.engine.whispers": ("Whisper",),
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
    "crdtcast.group.events": (
        "Delivered",
        "Evicted",
        "Joined",
        "Stable",
    ),
    "crdtcast.group.limits": (
        "Limits",
        "WhenFull",
    ),
    "crdtcast.group.member": ("Member",),
    "crdtcast.group.open": (
        "Host",
        "open_host",
        "open_member",
    ),
    "crdtcast.group.running": ("run_until_signal",),
    "crdtcast.group.state_machine": ("StateMachine",),
    "crdtcast.replica.handle": ("Handle",),
    "crdtcast.replica.open": ("open_replica",),
    "crdtcast.replica.replica": (
        "Replica",
        "Snapshot",
    ),
    "crdtcast.replica.session": ("Token",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = import_module("importlib.metadata").version("crdtcast")
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'crdtcast' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
