"""Histories of clients that move between gateways, and what they must show: a client that shows its token reads its own
writes, never goes back in time, and sees before a write all that its author had seen.

Each write adds a member that no other write adds, and nothing is removed, so every read tells exactly which writes it
has seen. The checker knows no vectors and no tokens.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable
from typing import NamedTuple

from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, Reply
from crdtcast.exceptions import ServerError
from tests.adapters.redis.gateways import PATIENCE, Gateways, until

_PATIENCE_MS = "30"
"""How long a client waits for its token at another gateway, before it stays where it was."""
_IMPATIENCE_SECONDS = 0.05
"""How long it waits for a token at a region whose server syncs nothing, before it goes."""


class Written(NamedTuple):
    """One write: this member was added under this key."""

    key: str
    member: bytes


class SessionChecker:
    """Follows what each client must see. A violation is a line of text."""

    def __init__(self) -> None:
        self._must_see: dict[str, set[Written]] = {}
        self._own: dict[str, set[Written]] = {}
        self._author_saw: dict[Written, frozenset[Written]] = {}
        self.violations: list[str] = []

    def wrote(self, client: str, write: Written) -> None:
        """The write was acknowledged."""
        self._author_saw[write] = frozenset(self._seen(client))
        self._seen(client).add(write)
        self._own.setdefault(client, set()).add(write)

    def began(self, client: str, write: Written) -> None:
        """The write was sent. Others may see it, acknowledged or not."""
        self._author_saw[write] = frozenset(self._seen(client))

    def lost(self, client: str) -> None:
        """The client has heard that what it has seen may be lost: it begins again."""
        self._must_see.pop(client, None)
        self._own.pop(client, None)

    def read(self, client: str, region: str, key: str, members: Iterable[bytes]) -> None:
        """The client has read this key at this region."""
        shown = {Written(key, member) for member in members}
        seen = self._seen(client)
        inherited = set[Written]().union(*(self._author_saw.get(each, ()) for each in shown))
        for what, expected in (
            ("its own write", self._own.get(client, set())),
            ("what it had seen", seen),
            ("what the author of a write had seen", inherited),
        ):
            missing = {each for each in expected if each.key == key} - shown
            if missing:
                names = ", ".join(sorted(each.member.decode() for each in missing))
                self.violations.append(f"{client} at {region} misses {what} in {key}: {names}")
                break
        seen |= shown | inherited

    def _seen(self, client: str) -> set[Written]:
        return self._must_see.setdefault(client, set())


class MovingClient:
    """A client that shows its token wherever it goes."""

    def __init__(self, name: str, town: Gateways, checker: SessionChecker, keys: list[str]) -> None:
        self.name = name
        self.moves = 0
        self.patience: dict[str, float] = {}
        """Seconds that it waits at a region for its replies, if not long."""
        self._town = town
        self._checker = checker
        self._keys = keys
        self._region = ""
        self._connection: RawClient | None = None
        self._token: str | None = None
        self._writes = 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def act(self, choice: random.Random, regions: list[str]) -> None:
        """Maybe move; then write or read."""
        if self._connection is None or choice.random() < 0.5:
            self._move(choice.choice(regions))
        if self._connection is None:
            return
        key = choice.choice(self._keys)
        if choice.random() < 0.5:
            self._writes += 1
            write = Written(key, f"{self.name}-{self._writes}".encode())
            self._checker.began(self.name, write)
            if self._ask("SADD", write.key, write.member) is not None:
                self._checker.wrote(self.name, write)
        else:
            members = self._ask("SMEMBERS", key)
            if isinstance(members, list):
                self._checker.read(self.name, self._region, key, members)  # type: ignore[arg-type]

    def _move(self, region: str) -> None:
        """Go there, if that region has what this client has seen; otherwise stay."""
        with contextlib.suppress(ServerError, ConnectionError):
            connection = self._town.running[region].client()
            try:
                reply: Reply = b"OK"
                if self._token is not None:
                    reply = connection.call("CRDTCAST", "ATLEAST", self._token, _PATIENCE_MS)
            except BaseException:
                connection.close()
                raise
            if reply != b"OK":
                connection.close()
                assert isinstance(reply, ErrorReply), reply
                if reply.text.startswith("TOKENLOST"):
                    self._token = None
                    self._checker.lost(self.name)
                    self.close()
                else:
                    assert reply.text.startswith("NOTYET"), reply
                return
            self.close()
            self._connection, self._region = connection, region
            self.moves += 1

    def _ask(self, *words: bytes | str) -> Reply:
        """The reply, with the token as of then; None if there is none, or an error."""
        assert self._connection is not None
        self._connection.socket.settimeout(self.patience.get(self._region, PATIENCE))
        try:
            reply, token = self._connection.pipeline([words, ("CRDTCAST", "TOKEN")])
        except (ServerError, ConnectionError):
            self.close()
            return None
        assert isinstance(token, bytes), token
        self._token = token.decode()
        return None if isinstance(reply, ErrorReply) else reply


def play(
    town: Gateways, seed: int, steps: int, *, crashes: bool = False, power: bool = False
) -> SessionChecker:
    """Clients at random gateways, among cut links, lost connections and, with `crashes`, gateways that end and start
    again from their servers. With `power`, now and then a server syncs nothing for a while; then it comes back without
    all of that, or syncs it after all.
    """
    choice = random.Random(seed)
    checker = SessionChecker()
    keys = [f"{seed}:{number}" for number in range(2)]
    regions = town.names
    clients = [MovingClient(f"c{seed}-{n}", town, checker, keys) for n in range(4)]
    patience: dict[str, float] = {}
    for client in clients:
        client.patience = patience
    cut: set[tuple[str, str]] = set()
    unsynced, kept = "", 0
    try:
        for _ in range(steps):
            luck = choice.random()
            pair = one, other = tuple(choice.sample(regions, 2))
            if luck < 0.08:
                town.call(one, "CRDTCAST", "CUT", other)
                cut.add(pair)
            elif luck < 0.14 and cut:
                _heal(town, cut, choice.choice(sorted(cut)))
            elif luck < 0.16 and crashes:
                town.running[one].stop()
                cut -= {
                    each for each in cut if each[0] == one
                }  # the new process knows nothing of it
                town.start(one, tuple(each for each in regions if each != one))
            elif luck < 0.18 and crashes:
                town.past(one, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            elif power and luck > 0.88:
                if not unsynced:
                    town.sync_each_write(one, whether=False)
                    unsynced, kept = one, town.written(one)
                    patience[one] = _IMPATIENCE_SECONDS
                elif luck > 0.96:
                    _lose_power(town, cut, unsynced, kept)
                if luck > 0.94 and unsynced:
                    town.sync_each_write(unsynced)
                    del patience[unsynced]
                    unsynced = ""
            else:
                choice.choice(clients).act(choice, regions)
        assert sum(client.moves for client in clients) > steps // 10, "nobody moves"
    finally:
        for client in clients:
            client.close()
        for each in sorted(cut):
            _heal(town, cut, each)
        if unsynced:
            town.sync_each_write(unsynced)
        until(lambda: all(town.status(name)["server_up"] for name in regions))
    return checker


def _heal(town: Gateways, cut: set[tuple[str, str]], pair: tuple[str, str]) -> None:
    town.call(pair[0], "CRDTCAST", "HEAL", pair[1])
    cut.discard(pair)


def _lose_power(town: Gateways, cut: set[tuple[str, str]], name: str, kept: int) -> None:
    for each in sorted(each for each in cut if name in each):
        _heal(town, cut, each)  # it may have to ask the others
    town.lose_power(name, kept)
    town.start(name, tuple(each for each in town.names if each != name))
