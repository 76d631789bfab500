"""What no member may send. These functions change nothing: a refused message or digest leaves no trace."""

from crdtcast.engine.members import Members
from crdtcast.engine.peer import Peer
from crdtcast.exceptions import RemoteProtocolError, RolledBackError, SupersededError
from crdtcast.messages import Message
from crdtcast.tags import Vector, dominates


def rolled_back(me: str, told: int, known: int) -> RolledBackError:
    """The error for a peer that remembers message number `told` of `me`, which itself knows `known` of them."""
    return RolledBackError(
        f"a peer has {told} messages of {me}, whose journal ends at {known}: it is older than it"
        " should be. Go on under a new incarnation"
    )


def superseded(me: str, by: str) -> SupersededError:
    """The error for a later incarnation of the own name."""
    return SupersededError(f"{me} has ended: {by} has taken its name over. Stop this process")


def check_message(message: Message, known: Vector, members: Members) -> None:
    """Raise RemoteProtocolError if no member can have sent this, or RolledBackError if it knows more of us than we.

    `known` is the delivered vector, which has a key for each incarnation met.
    """
    origin, counter = message.dot
    me = members.me
    if origin not in known:
        members.checked(origin)
    if not isinstance(counter, int) or counter < 1:
        raise RemoteProtocolError(f"{message.dot} is no dot: counters begin at 1")
    for depended, n in message.context:
        if depended not in known:
            members.checked(depended)
        if not isinstance(n, int) or n < 1:
            raise RemoteProtocolError(f"{message.dot} depends on {depended}:{n}, no dot")
        if depended == origin and n >= counter:
            raise RemoteProtocolError(f"{message.dot} depends on {depended}:{n}, itself or later")
        if depended == me and n > known[me]:
            raise rolled_back(me, n, known[me])
    if origin == me and counter > known[me]:
        raise rolled_back(me, counter, known[me])


def check_digest(
    peer: Peer, vector: Vector, known: Vector, stable: Vector, members: Members
) -> int:
    """Raise what fits if no member can have sent this; the sum of its counters otherwise.

    Keys are looked at when their number has changed: those of one sender only become more. `stable` is what is stable
    here, and so acknowledged by every name.
    """
    try:
        weight = sum(vector.values())
        if min(vector.values(), default=0) < 0 or type(weight) is not int:
            raise TypeError
    except TypeError:
        raise RemoteProtocolError(
            f"{peer.incarnation} sent a digest with something else than counters in it"
        ) from None
    me = members.me
    if len(vector) != peer.known_width:
        for incarnation in vector:
            if incarnation not in known:
                name = members.checked(incarnation)
                if name == members.name and incarnation > me:
                    raise superseded(me, incarnation)
    own = vector.get(me, 0)
    if own > known[me]:
        raise rolled_back(me, own, known[me])
    if not peer.met and not dominates(vector, stable):
        raise RemoteProtocolError(
            f"{peer.incarnation} came back without messages that its name had acknowledged, and"
            " that nobody keeps any more: it has lost its state, and cannot go on in this group"
        )
    return weight
