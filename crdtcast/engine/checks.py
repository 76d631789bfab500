"""Checks of what other members send. They change nothing: a refused message or digest leaves no trace."""

from collections.abc import Callable, Iterable, Set

from crdtcast.causality.member_id import base_of, joined_by, valid_incarnation
from crdtcast.causality.messages import Digest, Message
from crdtcast.causality.tags import Tag, Vector, covers, dominates
from crdtcast.engine.members import Members
from crdtcast.engine.membership import GroupState, Membership
from crdtcast.engine.peer import Peer
from crdtcast.exceptions import (
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
    RolledBackError,
    SupersededError,
)
from crdtcast.short_repr import shown

MOST_STRANGE = 1000
"""Unknown ids that a digest or a context may name, besides as many as are known, and those on their way: ids that this
member has forgotten, and the sender has not.
"""


def remembers_more(
    sender: str, me: str, told: int, known: int, *, resumed: bool, what: str = "messages"
) -> RolledBackError | RemoteProtocolError:
    """The error for a peer that reports message number `told` of `me`, which itself knows only `known` of them.

    resumed: whether `me` has a former process, whose journal may have lost some. Otherwise the peer lies.
    """
    if not resumed:
        return RemoteProtocolError(
            f"{sender} reports {me}:{told}, but {me} has sent {known} {what}"
        )
    return RolledBackError(
        f"the journal of {me} is older than it should be: it ends at {known}, and {sender} has "
        f"{told} {what} of it: continue under a new incarnation"
    )


def lost_more(
    sender: str, me: str, origin: str, told: int, known: int, *, resumed: bool
) -> RolledBackError | RemoteProtocolError:
    """The same for a peer that reports that `me` has acknowledged `told` messages of `origin`, but has only `known`."""
    if not resumed:
        return RemoteProtocolError(
            f"{sender} reports that {me} has acknowledged {told:,} messages of {origin}, but {me} "
            f"has {known:,}"
        )
    return RolledBackError(
        f"the journal of {me} is older than it should be: it has {known:,} messages of {origin}, "
        f"and {sender} knows that {told:,} were acknowledged: continue under a new incarnation"
    )


def superseded(me: str, by: str) -> SupersededError:
    """The error for a later incarnation of the own name."""
    return SupersededError(f"{me} has ended: {by} has taken over its name: stop this process")


def check_incarnation(incarnation: object) -> None:
    """Raises RemoteProtocolError if this is not a valid incarnation id."""
    if not isinstance(incarnation, str) or not valid_incarnation(incarnation):
        raise RemoteProtocolError(f"{incarnation!r} is not an incarnation id")


def check_tag(tag: object) -> None:
    """Raises LocalProtocolError if it is not the tag of a message."""
    if not isinstance(tag, Tag):
        raise LocalProtocolError(
            f"{shown(tag)} is not a tag: give what tcbroadcast, or an operation, has returned"
        )


def check_message(
    sender: str,
    message: Message,
    known: Vector,
    me: str,
    checked: Callable[[str], object],
    *,
    resumed: bool,
) -> None:
    """Raises RemoteProtocolError if no member can have sent this, or see `remembers_more` if it has more of `me`.

    known: the delivered vector. checked: raises for invalid ids; it is given those that are not in `known`.
    """
    origin, counter = message.dot
    if len(message.context) > 2 * len(known) + MOST_STRANGE:
        raise RemoteProtocolError(
            f"{message.dot} depends on {len(message.context):,} messages, in a group of "
            f"{len(known):,}"
        )
    if origin not in known:
        checked(origin)
    if not isinstance(counter, int) or counter < 1:
        raise RemoteProtocolError(f"{message.dot} is not a dot: counters start at 1")
    for depended, n in message.context:
        if depended not in known:
            checked(depended)
        if not isinstance(n, int) or n < 1:
            raise RemoteProtocolError(
                f"{message.dot} depends on {depended}:{n}, which is not a dot"
            )
        if depended == origin and n >= counter:
            raise RemoteProtocolError(
                f"{message.dot} depends on {depended}:{n}, which is itself or a later message"
            )
        if depended == me and n > known[me]:
            raise remembers_more(sender, me, n, known[me], resumed=resumed)
    if origin == me and counter > known[me]:
        raise remembers_more(sender, me, counter, known[me], resumed=resumed)


