"""Whole gateways without sockets between them, one step at a time: committers and engines over real servers.

A test says which commit goes to its server, which message arrives, who restarts, how far time goes on; so a seed fixes
a schedule. The servers' clocks hardly move during a test: time is moved by `advance`.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hiredis

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.commands.table import Table
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.commit.round import Commit
from crdtcast.adapters.redis.deadlines.index import DUE, ORPHANS, PINNED, unpinning
from crdtcast.adapters.redis.group.format_level import FormatLevel
from crdtcast.adapters.redis.recorded.answer import Derived
from crdtcast.adapters.redis.recorded.record import ServerRecord
from crdtcast.adapters.redis.store import effects, metadata
from crdtcast.adapters.redis.store.databases import ELSEWHERE, db_of, key_of
from crdtcast.adapters.redis.store.effects import pairs_of
from crdtcast.adapters.redis.store.hiding import hidden_of
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.adapters.redis.store.named_args import NamedArgs
from crdtcast.adapters.redis.types.exact_values import value_named
from crdtcast.causality.hlc import HLC
from crdtcast.causality.member_id import name_of, new_incarnation
from crdtcast.causality.messages import Message, Transmit
from crdtcast.causality.tags import Dot
from crdtcast.engine import Durability, Engine, EngineState

METADATA_DB = 15
TABLE = Table()
_NOT_YET = object()


class DirectServer:
    """Stands for a `ServerConnection`: what was sent waits until the test says `step`."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self.waiting: deque[tuple[bytes, int, Callable[[list[Any]], None], Any]] = deque()
        self.aborted = ""

    def send(
        self,
        payload: bytes,
        replies: int,
        callback: Callable[[list[Any]], None],
        *,
        reader: Any = None,
    ) -> None:
        self.waiting.append((payload, replies, callback, reader))

    def abort(self, reason: str) -> None:
        self.aborted = reason

    def step(self) -> None:
        """The server carries out what was sent first, and its answer arrives."""
        payload, count, callback, reader = self.waiting.popleft()
        callback(self.exchange(payload, count, reader))

    def step_unheard(self) -> None:
        """The server carries out what was sent first, and its answer is lost."""
        payload, count, _, reader = self.waiting.popleft()
        self.exchange(payload, count, reader)

    def exchange(self, payload: bytes, count: int, reader: Any = None) -> list[Any]:
        reader = reader or hiredis.Reader(notEnoughData=_NOT_YET)
        self._socket.sendall(payload)
        replies: list[Any] = []
        while len(replies) < count:
            reply = reader.gets()
            if type(reply) is object:
                chunk = self._socket.recv(1 << 16)
                assert chunk, "the server has closed the connection"
                reader.feed(chunk)
            else:
                replies.append(reply)
        return replies

    def ask(self, *words: bytes) -> Any:
        """One command of the test's own."""
        (reply,) = self.exchange(hiredis.pack_command(words), 1)
        return reply

    def ask_about(self, name: bytes, verb: bytes, *words: bytes) -> Any:
        """One command on a key, in its database."""
        self.ask(b"SELECT", b"%d" % db_of(name))
        reply = self.ask(verb, key_of(name), *words)
        self.ask(b"SELECT", b"0")
        return reply

    def ask_metadata(self, *words: bytes) -> Any:
        """The same of the metadata database."""
        self.ask(b"SELECT", b"%d" % METADATA_DB)
        reply = self.ask(*words)
        self.ask(b"SELECT", b"0")
        return reply

    def close(self) -> None:
        self._socket.close()


class FakeClient:
    """What the core needs of a connection."""

    unread = b""
    closed = False
    protocol = 2
    touched = True
    authenticated = True


def request_of(words: Sequence[bytes]) -> Request:
    """A client's command with names for keys, all of one database; FLUSHDB has that of an empty one."""
    client: Any = FakeClient()
    command = TABLE.get(words[0].decode())
    args: list[bytes] = list(words)
    if elsewhere := [word for word in words if word >= ELSEWHERE]:
        sent = [words[0], *map(key_of, words[1:])]
        args = NamedArgs(words, db_of(elsewhere[0]), sent)
        if command.name == "FLUSHDB":
            args.pop()
    return Request(client, args, command)


class _Observer:
    def gathering(self, commit: Commit, number: int) -> None:
        pass

    def prepared(self, commit: Commit, number: int) -> None:
        pass

    def committed(self, commit: Commit) -> None:
        pass

    def reads(self) -> list[Any]:
        return []

    def derived(self, record: Derived) -> None:
        pass

    has_forgettable = False

    def forgettable(self, dots: list[Dot]) -> list[Dot]:
        return dots

    def about_to_gather(self) -> None:
        pass


class _Relay:
    """Reads of the tests go to the servers directly."""

    waiting: dict[Any, Any] = {}  # noqa: RUF012  # always empty

    def go_on(self) -> None:
        pass

    def send(self, request: Request) -> None:
        raise AssertionError("a read past the commits")


