import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.member_id import name_of, new_incarnation, valid_incarnation, valid_name
from crdtcast.exceptions import ConfigurationError

NOW = 1_764_000_000_000_000


def test_an_id_holds_its_name_and_a_time_that_fits():
    incarnation = new_incarnation("eu-1", NOW, 0xABCD)
    assert name_of(incarnation) == "eu-1"
    assert valid_incarnation(incarnation)
    assert int(incarnation.rpartition(".")[2], 16) == NOW << 16 | 0xABCD


@given(st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**20)), min_size=2, max_size=20))
def test_ids_of_one_name_increase_even_if_the_clock_goes_back(starts):
    previous = None
    for now, bits in starts:
        incarnation = new_incarnation("a", now, bits, previous)
        assert previous is None or incarnation > previous
        assert len(incarnation) == len("a.") + 17
        previous = incarnation


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", "x" * 33, "a\n"])
def test_invalid_node_name_is_refused(name):
    assert not valid_name(name)
    with pytest.raises(ConfigurationError, match="node name"):
        new_incarnation(name, NOW, 0)


def test_invalid_incarnation_is_rejected():
    assert not valid_incarnation("a")
    assert not valid_incarnation("a.")
    assert not valid_incarnation(".00")
    assert not valid_incarnation("a.b.00")
    assert name_of("a") == ""


def test_previous_must_be_of_the_same_name_and_the_time_must_fit():
    with pytest.raises(ValueError, match="not an earlier incarnation"):
        new_incarnation("a", NOW, 0, previous=new_incarnation("b", NOW, 0))
    with pytest.raises(ValueError, match="outside the times"):
        new_incarnation("a", 1 << 52, 0)
