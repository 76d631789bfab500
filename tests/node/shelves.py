"""Shelves on a town of real engines: members are evicted and come back, with a restart where the test wants one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Tag
from crdtcast.engine import Parked, Standing
from crdtcast.replica.object_machine import ObjectMachine
from tests.engine.town import Town


class Voice:
    """What a shelf needs of its member."""

    def __init__(self, town: "Shelves", name: str) -> None:
        self._town = town
        self._name = name

    @property
    def incarnation(self) -> str:
        return self._town.id(self._name)

    @property
    def parked(self) -> Parked | None:
        return self._town.parked.get(self._name)

    def tcbroadcast(self, payload: bytes) -> Tag:
        (tag,) = self._town.send(self._name, payload)
        self._town.takes(self._name, payload, tag)
        return tag


class Shelves(Town):
    """A town whose applications are shelves. What a shelf has taken since its last snapshot is its journal."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        self.parked: dict[str, Parked] = {}
        self.journal: dict[str, tuple[bytes, list[tuple[bytes | None, Tag]]]] = {}
        self.shelves = {name: self._shelf(name) for name in self.engines}

    def run(self, ticks: int = 12) -> None:
        super().run(ticks)

    def _shelf(self, name: str) -> ObjectMachine:
        shelf = ObjectMachine(name, lambda: 1_700_000_000_000)
        shelf.speak_for(Voice(self, name))
        self.journal[name] = (b"", [])
        return shelf

    def takes(self, name: str, payload: bytes, tag: Tag) -> None:
        self.journal[name][1].append((payload, tag))
        self.shelves[name].tcdeliver(payload, tag)

    def settles(self, name: str, tag: Tag) -> None:
        self.journal[name][1].append((None, tag))
        self.shelves[name].tcstable(tag)

    def restart(self, name: str) -> None:
        """The process ends; its journal is whole."""
        state, happened = self.journal[name]
        shelf = self.shelves[name] = self._shelf(name)
        self._give(name, state)
        for payload, tag in happened:
            if payload is None:
                self.settles(name, tag)
            else:
                self.takes(name, payload, tag)
        assert shelf.unreadable == 0

    def snapshot(self, name: str) -> None:
        """The journal begins anew."""
        self.journal[name] = (self.shelves[name].get_state(), [])

    def _give(self, name: str, state: bytes) -> None:
        self.shelves[name].set_state(state)
        self.journal[name] = (state, [])

    def delivered(self, name: str, delivery: Delivery) -> None:
        self.takes(name, delivery.payload, delivery.tag)

    def stable(self, name: str, tags: Iterable[Tag]) -> None:
        for tag in tags:
            self.settles(name, tag)

    # What applications do

    def issue(self, name: str, *calls: Sequence[Any]) -> Tag:
        """Each is [object, type, operation, argument, …], all in one message."""
        objects = self.shelves[name].objects
        entries: list[list[Any]] = []
        for obj, type_name, operation, *args in calls:
            after = [entry[2:] for entry in entries if entry[:2] == [obj, type_name]]
            prepared = objects.prepare((obj, type_name), operation, args, after)
            entries.append(objects.entry((obj, type_name), prepared))
        shelf = self.shelves[name]
        return shelf.send(shelf.packed(entries))

    def object(self, name: str, obj: str, type_name: str) -> Any:
        return self.shelves[name].objects.crdt((obj, type_name))

    def evict(self, names: Iterable[str], by: str) -> None:
        """They hear of that when nothing is cut any more."""
        for name in names:
            self.engines[by].evict(self.id(name))
        self.run()
        self.heal()
        self.run(5)

    def come_back(self, name: str, contact: str) -> None:
        """`name` has heard that it is evicted, and joins again; `send_again` comes next."""
        old = self.engines[name]
        assert old.standing is Standing.EVICTED
        self.parked[name] = Parked.of(old.state(), old.me, self.parked.get(name))
        self.pump()
        engine = self.join(name, contact, [old.me])
        self._give(name, self.shelves[contact].get_state())
        self.shelves[name].speak_for(Voice(self, name))
        self.snapshot(name)  # as a recording does
        while not self.parked[name].is_decided(engine):
            self.run(5)
        self.parked[name] = self.parked[name].meeting(engine)

    def missing(self, name: str) -> int:
        return len(self.parked[name].uncovered(self.engines[name]))

    def send_again(self, name: str, most: int = 1 << 30, *, fails: bool = False) -> None:
        """As `crdtcast.group.reissue` does it: so many of the messages that the group lacks. fails: the first one
        cannot be sent at once.
        """
        engine, shelf = self.engines[name], self.shelves[name]
        for operation in self.parked[name].uncovered(engine)[:most]:
            parked = self.parked[name]
            if fails:
                shelf.reissue(operation.payload, operation.dot)
                fails = False
            payload = shelf.reissue(operation.payload, operation.dot)
            if payload is None:
                left = tuple(each for each in parked.operations if each.dot != operation.dot)
                self.parked[name] = replace(parked, operations=left)
                continue
            (tag,) = self.send(name, payload)
            self.parked[name] = parked.reissued(operation, tag.dot)
            self.takes(name, payload, tag)

    def settle_old(self, name: str) -> None:
        engine = self.engines[name]
        for ended in self.parked[name].ended:
            if ended in engine.tombs:
                tag = engine.settle(ended)
                self.parked[name] = self.parked[name].settled(ended, tag.dot)
        self.run()
        if self.parked[name].may_be_dropped(engine):
            del self.parked[name]
            self.run()