class Site:
    """One gateway and its server."""

    def __init__(self, name: str, names: Iterable[str], port: int, skew_ms: int = 0) -> None:
        self.name, self.names = name, tuple(names)
        self.server = DirectServer(port)
        self.server.ask(b"FLUSHALL")
        self.latest = 0
        """The latest time that was seen at it, for tests."""
        self.sent: list[Message] = []
        """Own messages, in order."""
        self.out: list[tuple[str | None, Any]] = []
        """What has left, by receiver."""
        self.clock_ms = 1_000_000
        """Of the hybrid clock."""
        self._fresh()
        self.committer.advance(skew_ms)
        self.run()

    # Life

    def _fresh(self) -> None:
        engine = Engine(new_incarnation(self.name, 1, 1), self.names, durable=Durability.DECLARED)
        state = StoredState(
            group="g",
            name=self.name,
            incarnation=engine.me,
            members=self.names,
            counter=0,
            vector=dict(engine.vector),
            context=(),
            stable={},
            clock=0,
            order=0,
            level=effects.READS.highest,
        )
        self.server.ask_metadata(b"SET", metadata.FENCE, b"1")
        self._begin(engine, Keyspace(METADATA_DB), state)

    def _begin_anew(self, offset_ms: int) -> None:
        others = [other for other in self.engine.members.values() if other != self.engine.me]
        self._fresh()
        for other in others:
            self.engine.introduce(other)
        dates = self.committer.keyspace.dates
        dates.offset_ms = offset_ms
        dates.told(self.now())

    def _begin(
        self,
        engine: Engine,
        keyspace: Keyspace,
        state: StoredState,
        record: ServerRecord | None = None,
    ) -> None:
        logger = logging.getLogger("stage")
        self.engine = engine
        self.held = False
        self._aside: list[Transmit] = []
        self.hlc = HLC(lambda: self.clock_ms)
        self.hlc.observe(state.clock)
        keyspace.dates.me = engine.me
        self.committer = Committer(
            metadata_db=METADATA_DB,
            clock=self.hlc,
            formats=FormatLevel(effects.READS.highest, logger),
            observer=_Observer(),
            relay=_Relay(),  # type: ignore[arg-type]
            flush_clients=lambda: None,
            hold_peers=self._hold,
            set_aside=self._set_aside,
            release_peers=self._release,
            fatal=self._fail,
            later=lambda work: self._later.append(work),
            most_replied=0,
            logger=logger,
        )
        self._later: deque[Callable[[], None]] = deque()
        self.server.ask(b"UNWATCH")  # what a process before this one has watched
        # The fence is watched from here on.
        self.server.ask(b"SELECT", b"%d" % METADATA_DB)
        self.server.ask(b"WATCH", metadata.FENCE)
        self.server.ask(b"SELECT", b"0")
        if record is not None:
            self.committer.recorded.resume(engine, keyspace, record)
        self.committer.resume(self.server, engine, keyspace, state, b"1", record)  # type: ignore[arg-type]

    def restart(self) -> None:
        """The process ends, and another one goes on from what the server has."""
        self.server.waiting.clear()
        ask = self.server.ask_metadata
        offset = self.committer.keyspace.dates.offset_ms
        raw = ask(b"GET", metadata.STATE)
        if raw is None:
            self._begin_anew(offset)  # nothing has been stored yet
            return
        state = StoredState.decode(raw)
        pinned = ask(b"HGETALL", PINNED)
        if pinned:
            put_off = dict(zip(pinned[::2], pinned[1::2], strict=True))
            for words in unpinning(put_off, METADATA_DB, offset):
                self.server.ask(*(b"%d" % w if isinstance(w, int) else w for w in words))
        store = ask(b"HGETALL", metadata.STORE)
        unstable = metadata.decode_store(dict(zip(store[::2], store[1::2], strict=True)))
        engine = Engine(
            state.incarnation,
            state.members,
            state=EngineState(
                counter=state.counter,
                vector=state.vector,
                context=state.context,
                stable=state.stable,
                unstable=tuple(unstable),
            ),
            durable=Durability.DECLARED,
        )
        engine.mark_durable(dict(engine.vector))
        keyspace = Keyspace(METADATA_DB)
        for message in unstable:
            timestamp, applied = effects.decode_own(message)
            for index, effect in enumerate(applied):
                keyspace.log.apply(effect, engine.tag(message.dot), timestamp, index)
        names = ask(b"KEYS", metadata.HIDDEN_PREFIX + b"*")
        keyspace.hidden = hidden_of(names)
        for name in ask(b"KEYS", metadata.EXACT_PREFIX + b"*"):
            keyspace.exact.resume({value_named(name): pairs_of(ask(b"HGETALL", name))})
        orphans = ask(b"HGETALL", ORPHANS)
        told = {message.dot for message in self.sent}
        self.sent += [m for m in unstable if m.dot.origin == engine.me and m.dot not in told]
        record = ServerRecord.decode(ask(b"LRANGE", metadata.RECORD, b"0", b"-1"))
        keyspace.dates.offset_ms = offset
        keyspace.dates.told(self.now())
        keyspace.dates.resume(
            engine.me,
            dict(zip(orphans[::2], orphans[1::2], strict=True)),
            engine.vector,
            in_use=bool(ask(b"ZCARD", DUE)) or bool(orphans) or keyspace.log.deadlines.any_ends(),
        )
        for other in self.engine.members.values():
            if other != engine.me:
                engine.introduce(other)
        self._begin(engine, keyspace, state, record)

    def _hold(self, held: bool) -> None:
        self.held = held

    def _set_aside(self) -> None:
        self._aside += self.engine.take_outbox()

    def _release(self) -> None:
        self._leave(self._aside)
        self._aside = []

    def _fail(self, error: Exception) -> None:
        raise error

    # Steps

    def begin(self) -> None:
        """Start a commit, if there is work."""
        self.committer.kick()
        self._do_later()

    def run(self) -> None:
        """Do all that there is to do."""
        self.begin()
        while self.server.waiting:
            self.server.step()
            self._do_later()
            assert not self.server.aborted, self.server.aborted
        self.engine.mark_durable(dict(self.engine.vector))
        self.let_out()

    def _do_later(self) -> None:
        while self._later:
            self._later.popleft()()

    def let_out(self) -> None:
        """What rests on commits that are done leaves."""
        if not self.held:
            self._leave(self.engine.take_outbox())

    def _leave(self, effects: Iterable[Transmit]) -> None:
        for to, message in effects:
            self.out.append((to, message))
            if to is None and isinstance(message, Message):
                self.sent.append(message)

    def call(self, *commands: tuple[bytes, ...]) -> list[Any]:
        """Commands of clients, in one commit."""
        requests = [request_of(words) for words in commands]
        for request in requests:
            self.committer.submit(request)
        self.run()
        return [request.value for request in requests]

    def crash(self, commands: Iterable[tuple[bytes, ...]], steps: int, *, unheard: bool) -> None:
        """The process ends while it carries these out: after so many answers of its server, and perhaps one that it has
        not heard.
        """
        for words in commands:
            self.committer.submit(request_of(words))
        self.begin()
        for _ in range(steps):
            if self.server.waiting:
                self.server.step()
                self._do_later()
        if unheard and self.server.waiting:
            self.server.step_unheard()

    def now(self) -> int:
        """The time that deadlines are judged by, in milliseconds."""
        seconds, micros = self.server.ask(b"TIME")
        return int(seconds) * 1000 + int(micros) // 1000 + self.committer.keyspace.dates.offset_ms

    def advance(self, by_ms: int) -> None:
        self.clock_ms += by_ms
        self.committer.advance(by_ms)
        self.run()

    def expire(self, grace_ms: int = 0) -> None:
        self.committer.expire(grace_ms)
        self.run()

    def tick(self) -> None:
        self.engine.tick()
        self.committer.ticked()
        self.run()

    def close(self) -> None:
        self.server.close()


