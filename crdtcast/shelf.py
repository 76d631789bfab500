"""Replicated objects by name in a group whose members come and go: the application of `crdtcast node`.

What operations do to objects is `crdtcast.objects`; this file puts them on the causal broadcast.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgpack

from crdtcast.comparison import UNKNOWN, Comparing
from crdtcast.datatypes.site import Site
from crdtcast.exceptions import InvalidOperationError, LocalProtocolError
from crdtcast.fresh import fresh_incarnation
from crdtcast.hlc import HLC
from crdtcast.objects import Key, ObjectInfo, Objects, checked_name, known_types
from crdtcast.pasts import Pasts, Rebasing
from crdtcast.process import Process
from crdtcast.tags import Dot, Tag

_OPERATIONS = 0
_COMPARISON = 1


class Sender(Protocol):
    """What a shelf needs of its member."""

    def tcbroadcast(self, payload: bytes) -> Tag: ...


class Shelf(Process):
    """The objects of one member. Give it to `open_group`, then let it `speak_for` the member.

    clock_ms: wall clock. What the site of the objects owns, rights of bounded counters, belongs to
    this process; its next one begins with nothing of that.
    """

    def __init__(
        self, name: str, clock_ms: Callable[[], int], logger: logging.Logger | None = None
    ) -> None:
        self.name = name
        self.clock = HLC(clock_ms)
        self.unreadable = 0
        """Operations that are none, for this program and all older ones."""
        self.yielded = 0
        """Own operations that were not sent again after an eviction: see `reissue`."""
        self._site = Site(fresh_incarnation(name), self.clock)
        self.objects = Objects((), self._site)
        self._pasts = Pasts(name)
        self._home = Pasts(name)
        """Of the incarnation before, which was evicted."""
        self._rebasing: Rebasing | None = None
        self.comparing = Comparing(name, self._digests, self._say)
        self._logger = logger or logging.getLogger("crdtcast.node")
        self._member: Sender | None = None

    def speak_for(self, member: Sender) -> None:
        """Send through this member from now on."""
        self._member = member

    # The application's side

    def perform(self, name: str, type_name: str, operation: str, args: Sequence[Any]) -> Tag:
        """Prepare, send and apply one operation; waits for nobody.

        Raises InvalidOperationError, TypeClashError, and EndedError while this member cannot send.
        """
        key = (name, type_name)
        if self.objects.type_named(type_name) is None:
            known = ", ".join(sorted(known_types()))
            raise InvalidOperationError(f"there is no type {type_name!r}; there are {known}")
        prepared = self.objects.prepare(key, operation, args)
        return self._send(_OPERATIONS, [self.objects.entry(key, prepared)])

    def delete(self, name: str) -> Tag:
        """Delete what was seen here of the object of that name."""
        return self._send(_OPERATIONS, [[checked_name(name), None]])

    def value(self, name: str) -> tuple[str, Any]:
        """Type and value of the visible object of that name. LocalProtocolError: there is none."""
        type_name = self.objects.visible_type(name)
        if type_name is None:
            raise LocalProtocolError(f"there is no object {name!r} here")
        return type_name, self.objects.crdt((name, type_name)).value

    def listing(self, prefix: str = "") -> list[ObjectInfo]:
        """See `Objects.listing`."""
        return self.objects.listing(prefix)

    def _send(self, kind: int, body: list[Any]) -> Tag:
        if self._member is None:
            raise LocalProtocolError(f"{self.name!r} is no member of its group yet: wait for that")
        return self._member.tcbroadcast(msgpack.packb([kind, body]))

    def _say(self, message: list[Any]) -> None:
        self._send(_COMPARISON, message)

    def _digests(self) -> dict[str, str]:
        return {
            _label(held.key): UNKNOWN if held.crdt is None or held.behind else held.crdt.digest()
            for held in self.objects
        }

    # What happens (Process)

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        """See `Process`."""
        kind, body = _unpacked(payload)
        if kind == _COMPARISON:
            if self._member is not None:
                self.comparing.delivered(body)
            return
        entries = body if kind == _OPERATIONS else []
        self._pasts.delivers(entries, tag, self.objects)
        keys, wrong = self.objects.deliver(entries, tag)
        for why in wrong if kind == _OPERATIONS else ["no operations"]:
            self.unreadable += 1
            # The same everywhere, so replicas still agree.
            self._logger.warning("skipped an operation of %s: %s", tag.dot, why)
        self.comparing.touched(map(_label, keys))

    def tcstable(self, tag: Tag) -> None:
        """See `Process`."""
        self._pasts.stable(tag, self.objects.stable(tag), self.objects)

    def get_state(self) -> bytes:
        """See `Process`."""
        touched = [
            [*dot, [list(key) for key in keys]] for dot, keys in self.objects.touched.items()
        ]
        pasts = [self.name, self._pasts.packed()] if self._pasts else []
        packed: bytes = msgpack.packb([self.clock.latest, self.objects.packed(), touched, *pasts])
        return packed

    def set_state(self, state: bytes) -> None:
        """See `Process`. An empty state is that of a group which has said nothing yet."""
        self.objects = Objects((), self._site)
        self._home, self._pasts, self._rebasing = self._pasts, Pasts(self.name), None
        self.comparing.forget()
        if not state:
            return
        latest, packed, touched, *pasts = msgpack.unpackb(state)
        self.clock.observe(latest)
        self.unreadable += self.objects.load(packed, {})
        for origin, counter, keys in touched:
            self.objects.touched[Dot(origin, counter)] = [(name, kind) for name, kind in keys]
        # Of a former life of this node, whose messages are its own.
        if pasts and pasts[0] == self.name:
            self._pasts.load(pasts[1])

    def reissue(self, payload: bytes, dot: Dot) -> bytes | None:
        """What its operations still mean behind all that the group has done: see
        `crdtcast.datatypes.rebasing`. Those that take something away yield where the group has
        changed it since, with a line in the log, or where nobody knows what it was: a large object.
        """
        if self._rebasing is None or self._rebasing.incarnation != dot.origin:
            self._rebasing = Rebasing(self._home, dot.origin, dot.counter, self.objects)
        kind, entries = _unpacked(payload)
        if kind != _OPERATIONS:
            return None
        issued: list[Any] = []
        for entry in entries:
            again = self._rebasing.again(entry)
            if not again:
                self.yielded += 1
                self._logger.warning("not sent again after the eviction, it yields: %r", entry)
            issued += again
        packed: bytes = msgpack.packb([_OPERATIONS, issued])
        return packed if issued else None


def _label(key: Key) -> str:
    return f"{key[1]}:{key[0]}"


def _unpacked(payload: bytes) -> tuple[int, list[Any]]:
    """Kind and body; no kind of ours for what is no message of a shelf."""
    try:
        match msgpack.unpackb(payload):
            case [int(kind), [*body]]:
                return kind, body
    except (ValueError, msgpack.UnpackException):
        pass
    return -1, []
