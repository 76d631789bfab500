"""The rules of deadlines, one schedule each. T1 to T6 are the cases that the design names.

Replicas a, b, c; all clocks alike unless a test says otherwise. A test that names a planted fault shows what the rule
is for.
"""

from random import Random

import pytest

from tests.adapters.redis.designs.deadlines import faults
from tests.adapters.redis.designs.deadlines.checks import (
    Violation,
    check_expiry,
    check_key,
    check_quiet,
)
from tests.adapters.redis.designs.deadlines.clients import LOGIN
from tests.adapters.redis.designs.deadlines.digest import BOUND
from tests.adapters.redis.designs.deadlines.effects import NONE, STRING, Message, Slot, Type, Value
from tests.adapters.redis.designs.deadlines.gateway import Gateway, expired_keys
from tests.adapters.redis.designs.deadlines.keystate import Contents
from tests.adapters.redis.designs.deadlines.prepare import Command
from tests.adapters.redis.designs.deadlines.world import World

A, B, C = 0, 1, 2
X, Y = Slot(Type.SET, "x"), Slot(Type.SET, "y")
ADD_X = Command("SADD", "k", ("x",))
ADD_Y = Command("SADD", "k", ("y",))
DELETE = Command("DEL", "k")


def expire(ttl: int) -> Command:
    return Command("EXPIRE", "k", ttl=ttl)


def three(gateway_type: type[Gateway] = Gateway, offsets: tuple[int, ...] = (0, 0, 0)) -> World:
    return World(offsets, gateway_type)


def sent(world: World, at: int) -> Message:
    """The last message of a replica."""
    return world.sent[at][-1]


def everywhere(world: World) -> tuple[dict[Slot, Value], int] | None:
    """Value and deadline of the key when all is delivered and stable: in every replica the same, and by its history."""
    world.side = [0 for _ in world.members]
    world.settle(Random(0))
    held = []
    for at in world.members:
        check_quiet(world, at)
        native = world.begin(at).server.get("k")
        held.append(None if native is None else (native.slots, native.deadline))
    assert all(other == held[0] for other in held), held
    return held[0]


def starting_with(*commands: Command, gateway_type: type[Gateway] = Gateway) -> World:
    """What a has written is delivered and stable everywhere."""
    world = three(gateway_type)
    world.write(A, *commands)
    world.settle(Random(0))
    return world


def expiries(world: World) -> int:
    return sum(len(expired_keys(message)) for messages in world.sent for message in messages)


def test_t1_no_deadline_wins_over_a_concurrent_deadline() -> None:
    world = starting_with(Command("SET", "k"))
    world.write(A, Command("SET", "k", value=2))
    world.write(B, expire(10))
    world.deliver(C, [sent(world, B)])
    world.deliver(B, [sent(world, A)])
    world.deliver(C, [sent(world, A)])
    world.stabilise(C)
    assert sent(world, A) not in world.gateways[C].server.own.unstable, "stable at c"
    world.gateways[C].restart()
    assert everywhere(world) == ({STRING: 2}, NONE)


@pytest.mark.parametrize("gateway_type", [Gateway, faults.DropsOrphansEarly])
def test_t2_an_orphan_outlives_its_own_stability(gateway_type: type[Gateway]) -> None:
    world = starting_with(ADD_X, gateway_type=gateway_type)
    at = world.now + 10
    world.write(B, expire(10))
    world.write(A, DELETE)
    world.deliver(C, [sent(world, B)])
    world.write(C, ADD_Y)
    world.deliver(A, [sent(world, B)])
    world.stabilise(A)
    assert sent(world, B) not in world.gateways[A].server.own.unstable, "stable at a"
    world.deliver(A, [sent(world, C)])
    if gateway_type is Gateway:
        assert everywhere(world) == ({Y: 1}, at)
    else:
        with pytest.raises(Violation, match="deadline"):
            everywhere(world)


