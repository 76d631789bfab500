"""What a server has dropped while its clock led: no X, the key is copied from another member."""

from .gateway import Gateway
from .index import bucket_of
from .keystate import Contents, KeyState


def find_lost(gateway: Gateway) -> None:
    """Once the clock is right again: entries without their key, in buckets that are not over as a whole."""
    own, server = gateway.server.own, gateway.server
    for key, number in own.index.entries():
        if number >= bucket_of(server.time) and server.get(key) is None:
            own.index.remove(key, number)
            own.lost.add(key)


def copy_lost(gateway: Gateway, giver: Gateway) -> bool:
    """Rows and log of the giver, once all that they contain is delivered here; then what is delivered beyond them.

    What the giver has dropped itself waits for its X. Who has set a deadline is not in the rows: here it counts as
    another. Returns whether a key was copied.
    """
    theirs, own = giver.server.own.vector, gateway.server.own
    if any(given > ours for given, ours in zip(theirs, own.vector, strict=True)):
        return False
    given = {key: giver.look(key) for key in sorted(own.lost)}
    known = {key: state for key, state in given.items() if state.contents is Contents.KNOWN}
    for key, state in known.items():
        gateway.states[key] = KeyState(Contents.KNOWN, dict(state.slots), state.deadline)
        gateway.log.take(key, giver.log)
        apply_beyond(gateway, key, theirs)
    gateway.finish()
    return bool(known)


def apply_beyond(gateway: Gateway, key: str, vector: list[int]) -> None:
    """What the giver has not delivered is stable nowhere. What it concerns may be stable here, so goes only behind it.

    A kill that was concurrent with an atom would else take it for an older one.
    """
    unstable = gateway.server.own.unstable
    for message in unstable:
        if message.dot.counter > vector[message.dot.origin]:
            for place, effect in enumerate(message.effects):
                if effect.key == key:
                    gateway.apply(message, place, effect)
    gateway.log.keep_only(key, {message.dot for message in unstable})