def check_state(me: str, state: GroupState, *, complete: bool = False) -> None:
    """Raises ConfigurationError if a state is not a point of any history of a group: a contact may have made it up.

    complete: whether all that is not stable has to be there.
    """
    vector = state.vector
    members = {member.incarnation for member in state.members}
    known = members | state.ended.keys()
    named = {
        "members or ended members": known - vector.keys(),
        "members that have ended": members & state.ended.keys(),
        "cut members": {
            x
            for x, cut in state.cuts.items()
            if x in members - {me} and vector.get(x, 0) > cut.counter
        },
        "removed incarnations": state.swept.keys() - state.ended.keys(),
        "stable messages": {x for x, n in state.stable.items() if n > vector.get(x, -1)},
        "maximal messages": {dot.origin for dot in state.context if not covers(vector, dot)},
    }
    if me not in known:
        raise ConfigurationError(f"{me!r} is not a member of the group whose state it received")
    last = dict(state.stable)
    for message in state.unstable:
        origin, counter = message.dot
        if counter != last.get(origin, 0) + 1 or counter > vector.get(origin, 0):
            named["messages"] = {str(message.dot)}
            break
        last[origin] = counter
    if complete and (short := {x for x, n in vector.items() if last.get(x, 0) < n}):
        named["unstable messages"] = short
    for what, wrong in named.items():
        if wrong:
            raise ConfigurationError(
                f"{me} received an invalid state of its group: inconsistent {what}: "
                f"{min(wrong):.80}"
            )


def weight_of(sender: str, digest: Digest) -> int:
    """The sum of a digest's counters. Raises RemoteProtocolError if it holds anything but counters."""
    if digest.weight < 0:
        raise RemoteProtocolError(f"{sender} sent a digest with entries that are not counters")
    return digest.weight


def check_digest(
    peer: Peer,
    digest: Digest,
    known: Vector,
    stable: Vector,
    members: Members,
    *,
    resumed: bool,
) -> int:
    """The sum of a digest's counters. Raises the error that fits if no member can have sent it.

    Keys are checked only when their number has changed: those of one sender only become more.
    stable: what is stable at this member, and so acknowledged by every name.
    """
    weight = weight_of(peer.incarnation, digest)
    vector = digest.vector
    me = members.me
    if len(vector) != peer.known_width:
        for incarnation in vector:
            if incarnation not in known:
                name = members.checked(incarnation)
                if name == members.name and incarnation > me:
                    raise superseded(me, incarnation)
    own = vector.get(me, 0)
    if own > known[me]:
        raise remembers_more(peer.incarnation, me, own, known[me], resumed=resumed)
    if not peer.met and any(stable.values()) and not dominates(vector, stable):
        raise RemoteProtocolError(
            f"{peer.incarnation} returned without messages that it had acknowledged, and that no "
            "member keeps any longer: it has lost its state and cannot continue in this group"
        )
    return weight


def check_group_digest(
    sender: str, digest: Digest, known: Vector, me: str, *, resumed: bool
) -> int:
    """The same where members come and go; the sum includes what the vector no longer names."""
    weight = weight_of(sender, digest)
    if type(digest.dropped) is not int or digest.dropped < 0:
        raise RemoteProtocolError(
            f"{sender} sent a digest with an invalid number of dropped messages: {digest.dropped!r}"
        )
    if not digest.acknowledging:
        raise RemoteProtocolError(
            f"{sender} sends messages before they are durable: groups whose members come and go "
            "need Durability.IMMEDIATE"
        )
    if strange := digest.vector.keys() - known.keys():
        _check_strange(sender, digest, strange, known)
    own = digest.vector.get(me, 0)
    if own > known[me]:
        raise remembers_more(sender, me, own, known[me], resumed=resumed)
    return weight + digest.dropped


def check_told(sender: str, vector: Vector, here: Membership, *, resumed: bool) -> None:
    """Raises the error of `lost_more` if the receiver lacks what it has acknowledged, according to a peer."""
    known = here.vector
    for origin, counter in vector.items():
        if counter > known.get(origin, 0) and not (origin not in known and here.is_past(origin)):
            raise lost_more(sender, here.me, origin, counter, known.get(origin, 0), resumed=resumed)


def _check_strange(sender: str, digest: Digest, strange: Set[str], known: Vector) -> None:
    """Raises RemoteProtocolError for more unknown ids than can be: their joins are on the way, or they are past."""
    most = len(known) + MOST_STRANGE
    if len(strange) > most and len(strange) - ids_on_their_way(digest.vector, digest.vector) > most:
        raise RemoteProtocolError(
            f"{sender} sent a digest with {len(strange):,} unknown ids, in a group of "
            f"{len(known):,}"
        )
    for incarnation in strange:
        check_incarnation(incarnation)


def ids_on_their_way(ids: Iterable[str], vector: Vector) -> int:
    """How many of these were admitted by messages that a vector covers, one each."""
    counters = {base_of(origin): counter for origin, counter in vector.items()}
    joins = {join for incarnation in ids if (join := _join_of(incarnation)) is not None}
    return sum(counters.get(contact, 0) >= number for contact, number in joins)


def _join_of(incarnation: str) -> tuple[str, int] | None:
    check_incarnation(incarnation)
    return joined_by(incarnation)
