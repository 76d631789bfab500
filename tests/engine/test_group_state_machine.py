"""Hypothesis drives a group whose members come and go through its public interface, with nonsense in between.

Whatever is refused, of a caller or of a peer, leaves the state as it was.
"""

from dataclasses import replace
from typing import Any

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from crdtcast.causality.messages import Digest, DigestKind, Ended, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine, Standing
from crdtcast.exceptions import CrdtcastError, LocalProtocolError
from tests.effort import examples
from tests.engine.town import Town

NAMES = "abcdef"
members = st.sampled_from(NAMES)
counters = st.integers(-2, 40) | st.sampled_from(["1", 1.5, None])
known = st.sampled_from(
    [f"{name}.{k:013x}0000" for name in "ab" for k in (1, 2, 3)]
    + ["a.1+b.2+3", "q.1+a.00000000000010000+99", "", "a", "a.b+c", "é.0", "a.1+b.2+0"]
)
dots = st.builds(Dot, known, counters)
payloads = st.binary(max_size=3) | st.lists(
    known | counters | st.lists(known | counters, max_size=3), max_size=4
).map(msgpack.packb)
nonsense = st.one_of(
    st.builds(Message, dots, st.lists(dots, max_size=3).map(tuple), payloads, st.integers(0, 8)),
    st.builds(
        Digest,
        st.sampled_from(DigestKind),
        st.dictionaries(known, counters),
        st.dictionaries(known, counters),
        counters,
    ),
    st.builds(Ended, st.sampled_from(["a.1", "", "x"]), st.none() | st.integers(0, 3)),
    st.sampled_from([None, 7, "text", b"bytes"]),
)


def _everything(engine: GroupEngine) -> tuple[Any, ...]:
    now = engine.state(), engine.counters(), engine.standing, engine.members, engine.victims
    return *now, engine.reserved


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.town = Town("ab")
        self.sent = 0

    def _attempt(self, name: str, call: Any) -> bool:
        """Whether a call on `name`'s engine is allowed; a refused one changes nothing."""
        engine = self.town.engines[name]
        before = _everything(engine)
        try:
            call(engine)
        except LocalProtocolError:
            assert _everything(engine) == before
            return False
        return True

    def _present(self, name: str) -> bool:
        return name in self.town.engines

    @rule(name=members)
    def send(self, name: str) -> None:
        if self._present(name):
            payload = b"%d" % self.sent
            if self._attempt(name, lambda engine: engine.send(payload)):
                self.sent += 1
                self.town.log[name].append(payload)

    @rule(name=members)
    def reserve(self, name: str) -> None:
        if self._present(name):
            self._attempt(name, lambda engine: engine.reserve())

    @rule(name=members, uses=st.booleans())
    def use_or_give_back(self, name: str, uses: bool) -> None:
        if not self._present(name):
            return
        reserved = self.town.engines[name].reserved
        if not uses:
            self.town.engines[name].give_back()
            return
        payload = b"%d" % self.sent
        if self._attempt(name, lambda engine: engine.use(payload)):
            self.sent += 1
            self.town.log[name].append(payload)
            engine = self.town.engines[name]
            assert reserved is not None
            assert engine.tag(reserved.dot).context == reserved.context

    @rule(ticks=st.integers(1, 12))
    def time_passes(self, ticks: int) -> None:
        reserved = {e.me: (e.reserved, e.vector[e.me]) for e in self.town.engines.values()}
        reserved = {me: before for me, before in reserved.items() if before[0] is not None}
        self.town.run(ticks)
        for engine in self.town.engines.values():
            assert engine.me not in reserved or reserved[engine.me] == (
                engine.reserved,
                engine.vector[engine.me],
            )
        for name in list(self.town.engines):
            if self.town.engines[name].standing in (Standing.LEFT, Standing.EVICTED):
                self.town.take_down(name)

    @rule(name=members, contact=members)
    def join(self, name: str, contact: str) -> None:
        if self._present(contact) and not self._present(name):
            engine = self.town.engines[contact]
            before = _everything(engine)
            former = [m for m in engine.members if m.startswith(f"{name}.")]
            try:
                self.town.join(name, contact, former)
            except CrdtcastError:
                assert _everything(engine) == before

    @rule(name=members)
    def leave(self, name: str) -> None:
        if self._present(name):
            self._attempt(name, lambda engine: engine.leave())

    @rule(name=members, victim=members, force=st.booleans())
    def evict(self, name: str, victim: str, force: bool) -> None:
        if self._present(name) and self._present(victim):
            it = self.town.id(victim)
            force = force and len(self.town.engines[name].members) < 3
            self._attempt(name, lambda engine: engine.evict(it, force=force))

    @rule(name=members, other=members)
    def settle_or_surrender(self, name: str, other: str) -> None:
        if self._present(name) and self._present(other):
            self._attempt(name, lambda engine: engine.settle(self.town.id(other)))
            self._attempt(name, lambda engine: engine.surrender())

    @rule(a=members, b=members)
    def cut(self, a: str, b: str) -> None:
        if a != b and self._present(a) and self._present(b):
            self.town.cut([a], [b])

    @rule()
    def heal(self) -> None:
        self.town.heal()

    @rule(a=members, b=members, content=nonsense)
    def hear_nonsense(self, a: str, b: str, content: Any) -> None:
        """Refused or ignored, with nothing changed. (What happens to make sense is not heard: it would be a lie.)"""
        if a == b or not self._present(a) or not self._present(b):
            return
        engine, sender = self.town.engines[b], self.town.id(a)
        probe = GroupEngine(engine.me, engine.state())
        try:
            probe.receive(sender, content)
        except CrdtcastError as refusal:
            before = _everything(engine)
            try:
                engine.receive(sender, content)
            except type(refusal):
                pass
            after = _everything(engine)
            # A victim is not even listened to, which is counted.
            assert (after[0], *after[2:]) == (before[0], *before[2:])

    @rule(name=members)
    def save_and_restore(self, name: str) -> None:
        if self._present(name):
            engine = self.town.engines[name]
            state = engine.state()
            if engine.standing in (Standing.MEMBER, Standing.LEAVING):
                restored = GroupEngine(engine.me, state).state()
                assert set(restored.context) == set(state.context)
                assert replace(restored, context=state.context) == state

    def teardown(self) -> None:
        """Whoever agrees on the members has delivered the same, in the end."""
        for engine in self.town.engines.values():
            engine.give_back()
        self.town.heal()
        self.town.run(120)
        views: dict[frozenset[str], list[str]] = {}
        for name, engine in self.town.engines.items():
            if engine.standing is Standing.MEMBER and not engine.victims:
                views.setdefault(frozenset(engine.members), []).append(name)
        for names in views.values():
            for name in names:
                assert sorted(self.town.log[name]) == sorted(self.town.log[names[0]])
                assert len(set(self.town.log[name])) == len(self.town.log[name])


Groups.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestGroups = Groups.TestCase


def test_kinds_that_are_not_known_are_carried_along() -> None:
    town = Town("abc")
    later = town.take_down("a")  # a program of a later version
    assert later is not None
    town.cut("b", "c")
    town.engines["b"].receive(later.me, Message(Dot(later.me, 1), (), b"?", 99))
    town.run()
    assert town.engines["b"].vector[later.me] == 1
    town.heal()
    town.run()
    assert town.engines["c"].vector[later.me] == 1, "b has handed it on"
    assert town.log["c"] == [], "and it means nothing to the application"
