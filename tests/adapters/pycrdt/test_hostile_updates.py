"""Whatever an update contains, it is refused and changes nothing, or is applied as a whole; no native code panics."""

import random

import pytest
from pycrdt import Doc

from crdtcast.adapters.pycrdt import YDoc
from crdtcast.adapters.pycrdt.update import parsed, parsed_vector
from crdtcast.causality.tags import Dot, Tag
from crdtcast.exceptions import InvalidOperationError
from tests.adapters.pycrdt.crafted import crafted
from tests.adapters.pycrdt.editing import edit, edited
from tests.effort import examples


def tag(counter: int) -> Tag:
    return Tag(Dot("a", counter), (), {"a": counter - 1})


def test_crafted_updates_are_refused_or_applied_whole(
    capfd: pytest.CaptureFixture[str],
) -> None:
    taken = refused = 0
    for seed in range(examples(120)):
        rng = random.Random(seed)
        doc: Doc[object] = Doc(client_id=1)
        for _ in range(rng.randint(3, 20)):
            edit(doc, rng)
        base = doc.get_update()
        update = parsed(edited(base, 2, seed))
        known = {
            client: clock
            for client, clock in (parsed_vector(doc.get_state()) | update.ends()).items()
            if clock
        }
        crdt = YDoc()
        crdt.effect(["apply", base], tag(1))
        before, vector = crdt.digest(), parsed_vector(crdt.state_vector())
        for _ in range(6):
            bad = crafted(update, known, rng)
            try:
                operation = crdt.prepare("apply", bad)
            except InvalidOperationError:
                refused += 1
                assert crdt.digest() == before
                continue
            taken += 1
            crdt.effect(operation, tag(2))
            ends = parsed(bad).ends()
            found = parsed_vector(crdt.state_vector())
            assert found == vector | {c: max(e, vector.get(c, 0)) for c, e in ends.items()}
            again = YDoc.restore(crdt.snapshot())
            assert again.state_vector() == crdt.state_vector()
            crdt.forget(tag(3))
            assert not any(crdt.value.values())
            break
    assert taken > refused / 20 > 0
    assert "panicked" not in capfd.readouterr().err
