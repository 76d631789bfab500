"""Compares a gateway's keys with those of other members all the time, page by page, and at once when an operator asks.
So a key that was changed directly in a server is found within one round.

Each gateway compares its own keys with its successor, the next linked member in the order of names. So a key that one
server has lost is found by another member that has it. Keys that differ are compared exactly (`comparison`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from crdtcast.adapters.redis.adoption.census import described
from crdtcast.adapters.redis.compare.comparison import (
    PAGE_KEYS,
    FoundDifferences,
    KeyComparison,
    KeyDifference,
)
from crdtcast.adapters.redis.compare.key_digests import DigestLook
from crdtcast.adapters.redis.store.databases import described as described_key
from crdtcast.adapters.redis.store.databases import in_words
from crdtcast.exceptions import CrdtcastError, LocalProtocolError, NotReadyError
from crdtcast.group.status import ComparisonStatus

BASIS_KEYS = 1_000_000
"""Up to this many keys take one period; more take longer, in proportion."""
_NAMED = 10
_PAGE_BYTES = 512 * 1024
_AGAIN_SECONDS = 1.0
_PROGRESS_SECONDS = 5.0
_FRESH_SECONDS = 1.0
_FRESH_KEYS = 200
"""Keys whose type was looked up to compare in addition to the rounds, in each `_FRESH_SECONDS`."""


@dataclass(slots=True)
class NotReplicated:
    """Keys of a server that are not replicated: counts by type, and the first keys."""

    kinds: Counter[str] = field(default_factory=Counter)
    named: list[bytes] = field(default_factory=list)

    def note(self, looks: Sequence[DigestLook]) -> None:
        """Count those among these keys."""
        for look in looks:
            if kinds := look.not_replicated:
                self.kinds.update(kinds)
                if len(self.named) < _NAMED:
                    self.named.append(look.key)


@dataclass(slots=True)
class Round:
    """Progress of one round, or its result."""

    keys: int = 0
    left_out: int = 0
    """Keys that could not be compared because peers did not answer."""
    findings: dict[bytes, KeyDifference] = field(default_factory=dict)
    """Findings of the keys examined. A key that was examined again is equal only if it always was."""
    not_replicated: NotReplicated = field(default_factory=NotReplicated)

    def note(self, found: FoundDifferences) -> None:
        """A key was examined."""
        if found.finding is KeyDifference.EQUAL:
            self.findings.setdefault(found.key, found.finding)
        else:
            self.findings[found.key] = found.finding

    def counts(self) -> dict[str, int]:
        """Counts of keys by finding."""
        return dict(Counter(finding.value for finding in self.findings.values()))


class CompareRounds:
    """The rounds of one gateway.

    period: seconds of a round.
    tell: asks members to examine keys themselves.
    on_changed: called for each key that was found changed directly in a server, this one or another.
    """

    def __init__(
        self,
        name: str,
        comparison: KeyComparison,
        period: float,
        *,
        linked: Callable[[], list[str]],
        tell: Callable[[Sequence[str], Sequence[bytes]], None],
        on_changed: Callable[[bytes], None],
        logger: logging.Logger,
    ) -> None:
        self._name = name
        self._comparison = comparison
        self._period = period
        self._linked = linked
        self._tell = tell
        self._on_changed = on_changed
        self._log = logger
        self._told = 0
        self._told_progress = 0.0
        self._differing: dict[bytes, KeyDifference] = {}
        self._fresh: dict[bytes, None] = {}
        self._urgent: dict[bytes, None] = {}
        self._wake = trio.Event()
        self.rounds: int = 0
        self.put_right: int = 0
        """Keys repaired since start."""
        self._ended_at: float | None = None
        self.current: Round = Round()
        self.last: Round = Round()
        self._not_replicated = NotReplicated()
        """As of the last walk over all own keys."""

    # In the background

    async def run(self) -> None:
        """Run the rounds until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_urgent)
            while self._period:
                await self._some_peer()
                began = trio.current_time()
                try:
                    await self._round()
                except CrdtcastError as error:
                    self._log.info("comparing keys: %s", error)
                    await self._pause()
                    continue
                self._end_round()
                await trio.sleep(max(began + self._period - trio.current_time(), 0.01))

    async def _round(self) -> None:
        self.current, self._told = Round(), 0
        cursor = b"0"
        pace = self._period * PAGE_KEYS / BASIS_KEYS
        due = trio.current_time()
        while True:
            cursor, names = await self._comparison.scan(cursor)
            for some in portions(names):
                looks = await self._comparison.looks(some)
                self.current.keys += len(looks)
                self.current.not_replicated.note(looks)
                await self._compare(looks)
            if cursor == b"0":
                break
            due = max(due + pace, trio.current_time())
            await trio.sleep_until(due)
        # Another member may have repaired them. Not all that differ are refused, and not all that are
        # refused are known to differ: this member may have been started again since.
        for some in portions(list({*self._differing, *self._comparison.disputed})):
            with suppress(CrdtcastError):
                await self._examined(some, told=True)

    async def _compare(self, looks: Sequence[DigestLook]) -> None:
        """Compare a page. It is left out of this round if peers fail twice, so that the keys after it are compared."""
        for tries_left in (1, 0):
            peer = await self._some_peer()
            try:
                await self._examined(await self._comparison.page(peer, looks))
                return
            except CrdtcastError as error:
                self._log.info("comparing keys with %s: %s", peer, error)
                if tries_left:
                    await self._pause()
        self.current.left_out += len(looks)

    async def _some_peer(self) -> str:
        """The successor, as soon as a member is linked."""
        while True:
            if (peer := self._successor()) is not None:
                return peer
            await self._pause()

    async def _pause(self) -> None:
        await trio.sleep(min(_AGAIN_SECONDS, self._period))

    def _end_round(self) -> None:
        self.last = self.current
        self.rounds += 1
        self._ended_at = trio.current_time()
        self._not_replicated = foreign = self.last.not_replicated
        if foreign.kinds and self.rounds == 1:
            self._log.warning(
                "not replicated, since written directly to the server: %s; the first: %s",
                described(foreign.kinds),
                _listed(foreign.named),
            )
        if (more := self._told - _NAMED) > 0:
            self._log.error("and %s more keys that were changed directly in a server", f"{more:,}")

    def _successor(self) -> str | None:
        """The member to compare own keys with. By this order each member has a predecessor, as long as all are
        linked.
        """
        linked = sorted(self._linked())
        return next((name for name in linked if name > self._name), linked[0] if linked else None)

    def looked_up(self, key: bytes) -> None:
        """Compare a key soon: it had not been used since the start and was found at the server."""
        if len(self._fresh) < _FRESH_KEYS:
            self._fresh[key] = None
            self._wake.set()

    async def settle(self, keys: Sequence[bytes]) -> None:
        """Examine these keys at once: a peer has repaired them, and waits for the end."""
        await self._examined(keys, told=True)

    def look(self, keys: Iterable[bytes]) -> None:
        """Examine these keys soon: a peer has found that they differ, or they are damaged at this member."""
        self._urgent.update(dict.fromkeys(keys))
        self._wake.set()

    async def _watch_urgent(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            urgent, self._urgent = list(self._urgent), {}
            try:
                for some in portions(urgent):
                    await self._examined(some, told=True)
                await trio.sleep(_FRESH_SECONDS)
                fresh, self._fresh = list(self._fresh), {}
                peer = self._successor()
                if fresh and peer is not None:
                    for some in portions(fresh):
                        looks = await self._comparison.looks(some)
                        await self._examined(await self._comparison.page(peer, looks))
            except CrdtcastError as error:  # the next round compares them again
                self._log.info("comparing keys: %s", error)
                await trio.sleep(_AGAIN_SECONDS)

    # What was found

    async def _examined(
        self, keys: Sequence[bytes], *, told: bool = False, source: str | None = None
    ) -> list[FoundDifferences]:
        """Examine keys and act on the results. told: a peer has asked for it, so peers know."""
        if not keys:
            return []
        found = await self._comparison.examine(keys, source=source)
        tell: dict[str, list[bytes]] = {}
        for each in found:
            self.current.note(each)
            self._note(each)
            for name in each.tell if not told else ():
                tell.setdefault(name, []).append(each.key)
        for name, some in tell.items():
            self._tell([name], some)
        return found

    def _note(self, found: FoundDifferences) -> None:
        key, finding = found.key, found.finding
        if finding in (KeyDifference.EQUAL, KeyDifference.NOT_REPLICATED):
            self._differing.pop(key, None)
            return
        known = self._differing.get(key)
        if finding is KeyDifference.PUT_RIGHT:
            self.put_right += 1
            self._differing.pop(key, None)
        else:
            self._differing[key] = finding
        if known is finding:
            return
        self._on_changed(key)
        self._told += 1
        if self._told <= _NAMED:
            self._log.error(
                "key %s was changed directly in a server: %s: %s (%s)",
                described_key(key),
                ", ".join(f"{n} holds {v or 'nothing'}" for n, v in sorted(found.values.items())),
                finding.value,
                found.why,
            )

    def _are_equal(self, keys: Iterable[bytes]) -> None:
        """Keys that differed are now the same at all linked members."""
        for key in keys:
            self._differing.pop(key, None)

    def status(self) -> dict[str, Any]:
        """Fields for CRDTCAST STATUS."""
        names = list(self._differing)
        last, foreign = self.last, self._not_replicated
        return {
            "differing": {"keys": len(names), "first": _names(names)},
            "put_right": self.put_right,
            "not_replicated": {"keys": dict(foreign.kinds), "first": _names(foreign.named)},
            "compared": {
                "rounds": self.rounds,
                "keys": last.keys - last.left_out,
                "left_out": last.left_out,
                "found": last.counts(),
            },
        }

    def outline(self) -> ComparisonStatus:
        """Fields for the status of the member."""
        ended, last = self._ended_at, self.last
        return ComparisonStatus(
            found=self._comparison.changed,
            put_right=self.put_right,
            differing=len(self._differing),
            disputed=len(self._comparison.disputed),
            rounds=self.rounds,
            since=None if ended is None else trio.current_time() - ended,
            keys=last.keys - last.left_out,
            left_out=last.left_out,
            not_replicated=dict(self._not_replicated.kinds),
        )

    # At an operator's request

    async def verify(self) -> dict[str, Any]:
        """Compare all keys of this member exactly with those of all linked members, and change nothing."""
        found: dict[bytes, FoundDifferences] = {}
        keys = 0
        peers, known = self._peers(None), set(self._differing)
        foreign: dict[str, Counter[str]] = {}
        async with aclosing(self._sweep(peers, foreign)) as sweep:
            async for looked, candidates in sweep:
                keys += looked
                if candidates:
                    for each in await self._comparison.examine(candidates, act=False):
                        found[each.key] = each
        refusing = await self._refusing(peers)
        for some in portions([key for key in refusing if key not in found]):
            for each in await self._comparison.examine(some, act=False):
                found[each.key] = each
        for key, names in refusing.items():
            if found[key].finding is KeyDifference.EQUAL:
                found[key] = _still_refused(found[key], names)
        left = {
            each.key: each
            for each in found.values()
            if each.finding not in (KeyDifference.EQUAL, KeyDifference.NOT_REPLICATED)
        }
        self._are_equal(known - left.keys())
        return {
            "keys": keys,
            "members": sorted([self._name, *peers]),
            "different": left,
            "not_replicated": _plain(foreign),
        }

    async def repair(self, key: bytes | None, source: str | None) -> dict[str, Any]:
        """Repair one key, or all.

        source: the member whose values are right; without it, the right value is decided for each key.

        Raises NotReadyError if keys cannot be compared, LocalProtocolError if the one key still differs.
        """
        if source == self._name:
            return await self._keep_own(key)
        peers, known = self._peers(source), set(self._differing)
        results: dict[bytes, FoundDifferences] = {}
        foreign: dict[str, Counter[str]] = {}
        keys = 0
        if key is not None:
            keys = 1
            for each in await self._examined([key], source=source):
                results[each.key] = each
            refusing = {key: self._linked()}
        else:
            async with aclosing(self._sweep(peers, foreign)) as sweep:
                async for looked, candidates in sweep:
                    keys += looked
                    self._tell_progress(keys)
                    for each in await self._examined(candidates, source=source):
                        if (
                            each.finding is not KeyDifference.NOT_REPLICATED
                        ):  # `foreign` has it, by type
                            results[each.key] = each
            refusing = await self._refusing(sorted(self._linked()))
            for some in portions([key for key in refusing if key not in results]):
                for each in await self._examined(some, source=source):
                    results[each.key] = each
            if source is None:
                self._are_equal(known - results.keys())
        await self._settle_elsewhere(results, refusing)
        counts = Counter(each.finding.value for each in results.values())
        left = [
            each
            for each in results.values()
            if each.finding in (KeyDifference.DISPUTED, KeyDifference.WAITING)
        ]
        if left and key is not None:
            raise LocalProtocolError(
                f"cannot repair key {described_key(key)}: {left[0].why} ("
                + ", ".join(f"{n} holds {v or 'nothing'}" for n, v in left[0].values.items())
                + "): use --from NAME"
            )
        return {
            "keys": keys,
            "found": dict(counts),
            "left": _names([each.key for each in left]),
            "not_replicated": _plain(foreign),
        }

    async def _keep_own(self, key: bytes | None) -> dict[str, Any]:
        """Accept the refused keys of this member as they are: only if no other member could object."""
        if linked := sorted(self._linked()):
            raise LocalProtocolError(
                f"{', '.join(linked)} is linked: run `crdtcast repair KEY --from {self._name}` "
                "there, so that it takes the value from this member"
            )
        kept = await self._comparison.accept(key)
        self._are_equal(kept)
        return {
            "keys": len(kept),
            "found": {"kept as it is": len(kept)},
            "left": [],
            "not_replicated": {},
        }

    async def _refusing(self, peers: Iterable[str]) -> dict[bytes, list[str]]:
        """The disputed keys of this member and of these peers, and the members that refuse them. Their values may be
        equal by now, so that a sweep does not find them.
        """
        found = {key: [self._name] for key in sorted(self._comparison.disputed)}
        for peer in peers:
            for key in await self._comparison.disputed_at(peer):
                found.setdefault(key, []).append(peer)
        return found

    async def _settle_elsewhere(
        self, results: Mapping[bytes, FoundDifferences], refusing: Mapping[bytes, Sequence[str]]
    ) -> None:
        """Let the members that refuse keys settle those that are equal by now."""
        right = (KeyDifference.EQUAL, KeyDifference.PUT_RIGHT)
        settled: dict[str, list[bytes]] = {}
        for key, names in refusing.items():
            if results[key].finding in right:
                for name in names:
                    settled.setdefault(name, []).append(key)
        settled.pop(self._name, None)
        for name, keys in settled.items():
            for some in portions(keys):
                with suppress(CrdtcastError):  # its next round does it
                    await self._comparison.settle_at(name, some)

    def _tell_progress(self, keys: int) -> None:
        now = trio.current_time()
        if now - self._told_progress >= _PROGRESS_SECONDS:
            self._told_progress = now
            self._log.warning("repair: compared %s keys", f"{keys:,}")

    def _peers(self, source: str | None) -> list[str]:
        linked = sorted(self._linked())
        if source is None:
            if not linked:
                raise NotReadyError("no other member is linked: try again when one is")
            return linked
        if source not in linked:
            raise LocalProtocolError(
                f"no linked member is called {source!r}: use one of: {', '.join(linked) or 'none'}"
            )
        return [source]

    async def _sweep(
        self, peers: Sequence[str], foreign: dict[str, Counter[str]]
    ) -> AsyncGenerator[tuple[int, list[bytes]], None]:
        """Walk over all own keys and those of these peers, page by page: how many own keys are new, and which keys may
        differ.

        foreign: receives each member's counts of keys that are not replicated, by type.
        """
        own = NotReplicated()
        foreign[self._name] = own.kinds
        for peer in peers:
            cursor = b"0"
            while True:
                cursor, names = await self._comparison.scan(cursor)
                for some in portions(names):
                    looks = await self._comparison.looks(some)
                    candidates = await self._comparison.page(peer, looks)
                    if peer == peers[0]:
                        own.note(looks)
                    yield len(some) if peer == peers[0] else 0, candidates
                if cursor == b"0":
                    break
            self._not_replicated = own
            foreign[peer] = Counter()
            cursor = b"0"
            while True:
                cursor, theirs, kinds = await self._comparison.list_of(peer, cursor)
                foreign[peer].update(kinds)
                for some in portions(list(theirs)):
                    looks = await self._comparison.looks(some)
                    yield 0, [look.key for look in looks if look.digest != theirs[look.key]]
                if cursor == b"0":
                    break


def _still_refused(found: FoundDifferences, names: Sequence[str]) -> FoundDifferences:
    """The result for an equal key that these members still refuse."""
    shown = {
        name: f"{value or 'nothing'} (equal again, and still refused)" if name in names else value
        for name, value in found.values.items()
    }
    why = f"refused at {', '.join(names)}, although equal again"
    return replace(found, finding=KeyDifference.DISPUTED, values=shown, why=why)


def portions(keys: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The keys in lists that each fit into one question."""
    some: list[bytes] = []
    size = 0
    for key in keys:
        if some and (size + len(key) > _PAGE_BYTES or len(some) >= PAGE_KEYS):
            yield some
            some, size = [], 0
        some.append(key)
        size += len(key)
    if some:
        yield some


def _plain(foreign: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: dict(kinds) for name, kinds in sorted(foreign.items())}


def _names(keys: Iterable[bytes]) -> list[str]:
    return [in_words(key) for key in list(keys)[:_NAMED]]


def _listed(keys: Iterable[bytes]) -> str:
    return ", ".join(map(described_key, keys))
