"""What counts as lost, doubled and different, and that clients write to objects of every type."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast import Replica, open_replica
from crdtcast.chaos.disks import ChaosDisk
from crdtcast.chaos.load import KINDS, FoundByLoad, LoadClient, Promised, Sums, compare, kind_of
from crdtcast.chaos.nodes import ChaosHost
from crdtcast.chaos.proxy import ProxyNetwork
from crdtcast.datatypes.maps import CATALOGUE
from crdtcast.exceptions import CrdtcastError
from crdtcast.service.admin.values import shown


def client() -> LoadClient:
    return LoadClient(
        ChaosHost("n1", ChaosDisk(Path("n1")), ProxyNetwork().place("n1"), ("127.0.0.1", 2)), 1.0
    )


def found(
    value: object, other: object, name: str, promised: Promised, *yielded: str
) -> tuple[int, int, int]:
    writing = client()
    writing.promised[name] = promised
    result = FoundByLoad()
    compare([writing], {"n1": {name: value}, "n2": {name: other}}, result, yielded)
    return len(result.lost), len(result.doubled), len(result.diverged)


def test_counter_lies_between_acknowledged_and_attempted() -> None:
    promised = Promised(acknowledged=5, uncertain=1)
    assert found(5, 5, "count-x", promised) == (0, 0, 0)
    assert found(6, 6, "count-x", promised) == (0, 0, 0)
    assert found(7, 7, "count-x", promised) == (0, 2, 0)
    assert found(4, 5, "count-x", promised) == (1, 0, 1)
    assert found(None, 5, "count-x", promised) == (1, 0, 1)


def test_set_holds_acknowledged_and_only_attempted_elements() -> None:
    promised = Promised(acknowledged=2, uncertain=1, elements={"a", "b"}, tried={"a", "b", "c"})
    assert found(["a", "b"], ["a", "b"], "set-x", promised) == (0, 0, 0)
    assert found(["a", "b", "c"], ["a", "b", "c"], "set-x", promised) == (0, 0, 0)
    assert found(["a"], ["a", "b"], "set-x", promised) == (1, 0, 1)
    assert found(["a", "b", "z"], ["a", "b", "z"], "set-x", promised) == (0, 2, 0)


def test_removed_element_is_gone_unless_its_removal_yielded() -> None:
    promised = Promised(
        elements={"a", "b", "c"}, tried={"a", "b", "c"}, removed={"a"}, removing={"a", "b"}
    )
    assert found(["c"], ["c"], "set-x", promised) == (0, 0, 0)
    assert found(["b", "c"], ["b", "c"], "set-x", promised) == (0, 0, 0)
    assert found(["a", "c"], ["a", "c"], "set-x", promised) == (2, 0, 0)
    line = "is not sent again: ['set-x', 'set_aw', 'remove', 'a']"
    assert found(["a", "c"], ["a", "c"], "set-x", promised, line) == (0, 0, 0)
    other = "is not sent again: ['set-y', 'set_aw', 'remove', 'a']"
    assert found(["a", "c"], ["a", "c"], "set-x", promised, other) == (2, 0, 0)


def test_texts_and_lists_have_each_mark_once() -> None:
    promised = Promised(elements={"a", "b"}, tried={"a", "b"})
    assert found("a b ", "a b ", "text-x", promised) == (0, 0, 0)
    assert found(["a", "b", "a"], ["a", "b", "a"], "list-x", promised) == (0, 2, 0)
    assert found("b ", "b ", "text-x", promised) == (2, 0, 0)


def test_registers_agree_and_hold_a_written_value() -> None:
    promised = Promised(tried={"x", "y"})
    assert found("x", "x", "last", promised) == (0, 0, 0)
    assert found("x", "y", "last", promised) == (0, 0, 1)
    assert found("z", "z", "last", promised) == (0, 2, 0)


def test_object_without_a_writer_counts_as_doubled() -> None:
    result = FoundByLoad()
    compare([], {"n1": {"count-x": 1}, "n2": {}}, result)
    assert len(result.doubled) == 1


def test_every_type_is_written() -> None:
    assert {kind.type for kind in KINDS.values()} == set(CATALOGUE)


class Asked:
    """A node that does what it is asked to, and takes one of so many operations without an answer."""

    def __init__(self, replica: Replica, silent_every: int) -> None:
        self.replica = replica
        self._silent_every = silent_every
        self._number = 0

    async def ask(self, do: str, **more: Any) -> None:
        self._number += 1
        self.replica.perform((more["name"], more["type"]), more["operation"], *more["args"])
        if self._number % self._silent_every == 0:
            raise CrdtcastError("it was killed")

    def values(self) -> dict[str, Any]:
        held = self.replica.held
        keys = {(line.name, line.type) for line in self.replica.objects()}
        return {name: shown(held.crdt((name, type_)).value) for name, type_ in keys}


@pytest.mark.parametrize("silent_every", [7, 10**9])
def test_clients_find_every_promised_value(silent_every: int) -> None:
    async def write() -> dict[str, Any]:
        async with open_replica("a", found=True) as replica:
            asked = Asked(replica, silent_every)
            for _ in range(12 * len(KINDS)):
                with suppress(CrdtcastError):
                    await writing._write(asked)
            return asked.values()

    writing = client()
    result, values = FoundByLoad(), trio.run(write)
    compare([writing], {"n1": values, "n2": dict(values)}, result)
    assert result == FoundByLoad()
    assert any(each.removed for each in writing.promised.values())
    for name in values:
        if not isinstance(kind_of(name), Sums) and writing.promised[name].elements:
            damaged = FoundByLoad()
            compare([writing], {"n1": {**values, name: None}}, damaged)
            assert damaged.lost, name
