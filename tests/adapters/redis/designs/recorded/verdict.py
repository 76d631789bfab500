"""What must hold once all is quiet."""

from crdtcast.causality.messages import Message
from tests.adapters.redis.designs.recorded.effects import DEADLINE, decode
from tests.adapters.redis.designs.recorded.gateway import Gateway
from tests.adapters.redis.designs.recorded.history import Pasts, Shown, shown, visible
from tests.adapters.redis.designs.recorded.world import Failure, World

ROUNDS = 200


def settle(world: World) -> None:
    """Everything works from here on, until nothing happens any more. Raises Failure if that never comes."""
    quiet = 0
    for _ in range(ROUNDS):
        for name in world.names:
            if world.gateways[name] is None:
                world.start(name)
            world.rejoin(name)
        for gateway in [*world.living(), *world.zombies]:
            world.tick(gateway)
        busy = _exchange(world)
        quiet = 0 if busy or not all(map(_is_quiet, world.living())) else quiet + 1
        if quiet == 3:
            return
    raise Failure(f"never quiet: {[(g.engine.me, g.parked) for g in world.living()]}")


def _exchange(world: World) -> bool:
    """Whether anything has been committed."""
    committed = False
    while True:
        moved = False
        for gateway in [*world.living(), *world.zombies]:
            moved |= world.execute(gateway)
            moved |= world.answer(gateway)
            if gateway.alive:
                moved |= world.gather(gateway)
        committed |= moved
        for name in world.names:
            world.sync(name)
        for pair in list(world.flights):
            while world.net(*pair):
                moved = True
        while world.run_limbo():
            moved = True
        if not moved:
            return committed


def _is_quiet(gateway: Gateway) -> bool:
    parked = gateway.parked is None and not gateway.parking
    return gateway.is_idle and gateway.engine.quiet and not gateway.queue and parked


def look(world: World, gateway: Gateway) -> None:
    """In the middle of it: whether a server holds what its gateway has delivered. Raises Failure."""
    if not gateway.is_idle or gateway.parking or gateway.fence != gateway.server.fence:
        return
    world.counts["looks"] += 1
    values, me = shown(gateway.server.image.values), gateway.engine.me
    expected = visible(_delivered(world, gateway), Pasts(world.known.values()))
    if values != expected:
        raise Failure(f"{me} differs: {_difference(values, expected)}")


def _delivered(world: World, gateway: Gateway) -> list[Message]:
    """What its vector covers; of those who have ended and are forgotten there, what was not cut off."""
    last = {**world.cuts, **gateway.engine.vector}
    return [m for d, m in world.known.items() if m.kind == 0 and d.counter <= last.get(d.origin, 0)]


def judge(world: World) -> None:
    """At the end. Raises Failure."""
    vectors = [{o: n for o, n in g.engine.vector.items() if n} for g in world.living()]
    if any(vector != vectors[0] for vector in vectors):
        raise Failure(f"vectors differ: {vectors}")
    for gateway in world.living():
        look(world, gateway)
        image, me = gateway.server.image, gateway.engine.me
        if image.record is not None or image.parked is not None:
            raise Failure(f"{me} has kept {image.record or image.parked}")
        if not gateway.log.is_empty or len(image.values) != _shown_size(gateway):
            raise Failure(f"{me} has kept metadata: {gateway.log.atoms} {image.values}")
    _judge_requests(world, _delivered(world, world.living()[0]))


def _shown_size(gateway: Gateway) -> int:
    values = gateway.server.image.values
    data = {key for key, kind, _ in values if kind != DEADLINE}
    return len([slot for slot in values if slot[1] != DEADLINE or slot[0] in data])


def _difference(one: Shown, other: Shown) -> str:
    slots = sorted(set(one.items()) ^ set(other.items()), key=repr)
    return ", ".join(f"{slot} is {one.get(slot)}, not {other.get(slot)}" for slot, _ in slots)


def _judge_requests(world: World, everything: list[Message]) -> None:
    sent: dict[int, list[Message]] = {}
    for message in everything:
        for asked in decode(message.payload).asked:
            sent.setdefault(asked.request, []).append(message)
    for number, messages in sent.items():
        if len({message.dot for message in messages}) > 1:
            raise Failure(f"request {number} is sent twice: {messages}")
    for number, name in world.asked.items():
        _judge_request(world, number, name, sent.get(number, []))


def _judge_request(world: World, number: int, name: str, sent: list[Message]) -> None:
    server = world.servers[name]
    runs = server.image.executed.get(number, ())
    wrote = [run for run in runs if any(entry.wrote for entry in run)]
    said = server.said.get(number, [])
    answers = world.replies.get(number, [])
    if len(wrote) > 1:
        raise Failure(f"request {number} was carried out twice: {wrote}")
    if wrote and not sent and number not in world.has_yielded:
        raise Failure(f"request {number} was carried out, and is lost: {wrote}")
    if wrote and number in world.denied:
        raise Failure(f"a client heard that request {number} was not written: {wrote}")
    kept = number in world.remembered[name] and (number, answers[0]) in server.wrote
    if kept and not sent and number not in world.has_yielded:
        raise Failure(f"request {number} was answered by a gateway that lives, and is lost")
    if sent and not any(said):
        raise Failure(f"request {number} is sent, and was not carried out")
    if len(answers) > 1:
        raise Failure(f"request {number} was answered twice: {answers}")
    if answers and answers[0] not in said:
        raise Failure(f"request {number} was answered {answers[0]}, and the server said {said}")
    promised = server.always and number not in world.torn_away
    if answers and promised and not runs:
        raise Failure(f"request {number} was answered, and has vanished")