@pytest.mark.parametrize("stable", [False, True], ids=["t3", "t4"])
def test_t3_t4_extension_unseen_by_the_expiry_keeps_contents(stable: bool) -> None:
    world = three()
    world.write(A, Command("SET", "k", value=5, ttl=10))
    for other in (B, C):
        world.deliver(other, [sent(world, A)])
    if stable:
        world.settle(Random(0))
    world.now += 9
    until = world.now + 100
    world.write(B, expire(100))
    extension = sent(world, B)
    world.now += 1
    world.deliver(A, [extension])
    assert expired_keys(sent(world, A)) == ["k"], "a's server has dropped it: X in front"
    assert extension.dot.counter > sent(world, A).past[B], "X has not seen the extension"
    assert everywhere(world) == ({STRING: 5}, until)


def test_t5_a_counter_of_two_regions_expires_as_one() -> None:
    world = three()
    for at in (A, B):
        world.write(at, Command("INCR", "k"))
        world.write(at, expire(60))
    until = world.now + 60
    assert everywhere(world) == ({STRING: 2}, until)
    world.now = until
    assert everywhere(world) is None


def test_t6_deletion_keeps_a_deadline_it_has_not_seen() -> None:
    world = starting_with(ADD_X)
    until = world.now + 10
    world.write(A, DELETE, ADD_Y)
    world.write(B, expire(10))
    assert everywhere(world) == ({Y: 1}, until)


@pytest.mark.parametrize("away", [5, 50], ids=["shorter than the TTL", "longer than the TTL"])
def test_partition_does_not_end_a_session(away: int) -> None:
    login = Command("HSET", "k", ("login",), 7)
    world = starting_with(login, expire(20))
    world.side = [0, 1, 0]
    for _ in range(away):
        world.now += 1
        for at in (A, C):
            world.expire(at)
            world.stabilise(at)
        if world.now % 5 == 0:
            assert world.write(B, expire(20)) == [1]
            until = world.now + 20
    assert (world.begin(A).server.get("k") is None) == (away > 20)
    assert everywhere(world) == ({LOGIN: 7}, until)


def test_limiter_expires_despite_a_concurrent_increment() -> None:
    """X keeps the deadline: else a count that X had not seen would stay for good."""

    def limited(gateway_type: type[Gateway]) -> tuple[dict[Slot, Value], int] | None:
        world = starting_with(Command("INCR", "k"), expire(10), gateway_type=gateway_type)
        world.now += 9
        assert world.write(C, Command("INCR", "k")) == [2]
        world.now += 1
        world.expire(A)
        return everywhere(world)

    assert limited(Gateway) is None
    assert limited(faults.ExpiresTheDeadline) == ({STRING: 1}, NONE)


def test_an_entry_is_found_without_the_native_deadline() -> None:
    """A write over a key that the server has dropped takes its entry out: the next X would kill the new value."""

    def written_over(gateway_type: type[Gateway]) -> list[tuple[int, bool]]:
        world = starting_with(ADD_X, expire(10), gateway_type=gateway_type)
        world.now += 10
        world.write(B, Command("SADD", "k", ("y",)))
        return world.gateways[B].server.own.index.of("k")

    assert written_over(Gateway) == []
    assert len(written_over(faults.LeavesEntries)) == 1


def test_expiry_after_the_extension_would_end_the_session() -> None:
    """X must not have seen the deadline that it is in front of: its origin would not re-assert."""

    def extended(gateway_type: type[Gateway]) -> tuple[dict[Slot, Value], int] | None:
        world = starting_with(ADD_X, expire(10), gateway_type=gateway_type)
        world.now += 9
        world.write(B, expire(100))
        world.now += 1
        world.deliver(C, [sent(world, B)])
        return everywhere(world)

    assert extended(Gateway) == ({X: 1}, 209)
    assert extended(faults.ExpiresBehind) is None


@pytest.mark.parametrize("gateway_type", [Gateway, faults.AnswersEveryMove])
def test_clocks_apart_do_not_answer_each_other(gateway_type: type[Gateway]) -> None:
    """a leads: an extension that is over there already is still ahead at b, which re-asserts under it."""
    world = World((BOUND, -BOUND, 0), gateway_type)
    world.write(B, ADD_X, expire(10))
    world.settle(Random(0))
    world.now += 7
    world.write(B, expire(7))
    world.now += 5
    world.write(A, ADD_Y)
    if gateway_type is Gateway:
        world.settle(Random(0))
        assert expiries(world) == 1
    else:
        with pytest.raises(AssertionError, match="never quiet"):
            world.settle(Random(0))


