"""What a server has dropped while its clock led: no X, the key is copied from another member."""

from .digest import BOUND
from .gateway import Gateway
from .index import bucket_of
from .keystate import Contents, KeyState


def find_lost(gateway: Gateway) -> None:
    """Once the clock is right again: entries without their key, in buckets that are not over."""
    own, server = gateway.server.own, gateway.server
    for key, number in own.index.entries():
        if number > bucket_of(server.time + 2 * BOUND) and server.get(key) is None:
            own.index.remove(key, number)
            own.lost.add(key)


def copy_lost(gateway: Gateway, giver: Gateway) -> bool:
    """Rows of the giver, once all that they contain is delivered here; then what was delivered beyond them.

    Returns whether a key was copied. Who has set its deadline is not in the rows: here it counts as another.
    """
    own, vector = gateway.server.own, giver.server.own.vector
    if any(theirs > ours for theirs, ours in zip(vector, own.vector, strict=True)):
        return False
    gateway.begin()
    giver.begin()
    lost = len(own.lost)
    for key in sorted(own.lost):
        given = giver.state(key)
        if given.contents is not Contents.KNOWN:
            continue
        state = KeyState(Contents.KNOWN, dict(given.slots), given.deadline)
        gateway.states[key] = state
        gateway.log.by_key.pop(key, None)
        for message in own.unstable:
            for place, effect in enumerate(message.effects):
                if effect.key != key:
                    continue
                if message.dot.counter <= vector[message.dot.origin]:
                    gateway.log_again(message, place, effect)
                else:
                    gateway.apply(message, place, effect)
    giver.states = {}
    gateway.finish()
    return len(own.lost) < lost
