"""Clients' requests: which of the waiting ones a commit takes, in order, and what it must look up before."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from itertools import chain, compress, filterfalse
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.clients.client import UNREAD_PAUSE
from crdtcast.adapters.redis.clients.large_request import LargeArgs, size_of
from crdtcast.adapters.redis.clients.transaction import Transaction
from crdtcast.adapters.redis.commands.table import CommandKind
from crdtcast.adapters.redis.commit.reads import CommitReads
from crdtcast.adapters.redis.commit.refusals import Refusals
from crdtcast.adapters.redis.commit.round import Commit
from crdtcast.adapters.redis.recorded.draws import Draws
from crdtcast.adapters.redis.store.keyspace import Keyspace

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Client, Request
    from crdtcast.adapters.redis.clients.passthrough import Passthrough

MAX_REQUESTS = 4096
MAX_COMMIT_BYTES = 32 << 20
"""Bytes of clients' commands in one commit; the server's limit for one connection is far higher."""
_STEP = MAX_COMMIT_BYTES // MAX_REQUESTS
"""Bytes that each key of a removal, and each step of a transaction, counts for at least."""

_ARGS, _CLIENT, _COMMAND = map(attrgetter, ("args", "client", "command"))
_KEY = itemgetter(1)
_LOOKS, _OF_ONE_KEY, _DRAWS = map(attrgetter, ("looks", "writes_one_key", "draws"))
_UNREAD = attrgetter("unread")


class RequestIntake:
    """Takes waiting requests into commits.

    keyspace: the present one; set it when it changes.
    repairs: keys that the next commit repairs.
    """

    def __init__(
        self,
        relay: Passthrough,
        reads: CommitReads,
        refusals: Refusals,
        repairs: Set[bytes],
        keyspace: Keyspace,
    ) -> None:
        self._relay = relay
        self._reads = reads
        self._refusals = refusals
        self._repairs = repairs
        self.keyspace = keyspace
        self.waiting: deque[Request] = deque()
        self.alone: Transaction | None = None
        """The first request, if it is a transaction that must be prepared at the instant of a lookup."""

    def take(self, commit: Commit) -> None:
        """Take the requests that the commit has room for."""
        if not self._take_together(commit):
            self._take_singly(commit)

    def take_known(self, commit: Commit) -> bool:
        """Take all requests if each is a small write of one key whose type need not be looked up; returns whether it
        did.
        """
        if not self._take_together(commit):
            return False
        if commit.unknown or commit.draws is not None:
            self.waiting.extend(commit.requests)
            return False
        return True

    def _take_together(self, commit: Commit) -> bool:
        """Take all requests at once, if each is a small write of one key and no client may have to wait.

        Returns whether it did.
        """
        waiting = len(self.waiting)
        if waiting > MAX_REQUESTS or self._relay.waiting:
            return False
        if waiting == 1:
            return self._take_one(commit)
        requests = list(self.waiting)
        words = list(map(_ARGS, requests))
        if (
            not all(map(_OF_ONE_KEY, map(_COMMAND, requests)))
            or LargeArgs in map(type, words)
            or any(map(_UNREAD, map(_CLIENT, requests)))
        ):
            return False
        size = sum(map(len, chain.from_iterable(words)))
        if size > MAX_COMMIT_BYTES:
            return False
        commit.size = size
        commit.requests = requests
        commit.together = True
        is_known = self.keyspace.types.__contains__
        if not all(map(is_known, map(_KEY, words))):
            commands = map(_COMMAND, requests)
            if self.keyspace.dates.in_use:
                pairs = zip(commands, words, strict=True)
                looking = [args for command, args in pairs if command.looks_if_dated(args)]
            else:
                looking = list(compress(words, map(_LOOKS, commands)))
            commit.unknown = dict.fromkeys(filterfalse(is_known, map(_KEY, looking)))
        if any(map(_DRAWS, map(_COMMAND, requests))):
            for request in requests:
                if request.command.draws is not None:
                    _will_draw(commit, request)
        self.waiting.clear()
        return True

    def _take_one(self, commit: Commit) -> bool:
        """The same for the only request."""
        (request,) = self.waiting
        args, command = request.args, request.command
        if not command.writes_one_key or type(args) is LargeArgs or request.client.unread:
            return False
        size = sum(map(len, args))
        if size > MAX_COMMIT_BYTES:
            return False
        commit.size = size
        commit.requests = [request]
        commit.together = True
        key = args[1]
        if key not in self.keyspace.types and (
            command.looks or (self.keyspace.dates.in_use and command.looks_if_dated(args))
        ):
            commit.unknown[key] = None
        if command.draws is not None:
            _will_draw(commit, request)
        self.waiting.clear()
        return True

    def _take_singly(self, commit: Commit) -> None:
        """Take requests in order. Requests of a client with a relayed read under way wait until it ends."""
        requests, take, relay = self.waiting, commit.requests.append, self._relay
        known, unknown = self.keyspace.types, commit.unknown
        looks_at_all = self.keyspace.dates.in_use
        waiting = relay.waiting
        blocked: set[Client] = set()
        inside: set[Client] = set()
        left: list[Request] = []
        size = 0
        for _ in range(min(len(requests), MAX_REQUESTS)):
            if size > MAX_COMMIT_BYTES:
                break
            request = requests.popleft()
            client, command, args = request.client, request.command, request.args
            if blocked and client in blocked:
                left.append(request)
                continue
            if command.kind is CommandKind.READ and self._reads.is_relayed(
                request, behind_own=client in inside
            ):
                if client in inside or self._awaits_repair(request):
                    blocked.add(client)
                    left.append(request)
                elif self.keyspace.refused and (refusal := self._refusals.by_key(request)):
                    request.answer(refusal)
                else:
                    relay.send(request)
                continue
            if client not in inside:
                if client in waiting or len(client.unread) > UNREAD_PAUSE:
                    # It waits for relayed reads of its client, or until that has read its replies.
                    blocked.add(client)
                    left.append(request)
                    if request is self.alone:
                        self.alone = None  # else all other clients would wait for this one, too
                    continue
                inside.add(client)
            take(request)
            if command.removes_keys:
                size += max(size_of(args), len(args) * _STEP)  # each key counts like a request
            elif type(args) is LargeArgs:
                size += args.size
                commit.has_large = True
            else:
                size += sum(map(len, args))
            if command.looks:
                if args[1] not in known:
                    unknown[args[1]] = None
                if command.draws is not None:
                    _will_draw(commit, request)
                if command.counts_in is not None:
                    slot = args[command.counted_at]
                    commit.will_count(self.keyspace, args[1], command.counts_in, slot)
            elif command.kind is CommandKind.WRITE:
                if looks_at_all and command.looks_if_dated(args):
                    unknown |= dict.fromkeys(k for k in command.keys_of(args) if k not in known)
            elif not command.forwarded and isinstance(request, Transaction):
                commit.transactions.append(request)
                size += max(request.size, request.steps * _STEP)
                typed = request.keys() if looks_at_all else request.typed_keys()
                unknown |= dict.fromkeys(k for k in typed if k not in known)
                for key, type_, slot in request.counted_slots():
                    commit.will_count(self.keyspace, key, type_, slot)
        if left:
            requests.extendleft(reversed(left))
        commit.size = size
        relay.go_on()

    def _awaits_repair(self, request: Request) -> bool:
        """Whether this commit repairs a key of the read."""
        return bool(self._repairs) and not self._repairs.isdisjoint(
            request.command.keys_of(request.args)
        )


def _will_draw(commit: Commit, request: Request) -> None:
    """Let the look before the commit draw what this request takes at random."""
    command = request.command
    assert command.draws is not None and command.type is not None
    if number := command.draws(request.args):
        if commit.draws is None:
            commit.draws = Draws()
        commit.draws.want(request.args[1], command.type, number)