def test_recreated_key_keeps_the_deadline_of_restored_values() -> None:
    """c creates the key anew, having seen X and the extension, not what comes back under it."""

    def created(gateway_type: type[Gateway]) -> int:
        world = starting_with(ADD_X, expire(10), gateway_type=gateway_type)
        world.now += 9
        world.write(B, expire(100))
        extension = sent(world, B)
        world.now += 1
        world.expire(A)
        world.deliver(C, [sent(world, A)])
        world.deliver(C, [extension])
        world.write(C, ADD_Y)
        held = everywhere(world)
        assert held is not None and set(held[0]) == {X, Y}
        return held[1]

    assert created(Gateway) == 209
    assert created(faults.ReassertsDataOnly) == NONE


def test_restored_value_yields_to_a_newer_write() -> None:
    """a writes a new value behind its X; b, which has seen the X only, re-asserts the old one."""

    def written(gateway_type: type[Gateway]) -> Value:
        old, new = (Command("HSET", "k", ("login",), value) for value in (1, 2))
        world = starting_with(old, expire(10), gateway_type=gateway_type)
        world.now += 9
        world.write(B, expire(100))
        world.now += 1
        world.expire(A)
        world.deliver(B, [sent(world, A)])
        world.write(A, new)
        held = everywhere(world)
        assert held is not None
        return held[0][LOGIN]

    assert (written(Gateway), written(faults.ReassertsAsNew)) == (2, 1)


def test_expiry_undo_restores_changed_slots_not_only_empty_ones() -> None:
    """A session's counter: X had not seen the increment that came with the extension, and leaves only that."""

    def counted(gateway_type: type[Gateway]) -> tuple[dict[Slot, Value], int] | None:
        count = Command("HINCRBY", "k", ("visits",))
        world = starting_with(count, count, expire(10), gateway_type=gateway_type)
        world.now += 9
        world.write(B, count, expire(100))
        world.now += 1
        world.expire(A)
        return everywhere(world)

    visits = Slot(Type.HASH, "visits")
    assert counted(Gateway) == ({visits: 3}, 209)
    assert counted(faults.ReassertsTheEmptyOnly) == ({visits: 1}, 209)


def test_removed_deadline_restores_nothing() -> None:
    """c's X has seen b's deadline, a's has not: behind both, neither what a nor what b has set counts any more."""

    def left(gateway_type: type[Gateway]) -> tuple[dict[Slot, Value], int] | None:
        world = three(gateway_type)
        world.write(A, ADD_X, expire(10))
        world.write(B, ADD_Y, expire(6))
        world.deliver(C, [sent(world, B)])
        world.deliver(B, [sent(world, A)])
        world.now += 11
        world.write(C, Command("SADD", "k", ("z",)))
        world.write(A, Command("SADD", "k", ("w",)))
        world.deliver(B, [sent(world, C), sent(world, A)])
        return everywhere(world)

    new = {Slot(Type.SET, "w"): 1, Slot(Type.SET, "z"): 1}
    assert left(Gateway) == (new, NONE)
    assert left(faults.ReassertsTheReplaced) == (new | {X: 1, Y: 1}, NONE)


def test_only_one_member_announces_an_expired_key() -> None:
    """The one that has set the deadline; another one only if that is cut off; all of them without the grace."""

    def told(gateway_type: type[Gateway], cut: bool) -> int:
        world = World((0,) * 5, gateway_type)
        world.write(A, ADD_X, expire(10))
        world.settle(Random(0))
        world.side = [int(cut), 0, 0, 0, 0]
        for _ in range(60):
            world.now += 1
            for at in reversed(world.members):
                world.expire(at)
            for at in world.members:
                while batch := world.waiting(at, Random(0), 9):
                    world.deliver(at, batch)
        return expiries(world)

    assert (told(Gateway, cut=False), told(faults.NoGrace, cut=False)) == (1, 5)
    assert (told(Gateway, cut=True), told(faults.NoGrace, cut=True)) == (2, 5)
    assert told(faults.NotStoppedByX, cut=False) == 5


