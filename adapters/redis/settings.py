"""The options of `crdtcast redis`: command line, file, environment."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from crdtcast.adapters.redis.adoption.census import not_a_kind
from crdtcast.adapters.redis.clients.client import ClientLimits
from crdtcast.adapters.redis.group.format_level import check_fixed
from crdtcast.adapters.redis.options import GatewayOptions, GroupOptions
from crdtcast.adapters.redis.server.address import SentinelService, ServerAddress, parse_server
from crdtcast.adapters.redis.server.monitor import LEAST_PATIENCE_SECONDS, PATIENCE_SECONDS
from crdtcast.adapters.redis.server.tls_sockets import TlsFiles
from crdtcast.adapters.redis.store import effects
from crdtcast.exceptions import ConfigurationError
from crdtcast.service.configuration import OptionKind, option
from crdtcast.service.settings import MemberSettings, cannot_be_dialled
from crdtcast.transport.options import Address, NodeOptions, parse_address

_LONGEST_SECONDS = 32767
"""The longest keep-alive time that Linux accepts."""
SECTIONS = {
    "Every region": ("name", "group", "server", "listen_clients", "listen"),
    "The group": (
        "found",
        "join",
        "advertise",
        "peer",
        "replaces",
        "leave_out",
        "leave_out_keys",
        "discard_data",
    ),
    "Clients": (
        *("password", "protected_mode", "tls_certificate", "tls_key", "tls_ca", "timeout"),
        *("tcp_keepalive", "client_output_limit", "client_output_soft_limit"),
        "client_output_soft_seconds",
    ),
    "Security": ("certificate", "key", "ca", "secret_file"),
    "The server's TLS": ("server_ca", "server_certificate", "server_key"),
    "Files": ("file", "state_dir", "log_dir", "event_log_size", "event_log_age"),
    "Operation": (
        *("admin", "metrics", "log_level", "log_json", "leave_on_stop", "leave_seconds"),
        *("evict_after", "raise_after", "compare_seconds", "server_patience"),
    ),
}
"""Of the help; options by key."""
_OF_MEMBERS = (
    "replaces",
    "advertise",
    "leave_on_stop",
    "leave_out",
    "leave_out_keys",
    "discard_data",
    "evict_after",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(MemberSettings):
    """Each option documents itself. With `peer` the members are fixed, and it names all others; otherwise one gateway
    has `found`, and the others `join`.
    """

    listen_clients: str = option(
        OptionKind.ADDRESS,
        "Address where clients connect; port 0 takes a free one.",
        "127.0.0.1:6380",
        letter="c",
    )
    listen: str = option(
        OptionKind.ADDRESS,
        "Address where the other gateways connect.",
        "127.0.0.1:7380",
        letter="l",
    )
    peer: tuple[str, ...] = option(
        OptionKind.NAMES,
        "Another member of a group of fixed members, as NAME=HOST:PORT. Name all other members.",
        (),
        letter="p",
    )
    server: str = option(
        OptionKind.TEXT,
        "This gateway's Redis or Valkey server: redis://[user:password@]HOST:PORT (rediss:// for "
        "TLS), unix:///PATH, or sentinel://HOST:PORT,…/NAME for the primary that Sentinel names.",
        "redis://127.0.0.1:6379",
        letter="s",
    )
    server_ca: str | None = option(
        OptionKind.PATH,
        "CA of the server's certificate (PEM); default: the CAs that the system trusts.",
        None,
    )
    server_certificate: str | None = option(
        OptionKind.PATH, "Certificate that the gateway shows to the server (PEM).", None
    )
    server_key: str | None = option(OptionKind.PATH, "The key of server_certificate (PEM).", None)
    tls_certificate: str | None = option(
        OptionKind.PATH, "Certificate of the clients' port (PEM). Set: the port uses TLS.", None
    )
    tls_key: str | None = option(OptionKind.PATH, "The key of tls_certificate (PEM).", None)
    tls_ca: str | None = option(
        OptionKind.PATH, "CA (PEM). Set: clients must show a certificate signed by it.", None
    )
    state_dir: str | None = option(
        OptionKind.PATH,
        "Directory of the small local files that must survive the loss of the server. Not set: "
        "crdtcast/GROUP in the user's directory for state (XDG_STATE_HOME, or ~/.local/state).",
        None,
    )
    log_dir: str | None = option(
        OptionKind.PATH, "Directory for event logs, which `crdtcast check` and `audit` read.", None
    )
    metadata_db: int = option(
        OptionKind.NUMBER, "Number of the server's database that holds the gateway's metadata.", 15
    )
    password: str | None = option(
        OptionKind.TEXT,
        "Password that clients must send with AUTH. Prefer the environment or the file to "
        "the command line.",
        None,
    )
    protected_mode: bool = option(
        OptionKind.FLAG, "Without a password, serve only clients on this machine.", True
    )
    timeout: float = option(
        OptionKind.SECONDS, "Close a client that is idle for this long; 0: never.", 0
    )
    tcp_keepalive: float = option(
        OptionKind.SECONDS, "Probe a silent client after this long; 0: the system's default.", 300
    )
    client_output_limit: int = option(
        OptionKind.BYTES,
        "Close a client with more unread reply bytes than this; 0: no limit.",
        256 * 1024 * 1024,
    )
    client_output_soft_limit: int = option(
        OptionKind.BYTES,
        "Close a client with more unread reply bytes than this for client_output_soft_seconds; "
        "0: no limit.",
        0,
    )
    client_output_soft_seconds: float = option(
        OptionKind.SECONDS, "Time that a client may stay above client_output_soft_limit.", 60
    )
    leave_out: tuple[str, ...] = option(
        OptionKind.NAMES,
        "Types that are not replicated (list, stream) and that a founder's server may hold, or the "
        "copy of a join may leave out. Not set: such a start is refused.",
        (),
    )
    leave_out_keys: tuple[str, ...] = option(
        OptionKind.NAMES,
        "Founder: a pattern of keys, as KEYS takes it, that the whole group leaves out. They stay in "
        "their server, and no gateway executes commands on such keys.",
        (),
    )
    discard_data: bool = option(
        OptionKind.FLAG,
        "Join although the server holds data, and remove that data when the copy of the group's "
        "begins. Counts only at the first join.",
        False,
    )
    admin_commands: bool = option(
        OptionKind.FLAG,
        "Let clients send operators' commands: CRDTCAST REPAIR, EVICT, WITHDRAW, LEAVE, "
        "SURRENDER, RAISE, CUT, HEAL, ADVANCE, SKEW.",
        False,
    )
    format_level: int | None = option(
        OptionKind.NUMBER,
        "Fixed members: the format level that all gateways send in, the same on all. Founder: "
        "the group's first level. Not set: the highest that this program knows.",
        None,
    )
    raise_after: float = option(
        OptionKind.SECONDS,
        "Raise the format level when all members have read a higher one for this long; 0: only "
        "by `crdtcast raise`.",
        86_400.0,
    )
    compare_seconds: float = option(
        OptionKind.SECONDS,
        "Duration of one round that compares up to a million keys with another member; 0: "
        "compare on request only.",
        600.0,
    )
    server_patience: float = option(
        OptionKind.SECONDS,
        "Close the connections to the server when it has not answered for this long.",
        PATIENCE_SECONDS,
    )
    cut: tuple[str, ...] = option(
        OptionKind.NAMES, "For tests: start with the link to this peer cut.", ()
    )
    clock_offset: int = option(OptionKind.NUMBER, "For tests: milliseconds added to the clock.", 0)
    log_level: str = option(OptionKind.TEXT, "One of debug, info, warning, error.", "warning")

    @property
    def state_directory(self) -> Path:
        """Where the local files are."""
        if self.state_dir is not None:
            return Path(self.state_dir)
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        if (
            not state.is_absolute()
        ):  # invalid by its specification; another start may be in another directory
            state = Path.home() / ".local" / "state"
        return state / "crdtcast" / self.group

    @property
    def is_open(self) -> bool:
        """Whether members come and go."""
        return self.found or bool(self.join)

    def wrong(self) -> list[str]:
        """Invalid and contradictory options, one line each."""
        lines = []
        if self.is_open and self.peer:
            lines.append(
                "peer cannot be set with found or join: peer names the members of a fixed group, "
                "and other groups learn theirs: remove one of them"
            )
        if not self.is_open and not self.peer:
            lines.append(
                "say how the group begins: --found for its first region, --join HOST:PORT of a "
                "running region for every other (or --peer NAME=HOST:PORT of each other one, for "
                "fixed members)"
            )
        elif not self.is_open:
            lines += [
                f"{each} needs a group whose members come and go: set join (or found), too"
                for each in _OF_MEMBERS
                if getattr(self, each)
            ]
        if self.found and self.replaces:
            lines.append("replaces needs join: a founder is the first member")
        if self.found and self.discard_data:
            lines.append("discard_data needs join: a founder keeps the data of its server")
        if self.join and not self.found and self.leave_out_keys:
            lines.append(
                "leave_out_keys is for the founder: this gateway learns the patterns when it joins"
            )
        if "" in self.leave_out_keys:
            lines.append("leave_out_keys has an empty pattern: name keys as KEYS does, such as q:*")
        if self.is_open and not self.found and self.format_level is not None:
            lines.append(
                "format_level is for fixed members and founders: this group agrees on its level, "
                "see `crdtcast raise`"
            )
        lines += [
            f"leave_out names {wrong}" for kind in self.leave_out if (wrong := not_a_kind(kind))
        ]
        if self.metadata_db < 1:
            lines.append("metadata_db is 0, which holds the clients' data: choose another database")
        lines += [
            (
                f"{each} is {getattr(self, each):g} s: use at most {_LONGEST_SECONDS:,} s, or 0 for "
                "none"
            )
            for each in ("timeout", "tcp_keepalive")
            if not 0 <= getattr(self, each) <= _LONGEST_SECONDS
        ]
        if not self.server_patience >= LEAST_PATIENCE_SECONDS:
            lines.append(
                f"server_patience is {self.server_patience:g} s: the gateway asks the server each "
                f"second, so use {LEAST_PATIENCE_SECONDS:g} s or more"
            )
        for check in (self.peers, self._check_tls, lambda: check_fixed(self.format_level)):
            try:
                check()
            except ConfigurationError as error:
                lines.append(str(error))
        if self.is_open and self.advertise is None:
            lines += cannot_be_dialled("listen", self.listen, self.contacts)
        return lines or self.wrong_in_common()

    def peers(self) -> dict[str, Address]:
        """The other members of a fixed group. Raises ConfigurationError if an entry is invalid."""
        found: dict[str, Address] = {}
        for each in self.peer:
            name, equals, address = each.partition("=")
            if not equals or not name:
                raise ConfigurationError(
                    f"{each!r} is not a peer: write NAME=HOST:PORT, for example us=127.0.0.1:7001"
                )
            if name in found:
                raise ConfigurationError(
                    "two peers have the same name: use a different name for each member"
                )
            found[name] = parse_address(address)
        return found

    def server_address(self) -> ServerAddress | SentinelService:
        """Where the server is. Raises ConfigurationError if the address is invalid."""
        return parse_server(
            self.server, TlsFiles(self.server_certificate, self.server_key, self.server_ca)
        )

    def client_tls(self) -> TlsFiles | None:
        """Certificate and key of the clients' port; None if it does not use TLS."""
        if self.tls_certificate is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_ca)

    def _check_tls(self) -> None:
        """Raises ConfigurationError if a file cannot be used, or if no connection uses it."""
        server = self.server_address()
        server = server.server if isinstance(server, SentinelService) else server
        if server.tls is not None:
            server.tls.client_context()
        elif self.server_ca or self.server_certificate or self.server_key:
            raise ConfigurationError(
                "server_ca, server_certificate and server_key need a server with TLS: write "
                "rediss:// (sentinels://)"
            )
        if (clients := self.client_tls()) is not None:
            clients.server_context()
        elif self.tls_key or self.tls_ca:
            raise ConfigurationError("tls_key and tls_ca need tls_certificate: set it, too")

    def node_options(self) -> NodeOptions:
        """The options of the node. Raises ConfigurationError if one is invalid."""
        return NodeOptions(
            name=self.name,
            group=self.group,
            listen=parse_address(self.listen),
            peers=[parse_address(each) for each in self.contacts] if self.is_open else self.peers(),
            cut=frozenset(self.cut),
            level=effects.READS.lowest if self.is_open else self._level,
            reads=effects.READS,
            **self.link_options(),
        )

    @property
    def _level(self) -> int:
        return effects.READS.highest if self.format_level is None else self.format_level

    def gateway_options(self) -> GatewayOptions:
        """The same options, as `Gateway` takes them."""
        member = None
        if self.is_open:
            member = GroupOptions(
                founds=self.found,
                level=self._level,
                replaces=self.replaces,
                leave_out=self.leave_out,
                leave_out_keys=self.leave_out_keys,
                discards_data=self.discard_data,
                advertise=None if self.advertise is None else parse_address(self.advertise),
                leave_within=self.leave_seconds if self.leave_on_stop else None,
            )
        return GatewayOptions(
            node=self.node_options(),
            listen_clients=parse_address(self.listen_clients),
            server=self.server_address(),
            state_dir=self.state_directory,
            log_dir=None if self.log_dir is None else Path(self.log_dir),
            rotation=self.rotation(),
            metadata_db=self.metadata_db,
            password=self.password,
            member=member,
            admin_commands=self.admin_commands,
            compare_seconds=self.compare_seconds,
            server_patience=self.server_patience,
            limits=ClientLimits(
                timeout=self.timeout,
                keepalive=math.ceil(self.tcp_keepalive),
                output=self.client_output_limit,
                output_soft=self.client_output_soft_limit,
                output_soft_seconds=self.client_output_soft_seconds,
                # A client that must show a certificate is authenticated.
                local_only=self.protected_mode and self.password is None and self.tls_ca is None,
            ),
            tls=self.client_tls(),
        )
