"""Every type as a value of every map: replicas take what a batch is compressed to, and it means what was issued."""

import random

import pytest

from crdtcast.datatypes import AWMap, GOMap
from crdtcast.datatypes.maps import NestedMap
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing import Group
from crdtcast.testing.model_group import Call
from tests.datatypes.cases import Case
from tests.datatypes.test_catalogue import CASES
from tests.effort import seeds

OUTER = [GOMap, AWMap]
each_pair = pytest.mark.parametrize(
    ("outer", "inner"),
    [(outer, case) for outer in OUTER for case in CASES],
    ids=[f"{case.crdt.TYPE}-in-{outer.TYPE}" for outer in OUTER for case in CASES],
)


def batch(source: random.Random, outer: type[NestedMap], inner: Case) -> list[Call]:
    resets = [(name,) for name in ("reset",) if name in inner.crdt.OPERATIONS]
    calls: list[Call] = []
    for _ in range(source.randrange(2, 7)):
        key = source.choice(["k", "l"])
        if "remove" in outer.OPERATIONS and source.random() < 0.2:
            calls.append(Call("remove", key, inner.crdt))
        elif "reset" in outer.OPERATIONS and source.random() < 0.1:
            calls.append(Call("reset"))
        else:
            operation = list(source.choice([*inner.calls, *resets]))
            calls.append(Call("update", key, inner.crdt, operation))
    return calls


@each_pair
def test_compressed_batch_has_the_effect_of_its_operations(
    outer: type[NestedMap], inner: Case
) -> None:
    compared = 0
    for seed in seeds(20):
        source = random.Random(seed)
        plain, short = (Group(outer, 1) for _ in range(2))
        for _ in range(6):
            calls = batch(source, outer, inner)
            stable = source.random() < 0.5
            try:
                for group in (plain, short):
                    (only,) = group.members
                    group.issue(only, calls, compressed=group is short)
                    group.stabilise(only, group.can_stabilise(only) if stable else [])
            except InvalidOperationError:
                continue
            compared += 1
            assert plain.members[0].crdt == short.members[0].crdt
    assert compared > 0
