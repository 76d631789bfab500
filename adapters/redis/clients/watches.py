"""WATCH: a mark for each key. EXEC answers null, and writes nothing, if a key that its client watches has been written.

A key counts as watched from the place of WATCH in its commit, so earlier commands, including the client's own writes,
come before it. WATCH is answered with that commit, so all that the client reads afterwards is at least as new. The
replies of a commit show what it has changed: `SADD` of a present member changes nothing and marks no client.

A server drops a key at its deadline without a notice. So WATCH asks for the deadline; setting one afterwards is a
write. EXEC counts a key as written as soon as it may be gone: half a second early, by the gateway's estimate of the
server's clock.

EXEC must know all marks when it is prepared. After commands of its own commit whose effect is not known yet, it waits
for the next commit and comes first there. So EXEC never follows a command that may write its keys unseen.
"""

from __future__ import annotations

from enum import Enum

from crdtcast.adapters.redis.clients.client import NO_REPLY, Client, Request
from crdtcast.adapters.redis.clients.client_state import NOT_YET, Watch
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.deadlines.index import BOUND_MS, unpinned
from crdtcast.adapters.redis.server.connection import Replies
from crdtcast.adapters.redis.server.resp import OK, ReplyError
from crdtcast.adapters.redis.store.databases import home_of

MAX_WATCHED = 16_384
"""Keys of one client."""
_TOO_MANY = ReplyError(
    f"ERR crdtcast: a client may watch at most {MAX_WATCHED} keys; its next EXEC will fail: watch "
    "fewer"
)
_TOO_MUCH = ReplyError(
    "ERR crdtcast: too much waits in the unexecuted transactions of all clients; the next EXEC "
    "of this one will fail: try again"
)
_KEY_BYTES = 256
"""What a key counts in addition to its bytes: about its share of the tables."""
_LIVES_ON = b"*2\r\n$4\r\nPTTL\r\n$%d\r\n%b\r\n"
ZERO_IS_NOTHING = frozenset((b"SADD", b"SREM", b"SMOVE", b"DEL", b"UNLINK", b"HDEL", b"ZREM"))
"""Commands that changed nothing if they reply 0."""


class WatchRequest(Request):
    """A WATCH on its way through the commits. If it is refused, its client's EXEC must fail."""

    __slots__ = ("_silent", "new", "watch")

    def __init__(self, request: Request, watch: Watch, new: list[bytes], *, silent: bool) -> None:
        super().__init__(request.client, request.args, request.command)
        self.watch: Watch = watch
        self.new: list[bytes] = new
        """Keys that the client does not watch already."""
        self._silent = silent

    def answer(self, value: object) -> None:
        """Answer; an error marks the watch."""
        if isinstance(value, ReplyError):
            self.watch.marked = True
        super().answer(NO_REPLY if self._silent else value)


def watch_of(request: Request, *, silent: bool) -> WatchRequest | ReplyError:
    """A client's WATCH for the commits. An error if it would watch too much: then its EXEC must fail, too."""
    client = request.client
    watch = _watch_of(client)
    new = [key for key in dict.fromkeys(request.args[1:]) if key not in watch.keys]
    size = sum(map(len, new)) + _KEY_BYTES * len(new)
    watch.size += size
    if not client.note_queued(size):
        watch.marked = True
        return _TOO_MUCH
    if len(watch.keys) + len(new) > MAX_WATCHED:
        watch.marked = True
        return _TOO_MANY
    watch.keys |= dict.fromkeys(new, NOT_YET)
    return WatchRequest(request, watch, new, silent=silent)


def refuse_watch(client: Client) -> None:
    """Make the client's next EXEC answer null."""
    _watch_of(client).marked = True


def _watch_of(client: Client) -> Watch:
    if client.watch is None:
        client.watch = Watch(client.note_queued)
    return client.watch


class WatchVerdict(Enum):
    """Whether EXEC may be prepared."""

    GO = "no watched key has been written"
    MARKED = "one has been"
    UNSURE = "one may have been: the replies of this commit will tell"


class Watches:
    """All watches, by key. A round is one commit, from its preparation to its answer."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, set[Watch]] = {}
        self._round = 0
        self._asked: list[tuple[Watch, int]] = []
        """Places in this commit whose replies give the time to live of a client's key."""

    def begin(self, batch: LocalBatch, request: WatchRequest) -> None:
        """Watch from this place in the commit, and answer with the commit."""
        watch, plan = request.watch, batch.plan
        if request.new and not watch.ended:
            batch.show(request.new)  # they come before the watch
            watch.registered = self
            since = self._round, len(plan.pieces)
            for key in request.new:
                if batch.keyspace.dates.in_use:
                    home = home_of(key)
                    packed = _LIVES_ON % (len(home.key), home.key)
                    self._asked.append((watch, plan.look(home, packed)))
                watch.keys[key] = since
                self._by_key.setdefault(key, set()).add(watch)
        plan.answer_with(request, OK)

    @property
    def has_any(self) -> bool:
        """Whether any key is watched."""
        return bool(self._by_key)

    @property
    def needs_replies(self) -> bool:
        """Whether anything depends on the replies of this commit."""
        return bool(self._by_key or self._asked)

    def forget(self, watch: Watch) -> None:
        """The watch has ended."""
        for key in watch.keys:
            watching = self._by_key.get(key)
            if watching is not None:
                watching.discard(watch)
                if not watching:
                    del self._by_key[key]

    def verdict(self, batch: LocalBatch, watch: Watch) -> WatchVerdict:
        """Whether EXEC may be prepared after the commands in the batch."""
        if watch.marked:
            return WatchVerdict.MARKED
        if not watch.keys:
            return WatchVerdict.GO
        if watch.until - batch.keyspace.dates.now < BOUND_MS:
            return WatchVerdict.MARKED
        batch.show(watch.keys)
        plan = batch.plan
        verdict = WatchVerdict.GO
        for place, key in plan.may_write(watch.keys.keys()):
            name = _name_of(plan.pieces[place])
            if (self._round, place) < watch.keys[key]:
                continue
            if name not in ZERO_IS_NOTHING:
                return WatchVerdict.MARKED
            verdict = WatchVerdict.UNSURE
        return verdict

    def committed(self, plan: Plan, replies: Replies, now: int) -> None:
        """Mark the watches whose keys this commit has written, by its replies. To be called if it `needs_replies`.

        now: the server's clock.
        """
        asked, self._asked = self._asked, []
        for watch, place in asked:
            left = replies[place]
            if type(left) is int and left >= 0:
                watch.until = min(watch.until, unpinned(now + left))
        if self._by_key:
            for place, key in plan.may_write(self._by_key.keys()):
                if _has_changed(_name_of(plan.pieces[place]), replies[place]):
                    self.written(key, place)
        self._round += 1

    def written(self, key: bytes, place: int) -> None:
        """The command at this place of the current commit has written a key."""
        for watch in self._by_key.get(key, ()):
            if (self._round, place) >= watch.keys[key]:
                watch.marked = True

    def lost(self) -> None:
        """The connection with the server is lost, and with it all knowledge of the keys: mark all."""
        for watching in self._by_key.values():
            for watch in watching:
                watch.marked = True
        self._asked = []
        self._round += 1


def _name_of(packed: bytes) -> bytes:
    return packed.split(b"\r\n", 3)[2]


def _has_changed(name: bytes, reply: object) -> bool:
    return not (name in ZERO_IS_NOTHING and type(reply) is int and reply == 0)
