"""One load and one verdict for everything that fails: servers and gateways that are killed, stopped, emptied, promoted,
full.

Each client of a region writes increments, members, transactions, and sets so large that they are packed and applied in
slices. Each operation has keys or members of its own, so *lost* is one that was acknowledged and is absent, and
*doubled* one that counts twice. Transactions move amounts between two numbers whose sum is 0, and count themselves; so
half of one shows at any instant, at any region, to a reader of one instant.
"""

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from random import Random
from typing import Protocol

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, Reply
from crdtcast.adapters.redis.store.many_slots import PIECE
from crdtcast.exceptions import ServerError
from tests.effort import size

PATIENCE = 60.0
LARGE = PIECE + PIECE // 16
"""Members of a large set: they are encoded and decoded in two steps, and travel in sections."""
_PART = 1_000
"""Members of a set in a transaction."""
_LARGE_EVERY = 100
_LARGE_CLIENTS = 2
"""So many clients write large sets."""
_THINK_SECONDS = size(ci=40, release=20) / 1000
"""Between two writes of a client: what they write is what the machine has to work off when a fault is over."""
_LOOK_SECONDS = size(ci=200, release=50) / 1000
"""Between two looks, so that they leave the processor to those who are looked at."""
_OTHER = "3"
"""The database that a half of each transaction is in."""
_BACK = ("SELECT", "0")
_INSTANT = (
    ("GET", "left"),
    ("GET", "transfers"),
    ("SELECT", _OTHER),
    ("GET", "right"),
    ("SCARD", "transferred"),
    _BACK,
)


class HasPort(Protocol):
    """A server, or a gateway with clients; the port may be another one after a start."""

    @property
    def port(self) -> int: ...


@dataclass(frozen=True)
class Operation:
    """One write of one client."""

    kind: str
    key: str
    commands: tuple[tuple[str, ...], ...]
    recorded: bool = False
    """Whether the server is to carry it out by itself."""

    @property
    def request(self) -> list[tuple[str, ...]]:
        """What goes over the wire; the last reply is the operation's."""
        before = [_NOTHING_TO_POP] if self.recorded else []
        if len(self.commands) == 1 or self.kind in _POPS:
            return [*before, *self.commands]
        return [*before, ("MULTI",), *self.commands, ("EXEC",)]


_POPS = ("pop", "zpop")
_NOTHING_TO_POP = ("GETDEL", "nothing to pop")
"""Only a server can know that: so it carries out what comes behind it in one commit, too."""
_POPPED_FROM = ("m1", "m2", "m3")
_SCORED = tuple(word for n, member in enumerate(_POPPED_FROM) for word in (str(n), member))
_LARGE_MEMBERS = tuple(f"m{number}" for number in range(LARGE))


class Operations:
    """The writes of one client, in order."""

    def __init__(self, label: str, random: Random, *, large: bool, recorded: bool) -> None:
        self._label = label
        self._random = random
        self._recorded = recorded
        self._large = large
        self._number = 0

    def __next__(self) -> Operation:
        return replace(self._next(), recorded=self._recorded)

    def _next(self) -> Operation:
        number, self._number = self._number, self._number + 1
        key = f"{self._label}:{number}"
        if self._large and number % _LARGE_EVERY == 5:
            return Operation("large", key, (("SADD", key, *_LARGE_MEMBERS),))
        if self._large and number % _LARGE_EVERY == 25:
            grown = f"{self._label}:{number - 20}"
            return Operation("shrink", grown, (("SREM", grown, *_LARGE_MEMBERS[1:]),))
        if number % 8 == 3:
            return Operation("pop", key, (("SADD", key, *_POPPED_FROM), ("SPOP", key)))
        if self._recorded and number % 8 == 7:
            return Operation("zpop", key, (("ZADD", key, *_SCORED), ("ZPOPMIN", key)))
        match number % 6:
            case 0:
                return Operation("incr", key, (("INCR", key),))
            case 1:
                return Operation("sadd", key, (("SADD", "members", key),))
            case 3:
                return Operation("zincr", key, (("ZINCRBY", "sums", "0.7", key),))
            case 4:
                return Operation("zadd", key, (("ZADD", "board", "2.5", key),))
        return self._transfer(key, parts=_PART if number % 10 == 2 else 1)

    def __iter__(self) -> Iterator[Operation]:
        return self

    def _transfer(self, key: str, parts: int) -> Operation:
        amount = str(self._random.randint(1, 9))
        there = ("SELECT", _OTHER)
        steps: list[tuple[tuple[str, ...], ...]] = [
            (("DECRBY", "left", amount),),
            (there, ("INCRBY", "right", amount), _BACK),
            (("INCR", "transfers"),),
            (there, ("SADD", "transferred", key), _BACK),
            (("SADD", key, *(f"part{number}" for number in range(parts))),),
        ]
        self._random.shuffle(steps)
        return Operation("transfer", key, tuple(chain.from_iterable(steps)))


