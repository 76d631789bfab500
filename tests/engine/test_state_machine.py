"""Hypothesis drives three engines through their public interface, and sends them nonsense in between."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import (
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
    RolledBackError,
)
from crdtcast.simulator.oracle import Checker
from tests.effort import examples

from .group import Group, incarnation

NAMES = "abc"
members = st.sampled_from(NAMES)
places = st.integers(0, 5)

origins = st.sampled_from([incarnation(name) for name in "abcx"] + ["", "a", "a.b.0", "é.0"])
counters = st.integers(-2, 40) | st.sampled_from(["1", 1.5, None])
dots = st.builds(Dot, origins, counters)
nonsense = st.one_of(
    st.builds(Message, dots, st.lists(dots, max_size=3).map(tuple), st.binary(max_size=2)),
    st.builds(Digest, st.sampled_from(DigestKind), st.dictionaries(origins, counters)),
    st.sampled_from([None, 7, "text", b"bytes"]),
)


class Engines(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.group = Group(NAMES)
        self.checker = Checker(NAMES)

    @rule(name=members)
    def send(self, name):
        engine = self.group[name]
        if engine.reserved is not None:
            with pytest.raises(NotReadyError):
                engine.send(b"")
            return
        tag = engine.send(b"")
        self.checker.sent(name, tag.dot, tag)

    @rule(name=members)
    def reserve(self, name):
        engine = self.group[name]
        if engine.reserved is None:
            assert engine.reserve() == Dot(engine.me, engine.vector[engine.me] + 1)

    @rule(name=members, uses=st.booleans())
    def use_or_give_back(self, name, uses):
        engine = self.group[name]
        reserved = engine.reserved
        if reserved is None or not uses:
            engine.give_back()
            return
        tag = engine.use(b"")
        assert (tag.dot, tag.context) == reserved
        self.checker.sent(name, tag.dot, tag)

    @rule(name=members)
    def tick(self, name):
        self.group.tick(name)

    @rule(name=members)
    def poll(self, name):
        engine = self.group[name]
        expected = engine.has_deliverable()
        delivery = engine.poll()
        assert (delivery is not None) == expected
        assert delivery is None or engine.reserved is None
        if delivery is not None:
            self.checker.delivered(name, delivery.tag.dot, delivery.tag)

    @rule(name=members, limit=st.integers(1, 3))
    def stable(self, name, limit):
        engine = self.group[name]
        expected = engine.has_stable()
        tags = engine.poll_stable(limit)
        assert bool(tags) == expected
        assert len(tags) <= limit
        for tag in tags:
            self.checker.stable(name, tag.dot)

    def _packet(self, a, b, place):
        self.group.post()
        flight = self.group.flights.get((a, b), ())
        return flight[place] if place < len(flight) else None

    @rule(a=members, b=members, place=places, copies=st.integers(0, 2))
    def arrive(self, a, b, place, copies):
        packet = self._packet(a, b, place)
        if packet is not None:
            self.group.flights[a, b].remove(packet)
            for _ in range(copies):
                self.group[b].receive(self.group[a].me, packet)

    @rule(a=members, b=members)
    def link_or_cut(self, a, b):
        if a < b:
            (self.group.cut if (a, b) in self.group.up else self.group.link)(a, b)

    @precondition(lambda self: True)
    @rule(a=members, b=members, content=nonsense)
    def hear_nonsense(self, a, b, content):
        """Refused, with nothing changed. (What happens to make sense is not heard: it would be a lie.)"""
        if a == b:
            return
        engine = self.group[b]
        before = engine.state(), engine.counters(), engine.members
        probe = self._clone(b)
        try:
            probe.receive(self.group[a].me, content)
        except (RemoteProtocolError, RolledBackError, LocalProtocolError) as refusal:
            try:
                engine.receive(self.group[a].me, content)
            except type(refusal):
                pass
            else:
                raise AssertionError(f"{content} is refused by a fresh engine only") from None
        assert (engine.state(), engine.counters(), engine.members) == before

    def _clone(self, name):
        """An engine with the same state, to try on it whether an input makes sense."""
        source = self.group[name]
        clone = type(source)(source.me, NAMES, state=source.state())
        for other in NAMES:
            if other != name:
                clone.introduce(self.group[other].me)
        return clone

    @rule(name=members)
    def save_and_restore(self, name):
        state, reserved = self.group[name].state(), self.group[name].reserved
        restored = type(self.group[name])(self.group[name].me, NAMES, state=state)
        assert restored.state() == state
        if reserved is not None:
            restored.reserve(reserved.context)
            assert restored.reserved == reserved

    @invariant()
    def nothing_is_wrong(self):
        assert self.checker.findings == []

    def teardown(self):
        for name in NAMES:
            self.group[name].give_back()
        for a in NAMES:
            for b in NAMES:
                if a < b and (a, b) not in self.group.up:
                    self.group.link(a, b)
        for _ in range(200):
            self.group.pump()
            for name in NAMES:
                while self.group[name].has_deliverable():
                    self.poll(name)
                while self.group[name].has_stable():
                    self.stable(name, 100)
            if all(self.group[name].quiet for name in NAMES):
                break
            self.group.tick()
        assert self.checker.finish() == []


Engines.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestEngines = Engines.TestCase
