"""The options of `crdtcast node`, and of every other member of a group."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crdtcast.causality.member_id import valid_incarnation, valid_name
from crdtcast.eventlog.writer import ROTATION, Rotation
from crdtcast.exceptions import ConfigurationError
from crdtcast.group.limits import Limits, WhenFull
from crdtcast.service.configuration import OptionKind, option
from crdtcast.transport.options import MIN_FRAME, WILDCARDS, NodeOptions, parse_address
from crdtcast.transport.tcp import is_loopback
from crdtcast.transport.tls import Tls
from crdtcast.wire.auth import SECRET_VARIABLE, read_secrets

LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings(ABC):
    """The options of every member; the sentences describe them."""

    name: str = option(OptionKind.TEXT, "This node's name, unique in the group.", letter="n")
    group: str = option(OptionKind.TEXT, "The group's name.", "default", letter="g")
    listen: str = option(
        OptionKind.ADDRESS, "Address where other members connect.", "127.0.0.1:7001", letter="l"
    )
    advertise: str | None = option(
        OptionKind.ADDRESS, "Address that other members dial, if `listen` is a wildcard.", None
    )
    found: bool = option(
        OptionKind.FLAG, "Be the first member of a new group: exactly one node, once.", False
    )
    join: tuple[str, ...] = option(
        OptionKind.ADDRESSES,
        "Address of a member to join through. Give several for safety; this node's own address "
        "is ignored.",
        (),
        letter="j",
    )
    replaces: tuple[str, ...] = option(
        OptionKind.NAMES,
        "Replace and evict this lost member; it may be an earlier life of this node.",
        (),
    )
    evict_after: float | None = option(
        OptionKind.SECONDS, "Evict members that are silent for this long. Not set: never.", None
    )
    leave_on_stop: bool = option(OptionKind.FLAG, "Leave the group at SIGTERM or SIGINT.", False)
    leave_seconds: float = option(
        OptionKind.SECONDS, "How long a leave may take; then the node stops anyway.", 30.0
    )
    admin: str | None = option(
        OptionKind.TEXT,
        "Where operators connect: a Unix socket (a path with a / or ending in .sock), or "
        "127.0.0.1:PORT with a secret.",
        None,
    )
    metrics: str | None = option(
        OptionKind.ADDRESS, "Address that serves /metrics, /ready and /live over HTTP.", None
    )
    log_level: str = option(OptionKind.TEXT, f"One of {', '.join(LEVELS)}.", "info")
    log_json: bool = option(OptionKind.FLAG, "Write log lines as JSON objects.", False)
    event_log_size: int = option(
        OptionKind.BYTES, "Start a new event log file at this size.", ROTATION.size
    )
    event_log_age: float = option(
        OptionKind.SECONDS, "Start a new event log file at this age.", ROTATION.seconds
    )
    certificate: str | None = option(OptionKind.PATH, "This node's certificate (PEM).", None)
    key: str | None = option(OptionKind.PATH, "The certificate's key (PEM).", None)
    ca: str | None = option(OptionKind.PATH, "The group's own CA (PEM).", None)
    secret_file: str | None = option(
        OptionKind.PATH, f"File with the group's secret; default: {SECRET_VARIABLE}.", None
    )
    digest_interval: float | None = option(
        OptionKind.SECONDS, "Time between two digests. Not set: adaptive.", None
    )
    keepalive_interval: float = option(
        OptionKind.SECONDS, "Send a keep-alive after this long without a frame.", 5.0
    )
    connect_timeout: float = option(
        OptionKind.SECONDS, "Time limit for connecting to a member.", 5.0
    )
    handshake_timeout: float = option(OptionKind.SECONDS, "Time limit for a handshake.", 5.0)
    max_frame: int = option(OptionKind.BYTES, "Largest frame.", 16 * 2**20)
    queue_bytes: int = option(
        OptionKind.BYTES, "Most bytes that may wait for one member.", 64 * 2**20
    )
    compress: bool = option(
        OptionKind.FLAG, "Compress large frames, if the package zstandard is installed.", True
    )
    max_handshakes: int = option(OptionKind.NUMBER, "Most handshakes at a time.", 64)
    max_host_connections: int = option(OptionKind.NUMBER, "Most connections from one host.", 512)

    def wrong_in_common(self) -> list[str]:
        """Contradictions among these, one line each."""
        lines = []
        if self.join and not self.found and not self.contacts:
            lines.append(
                "join names only this node itself: name other members, too, or set found = true "
                "for the first member of a new group"
            )
        for lost in self.replaces:
            if not valid_name(lost) and not valid_incarnation(lost):
                lines.append(
                    f"replaces: {lost!r} is not a member name or an incarnation: name the lost "
                    "member"
                )
        if 0 < self.queue_bytes < MIN_FRAME:
            lines.append(f"queue_bytes must be at least {MIN_FRAME:,} bytes")
        if self.log_level not in LEVELS:
            lines.append(f"invalid log_level {self.log_level!r}: choose one of {', '.join(LEVELS)}")
        if self.evict_after is not None and self.evict_after < 3 * self.keepalive_interval:
            lines.append(
                f"evict_after is {self.evict_after:g} s: use at least three keepalive_intervals "
                f"({3 * self.keepalive_interval:g} s); one hour is usual"
            )
        known: tuple[bytes, ...] = ()
        try:
            known = self.secrets()
        except ConfigurationError as error:
            lines.append(str(error))
        if self.admin is not None and not is_path(self.admin):
            try:
                host, _ = parse_address(self.admin)
            except ConfigurationError as error:
                lines.append(f"admin: {error}; or give a path with a / or ending in .sock")
            else:
                if host not in ("127.0.0.1", "::1", "localhost"):
                    lines.append(f"invalid admin {self.admin}: use 127.0.0.1, or a path")
                elif not known and not lines:
                    lines.append(
                        f"admin is {self.admin}, open to every user of this machine: set "
                        f"secret_file or {SECRET_VARIABLE}, or use a path"
                    )
        try:
            options = self.node_options()
            if options.certificate and options.key and options.ca:
                Tls(options.name, options.certificate, options.key, options.ca)
        except ConfigurationError as error:
            if str(error) not in lines:
                lines.append(str(error))
        return lines

    @property
    def contacts(self) -> list[str]:
        """Addresses to join through: `join` without this node's own address, if that is written in the same way."""
        own = {self.listen, self.advertise}
        return [each for each in self.join if each not in own]

    def secrets(self) -> tuple[bytes, ...]:
        """See `NodeOptions.secrets`. Raises ConfigurationError if the file is unusable."""
        return read_secrets(self.secret_file)

    def rotation(self) -> Rotation:
        """The rotation of the event log."""
        return Rotation(self.event_log_size, self.event_log_age)

    def link_options(self) -> dict[str, Any]:
        """The options that `open_member` passes on to `NodeOptions`, except name, addresses and group."""
        return {
            "certificate": self.certificate,
            "key": self.key,
            "ca": self.ca,
            "secrets": self.secrets(),
            "digest_interval": self.digest_interval,
            "keepalive_interval": self.keepalive_interval,
            "connect_timeout": self.connect_timeout,
            "handshake_timeout": self.handshake_timeout,
            "max_frame": self.max_frame,
            "queue_bytes": self.queue_bytes,
            "compress": self.compress,
            "max_handshakes": self.max_handshakes,
            "max_host_connections": self.max_host_connections,
        }

    @abstractmethod
    def node_options(self) -> NodeOptions:
        """The options of the node. Raises ConfigurationError if one is invalid."""

    @property
    def admin_place(self) -> str:
        """Where operators connect: as given, or this user's socket for the node."""
        return self.admin or default_socket(self.group, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(MemberSettings):
    """The options of `crdtcast node`."""

    founders: tuple[str, ...] = option(
        OptionKind.NAMED_ADDRESSES,
        "Every node that founds the group, this one included: the same list on each. The group "
        "starts when all have been up.",
        (),
    )
    witness: bool = option(OptionKind.FLAG, "Vote and store messages, but hold no objects.", False)
    journal: str | None = option(
        OptionKind.PATH, "Directory of the journal. Not set: everything is in memory only.", None
    )
    trust_journal: bool = option(
        OptionKind.FLAG,
        "Trust a journal that looks damaged or copied, once: nothing newer exists, and no other "
        "node uses it.",
        False,
    )
    event_logs: str | None = option(
        OptionKind.PATH,
        "Directory for event logs, which `crdtcast check` reads; needs a journal.",
        None,
    )
    store_memory_bytes: int = option(
        OptionKind.BYTES,
        "Most unstable data in memory; with a journal, the rest goes to disk.",
        256 * 2**20,
    )
    store_most_bytes: int = option(
        OptionKind.BYTES, "Most unstable data in all; beyond that, see when_full.", 4 * 2**30
    )
    when_full: str = option(
        OptionKind.TEXT,
        "What to do at store_most_bytes: refuse writes, or evict the unreachable members "
        "that hold stability back.",
        "refuse",
    )

    def wrong(self) -> list[str]:
        """All contradictions, one line each."""
        lines = []
        given = [what for what in ("founders", "found", "join") if getattr(self, what)]
        if not given and self.journal is None:
            lines.append(
                'founders, found and join are missing: set founders = {name = "host:port", '
                '…} for all who found a group together, join = ["host:port"] for every later '
                "member, or found = true to found one alone"
            )
        if "founders" in given and len(given) > 1:
            lines.append(
                f"founders and {given[1]} exclude each other: nodes that found a group together "
                "do not join one"
            )
        lines += self._wrong_founders()
        if self.advertise is None:
            lines += cannot_be_dialled("listen", self.listen, self.contacts)
        if self.found and (self.witness or self.replaces):
            lines.append("found excludes witness and replaces: the first member holds the state")
        if self.founders and self.replaces:
            lines.append(
                "founders excludes replaces: a founder that starts again returns in its own place"
            )
        if self.event_logs and not self.journal:
            lines.append("event_logs needs a journal: set journal")
        if self.when_full not in [each.value for each in WhenFull]:
            lines.append(f"invalid when_full {self.when_full!r}: choose refuse or evict")
        elif self.store_memory_bytes > self.store_most_bytes:
            lines.append(
                "store_memory_bytes is above store_most_bytes: lower it, since memory is part of "
                "the total"
            )
        return [*lines, *self.wrong_in_common()]

    def _wrong_founders(self) -> list[str]:
        if not self.founders:
            return []
        own = self.founder_addresses.get(self.name)
        if own is None:
            return [
                f"founders does not name {self.name!r} itself: use the same list on all founders"
            ]
        if own not in (self.listen, self.advertise):
            return [
                (
                    f"founders has {self.name!r} at {own}, but it listens on {self.listen}: set "
                    "listen or advertise to that address"
                )
            ]
        return []

    @property
    def founder_addresses(self) -> dict[str, str]:
        """The addresses in `founders`, by name."""
        return {name: at for name, _, at in (each.partition("=") for each in self.founders)}

    def limits(self) -> Limits:
        """The limits on the member's unstable data."""
        return Limits(
            memory_bytes=self.store_memory_bytes,
            most_bytes=self.store_most_bytes,
            when_full=WhenFull(self.when_full),
        )

    def node_options(self) -> NodeOptions:
        """See `MemberSettings.node_options`."""
        return NodeOptions(
            name=self.name,
            group=self.group,
            listen=parse_address(self.listen),
            peers=[parse_address(address) for address in self.contacts],
            **self.link_options(),
        )


def cannot_be_dialled(option: str, listen: str, contacts: Sequence[str]) -> Sequence[str]:
    """Why other members cannot dial one that listens there and advertises no other address."""
    if parse_address(listen)[0] in WILDCARDS:
        return [
            (
                f"{option} is {listen}, every address of this machine: set advertise to the address "
                "that the others dial"
            )
        ]
    far = [each for each in contacts if not is_loopback(parse_address(each)[0])]
    if far and is_loopback(parse_address(listen)[0]):
        return [
            (
                f"{option} is {listen}, which {far[0]} cannot reach: listen on an address of this "
                "machine that the others can dial"
            )
        ]
    return ()


def is_path(place: str) -> bool:
    """Whether an admin address is a Unix socket's path."""
    return os.sep in place or place.endswith(".sock")


def socket_directory() -> str:
    """The default directory of the sockets of this user's nodes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime, "crdtcast") if runtime else f"/tmp/crdtcast-{os.getuid()}"


def default_socket(group: str, name: str) -> str:
    """The socket of the node of that name in that group."""
    return os.path.join(socket_directory(), f"{group}.{name}.sock")
