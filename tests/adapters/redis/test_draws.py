"""SPOP of members that a commit has drawn before: each is popped once, whatever else the commit and others do."""

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.recorded.draws import Drawn, Draws
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store.effects import (
    Effect,
    EffectsEvent,
    KillAll,
    KillSlots,
    One,
    RedisType,
)
from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Dot, Tag
from tests.adapters.redis.gateways import RunningGateway, gateway, regions, until
from tests.adapters.redis.test_next_commits import Held, holding
from tests.effort import first_seed, size

SLOTS = [b"%d" % number for number in range(6)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "add", "remove", "empty"]), st.sets(st.sampled_from(SLOTS)))
)


@given(st.lists(st.sampled_from(SLOTS), unique=True), st.integers(0, 6), STEPS)
def test_only_slots_that_exist_are_taken(
    there: list[bytes], number: int, steps: list[tuple[str, set[bytes]]]
) -> None:
    """there: what the server has; number: how many of them were drawn."""
    exist, drawn = set(there), Drawn(there[:number], is_all=len(there) <= number)
    for step, slots in steps:
        match step:
            case "take":
                taken = drawn.take(len(slots))
                if taken is None:
                    assert len(exist) > number - 6 and not drawn.is_all
                    return  # the server decides, and all that follows
                assert len(set(taken)) == len(taken) == min(len(slots), len(exist))
                assert exist.issuperset(taken)
                exist.difference_update(taken)
            case "add":
                drawn.add(slots)
                exist |= slots
            case "remove":
                drawn.remove(slots)
                exist -= slots
            case _:
                drawn.empty()
                exist.clear()
        assert not drawn.is_all or drawn.present == exist


@given(st.integers(1, 6))
def test_all_that_were_drawn_can_be_taken(number: int) -> None:
    drawn = Drawn(SLOTS[:number], is_all=False)
    assert drawn.take(number + 1) is None
    assert sorted(drawn.take(number) or ()) == SLOTS[:number]


def test_every_member_may_be_taken_first() -> None:
    firsts = {(Drawn(SLOTS, is_all=False).take(1) or [b""])[0] for _ in range(500)}
    assert firsts == set(SLOTS)


def delivered(*effects: Effect) -> list[tuple[Delivery, EffectsEvent]]:
    tag = Tag(Dot("b.1", 1), (), {})
    return [(Delivery(b"", tag), EffectsEvent(7, list(effects)))]


@pytest.mark.parametrize(
    ("effect", "left"),
    [
        (KillSlots(b"s", RedisType.SET, (b"1",)), [b"t"]),
        (One(b"s", RedisType.SET, (b"1",)), [b"t"]),
        (KillAll(None), []),
        (None, []),
    ],
    ids=["removal", "addition", "flush", "own work"],
)
def test_what_comes_before_the_requests_outdates_a_draw(
    effect: Effect | None, left: list[bytes]
) -> None:
    draws = Draws()
    draws.by_key = {key: Drawn([b"1"], is_all=True) for key in (b"s", b"t")}
    draws.outdate([] if effect is None else delivered(effect), by_gateway=effect is None)
    assert list(draws.by_key) == left


# In a gateway


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningGateway]:
    with start_server(tmp_path / "server") as server, gateway(tmp_path, server.port) as made:
        yield made


def scripts(port: int) -> int:
    """How many scripts the server has executed."""
    with RawClient(port) as client:
        stats = client.call("INFO", "commandstats")
    assert isinstance(stats, bytes)
    lines = [line for line in stats.splitlines() if line.startswith(b"cmdstat_eval")]
    return sum(int(line.partition(b"calls=")[2].partition(b",")[0]) for line in lines)


@pytest.mark.process
def test_a_pop_needs_no_script(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
    ):
        client.call("SADD", "s", *map(str, range(9)))
        before = scripts(server.port)
        one, two, more = client.pipeline([("SPOP", "s"), ("SPOP", "s"), ("SPOP", "s", "3")])
        assert isinstance(more, list)
        left = client.call("SMEMBERS", "s")
        popped = [one, two, *more]
        assert sorted([*popped, *left]) == [b"%d" % n for n in range(9)]  # type: ignore[misc]
        assert client.pipeline([("SPOP", "none"), ("SPOP", "none", "2")]) == [None, []]
        assert client.pipeline(
            [("SPOP", "s", "100"), ("SPOP", "s"), ("SADD", "s", "x"), ("SPOP", "s"), ("SCARD", "s")]
        )[1:] == [None, 1, b"x", 0]
        assert scripts(server.port) == before


