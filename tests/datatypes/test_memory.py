"""When all is stable, data occupy about what plain Python values do (tracemalloc)."""

import pytest

from benchmarks.memory import (
    CONTAINERS,
    VALUES,
    Container,
    Content,
    container,
    element,
    map_of,
    occupied,
)
from crdtcast.datatypes.maps import catalogue

each_value = pytest.mark.parametrize("each", VALUES, ids=[each.crdt.TYPE for each in VALUES])
SIZED = [each for each in CONTAINERS if each.crdt.TYPE not in ("sequence", "text")]


def test_no_type_is_left_out() -> None:
    assert {each.crdt for each in VALUES} == set(catalogue().values())


def compare(each: Content, size: int) -> None:
    ours = occupied(lambda: map_of(each, size))
    plain = occupied(lambda: {element(n): each.plain(n) for n in range(size)})
    print(f"{ours / size:.0f} bytes a value, plain {plain / size:.0f}: {ours / plain:.2f} times")
    assert ours <= 1.5 * plain


@each_value
def test_a_map_of_small_stable_values_takes_what_a_plain_dict_does(each: Content) -> None:
    compare(each, 400)


@pytest.mark.slow
@each_value
def test_a_map_of_100_000_values(each: Content) -> None:
    compare(each, 100_000)


@pytest.mark.slow
@pytest.mark.parametrize("each", SIZED, ids=[each.crdt.TYPE for each in SIZED])
def test_100_000_elements_take_what_plain_ones_do(each: Container) -> None:
    size = 100_000
    ours, plain = occupied(lambda: container(each, size)), occupied(lambda: each.plain(size))
    print(f"{ours / size:.0f} bytes an element, plain {plain / size:.0f}: {ours / plain:.2f} times")
    assert ours <= 1.5 * plain