class Client:
    """One client of one region: writes until `stop`, and connects again where the gateway has gone.

    acknowledged: operations that were answered. refused: those of which the answer says that nothing was done.
    unsure: those whose answer never came or does not say.
    """

    def __init__(
        self, gateway: HasPort, label: str, seed: int, *, large: bool, recorded: bool
    ) -> None:
        self.acknowledged: list[Operation] = []
        self.refused: list[Operation] = []
        self.unsure: list[Operation] = []
        self.errors: set[str] = set()
        self._gateway = gateway
        self._wanted = {"large", "transfer"} if large else {"transfer"}
        random = Random(f"{seed} {label}")
        self._operations = Operations(label, random, large=large, recorded=recorded)
        self._stopping = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(ServerError), self._connected() as client:
                while not self._stopping.is_set():
                    self._do(client, next(self._operations))
                    self._stopping.wait(_THINK_SECONDS)
            self._stopping.wait(0.01)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[RawClient]:
        with RawClient(self._gateway.port, PATIENCE) as client:
            yield client

    def _do(self, client: RawClient, operation: Operation) -> None:
        outcome = self.unsure
        try:
            reply = client.pipeline(operation.request)[-1]
            if isinstance(reply, ErrorReply):
                self.errors.add(reply.text)
                if reply.text.startswith("EXECABORT") or "nothing was written" in reply.text:
                    outcome = self.refused
            else:
                outcome = self.acknowledged
        finally:
            with self._progress:
                outcome.append(operation)
                self._progress.notify_all()

    def wait_for(self, count: int) -> None:
        """Return when so many more writes have been acknowledged, half of them with `ci`, and large ones and
        transactions at all.
        """
        before, count = len(self.acknowledged), size(ci=(count + 1) // 2, release=count)

        def done() -> bool:
            kinds = {each.kind for each in self.acknowledged}
            return len(self.acknowledged) >= before + count and kinds >= self._wanted

        with self._progress:
            assert self._progress.wait_for(done, timeout=PATIENCE), self.errors

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class Watcher:
    """Reads of one instant until `stop`: half of a transaction or of a large command that is seen is kept."""

    def __init__(self, place: HasPort, load: "Load") -> None:
        self.halves: list[object] = []
        self.looks = 0
        self._place = place
        self._load = load
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        random = Random(0)
        while not self._stopping.is_set():
            with (
                contextlib.suppress(ServerError),
                RawClient(self._place.port, PATIENCE) as client,
            ):
                while not self._stopping.is_set():
                    large = [each.key for each in self._load.large_so_far()]
                    key = random.choice(large[-4:]) if large else "nothing"
                    reads = [*_INSTANT, ("SCARD", key)]
                    self._look(client.pipeline([("MULTI",), *reads, ("EXEC",)])[-1])
                    self._stopping.wait(_LOOK_SECONDS)
            self._stopping.wait(0.01)

    def _look(self, seen: Reply) -> None:
        if not isinstance(seen, list) or any(isinstance(each, ErrorReply) for each in seen):
            return  # refused: the server is away, or the gateway is filled again
        self.looks += 1
        told = [each for each in seen if not isinstance(each, list | ErrorReply) and each != b"OK"]
        left, transfers, right, transferred, size = (int(each or 0) for each in told)
        if left + right or transfers != transferred or size not in (0, 1, LARGE):
            self.halves.append(seen)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class Load:
    """Clients of several regions, and readers of one instant beside them, while the `with` block runs.

    gateways: by the name of the region. past: servers that are read past their gateways, too; not such that are emptied
    and filled again meanwhile. recorded: whether the servers carry all of it out by themselves.
    """

    def __init__(
        self,
        gateways: Mapping[str, HasPort],
        label: str,
        *,
        seed: int,
        past: Iterable[HasPort] = (),
        recorded: bool = False,
    ) -> None:
        self._recorded = recorded
        self._gateways = gateways
        self._label = label
        self._seed = seed
        self._past = tuple(past)
        self.clients: dict[str, Client] = {}
        self.watchers: list[Watcher] = []

    def __enter__(self) -> "Load":
        print(f"seed {self._seed}, load {self._label}")
        self.clients = {
            name: Client(
                gateway,
                f"{self._label}-{name}",
                self._seed,
                large=place < _LARGE_CLIENTS,
                recorded=self._recorded,
            )
            for place, (name, gateway) in enumerate(self._gateways.items())
        }
        self.watchers = [Watcher(place, self) for place in (*self._gateways.values(), *self._past)]
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all clients and readers."""
        for each in (*self.clients.values(), *self.watchers):
            each.stop()

    def large_so_far(self) -> list[Operation]:
        """Large sets that were answered."""
        done = [each for client in self.clients.values() for each in client.acknowledged[-200:]]
        return [each for each in done if each.kind == "large"]

    def set_keys(self) -> set[str]:
        """The keys of all sets that were written."""
        clients = self.clients.values()
        every = [each for client in clients for _, each in _with_state(client)]
        return {each.key for each in every if each.kind in ("large", "transfer", *_POPS)}

    def check(
        self, servers: Iterable[HasPort], *, may_yield: bool = False, may_lose: str = ""
    ) -> None:
        """The verdict, when all regions are equal.

        may_yield: a region has come back as another incarnation, where a removal of so many members yields. may_lose: a
        region whose server and gateway have both lost what they had in memory.

        Raises AssertionError if an acknowledged write is lost, one that was refused is there, any is doubled, or half
        of one is there or was seen.
        """
        assert any(watcher.looks for watcher in self.watchers), "nothing was looked at"
        for watcher in self.watchers:
            assert not watcher.halves, watcher.halves[:3]
        for server in servers:
            with RawClient(server.port, PATIENCE) as client:
                for name, writer in self.clients.items():
                    _check_writer(writer, client, may_yield, may_lose=name == may_lose)


def check_cluster(
    cluster: LocalCluster,
    loads: Iterable[Load],
    *,
    may_yield: bool = False,
    may_lose: str = "",
    emptied: bool = False,
) -> None:
    """All regions come together, nothing that the loads did is lost, doubled or halved, and VERIFY is equal.

    may_yield, may_lose: see `Load.check`. emptied: somebody has emptied a server past its gateway, and another region
    may have seen that before it was filled again.
    """
    for region in cluster:
        region.close()  # our connection may be one to a gateway that was killed
    cluster.wait_equal(cluster.names, quiet=True, timeout=PATIENCE)
    for load in loads:
        load.check([region.server for region in cluster], may_yield=may_yield, may_lose=may_lose)
    told = [json.loads(region.command("VERIFY")) for region in cluster]
    assert len({(each["keys"], each["digest"]) for each in told}) == 1, told
    assert emptied or not any(region.status()["changed_past_the_gateway"] for region in cluster)
    with RawClient(next(iter(cluster)).gateway.port, PATIENCE) as client:
        for load in loads:  # so that the next verdict does not look at them again
            client.pipeline([("DEL", key) for key in load.set_keys()] or [("PING",)])


def _check_writer(writer: Client, server: RawClient, may_yield: bool, *, may_lose: bool) -> None:
    shrunk = {each.key: state for state, each in _with_state(writer) if each.kind == "shrink"}
    operations = [(state, each) for state, each in _with_state(writer) if each.kind != "shrink"]
    found = server.pipeline([read for _, each in operations for read in _reads(each)])
    for place, (state, each) in enumerate(operations):
        value, _, member, _ = found[4 * place : 4 * place + 4]
        match each.kind:
            case "incr":
                assert value in (None, b"1"), ("doubled", each.key, value)
                is_there = value == b"1"
            case "sadd":
                is_there = member == 1
            case "zincr" | "zadd":
                score = b"0.7" if each.kind == "zincr" else b"2.5"
                assert value is None or float(value) == float(score), ("doubled", each.key, value)
                is_there = value is not None
            case "transfer":
                parts = next(len(words) - 2 for words in each.commands if words[1] == each.key)
                assert (value, member) in ((0, 0), (parts, 1)), ("half", each.key, value, member)
                is_there = member == 1
            case "pop" | "zpop":
                left = len(_POPPED_FROM)
                may_be = {"acknowledged": {left - 1}, "refused": {0, left}}
                sizes = may_be.get(state, {0, left - 1, left})
                assert value in sizes or may_lose, ("not popped once", each.key, value, state)
                continue
            case _:
                sizes = _sizes(state, shrunk.get(each.key), may_yield or may_lose)
                assert may_lose or value in sizes, (each.key, value, sizes)
                continue
        assert is_there or may_lose or state != "acknowledged", ("lost", each.key)
        assert not is_there or state != "refused", ("refused, and there", each.key)


def _with_state(writer: Client) -> Iterator[tuple[str, Operation]]:
    for state in ("acknowledged", "refused", "unsure"):
        for each in getattr(writer, state):
            yield state, each


def _reads(operation: Operation) -> Iterator[tuple[str, ...]]:
    match operation.kind:
        case "incr":
            yield "GET", operation.key
        case "zincr" | "zadd":
            yield "ZSCORE", operation.commands[0][1], operation.key
        case "zpop":
            yield "ZCARD", operation.key
        case _:
            yield "SCARD", operation.key
    is_here = operation.kind == "sadd"
    yield "SELECT", "0" if is_here else _OTHER
    yield "SISMEMBER", "members" if is_here else "transferred", operation.key
    yield _BACK


def _sizes(grown: str, shrunk: str | None, may_yield: bool) -> set[int]:
    """What a large set may hold: all, one, nothing."""
    sizes = {"acknowledged": {LARGE}, "refused": {0}, "unsure": {0, LARGE}}[grown]
    if shrunk in (None, "refused"):
        return sizes
    after = {min(size, 1) for size in sizes}
    return after if shrunk == "acknowledged" and not may_yield else sizes | after