@pytest.mark.process
@pytest.mark.parametrize(
    "before",
    [
        ("DEL", "s"),
        ("SET", "s", "text"),
        ("SREM", "s", "0", "1", "2"),
        ("SREM", "s", "0"),
        ("EXPIRE", "s", "-1"),
        ("SADD", "s", "x"),
        ("SMOVE", "s", "t", "1"),
        ("GETDEL", "none"),
    ],
    ids=" ".join,
)
def test_a_pop_sees_what_its_pipeline_did(running: RunningGateway, before: tuple[str, ...]) -> None:
    with running.client() as client:
        client.call("SADD", "s", "0", "1", "2")
        _, popped, kind, *_ = client.pipeline(
            [before, ("SPOP", "s"), ("TYPE", "s"), ("DEL", "s"), ("SADD", "s", "y")]
        )
        may_be: set[object] = {b"0", b"1", b"2", b"x"} - {word.encode() for word in before[2:]}
        match before[0]:
            case "DEL" | "EXPIRE":
                assert (popped, kind) == (None, b"none")
            case "SET":
                assert isinstance(popped, ErrorReply) and popped.text.startswith("WRONGTYPE")
            case "SREM" if len(before) > 3:
                assert (popped, kind) == (None, b"none")
            case "SADD":
                assert popped in may_be | {b"x"} and kind == b"set"
            case _:
                assert popped in may_be and kind == b"set"
        assert client.call("SMEMBERS", "s") == [b"y"]


@pytest.mark.process
def test_a_pop_takes_the_only_member_that_its_pipeline_left(running: RunningGateway) -> None:
    with running.client() as client:
        for ended in (("DEL", "s"), ("SREM", "s", *map(str, range(9)))):
            client.call("SADD", "s", *map(str, range(9)))
            replies = client.pipeline([ended, ("SADD", "s", "x"), ("SPOP", "s"), ("SCARD", "s")])
            assert replies[2:] == [b"x", 0]
        client.call("SADD", "s", *map(str, range(9)))
        replies = client.pipeline(
            [("SREM", "s", *map(str, range(8))), ("SPOP", "s"), ("SPOP", "s")]
        )
        assert replies == [8, b"8", None]
        client.call("SADD", "s", *map(str, range(9)))
        taken = [("SET", "s", "text"), ("DEL", "s"), ("SADD", "s", "x"), ("SPOP", "s")]
        assert client.pipeline(taken)[-1] == b"x"


@pytest.mark.process
def test_a_pop_keeps_the_deadline_of_a_key(running: RunningGateway) -> None:
    with running.client() as client:
        client.call("SADD", "s", "0", "1", "2")
        client.call("EXPIRE", "s", "1000")
        assert client.pipeline([("SPOP", "s"), ("TTL", "s")])[1] in (999, 1000)
        assert client.call("TTL", "s") in (999, 1000)
        assert client.pipeline([("SPOP", "s", "9"), ("TTL", "s"), ("SADD", "s", "x")])[1:] == [
            -2,
            1,
        ]
        assert client.call("TTL", "s") == -1


