"""Objects on a group's causal broadcast, as a `StateMachine`: how operations are sent, what a joiner gets, what is sent
again after an eviction.

`crdtcast.replica.objects` defines what operations do to objects. This file never waits: `crdtcast.replica.replica`
does.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgpack

from crdtcast.causality.hlc import HLC
from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes.site import Site
from crdtcast.engine import Parked
from crdtcast.exceptions import LocalProtocolError, NotReadyError
from crdtcast.group.state_machine import StateMachine
from crdtcast.msgpack_limits import unpacked_within
from crdtcast.replica.comparison import UNKNOWN, Comparing
from crdtcast.replica.copies import Copies, Renaming
from crdtcast.replica.objects import CRDT, MOST_PARTS, Key, Objects, are_operations, joined
from crdtcast.replica.preimages import ObjectPasts, Rebasing, keys_of
from crdtcast.transport.log_throttle import ahead, skips

_OPERATIONS = 0
_COMPARISON = 1


class Sender(Protocol):
    """The member, as the object machine sees it."""

    @property
    def incarnation(self) -> str: ...
    @property
    def parked(self) -> Parked | None: ...
    def tcbroadcast(self, payload: bytes) -> Tag: ...


class ObjectMachine(StateMachine):
    """The objects of one member. Give it to `open_member`, then let it `speak_for` the member.

    clock_ms: wall clock.
    types: data types in addition to those of this package.
    on_news: called with the objects on which operations have taken effect; with an empty collection when a message has
        become stable; with None when all objects were replaced.

    Rights of bounded counters belong to an incarnation: where it continues, from a journal, all that it has ever done
    is known. The next incarnation starts without rights, so that it cannot spend what the former one may have spent
    already.
    """

    def __init__(
        self,
        name: str,
        clock_ms: Callable[[], int],
        logger: logging.Logger | None = None,
        *,
        types: Iterable[type[CRDT]] = (),
        on_news: Callable[[Collection[Key] | None, bool], None] = lambda keys, own: None,
    ) -> None:
        self.name = name
        self.clock: HLC = HLC(clock_ms)
        self.unreadable: int = 0
        """Operations that no version up to ours can decode; every replica skips them."""
        self.yielded: int = 0
        """Own operations that were not sent again after an eviction: see `reissue`."""
        self.torn: bool = False
        """A data type has failed in the middle of an operation, which may be half applied. This state is never saved or
        sent.
        """
        self._site = Site("", self.clock)  # no operations before there is a member
        self.objects: Objects = Objects(types, self._site)
        self._pasts = ObjectPasts(name)
        self._home = ObjectPasts(name)
        """The pasts of the former incarnation, which was evicted."""
        self._left: Objects | None = None
        """The objects of the former incarnation, until all is sent again."""
        self._copies = Copies()
        self._rebasing: Rebasing | None = None
        self._said = ""
        self.comparing: Comparing = Comparing(name, self._digests, self._say)
        self._on_news = on_news
        self._logger = logger or logging.getLogger("crdtcast.replica")
        self.clock.on_ahead = ahead(self._logger, time.monotonic)
        self._skips = skips(self._logger, time.monotonic)
        self._member: Sender | None = None

    def speak_for(self, member: Sender) -> None:
        """Send through this member from now on."""
        self._member = member
        self._site.owner = member.incarnation

    # The application's side

    def packed(self, entries: Sequence[list[Any]]) -> bytes:
        """A message with these prepared operations, for `send`."""
        return _packed(_OPERATIONS, entries)

    def send(self, payload: bytes) -> Tag:
        """Broadcast the message, and apply it. Raises what the member's `tcbroadcast` raises: nothing has changed then.
        If a data type raises an error, this machine is `torn`.
        """
        if self._member is None:
            raise LocalProtocolError(
                f"{self.name!r} is not yet a member of its group: wait until it is"
            )
        return self._member.tcbroadcast(payload)

    def _say(self, message: list[Any]) -> None:
        self.send(_packed(_COMPARISON, message))

    def _digests(self) -> dict[str, str]:
        return {
            _label(held.key): UNKNOWN if held.crdt is None or held.behind else held.crdt.digest()
            for held in self.objects
        }

    # The interface of StateMachine

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        """See `StateMachine`."""
        kind, body, sources = _unpacked(payload)
        if kind == _COMPARISON:
            if self._member is not None:
                self.comparing.delivered(body)
            return
        entries = body if kind == _OPERATIONS else []
        if sources and name_of(tag.dot.origin) == self.name:
            self._copies.delivered(tag.dot, sources)
        try:
            self._pasts.delivers(entries, tag, self.objects)
            keys, wrong = self.objects.deliver(entries, tag)
        except BaseException:
            self.torn = True
            raise
        self.unreadable += self._skips(
            tag, wrong if kind == _OPERATIONS else ["invalid operations"]
        )
        self.comparing.touched(map(_label, keys))
        self._on_news(keys, tag.dot.origin == self._site.owner)

    def tcstable(self, tag: Tag) -> None:
        """See `StateMachine`."""
        try:
            self._pasts.stable(tag, self.objects.stable(tag), self.objects)
        except BaseException:
            self.torn = True
            raise
        if self._left is not None or self._home or self._copies:
            self._drop_what_is_over()
        self._on_news((), False)

    def _drop_what_is_over(self) -> None:
        if self._member is not None and self._member.parked is None:
            self._left = self._rebasing = None
            self._home = ObjectPasts(self.name)
            self._copies.forget()

    def get_state(self) -> bytes:
        """See `StateMachine`. Raises LocalProtocolError if this machine is torn."""
        if self.torn:
            raise LocalProtocolError(
                f"cannot save or transfer the objects of {self.name!r}: a data type failed in the "
                "middle of an operation: fix it, and open the replica again"
            )
        touched = [
            [*dot, [list(key) for key in keys]] for dot, keys in self.objects.touched.items()
        ]
        own: list[Any] = []
        if self._pasts or self._home or self._copies:
            pasts = *self._pasts.packed(), *self._home.packed()
            own = [self.name, *pasts, self._copies.packed()]
        latest, *rest = map(msgpack.packb, (self.clock.latest, touched, *own))
        return joined(latest, self.objects.image(), *rest)

    def set_state(self, state: bytes) -> None:
        """See `StateMachine`. An empty state is that of a group without any messages yet."""
        if next(iter(self.objects), None) is not None:
            self._left = self.objects
        self.objects = Objects(self.objects.types, self._site)
        if self._pasts:
            self._home = self._pasts
        self._pasts, self._rebasing = ObjectPasts(self.name), None
        self.comparing.forget()
        if self._member is not None:
            self._site.owner = self._member.incarnation
        if state:
            self._load(*msgpack.unpackb(state))
        self._on_news(None, False)

    def _load(self, latest: int, packed: list[Any], touched: list[Any], *own: Any) -> None:
        self.clock.observe(latest)
        self.unreadable += self.objects.load(packed)
        for origin, counter, keys in touched:
            self.objects.touched[Dot(origin, counter)] = [(name, kind) for name, kind in keys]
        # From a former life of this node: it owns these messages.
        if own and own[0] == self.name:
            _, *pasts, copies = own
            self._pasts.load(*pasts[:2])
            self._home.load(*pasts[2:])
            self._copies.load(copies)

    def reissue(self, payload: bytes, dot: Dot) -> bytes | None:
        """What the message's operations still mean after all that the group has done: a three-way comparison.

        Operations that only add are always sent again. Operations that remove something yield, with a line in the log,
        if the group has changed it since. They also yield if its former state is unknown, as for a large object. Raises
        NotReadyError if this program does not know a type yet.
        """
        kind, entries, _ = _unpacked(payload)
        if kind != _OPERATIONS:
            return None
        for key in keys_of(entries):
            if not self.objects.understands(key):
                raise self._waits_for(key[1])
        if self._rebasing is None or not self._rebasing.goes_on(dot):
            self._rebasing = Rebasing(self._home, dot, self.objects, self._left, self._renamed())
        issued: list[Any] = []
        sources: list[int] = []
        for index, entry in enumerate(entries):
            again = self._rebasing.again(entry, dot, index)
            if not again:
                self.yielded += 1
                self._logger.warning(
                    "an operation from before the eviction is not sent again, since the group's "
                    "state prevails: %r",
                    entry,
                )
            issued += again
            sources += [index] * len(again)
        if not issued:
            return None
        if sources == list(range(len(entries))):
            return self.packed(issued)
        return _packed(_OPERATIONS, issued, sources)

    @property
    def _parked(self) -> Mapping[Dot, Sequence[Dot]]:
        """First dot -> dots of its copies."""
        parked = None if self._member is None else self._member.parked
        return {} if parked is None else parked.copies

    def _renamed(self) -> Callable[[Dot, int], tuple[Dot, int] | None]:
        renaming = Renaming(self._copies, self._parked)
        return lambda dot, index: renaming.renamed(self._parked, dot, index)

    def _waits_for(self, type_name: str) -> NotReadyError:
        text = (
            f"{self.name!r} cannot yet send its earlier operations again: this program does not "
            f"know type {type_name!r}, or has an older version than the group: name it in types=, "
            "or let the replica `require` it"
        )
        if self._said != text:
            self._said = text
            self._logger.warning("%s", text)
        return NotReadyError(text)


def _label(key: Key) -> str:
    return f"{key[1]}:{key[0]}"


def _packed(kind: int, body: Sequence[Any], *sources: Sequence[int]) -> bytes:
    packed: bytes = msgpack.packb([kind, body, *sources])
    return packed


def _unpacked(payload: bytes) -> tuple[int, list[Any], list[Any]]:
    """Kind, body, and the sources of a copy's operations (`crdtcast.replica.copies`). The kind is -1 if this is not a
    message of an object machine.
    """
    try:
        match unpacked_within(payload, MOST_PARTS):
            case [int(kind), [*body]] if kind != _OPERATIONS or are_operations(body):
                return kind, body, []
            case [int(kind), [*body], [*sources]] if (
                kind == _OPERATIONS and len(sources) == len(body) > 0 and are_operations(body)
            ):
                return kind, body, sources
    except (ValueError, msgpack.UnpackException):
        pass
    return -1, [], []
