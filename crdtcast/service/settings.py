"""What an operator may choose about `crdtcast node`, and about every other member of a group."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crdtcast.causality.member_id import valid_incarnation, valid_name
from crdtcast.eventlog.writer import ROTATION, Rotation
from crdtcast.exceptions import ConfigurationError
from crdtcast.group.limits import Limits, WhenFull
from crdtcast.service.configuration import Kind, option
from crdtcast.transport.options import MIN_FRAME, WILDCARDS, NodeOptions, parse_address
from crdtcast.transport.tcp import is_loopback
from crdtcast.transport.tls import Tls
from crdtcast.wire.auth import SECRET_VARIABLE, read_secrets

LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings(ABC):
    """What there is of every member. See the sentences."""

    name: str = option(Kind.TEXT, "This node's name; unique in the group.")
    group: str = option(Kind.TEXT, "The group's name.", "default")
    listen: str = option(Kind.ADDRESS, "Where other members connect.", "127.0.0.1:7001")
    advertise: str | None = option(
        Kind.ADDRESS, "Where others reach this node, if it listens on a wildcard.", None
    )
    found: bool = option(
        Kind.FLAG, "Be the first member of a new group; on one machine, once.", False
    )
    join: tuple[str, ...] = option(
        Kind.ADDRESSES,
        "Where members can be dialled: any one, several to be safe; this node's own address does not count.",
        (),
    )
    replaces: tuple[str, ...] = option(
        Kind.NAMES,
        "Take the place of this member, which is lost, and evict it: another one, or an earlier life of "
        "this node.",
        (),
    )
    evict_after: float | None = option(
        Kind.SECONDS, "Evict members that are silent for so long; without it, nobody is.", None
    )
    leave_on_stop: bool = option(Kind.FLAG, "Leave the group at SIGTERM or SIGINT.", False)
    leave_seconds: float = option(
        Kind.SECONDS, "How long a leave may take before the node stops anyway.", 30.0
    )
    admin: str | None = option(
        Kind.TEXT,
        "Where operators connect: a Unix socket, a path with a / or ending in .sock, or 127.0.0.1:PORT with a secret.",
        None,
    )
    metrics: str | None = option(
        Kind.ADDRESS, "Where /metrics, /ready and /live are served over HTTP.", None
    )
    log_level: str = option(Kind.TEXT, f"One of {', '.join(LEVELS)}.", "info")
    log_json: bool = option(Kind.FLAG, "Log lines as JSON objects.", False)
    event_log_size: int = option(
        Kind.BYTES, "A file of the event log is closed at this size.", ROTATION.size
    )
    event_log_age: float = option(
        Kind.SECONDS, "A file of the event log is closed at this age.", ROTATION.seconds
    )
    certificate: str | None = option(Kind.PATH, "This node's certificate, PEM.", None)
    key: str | None = option(Kind.PATH, "The certificate's key, PEM.", None)
    ca: str | None = option(Kind.PATH, "The group's own CA, PEM.", None)
    secret_file: str | None = option(
        Kind.PATH, f"File with the group's secret; otherwise {SECRET_VARIABLE} is used.", None
    )
    digest_interval: float | None = option(
        Kind.SECONDS, "Between two digests; without it, adaptive.", None
    )
    keepalive_interval: float = option(
        Kind.SECONDS, "After so long without a frame a keep-alive is sent.", 5.0
    )
    connect_timeout: float = option(Kind.SECONDS, "For a connection to a member.", 5.0)
    handshake_timeout: float = option(Kind.SECONDS, "For a handshake.", 5.0)
    max_frame: int = option(Kind.BYTES, "What a frame may have.", 16 * 2**20)
    queue_bytes: int = option(Kind.BYTES, "What may wait for one member.", 64 * 2**20)
    compress: bool = option(
        Kind.FLAG, "Compress large frames, where the package zstandard is installed.", True
    )
    max_handshakes: int = option(Kind.NUMBER, "Handshakes that may be under way.", 64)
    max_host_connections: int = option(Kind.NUMBER, "Connections from one host.", 512)

    def wrong_in_common(self) -> list[str]:
        """What contradicts itself of these, one line each."""
        lines = []
        if self.join and not self.found and not self.contacts:
            lines.append(
                "join names only this node itself: name other members, too, or say found = true for the first member "
                "of a new group"
            )
        for lost in self.replaces:
            if not valid_name(lost) and not valid_incarnation(lost):
                lines.append(f"replaces: {lost!r} is no name of a member, and no incarnation")
        if self.queue_bytes < MIN_FRAME:
            lines.append(f"queue_bytes must be at least {MIN_FRAME:,} bytes")
        if self.log_level not in LEVELS:
            lines.append(f"log_level is {self.log_level!r}: choose one of {', '.join(LEVELS)}")
        if self.evict_after is not None and self.evict_after < 3 * self.keepalive_interval:
            lines.append(
                f"evict_after is {self.evict_after:g} s: give at least three keepalive_intervals "
                f"({3 * self.keepalive_interval:g} s); an hour is a usual choice"
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
                lines.append(f"admin: {error}; or a path with a / or ending in .sock")
            else:
                if host not in ("127.0.0.1", "::1", "localhost"):
                    lines.append(f"admin is {self.admin}: choose 127.0.0.1, or a path")
                elif not known and not lines:
                    lines.append(
                        f"admin is {self.admin}, which every user of this machine reaches: give a "
                        f"secret_file or {SECRET_VARIABLE}, or a path instead"
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
        """Whom to join through: `join` without this node's own address, as far as it is written in the same way."""
        own = {self.listen, self.advertise}
        return [each for each in self.join if each not in own]

    def secrets(self) -> tuple[bytes, ...]:
        """See `NodeOptions.secrets`. Raises ConfigurationError for a file that is of no use."""
        return read_secrets(self.secret_file)

    def rotation(self) -> Rotation:
        """Of the event log."""
        return Rotation(self.event_log_size, self.event_log_age)

    def link_options(self) -> dict[str, Any]:
        """What `open_member` passes on to `NodeOptions`, but for name, addresses and group."""
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
        """(For `wrong_in_common`.) Raises ConfigurationError for what no node can have."""

    @property
    def admin_place(self) -> str:
        """Where operators connect: as given, or a socket of this user's own."""
        return self.admin or default_socket(self.group, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(MemberSettings):
    """Of `crdtcast node`."""

    founders: tuple[str, ...] = option(
        Kind.NAMED_ADDRESSES,
        "All who found the group, this node included: the same list at each. It begins when all have been up once.",
        (),
    )
    witness: bool = option(Kind.FLAG, "Vote and store, but hold no objects.", False)
    journal: str | None = option(
        Kind.PATH, "Directory of the journal; without it everything is in memory only.", None
    )
    trust_journal: bool = option(
        Kind.FLAG,
        "Once, by your word: nobody else goes on from this journal, and none was ever newer.",
        False,
    )
    event_logs: str | None = option(
        Kind.PATH, "Directory for event logs, which `crdtcast check` reads; needs a journal.", None
    )
    store_memory_bytes: int = option(
        Kind.BYTES,
        "Of what is not stable, in memory; beyond, it goes to disk, with a journal.",
        256 * 2**20,
    )
    store_most_bytes: int = option(
        Kind.BYTES, "Of what is not stable, in all; beyond, see when_full.", 4 * 2**30
    )
    when_full: str = option(
        Kind.TEXT, "Then, refuse writes, or evict those who hold it back and are away.", "refuse"
    )

    def wrong(self) -> list[str]:
        """What contradicts itself, one line each."""
        lines = []
        given = [what for what in ("founders", "found", "join") if getattr(self, what)]
        if not given and self.journal is None:
            lines.append(
                'none of founders, found and join is given: founders = {name = "host:port", …} for all who found a '
                'group together, join = ["host:port"] for every later one, or found = true to found one alone'
            )
        if "founders" in given and len(given) > 1:
            lines.append(
                f"founders and {given[1]} are given: those who found a group together join nobody"
            )
        lines += self._wrong_founders()
        if self.advertise is None:
            lines += cannot_be_dialled("listen", self.listen, self.contacts)
        if self.found and (self.witness or self.replaces):
            lines.append(
                "the first member holds the state: found goes without witness and replaces"
            )
        if self.event_logs and not self.journal:
            lines.append(
                "event_logs is given without a journal, which tells what is durable: give one"
            )
        if self.when_full not in [each.value for each in WhenFull]:
            lines.append(f"when_full is {self.when_full!r}: choose refuse or evict")
        elif self.store_memory_bytes > self.store_most_bytes:
            lines.append(
                "store_memory_bytes is above store_most_bytes: what is in memory is a part of the whole"
            )
        return [*lines, *self.wrong_in_common()]

    def _wrong_founders(self) -> list[str]:
        if not self.founders:
            return []
        own = self.founder_addresses.get(self.name)
        if own is None:
            return [f"founders does not name {self.name!r} itself: give all founders the same list"]
        if own not in (self.listen, self.advertise):
            return [
                f"founders says that {self.name!r} is at {own}, and it listens on {self.listen}: give listen or "
                "advertise that address"
            ]
        return []

    @property
    def founder_addresses(self) -> dict[str, str]:
        """`founders`: where each of them is, by name."""
        return {name: at for name, _, at in (each.partition("=") for each in self.founders)}

    def limits(self) -> Limits:
        """What the member may hold that is not stable."""
        return Limits(
            memory_bytes=self.store_memory_bytes,
            most_bytes=self.store_most_bytes,
            when_full=WhenFull(self.when_full),
        )

    def node_options(self) -> NodeOptions:
        """(For `wrong`.) Raises ConfigurationError for what no node can have."""
        return NodeOptions(
            name=self.name,
            group=self.group,
            listen=parse_address(self.listen),
            peers=[parse_address(address) for address in self.contacts],
            **self.link_options(),
        )


def cannot_be_dialled(option: str, listen: str, contacts: Sequence[str]) -> Sequence[str]:
    """Why the others cannot dial a member that listens there and does not advertise another address."""
    if parse_address(listen)[0] in WILDCARDS:
        return [
            f"{option} is {listen}, every address of this machine: say with advertise which one the "
            "others are to dial"
        ]
    far = [each for each in contacts if not is_loopback(parse_address(each)[0])]
    if far and is_loopback(parse_address(listen)[0]):
        return [
            f"{option} is {listen}, which nobody at {far[0]} reaches: listen on an address of this "
            "machine that the others can dial"
        ]
    return ()


def is_path(place: str) -> bool:
    """Whether an admin address is a Unix socket's path."""
    return os.sep in place or place.endswith(".sock")


def socket_directory() -> str:
    """Where nodes of this user have their sockets, unless they are told otherwise."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime, "crdtcast") if runtime else f"/tmp/crdtcast-{os.getuid()}"


def default_socket(group: str, name: str) -> str:
    """The socket of the node of that name in that group."""
    return os.path.join(socket_directory(), f"{group}.{name}.sock")
