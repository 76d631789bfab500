"""The options of a node's links. Values only, checked once when they are made."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict

from crdtcast.causality.member_id import check_name
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.exceptions import ConfigurationError
from crdtcast.option_checks import FOREVER
from crdtcast.short_repr import shown
from crdtcast.wire.auth import check_secrets
from crdtcast.wire.frames import MAX_FRAME

Address: TypeAlias = tuple[str, int]
"""Host and port."""
WILDCARDS = frozenset({"", "0.0.0.0", "::"})
"""Hosts to listen on that cannot be dialled."""
FilePath: TypeAlias = str | os.PathLike[str]

MIN_FRAME = 64 * 1024
_CONTEXT_ROOM = 32 * 1024
_DURATIONS = (
    "digest_interval",
    "keepalive_interval",
    "connect_timeout",
    "handshake_timeout",
    "retry_first",
    "retry_longest",
    "slow_retry",
)
_LEAST = {
    "queue_bytes": 1,
    "backlog_bytes": 1,
    "max_handshakes": 1,
    "max_host_connections": 1,
    "max_drift_ms": 0,
}


class LinkOptions(TypedDict, total=False):
    """The options of links; `NodeOptions` explains them, and has the defaults."""

    cut: frozenset[str]
    digest_interval: float | None
    keepalive_interval: float
    connect_timeout: float
    handshake_timeout: float
    retry_first: float
    retry_longest: float
    slow_retry: float
    max_frame: int
    queue_bytes: int
    backlog_bytes: int
    max_handshakes: int
    max_host_connections: int
    certificate: FilePath | None
    key: FilePath | None
    ca: FilePath | None
    compress: bool
    secrets: tuple[bytes, ...]
    max_drift_ms: int | None
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Options of a node. All times are in seconds, all sizes in bytes.

    peers: the other members, name -> address. None instead of an address: that member dials this node, or
        `Node.set_address` sets it later. A sequence of addresses is allowed, too: names are learned when the members
        answer, and the node's own address does not count.
    digest_interval: between two ticks; trades stability lag against bytes. None adapts it to load and round trips.
    keepalive_interval: send a keep-alive after this long without a frame; a peer that is silent for three counts as
        dead.
    queue_bytes: most bytes that may wait for one peer; further frames are dropped and repaired later.
    backlog_bytes: most payload bytes received and not yet taken by the application; beyond, the node stops reading.
    slow_retry: between two attempts when only an operator can fix the problem.
    max_handshakes: most handshakes at a time with peers that dial this node. Beyond, the oldest one of the host with
        most of them ends.
    max_host_connections: most connections from one host.
    certificate, key, ca: PEM files. Set: all links use TLS 1.3, and both ends must show a certificate of that CA which
        names the node. All three or none.
    compress: compress long frames, with peers that can; needs the package `zstandard` (the extra `zstd`).
    secrets: known to all members of the group; see `crdtcast.wire.auth.read_secrets`. The node proves the first one,
        and accepts a proof of either of two, so that all members can change to another one without a stop.
    max_drift_ms: how far a peer's clock may be ahead at the handshake; None checks nothing.
    seed: for the jitter of the back-off only; None draws one.
    level, reads: of a gateway with fixed peers: the format level in which it sends, the same at all of them; and the
        levels that its program reads.
    """

    name: str
    listen: Address
    group: str = "default"
    peers: Mapping[str, Address | None] | Sequence[Address] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()
    digest_interval: float | None = None
    keepalive_interval: float = 5.0
    connect_timeout: float = 5.0
    handshake_timeout: float = 5.0
    retry_first: float = 0.05
    retry_longest: float = 2.0
    slow_retry: float = 30.0
    max_frame: int = MAX_FRAME
    queue_bytes: int = 64 * 2**20
    backlog_bytes: int = 8 * 2**20
    max_handshakes: int = 64
    max_host_connections: int = 512
    certificate: FilePath | None = None
    key: FilePath | None = None
    ca: FilePath | None = None
    compress: bool = True
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    max_drift_ms: int | None = None
    seed: int | None = None
    level: int = PROGRAM.lowest
    reads: Span = PROGRAM

    def __post_init__(self) -> None:
        check_name("group", self.group)
        for name in (self.name, *self.named_peers):
            check_name("node", name)
        if self.name in self.named_peers:
            raise ConfigurationError(
                f"node {self.name!r} is among its own peers: name only the other members"
            )
        for address in self.named_peers.values():
            if address is not None and self.is_own(address):
                raise ConfigurationError(
                    f"node {self.name!r} has its own address {format_address(address)} among its "
                    "peers: name only the other members"
                )
        if not MIN_FRAME <= self.max_frame < 2**31:
            raise ConfigurationError(f"max_frame must be from {MIN_FRAME:,} to {2**31 - 1:,} bytes")
        if len({self.certificate is None, self.key is None, self.ca is None}) > 1:
            raise ConfigurationError(
                "certificate, key and ca belong together: set all three, or none"
            )
        check_secrets(self.secrets, "secrets")
        for option, least in _LEAST.items():
            if (number := getattr(self, option)) is not None and number < least:
                raise ConfigurationError(f"{option} must be at least {least}, not {shown(number)}")
        for option in _DURATIONS:
            seconds = getattr(self, option)
            if seconds is not None and not 0 < seconds <= FOREVER:  # nan, too
                raise ConfigurationError(
                    f"{option} must be above zero seconds, and at most {FOREVER:.0e}, not {shown(seconds)}"
                )

    @property
    def named_peers(self) -> Mapping[str, Address | None]:
        """The peers whose names the configuration gives."""
        return self.peers if isinstance(self.peers, Mapping) else {}

    @property
    def addresses(self) -> list[Address]:
        """Every address to dial. From a list without names this node's own is removed, so that all members can share
        it.
        """
        given = self.peers.values() if isinstance(self.peers, Mapping) else self.peers
        return [address for address in given if address is not None and not self.is_own(address)]

    def is_own(self, address: Address) -> bool:
        """Whether this node listens there, if the address is written in the same way."""
        return address == self.listen and address[1] != 0

    @property
    def max_payload(self) -> int:
        """The longest payload that fits into a frame with any context."""
        return self.max_frame - _CONTEXT_ROOM


def parse_address(text: str) -> Address:
    """Parses `host:port` or `[v6 host]:port`. Raises ConfigurationError if it is neither."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if colon and port.isascii() and port.isdigit() and len(port) < 6:
        address = host.removeprefix("[").removesuffix("]"), int(port)
        if _is_address(*address):
            return address
    raise _invalid(text)


def _is_address(host: str, port: int) -> bool:
    return bool(host) and host.isprintable() and not set(host) & set("/@, ") and 0 <= port < 65536


def _invalid(given: object) -> ConfigurationError:
    return ConfigurationError(
        f"invalid address {shown(given, 300)}: write host:port, for example 127.0.0.1:7001"
    )


def address_of(given: str | Address) -> Address:
    """The address that is given as a text or as host and port. Raises ConfigurationError if it is neither."""
    match given:
        case (str(host), int(port)):
            if not _is_address(host, port):
                raise _invalid(given)
            return host, port
        case _:
            return parse_address(given)


def peer_addresses(peers: Mapping[str, str | Address | None]) -> dict[str, Address | None]:
    """Parses addresses given as text. None stays: such a peer dials us."""
    return {
        name: None if address is None else address_of(address) for name, address in peers.items()
    }


def format_address(address: Address | None) -> str:
    """The inverse of `parse_address`."""
    if address is None:
        return "an unknown address"
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
