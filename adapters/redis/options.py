"""What an operator may choose of a gateway, and of its place in its group."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from crdtcast.adapters.redis.clients.client import ClientLimits
from crdtcast.adapters.redis.server.address import SentinelService, ServerAddress
from crdtcast.adapters.redis.server.monitor import PATIENCE_SECONDS
from crdtcast.adapters.redis.server.tls_sockets import TlsFiles
from crdtcast.eventlog.writer import ROTATION, Rotation
from crdtcast.transport.options import Address, NodeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """How to get into a group whose members come and go.

    founds: be its first member, if this is none yet; otherwise it joins through `NodeOptions.peers`, of which one that
        lives is enough.
    level: the format level that a group begins with which this gateway founds; None: the highest that it reads.
    replaces: names or incarnations that the operator declares lost: they go with this gateway's first join.
    advertise: where the others reach this gateway, if it listens on a wildcard.
    leave_out: types of keys that the copy of its first join need not have.
    leave_within: on a signal to stop, leave the group first, and stop anyway after so many seconds; None only stops.
    """

    founds: bool
    level: int | None = None
    replaces: tuple[str, ...] = ()
    advertise: Address | None = None
    leave_out: tuple[str, ...] = ()
    leave_within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Everything an operator may choose. `node` holds name, group, peers and the options of the links."""

    node: NodeOptions
    listen_clients: Address
    server: ServerAddress | SentinelService
    state_dir: Path
    log_dir: Path | None = None
    rotation: Rotation = ROTATION
    """Of the event logs there."""
    metadata_db: int = 15
    password: str | None = None
    limits: ClientLimits = field(default_factory=ClientLimits)
    """Of the clients."""
    tls: TlsFiles | None = None
    """What the clients' port shows, if it is to speak TLS."""
    member: GroupOptions | None = None
    """Where members come and go; None: the group's members are fixed, and all of them are named in `node`."""
    compare_seconds: float = 600.0
    """How long a round over all keys takes, in which they are compared with another member's; 0: only on request."""
    server_patience: float = PATIENCE_SECONDS
    """Seconds without an answer of the server after which the connections to it are given up."""
    admin_commands: bool = False
    """Whether clients may cut links and move the clock: for tests and demonstrations."""
