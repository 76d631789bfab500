"""The options of a gateway and of its membership."""

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
    """How to become a member of a group whose members come and go.

    founds: found the group, unless this gateway is a member already. Otherwise it joins through `NodeOptions.peers`,
        of which one running member is enough.
    level: the format level of a new group; None: the highest that this gateway reads.
    replaces: names or incarnations that the operator declares lost: this gateway's first join removes them.
    advertise: the address where the others reach this gateway, if it listens on a wildcard.
    leave_out: types of keys that are not replicated, and that a founder's server may hold, or the copy of its first
        join may lack.
    leave_out_keys: patterns of keys that the group leaves out, for a founder.
    discards_data: whether its first join may remove data that the server holds.
    leave_within: on a signal to stop, leave the group first, and stop anyway after so many seconds; None: only stop.
    """

    founds: bool
    level: int | None = None
    replaces: tuple[str, ...] = ()
    advertise: Address | None = None
    leave_out: tuple[str, ...] = ()
    leave_out_keys: tuple[str, ...] = ()
    discards_data: bool = False
    leave_within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """All options of a gateway. `node` holds name, group, peers and the options of the links."""

    node: NodeOptions
    listen_clients: Address
    server: ServerAddress | SentinelService
    state_dir: Path
    log_dir: Path | None = None
    rotation: Rotation = ROTATION
    """Of the event logs in `log_dir`."""
    metadata_db: int = 15
    password: str | None = None
    limits: ClientLimits = field(default_factory=ClientLimits)
    """For the clients."""
    tls: TlsFiles | None = None
    """Certificate and key of the clients' port; None: no TLS there."""
    member: GroupOptions | None = None
    """For a group whose members come and go; None: the members are fixed, and `node` names all of them."""
    compare_seconds: float = 600.0
    """Duration of one round that compares up to a million keys with another member; 0: compare on request only."""
    server_patience: float = PATIENCE_SECONDS
    """Seconds without an answer of the server after which the gateway closes the connections to it."""
    admin_commands: bool = False
    """Whether clients may send operators' commands (cut links, move the clock, …): for tests and demonstrations."""
