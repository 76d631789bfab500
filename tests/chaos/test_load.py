"""What counts as lost, doubled and different."""

from pathlib import Path

from crdtcast.chaos.disks import Disk
from crdtcast.chaos.load import Client, Found, Promised, compare
from crdtcast.chaos.nodes import Host
from crdtcast.chaos.proxy import Network


def found(value: object, other: object, name: str, promised: Promised) -> tuple[int, int, int]:
    client = Client(Host("n1", Disk(Path("n1")), Network().place("n1"), ("127.0.0.1", 2)), 1.0)
    client.promised[name] = promised
    result = Found()
    compare([client], {"n1": {name: value}, "n2": {name: other}}, result)
    return len(result.lost), len(result.doubled), len(result.diverged)


def test_counters_are_between_what_was_acknowledged_and_what_may_have_been_done() -> None:
    promised = Promised(acknowledged=5, uncertain=1)
    assert found(5, 5, "count-x", promised) == (0, 0, 0)
    assert found(6, 6, "count-x", promised) == (0, 0, 0)
    assert found(7, 7, "count-x", promised) == (0, 2, 0)
    assert found(4, 5, "count-x", promised) == (1, 0, 1)
    assert found(None, 5, "count-x", promised) == (1, 0, 1)


def test_elements_that_were_acknowledged_are_there_and_no_others_come_from_nowhere() -> None:
    promised = Promised(acknowledged=2, uncertain=1, elements={"a", "b"}, tried={"a", "b", "c"})
    assert found(["a", "b"], ["a", "b"], "set-x", promised) == (0, 0, 0)
    assert found(["a", "b", "c"], ["a", "b", "c"], "set-x", promised) == (0, 0, 0)
    assert found(["a"], ["a", "b"], "set-x", promised) == (1, 0, 1)
    assert found(["a", "b", "z"], ["a", "b", "z"], "set-x", promised) == (0, 2, 0)


def test_registers_have_to_be_alike_and_show_what_somebody_wrote() -> None:
    promised = Promised(tried={"x", "y"})
    assert found("x", "x", "last", promised) == (0, 0, 0)
    assert found("x", "y", "last", promised) == (0, 0, 1)
    assert found("z", "z", "last", promised) == (0, 2, 0)


def test_objects_that_nobody_has_written_come_from_nowhere() -> None:
    result = Found()
    compare([], {"n1": {"count-x": 1}, "n2": {}}, result)
    assert len(result.doubled) == 1