@pytest.mark.process
def test_members_are_popped_once_beside_other_writers(tmp_path: Path) -> None:
    """Clients of one region pop, in pipelines with what disturbs that; both regions add. Nothing is lost."""
    with regions(tmp_path, "a", "b") as town:
        popped: list[list[bytes]] = [[], [], []]
        removed: list[list[bytes]] = [[], [], []]
        added: list[set[bytes]] = [set(), set(), set(), set()]
        rounds = size(ci=40, release=200)

        def pop(number: int) -> None:
            random = Random(first_seed() + number)
            with town.running["a"].client() as client:
                for round_ in range(rounds):
                    words: list[tuple[str, ...]] = []
                    for place in range(random.randint(1, 6)):
                        key = random.choice(("s", "t"))
                        member = f"{number}:{round_}:{place}"
                        words.append(
                            random.choice(
                                (
                                    ("SPOP", key),
                                    ("SPOP", key, "3"),
                                    ("SADD", key, member),
                                    ("SREM", key, f"{number}:{round_}:{place - 1}"),
                                    ("SMOVE", "s", "t", member),
                                    ("PERSIST", key),
                                )
                            )
                        )
                    for each, reply in zip(words, client.pipeline(words), strict=True):
                        assert not isinstance(reply, ErrorReply), (each, reply)
                        if each[0] == "SPOP" and reply:
                            popped[number] += [reply] if isinstance(reply, bytes) else reply  # type: ignore[list-item]
                        elif each[0] == "SADD" and reply:
                            added[number].add(each[2].encode())
                        elif each[0] == "SREM" and reply:
                            removed[number].append(each[2].encode())

        def add() -> None:
            with town.running["b"].client() as client:
                for round_ in range(rounds):
                    words = [("SADD", "st"[n % 2], f"b:{round_}:{n}") for n in range(4)]
                    assert client.pipeline(words) == [1] * 4
                    added[3].update(member.encode() for _, _, member in words)

        threads = [threading.Thread(target=pop, args=(n,)) for n in range(3)]
        threads.append(threading.Thread(target=add))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        town.wait_equal("a", "b")
        left = [*town.call("b", "SMEMBERS", "s"), *town.call("b", "SMEMBERS", "t")]
        gone = Counter([*chain(*popped), *chain(*removed), *left])
        assert gone == Counter(chain(*added))
        assert sum(map(len, popped)) > rounds
        for name in "ab":
            assert town.running[name].gateway.committer.changed_behind == 0


@pytest.mark.process
def test_concurrent_pops_of_two_regions_lose_nothing(tmp_path: Path) -> None:
    """Both may get the same member; each member that was popped is gone in both, and the others are there."""
    with regions(tmp_path, "a", "b") as town:
        town.call("a", "SADD", "s", *map(str, range(200)))
        town.wait_equal("a", "b")
        popped: set[object] = set()

        def pop(name: str) -> None:
            with town.running[name].client() as client:
                for _ in range(10):
                    popped.update(client.pipeline([("SPOP", "s")] * 5))

        threads = [threading.Thread(target=pop, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        town.wait_equal("a", "b")
        assert all(type(member) is bytes for member in popped), popped
        for name in "ab":
            left = set(town.call(name, "SMEMBERS", "s"))
            assert left == {b"%d" % number for number in range(200)} - popped


# Whose server is written past it, taken, or lost


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with holding(tmp_path) as each:
        yield each


def begin(held: Held, *words: str) -> None:
    """A commit is prepared, and the server does not get it."""
    held.requests.clear()
    before = held.held
    held.send(0, *words)
    until(lambda: held.held > before)


@pytest.mark.process
def test_member_removed_past_the_gateway_is_not_popped(held: Held) -> None:
    begin(held, "SPOP", "s0")
    assert held.past("SREM", "s0", "known") == 1
    held.go_on()
    reply = held.clients[0].receive()
    assert isinstance(reply, ErrorReply) and "removed directly in the server" in reply.text
    assert held.clients[0].call("SADD", "s0", "x") == 1
    assert held.clients[0].call("SPOP", "s0") == b"x"


@pytest.mark.process
def test_a_pop_of_a_key_replaced_past_the_gateway_is_an_error(held: Held) -> None:
    begin(held, "SPOP", "s0")
    held.past("SET", "s0", "foreign")
    held.go_on()
    reply = held.clients[0].receive()
    assert isinstance(reply, ErrorReply) and "overwritten directly in the server" in reply.text


@pytest.mark.process
def test_a_transaction_with_a_pop_is_executed_by_the_server(held: Held) -> None:
    """Its replies show what a drawn member cannot: what the commands before it have left."""
    before = scripts(held.server.port)
    words = [("MULTI",), ("SADD", "s0", "x"), ("SPOP", "s0"), ("SCARD", "s0"), ("EXEC",)]
    added, popped, left = held.clients[0].pipeline(words)[-1]  # type: ignore[misc, union-attr]
    assert (added, left) == (1, 1) and popped in (b"x", b"known")
    assert scripts(held.server.port) == before + 1
