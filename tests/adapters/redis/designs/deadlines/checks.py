"""What must hold after every step, and when all is quiet."""

from .digest import BOUND
from .effects import NONE, Message
from .gateway import Gateway, expired_keys
from .history import Past, past_of
from .index import bucket_of
from .keystate import Contents
from .world import World


class Violation(AssertionError):
    """A rule of the model is broken. `rule`: which, for the tests of planted faults."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


def require(holds: bool, rule: str, detail: object) -> None:
    if not holds:
        raise Violation(rule, str(detail))


def check_key(world: World, at: int, key: str) -> None:
    """A replica's key is what its history says, as far as the server's clock lets it be seen."""
    gateway = world.begin(at)
    server, past = gateway.server, world.history(at, key)
    if key in server.own.lost:
        return
    native = server.get(key)
    over = past.deadline <= server.time
    if native is None:
        dropped = past.deadline <= server.latest
        require(not past.slots or dropped, "lost", (at, key, past, server.time))
    else:
        require(not over, "seen after its deadline", (at, key, native, past, server.time))
        require(native.slots == past.slots, "value", (at, key, native, past))
        require(native.deadline == past.deadline, "deadline", (at, key, native, past))
    check_entry(gateway, key, past, world.copied)


def check_entry(gateway: Gateway, key: str, past: Past, copied: bool) -> None:
    """One entry for a key with a deadline, in its bucket; where the server has dropped the key, in one that is over."""
    server = gateway.server
    found = server.own.index.of(key)
    wanted = past.slots != {} and past.deadline != NONE
    if server.get(key) is not None:
        number, mine = bucket_of(past.deadline), past.setter == gateway.me
        right = ([[(number, mine)]] + [[(number, False)]] * copied) if wanted else [[]]
        require(found in right, "index", (gateway.me, key, found, right))
    elif wanted:
        until = bucket_of(server.latest)
        passed = [number <= until for number, _ in found]
        require(passed == [True], "index", (gateway.me, key, found, until))
    else:
        require(len(found) <= 1, "index", (gateway.me, key, found))


def check_expiry(world: World, message: Message) -> None:
    """An X is issued for a key whose deadline is over by a clock in service: what should live is not killed."""
    for key in expired_keys(message):
        seen = [m for m in world.about[key] if m.dot.counter <= message.past[m.dot.origin]]
        past = past_of(key, seen)
        over = past.at is not None and past.at <= world.now + BOUND
        require(over, "early X", (message, past, world.now))


def check_reassertions(world: World, at: int) -> None:
    """Only what an X has taken comes back, and only if its deadline is ahead."""
    gateway = world.gateways[at]
    for again in gateway.reasserted:
        expiry = world.sent[again.expiry.origin][again.expiry.counter - 1]
        ahead = again.deadline > again.time
        require(ahead and again.key in expired_keys(expiry), "revived", (at, again, expiry))
    gateway.reasserted.clear()


def check_memory(gateway: Gateway) -> None:
    """A restart finds the log that the process had."""
    before = gateway.log.by_key
    gateway.restart()
    require(before == gateway.log.by_key, "log after a restart", (before, gateway.log.by_key))


def check_quiet(world: World, at: int) -> None:
    """All is delivered and stable: nothing remains but values, and an entry for each key with a deadline."""
    gateway = world.begin(at)
    own = gateway.server.own
    for key in world.about:
        check_key(world, at, key)
    require(not own.unstable, "metadata", (at, own.unstable))
    for key in own.lost:
        held = [g.look(key).contents for g in map(world.begin, world.members)]
        require(Contents.KNOWN not in held, "not copied", (at, key, held))
    require(not own.orphans, "metadata", (at, own.orphans))
    require(not gateway.log.by_key, "metadata", (at, gateway.log.by_key))
    for key, number in own.index.entries():
        native = gateway.server.get(key)
        passed = native is None and number <= bucket_of(gateway.server.latest)
        require(passed or (native is not None and native.deadline != NONE), "index", (at, key))
