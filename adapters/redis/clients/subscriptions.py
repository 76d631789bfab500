"""SUBSCRIBE and the like: the gateway subscribes at its server, once for all of its clients, and passes on messages.

So clients of the server get what clients of the gateway publish, and the other way round. A client is answered when the
server has confirmed. From then on it gets every message, until the connection with the server is lost: the gateway
subscribes again, but messages published meanwhile are lost, as in a native server.

The server counts the gateway as one subscriber. So `counted` subtracts the gateway's own subscriptions from the
server's counts, and adds those of its clients.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hiredis
import trio

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.clients.client_state import Family, Subscribed, Subscriber
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.connection import NOT_YET, ServerConnection, pack
from crdtcast.adapters.redis.server.poller import Poller
from crdtcast.adapters.redis.server.resp import Raw, ReplyError
from crdtcast.exceptions import ServerError

_PAUSE_SECONDS = 0.1
"""Pause between two connections."""
_NAME_BYTES = 256
"""What a subscription counts in addition to its name: about its share of the tables."""
_TOO_MUCH = ReplyError(
    "ERR crdtcast: the clients of this gateway have too many subscriptions, or too much in "
    "unexecuted transactions: try again"
)


BEGINNING = {family.value[0].decode().upper(): family for family in Family}
ENDING = {family.value[1].decode().upper(): family for family in Family}
_MESSAGES = {family.value[2]: family for family in Family}


class _Topic:
    """A name to which a client is subscribed, or was until a moment ago."""

    __slots__ = ("clients", "confirmed", "family", "last", "matches", "name")

    def __init__(self, family: Family, name: bytes) -> None:
        self.family: Family = family
        self.name: bytes = name
        self.clients: dict[Subscriber, None] = {}
        self.confirmed: bool = False
        """Whether the server has confirmed the gateway's subscription."""
        self.last: _Change | None = None
        """The last change requested, if it is not confirmed yet."""
        self.matches: Callable[[bytes], re.Match[bytes] | None] | None = (
            glob(name).fullmatch if family is Family.PATTERNS else None
        )


class _Change:
    """A subscription that begins or ends at the server. waiting: requests to notify when that is confirmed."""

    __slots__ = ("begins", "topic", "waiting")

    def __init__(self, topic: _Topic, *, begins: bool) -> None:
        self.topic: _Topic = topic
        self.begins: bool = begins
        self.waiting: list[_Waiting] = []


class _Waiting:
    """A request that is answered when all changes that it needs are confirmed."""

    __slots__ = ("family", "left", "names", "reply", "request")

    def __init__(self, request: Request, family: Family) -> None:
        self.request = request
        self.family = family
        self.names: list[bytes] = []
        self.left = 1
        self.reply: list[bytes] = []

    def after(self, change: _Change | None) -> None:
        if change is not None:
            self.left += 1
            change.waiting.append(self)

    def note_confirmed(self) -> None:
        self.left -= 1
        if not self.left and not self.request.answered:
            self.request.answer(Raw(b"".join(self.reply)))


class _Pushes:
    """A reader of a `ServerConnection`: returns the greeting's reply, and passes on all else as it comes."""

    def __init__(self, hub: Subscriptions) -> None:
        self._hub = hub
        self._reader = hiredis.Reader(notEnoughData=NOT_YET)
        self._greeting: Any = NOT_YET
        self._greeted = False

    def feed(self, chunk: bytes) -> None:
        self._reader.feed(chunk)
        while (reply := self._reader.gets()) is not NOT_YET:
            if isinstance(reply, hiredis.PushNotification):
                self._hub.heard(reply)
            elif self._greeted:
                self._hub.refused(reply)
            else:
                self._greeting, self._greeted = reply, True

    def gets(self) -> object:
        """The greeting's reply."""
        greeting, self._greeting = self._greeting, NOT_YET
        return greeting