class Stage:
    """Sites, and the links between them, which keep the order of what goes over them."""

    def __init__(self, ports: Iterable[int], skews_ms: Iterable[int]) -> None:
        ports = list(ports)
        names = "abcde"[: len(ports)]
        self.sites = {
            name: Site(name, names, port, skew)
            for name, port, skew in zip(names, ports, skews_ms, strict=True)
        }
        self.links: dict[tuple[str, str], deque[Any]] = {
            (one, other): deque() for one in names for other in names if one != other
        }
        self.cut: set[str] = set()
        """Who is away from the others."""
        for site in self.sites.values():
            for other in self.sites.values():
                if site is not other:
                    site.engine.introduce(other.engine.me)
                    site.engine.connected(other.engine.me)
        self.collect()

    def collect(self) -> None:
        """Put what has left the sites on the links."""
        for name, site in self.sites.items():
            for to, message in site.out:
                for other in self.sites:
                    if other != name and (to is None or name_of(to) == other):
                        self.links[name, other].append(message)
            site.out.clear()

    def waiting(self) -> list[tuple[str, str]]:
        """Links that have something, between sites that can speak."""
        return [link for link, queue in self.links.items() if queue and not self.cut & set(link)]

    def arrive(self, link: tuple[str, str]) -> None:
        """What comes first on a link arrives. It is delivered with the next commit."""
        sender, receiver = (self.sites[name] for name in link)
        receiver.engine.receive(sender.engine.me, self.links[link].popleft())

    def restart(self, name: str) -> None:
        """A site's process restarts; its links are new ones."""
        site = self.sites[name]
        for link, queue in self.links.items():
            if name in link:
                queue.clear()
        for other in self.sites.values():
            if other is not site:
                other.engine.disconnected(site.engine.me)
        site.restart()
        for other in self.sites.values():
            if other is not site:
                site.engine.connected(other.engine.me)
                other.engine.connected(site.engine.me)
                other.run()
        site.run()
        self.collect()

    def close(self) -> None:
        for site in self.sites.values():
            site.close()
