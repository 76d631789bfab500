"""Which nodes may link: pure decisions over two hellos. This file knows no sockets and no clock.

Both sides check; a side that objects sends one `Refusal` and closes. What the refused side does next depends only on
the reason: see `PATIENCE`.
"""

import enum
from collections.abc import Callable, Mapping

from crdtcast.exceptions import HandshakeError
from crdtcast.wire.frames import Hello, Refusal


class Reason(enum.StrEnum):
    """The reasons for a refusal on the wire. An unknown one is treated like `BUSY`."""

    VERSION = "version"
    GROUP = "group"
    OWN_ADDRESS = "own-address"
    NAME_CLASH = "name-clash"
    NAME_IN_USE = "name-in-use"
    UNKNOWN_NAME = "unknown-name"
    WRONG_NAME = "wrong-name"
    CLOCK = "clock"
    LEVEL = "level"
    DATABASES = "databases"
    SUPERSEDED = "superseded"
    CUT = "cut"
    LINKED = "linked"
    BUSY = "busy"
    SECURITY = "security"
    CERTIFICATE = "certificate"
    SECRET = "secret"
    PROTOCOL = "protocol"


class Refused(Exception):
    """A handshake that ended in a refusal, by one of the two sides.

    trusted: the refusing side has proved its identity, as far as this node requires that.
    name: the other end's name; empty if it has not given it yet.
    """

    def __init__(
        self, refusal: Refusal, *, by_peer: bool, trusted: bool = True, name: str = ""
    ) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.by_peer = by_peer
        self.trusted = trusted
        self.name = name


class Patience(enum.Enum):
    """What the refused side should do."""

    RETRY = "dial again after the usual back-off"
    SLOW = "only an operator can fix this: log it once, and dial again rarely"
    ENDED = "this incarnation has ended; the node must stop"


PATIENCE: Mapping[str, Patience] = {
    Reason.VERSION: Patience.SLOW,
    Reason.GROUP: Patience.SLOW,
    Reason.OWN_ADDRESS: Patience.SLOW,
    Reason.NAME_CLASH: Patience.SLOW,
    Reason.NAME_IN_USE: Patience.SLOW,
    Reason.UNKNOWN_NAME: Patience.SLOW,
    Reason.WRONG_NAME: Patience.SLOW,
    Reason.CLOCK: Patience.SLOW,
    Reason.LEVEL: Patience.SLOW,
    Reason.DATABASES: Patience.SLOW,
    Reason.SUPERSEDED: Patience.ENDED,
    Reason.CUT: Patience.RETRY,
    Reason.LINKED: Patience.RETRY,
    Reason.BUSY: Patience.RETRY,
    Reason.PROTOCOL: Patience.SLOW,
    Reason.SECURITY: Patience.SLOW,
    Reason.CERTIFICATE: Patience.SLOW,
    Reason.SECRET: Patience.SLOW,
}


def patience(reason: str) -> Patience:
    """What the refused side should do for `reason`; an unknown reason of a later version means an ordinary retry."""
    return PATIENCE.get(reason, Patience.RETRY)


def judge(
    own: Hello,
    peer: Hello,
    *,
    expected: str | None = None,
    linked: Hello | None = None,
    cut: bool = False,
    max_drift_ms: int | None = None,
) -> Refusal | None:
    """Why `own` refuses a link with `peer`, or None. The first objection counts.

    expected: the name that the configuration gives to the address dialled, if it gives one.
    linked: the hello of the link that is already up with this name.
    cut: an operator has cut the link to this name.
    max_drift_ms: how far the peer's clock may be ahead; None (or a hello without a clock) checks
        nothing.
    """
    if peer.process == own.process:
        return Refusal(
            Reason.OWN_ADDRESS,
            f"node {own.name!r} has dialled itself: remove its own address from its peers",
        )
    if peer.version < own.oldest or own.version < peer.oldest:
        return Refusal(
            Reason.VERSION,
            f"node {peer.name!r} speaks protocol versions {peer.oldest} to {peer.version}, node "
            f"{own.name!r} {own.oldest} to {own.version}: upgrade the older one",
        )
    if peer.group != own.group:
        return Refusal(
            Reason.GROUP,
            f"node {peer.name!r} is in group {peer.group!r}, node {own.name!r} in {own.group!r}: "
            "correct the peer address or the group of one of them",
        )
    if peer.shared != own.shared:
        several, one = (peer, own) if peer.shared else (own, peer)
        return Refusal(
            Reason.GROUP,
            f"node {several.name!r} is in a group whose members come and go, node {one.name!r} in "
            "one of fixed members: open all members of a group in the same way (gateways: all "
            "with --peer, or all with --found and --join)",
        )
    if bool(peer.nonce) is not bool(own.nonce):
        having, lacking = (peer, own) if peer.nonce else (own, peer)
        return Refusal(
            Reason.SECURITY,
            f"node {having.name!r} requires a shared secret, and node {lacking.name!r} has none: "
            "use the same secret on all members of the group",
        )
    if peer.name == own.name:
        return Refusal(
            Reason.NAME_CLASH,
            f"two nodes are called {own.name!r} ({own.incarnation} and {peer.incarnation}): "
            "rename one, since names in a group are unique",
        )
    if expected is not None and peer.name != expected:
        return Refusal(
            Reason.WRONG_NAME,
            f"node {own.name!r} expects {expected!r} at this address, but {peer.name!r} answers: "
            "correct the address or the name",
        )
    if not own.shared and (refusal := _judge_level(own, peer)) is not None:
        return refusal
    if own.databases != peer.databases:
        return Refusal(
            Reason.DATABASES,
            f"the server of node {peer.name!r} has {_shown(peer.databases)}, that of node "
            f"{own.name!r} {_shown(own.databases)}: all servers of a group need the same number "
            "of databases: set `databases` in a server's configuration and restart it, or give "
            "its gateway another --metadata-db",
        )
    if (
        max_drift_ms is not None
        and peer.clock_ms is not None
        and own.clock_ms is not None
        and peer.clock_ms - own.clock_ms > max_drift_ms
    ):
        return Refusal(
            Reason.CLOCK,
            f"the clock of node {peer.name!r} is {peer.clock_ms - own.clock_ms:,} ms ahead of "
            f"that of {own.name!r}, and {max_drift_ms:,} ms are allowed: set the clocks",
        )
    if cut:
        return Refusal(
            Reason.CUT, f"an operator cut the link of node {own.name!r} to {peer.name!r}"
        )
    return _judge_rival(own, peer, linked) if linked is not None else None