class Subscriptions:
    """The subscriptions of all clients, and the gateway's connection for them."""

    def __init__(self, poller: Poller, flush: Callable[[], None], logger: logging.Logger) -> None:
        """flush: sends the clients' answers."""
        self._poller = poller
        self._flush = flush
        self._log = logger
        self._address: ServerAddress | None = None
        self._connection: ServerConnection | None = None
        self._needed = trio.Event()
        self._topics: dict[Family, dict[bytes, _Topic]] = {family: {} for family in Family}
        self._sent: deque[_Change] = deque()

    # The server

    def use(self, address: ServerAddress) -> None:
        """Subscribe at this server from now on."""
        if address != self._address:
            self._address = address
            self.begin_anew("another server is the primary now")
        self._wake()

    def begin_anew(self, reason: str) -> None:
        """Give up the connection: the server is gone, or may be."""
        if self._connection is not None:
            self._connection.abort(reason)

    async def run(self) -> None:
        """Keep a connection while a client has subscribed to something, until cancelled."""
        while True:
            await self._needed.wait()
            assert self._address is not None
            try:
                connection = await ServerConnection.open(
                    self._poller, self._address, protocol=3, reader=_Pushes(self)
                )
            except ServerError as error:
                self._fail(error)
            else:
                self._connection = connection
                self._begin_anew()
                await connection.lost.wait()
                self._connection = None
                self._forget_connection()
                if any(self._topics.values()):
                    self._log.warning("messages may have been lost: %s", connection.error)
            self._flush()
            self._needed = trio.Event()
            self._wake()
            await trio.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _wake(self) -> None:
        if self._address is not None and any(self._topics.values()):
            self._needed.set()

    def _all(self) -> list[_Topic]:
        return [topic for topics in self._topics.values() for topic in topics.values()]

    def _forget_connection(self) -> None:
        """Changes requested on the connection are requested again, or not needed any more."""
        sent, self._sent = self._sent, deque()
        for topic in self._all():
            topic.confirmed = False
            topic.last = None
        for change in sent:
            self._settle(change)
        for topic in self._all():
            if not topic.clients:
                del self._topics[topic.family][topic.name]

    def _settle(self, change: _Change) -> None:
        """The connection ended before the change was confirmed."""
        topic = change.topic
        if change.begins and topic.clients:
            if topic.last is None:
                topic.last = _Change(topic, begins=True)
            topic.last.waiting += change.waiting
        else:
            for waiting in change.waiting:
                waiting.note_confirmed()

    def _begin_anew(self) -> None:
        for topic in self._all():
            change = topic.last or _Change(topic, begins=True)
            topic.last = None
            self._send(change)

    def _send(self, change: _Change) -> None:
        topic = change.topic
        topic.last = change
        if self._connection is None:
            self._wake()
            return
        self._sent.append(change)
        name = topic.family.value[0 if change.begins else 1]
        self._connection.send(pack((name, topic.name)), 0, lambda _: None)

    def heard(self, push: Sequence[Any]) -> None:
        """Take a push message of the server."""
        family = _MESSAGES.get(push[0])
        if family is not None:
            self._pass_on(family, push)
        elif self._sent:
            change = self._sent.popleft()
            topic = change.topic
            topic.confirmed = change.begins
            if topic.last is change:
                topic.last = None
                if not topic.clients:
                    del self._topics[topic.family][topic.name]
            for waiting in change.waiting:
                waiting.note_confirmed()

    def refused(self, error: object) -> None:
        """The server refuses the oldest request: the gateway's user has no permission for it."""
        if self._sent:
            change = self._sent.popleft()
            self._give_up(change, ReplyError(str(error)))

    def _fail(self, error: ServerError) -> None:
        """Answer waiting clients with an error: without the server there are no subscriptions."""
        for topic in self._all():
            if topic.last is not None:
                self._give_up(topic.last, ReplyError(f"ERR crdtcast: {error}"))

    def _give_up(self, change: _Change, error: ReplyError) -> None:
        topic = change.topic
        if topic.last is change:
            topic.last = None
        waiting, change.waiting = change.waiting, []
        for one in waiting:
            if one.request.answered:
                continue
            subscribed = one.request.client.subscribed
            if subscribed is not None:
                for name in one.names:
                    self.drop(subscribed, one.family, name)
            one.request.answer(error)
        if not topic.clients and topic.last is None:
            self._topics[topic.family].pop(topic.name, None)

    def _pass_on(self, family: Family, push: Sequence[Any]) -> None:
        topic = self._topics[family].get(push[1])
        if topic is None:
            return
        plain = Raw(pack(push))
        pushed = Raw(b">" + plain[1:])
        for client in list(topic.clients):
            client.push(pushed if client.protocol == 3 else plain)

    # Clients

    def add(self, subscribed: Subscribed, family: Family, name: bytes) -> _Change | None:
        """Subscribe a client. Returns the change that must be confirmed for that."""
        if name in subscribed.names[family]:
            topic = self._topics[family][name]
        else:
            subscribed.names[family][name] = None
            subscribed.client.note_queued(_NAME_BYTES + len(name))
            topics = self._topics[family]
            topic = topics.get(name) or topics.setdefault(name, _Topic(family, name))
            topic.clients[subscribed.client] = None
        if topic.last is not None and topic.last.begins:
            return topic.last
        if topic.confirmed and topic.last is None:
            return None
        change = _Change(topic, begins=True)
        self._send(change)
        return change

    def drop(self, subscribed: Subscribed, family: Family, name: bytes) -> _Change | None:
        """Unsubscribe a client. Returns the change that must be confirmed for that."""
        if name not in subscribed.names[family]:
            return None
        del subscribed.names[family][name]
        subscribed.client.note_queued(-_NAME_BYTES - len(name))
        topic = self._topics[family][name]
        topic.clients.pop(subscribed.client, None)
        if topic.clients:
            return None
        if self._connection is None:
            del self._topics[family][name]
            for waiting in topic.last.waiting if topic.last is not None else ():
                waiting.note_confirmed()
            return None
        change = _Change(topic, begins=False)
        self._send(change)
        return change

    def subscribe(self, request: Request, family: Family, names: Sequence[bytes]) -> None:
        """Answer SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE."""
        client = request.client
        size = sum(map(len, names)) + _NAME_BYTES * len(names)
        fits = client.note_queued(size)
        client.note_queued(-size)  # each name counts when it is added
        if not fits:
            request.answer(_TOO_MUCH)
            return
        subscribed = client.subscribed = client.subscribed or Subscribed(self, client)
        waiting = _Waiting(request, family)
        for name in names:
            is_new = name not in subscribed.names[family]
            waiting.after(self.add(subscribed, family, name))
            if is_new:
                waiting.names.append(name)
            waiting.reply.append(_told(request, family.value[0], name, subscribed.count(family)))
        client.stand(client.phase, client.replies)
        waiting.note_confirmed()

    def unsubscribe(self, request: Request, family: Family, names: Iterable[bytes]) -> None:
        """Answer UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE; without names for all."""
        client = request.client
        subscribed = client.subscribed = client.subscribed or Subscribed(self, client)
        waiting = _Waiting(request, family)
        for name in list(names or subscribed.names[family]):
            waiting.after(self.drop(subscribed, family, name))
            waiting.reply.append(_told(request, family.value[1], name, subscribed.count(family)))
        if not waiting.reply:
            waiting.reply.append(_told(request, family.value[1], None, subscribed.count(family)))
        client.stand(client.phase, client.replies)
        waiting.note_confirmed()

    # Counting

    def counted(self, words: Sequence[bytes], reply: Any) -> Any:
        """The server's reply to PUBLISH, SPUBLISH, PUBSUB NUMSUB or SHARDNUMSUB, counting our clients instead of the
        gateway.
        """
        name = words[0].upper()
        if type(reply) is int:
            family = Family.SHARDS if name == b"SPUBLISH" else Family.CHANNELS
            return self._corrected(reply, self._reached(family, words[1]))
        if name == b"PUBSUB" and isinstance(reply, list):
            family = Family.CHANNELS if words[1].upper() == b"NUMSUB" else Family.SHARDS
            found = self._topics[family]
            return [
                part
                for channel, count in zip(reply[::2], reply[1::2], strict=True)
                for part in (channel, self._corrected(count, [found.get(channel)]))
            ]
        return reply

    def _reached(self, family: Family, channel: bytes) -> list[_Topic | None]:
        reached: list[_Topic | None] = [self._topics[family].get(channel)]
        if family is Family.CHANNELS:
            patterns = self._topics[Family.PATTERNS].values()
            reached += [t for t in patterns if t.matches is not None and t.matches(channel)]
        return reached

    @staticmethod
    def _corrected(count: int, topics: Iterable[_Topic | None]) -> int:
        ours = [topic for topic in topics if topic is not None and topic.confirmed]
        return max(0, count - len(ours)) + sum(len(topic.clients) for topic in ours)


