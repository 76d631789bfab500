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
from crdtcast.datatypes.maps import CATALOGUE

each_value = pytest.mark.parametrize("each", VALUES, ids=[each.crdt.TYPE for each in VALUES])
# A list and a text keep an identity for each element: docs/datatypes.md says how many bytes.
SIZED = [each for each in CONTAINERS if each.crdt.TYPE not in ("sequence", "text")]
each_container = pytest.mark.parametrize("each", SIZED, ids=[each.crdt.TYPE for each in SIZED])


def test_no_type_is_left_out() -> None:
    assert {each.crdt for each in VALUES} == set(CATALOGUE.values())


def compare(ours: int, plain: int) -> None:
    print(f"{ours:,} bytes, plain {plain:,}: {ours / plain:.2f} times")
    assert ours <= 1.5 * plain


def compare_map(each: Content, size: int) -> None:
    plain = occupied(lambda: {element(n): each.plain(n) for n in range(size)})
    map_of(each, 10)  # what is made once for a type does not count, here and below
    compare(occupied(lambda: map_of(each, size)), plain)


def compare_container(each: Container, size: int) -> None:
    container(each, 10)
    compare(occupied(lambda: container(each, size)), occupied(lambda: each.plain(size)))


@each_value
def test_map_of_stable_values_takes_the_memory_of_a_dict(each: Content) -> None:
    compare_map(each, 150)


@each_container
def test_stable_elements_take_the_memory_of_plain_ones(each: Container) -> None:
    compare_container(each, 1000)


@pytest.mark.slow
@each_value
def test_a_map_of_100_000_values(each: Content) -> None:
    compare_map(each, 100_000)


@pytest.mark.slow
@each_container
def test_100_000_elements(each: Container) -> None:
    compare_container(each, 100_000)