def _shown(databases: tuple[int, int] | None) -> str:
    if databases is None:
        return "no databases"
    count, own = databases
    return f"{count} databases with the metadata in {own}"


def _judge_level(own: Hello, peer: Hello) -> Refusal | None:
    """Fixed members all send in one format level, which all must read."""
    for writer, reader in ((own, peer), (peer, own)):
        if writer.level not in reader.reads:
            return Refusal(
                Reason.LEVEL,
                f"node {writer.name!r} sends in format level {writer.level}, and the program of "
                f"node {reader.name!r} reads level {reader.reads}: upgrade {reader.name!r}",
            )
    if own.level == peer.level:
        return None
    low, high = sorted((own, peer), key=lambda hello: hello.level)
    return Refusal(
        Reason.LEVEL,
        f"node {low.name!r} sends in format level {low.level}, node {high.name!r} in {high.level}: a group of fixed "
        f"members has one level: start {low.name!r} with --format-level {high.level}",
    )


def _judge_rival(own: Hello, peer: Hello, linked: Hello) -> Refusal | None:
    """Another link with this name is up. Accept the same process (a reconnect), and a higher fence (a proven
    take-over); refuse any other.

    A crashed process loses its connections at once, a crashed machine after some missed keep-alives. So a peer that
    still holds a link is most likely alive, and the newcomer a mistake.
    """
    same = peer.incarnation == linked.incarnation
    # On shared links the incarnation says which server the process owns, and fence epochs of two servers cannot be
    # compared.
    if peer.process == linked.process or (peer.fence > linked.fence and (same or not peer.shared)):
        return None
    if same and peer.fence < linked.fence:
        return superseded(peer, f"fence epoch {linked.fence} is above its {peer.fence}")
    return Refusal(
        Reason.NAME_IN_USE,
        f"the name {peer.name!r} is in use: node {own.name!r} is linked with another running "
        f"process of that name ({linked.incarnation}): stop it, or rename one",
    )


def superseded(peer: Hello, why: str) -> Refusal:
    """The refusal that ends `peer`'s incarnation; on shared links, its process."""
    if peer.shared:
        text = f"another gateway has taken the server of node {peer.name!r}: {why}"
        return Refusal(Reason.SUPERSEDED, f"{text}: run one gateway for each server")
    return Refusal(
        Reason.SUPERSEDED,
        f"incarnation {peer.incarnation} of node {peer.name!r} has ended: {why}; "
        "another process has taken its place",
    )


def admit(
    peer: Hello, introduce: Callable[[str], bool], fences: dict[str, tuple[str, int]]
) -> Refusal | None:
    """Introduce a peer to the engine after `judge`; returns a refusal if it is superseded or not a member.

    introduce: `Engine.introduce`.
    fences: see `outranked`.
    """
    if refusal := outranked(peer, fences):
        return refusal
    if peer.incarnation.rpartition(".")[0] != peer.name:
        return Refusal(
            Reason.UNKNOWN_NAME,
            f"incarnation {peer.incarnation!r} does not belong to a node called {peer.name!r}",
        )
    try:
        current = introduce(peer.incarnation)
    except HandshakeError as error:
        return Refusal(Reason.UNKNOWN_NAME, str(error))
    if not current:
        return superseded(peer, "a newer incarnation of that name is known")
    fences[peer.name] = (peer.incarnation, peer.fence)
    return None


def outranked(peer: Hello, fences: Mapping[str, tuple[str, int]]) -> Refusal | None:
    """A refusal if a higher fence epoch of the same incarnation is known.

    fences: name -> (incarnation, highest fence epoch seen), kept by the caller for as long as the
        node runs.
    """
    incarnation, fence = fences.get(peer.name, ("", 0))
    if incarnation == peer.incarnation and peer.fence < fence:
        return superseded(peer, f"fence epoch {fence} is above its {peer.fence}")
    return None
