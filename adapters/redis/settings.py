"""What an operator may choose about `crdtcast gateway`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crdtcast.adapters.redis import effects
from crdtcast.adapters.redis.belonging import GroupOptions
from crdtcast.adapters.redis.gateway import GatewayOptions
from crdtcast.adapters.redis.server import ServerAddress
from crdtcast.configuration import Kind, option
from crdtcast.exceptions import ConfigurationError
from crdtcast.options import Address, NodeOptions, parse_address
from crdtcast.service.settings import MemberSettings, cannot_be_dialled

_OF_MEMBERS = ("replaces", "advertise", "leave_on_stop", "evict_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(MemberSettings):
    """See the sentences. Without `found` and `join` the members are fixed, and `peer` names all others."""

    listen: str = option(
        Kind.ADDRESS, "Where clients connect; port 0 takes a free one.", "127.0.0.1:6380"
    )
    peer_listen: str = option(Kind.ADDRESS, "Where the other gateways connect.", "127.0.0.1:7380")
    peer: tuple[str, ...] = option(
        Kind.NAMES, "Each other member of a group of fixed members, as NAME=HOST:PORT.", ()
    )
    server: str = option(
        Kind.TEXT,
        "The Redis or Valkey server beside this gateway, as redis://[user:password@]HOST:PORT.",
        "redis://127.0.0.1:6379",
    )
    state_dir: str = option(
        Kind.PATH, "Directory of the small local files that must survive the server."
    )
    log_dir: str | None = option(
        Kind.PATH, "Directory for event logs, which `crdtcast check` and `audit` read.", None
    )
    metadata_db: int = option(Kind.NUMBER, "The server's database for our metadata.", 15)
    password: str | None = option(
        Kind.TEXT, "What clients must AUTH with; better in the environment, or in the file.", None
    )
    admin_commands: bool = option(
        Kind.FLAG,
        "Let clients say what operators may: CRDTCAST EVICT, LEAVE, SURRENDER, CUT, HEAL, ADVANCE.",
        False,
    )
    format_level: int | None = option(
        Kind.NUMBER,
        "Of a group of fixed members: the format level that all its gateways send in, the same at all; without it, the "
        "lowest of this program.",
        None,
    )
    raise_after: float = option(
        Kind.SECONDS,
        "Raise the format level when all members have read a higher one for so long; 0: only by `crdtcast raise`.",
        86_400.0,
    )
    cut: tuple[str, ...] = option(Kind.NAMES, "Start with the link to this peer cut.", ())
    clock_offset: int = option(Kind.NUMBER, "Milliseconds added to the clock, for tests.", 0)
    verbose: bool = option(Kind.FLAG, "Log links that come and go: log_level info.", False)
    log_level: str = option(Kind.TEXT, "One of debug, info, warning, error.", "warning")

    @property
    def is_open(self) -> bool:
        """Whether members come and go."""
        return self.found or bool(self.join)

    def wrong(self) -> list[str]:
        """What contradicts itself, one line each."""
        lines = []
        if self.is_open and self.peer:
            lines.append(
                "peer names the members of a fixed group; with found and join they are learned"
            )
        if not self.is_open:
            lines += [
                f"{each} is for groups whose members come and go: give join (or found), too"
                for each in _OF_MEMBERS
                if getattr(self, each)
            ]
        if self.found and self.replaces:
            lines.append("replaces goes with join: a founder is the first member")
        if self.is_open and self.format_level is not None:
            lines.append(
                "format_level is for groups of fixed members: this group agrees on it, see `crdtcast raise`"
            )
        if self.metadata_db < 1:
            lines.append("metadata_db is 0, where the clients' data is: choose another database")
        for check in (self.peers, self.server_address, lambda: parse_address(self.listen)):
            try:
                check()
            except ConfigurationError as error:
                lines.append(str(error))
        if self.is_open and self.advertise is None:
            lines += cannot_be_dialled("peer_listen", self.peer_listen, self.join)
        return lines or self.wrong_in_common()

    def peers(self) -> dict[str, Address]:
        """The other members of a fixed group. Raises ConfigurationError."""
        found: dict[str, Address] = {}
        for each in self.peer:
            name, equals, address = each.partition("=")
            if not equals or not name:
                raise ConfigurationError(
                    f"{each!r} is no peer: write NAME=HOST:PORT, for example us=127.0.0.1:7001"
                )
            if name in found:
                raise ConfigurationError("a peer's name is given twice: each member has its own")
            found[name] = parse_address(address)
        return found

    def server_address(self) -> ServerAddress:
        """Raises ConfigurationError."""
        return ServerAddress.parse(self.server)

    def node_options(self) -> NodeOptions:
        """Raises ConfigurationError for what no node can have."""
        return NodeOptions(
            name=self.name,
            group=self.group,
            listen=parse_address(self.peer_listen),
            peers=[parse_address(each) for each in self.join] if self.is_open else self.peers(),
            cut=frozenset(self.cut),
            level=effects.READS.lowest if self.format_level is None else self.format_level,
            reads=effects.READS,
            **self.link_options(),
        )

    def gateway_options(self) -> GatewayOptions:
        """What `Gateway` is made of."""
        member = None
        if self.is_open:
            member = GroupOptions(
                founds=self.found,
                replaces=self.replaces,
                advertise=None if self.advertise is None else parse_address(self.advertise),
                leave_within=self.leave_seconds if self.leave_on_stop else None,
            )
        return GatewayOptions(
            node=self.node_options(),
            listen=parse_address(self.listen),
            server=self.server_address(),
            state_dir=Path(self.state_dir),
            log_dir=None if self.log_dir is None else Path(self.log_dir),
            metadata_db=self.metadata_db,
            password=self.password,
            member=member,
            admin_commands=self.admin_commands,
        )