def _told(request: Request, what: bytes, name: bytes | None, count: int) -> bytes:
    sign = b">" if request.protocol == 3 else b"*"
    null = b"_\r\n" if request.protocol == 3 else b"$-1\r\n"
    shown = null if name is None else b"$%d\r\n%b\r\n" % (len(name), name)
    return b"%b3\r\n$%d\r\n%b\r\n%b:%d\r\n" % (sign, len(what), what, shown, count)


def glob(pattern: bytes) -> re.Pattern[bytes]:
    """A server's pattern as a regular expression, with the meaning of the server's `stringmatchlen`.

    A part between two stars has a fixed length, so its first match is as good as any other: the expression never
    backtracks over it.
    """
    pieces: list[bytes] = [b""]
    at, end = 0, len(pattern)
    while at < end:
        sign = pattern[at : at + 1]
        at += 1
        if sign == b"*":
            pieces.append(b"")
        elif sign == b"?":
            pieces[-1] += b"."
        elif sign == b"[":
            part, at = _class(pattern, at)
            pieces[-1] += part
        else:
            if sign == b"\\" and at < end:
                sign = pattern[at : at + 1]
                at += 1
            pieces[-1] += re.escape(sign)
    first, *inner = pieces
    last = b".*" + inner.pop() if inner else b""
    return re.compile(
        first + b"".join(b"(?>.*?%b)" % part for part in inner if part) + last, re.DOTALL
    )


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """The characters between brackets, and the place after them; without a closing bracket, the whole rest."""
    inverted = pattern[at : at + 1] == b"^"
    at += inverted
    chosen: set[int] = set()
    while at < len(pattern) and pattern[at] != 93:
        if pattern[at] == 92 and at + 1 < len(pattern):
            chosen.add(pattern[at + 1])
            at += 2
        elif at + 2 < len(pattern) and pattern[at + 1] == 45:
            low, high = sorted((pattern[at], pattern[at + 2]))
            chosen.update(range(low, high + 1))
            at += 3
        else:
            chosen.add(pattern[at])
            at += 1
    if inverted:
        chosen = set(range(256)) - chosen
    text = b"".join(b"\\x%02x" % byte for byte in sorted(chosen))
    return (b"[%b]" % text if text else b"(?!)"), at + 1