def test_a_leading_clock_kills_nothing() -> None:
    """What its server has dropped is copied from another member, once the clock is right again."""
    world = starting_with(ADD_X, expire(30))
    until = world.now + 30
    world.set_clock(C, 1000)
    world.begin(C).server.drop_passed()
    assert not world.in_service(C)
    world.write(B, ADD_Y)
    world.set_clock(C, 0)
    assert world.begin(C).state("k").contents is Contents.LOST
    assert not world.in_service(C)
    assert everywhere(world) == ({X: 1, Y: 1}, until)
    assert world.in_service(C) and expiries(world) == 0


def test_copy_includes_the_log_of_its_source() -> None:
    """a's y is stable at c, whose own deletion is concurrent with it and has not reached b, the giver.

    Applied to b's rows alone, as if y were older than all that arrives, the deletion would remove it.
    """
    world = three()
    world.write(A, ADD_Y, expire(30))
    world.write(C, ADD_X, DELETE)
    for at in (B, C):
        world.deliver(at, [sent(world, A)])
    world.deliver(A, [sent(world, C)])
    world.stabilise(C)
    assert sent(world, A) not in world.gateways[C].server.own.unstable, "stable at c"
    lose(world, C)
    world.copy_lost(C)
    assert world.in_service(C)
    held = world.begin(C).server.get("k")
    assert held is not None and held.slots == {Y: 1}


def lose(world: World, at: int) -> None:
    """A server drops the key while its clock leads."""
    world.set_clock(at, 1000)
    world.begin(at).server.drop_passed()
    world.set_clock(at, 0)
    assert "k" in world.gateways[at].server.own.lost


def test_copied_rows_are_applied_before_later_messages() -> None:
    """c has replaced the key before b's y arrived. b's rows have y, and nothing of what c wrote."""
    world = starting_with(ADD_X, expire(30))
    world.write(C, DELETE, Command("SADD", "k", ("z",)), expire(30))
    world.write(B, ADD_Y)
    world.deliver(C, [sent(world, B)])
    lose(world, C)
    world.copy_lost(C)
    assert world.in_service(C)
    check_key(world, C, "k")
    held = world.begin(C).server.get("k")
    assert held is not None and held.slots == {Y: 1, Slot(Type.SET, "z"): 1}


@pytest.mark.parametrize("gateway_type", [Gateway, faults.JudgesByNativeTime])
def test_clock_set_back_does_not_hide_a_dropped_key(gateway_type: type[Gateway]) -> None:
    """a's server has dropped the key at a time that lies ahead again when a client writes."""
    world = World((BOUND, 0, 0), gateway_type)
    world.write(A, ADD_X, expire(10))
    world.settle(Random(0))
    world.now += 9
    world.write(B, expire(100))
    until = world.now + 100
    world.now += 1
    world.begin(A).server.drop_passed()
    world.set_clock(A, -BOUND)
    world.write(A, ADD_Y)
    if gateway_type is Gateway:
        assert everywhere(world) == ({X: 1, Y: 1}, until)
    else:
        with pytest.raises(Violation, match="index"):
            check_key(world, A, "k")


def test_digest_omits_keys_within_the_clock_bound() -> None:
    """b's clock leads, and it has dropped what a still shows."""

    def alarms(gateway_type: type[Gateway]) -> bool:
        world = World((-BOUND, BOUND, 0), gateway_type)
        world.write(A, ADD_X, expire(10))
        world.settle(Random(0))
        world.now += 7
        digest = world.begin(A).tell_digest()
        world.now += 1
        return world.begin(B).differs(digest)

    assert not alarms(Gateway)
    assert alarms(faults.TellsWithinTheBound)


def test_expiry_is_never_early() -> None:
    world = starting_with(ADD_X, expire(10))
    world.now += 9
    for at in world.members:
        world.expire(at)
    assert expiries(world) == 0
    world.now += 1
    world.expire(A)
    check_expiry(world, sent(world, A))
    check_key(world, A, "k")
    assert everywhere(world) is None
