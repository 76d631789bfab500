"""What holds of every type of the catalogue: it is what its history says, in random schedules and in
every causal order of small cases; a container's reset takes what it has seen.

2,000 schedules a type, with 3 to 5 replicas, and all orders of three operations:
pytest tests/datatypes/test_catalogue.py -m slow
"""

import pytest

from crdtcast.datatypes.maps import catalogue
from crdtcast.testing import check_crdt, check_every_order
from tests.datatypes import (
    test_counters,
    test_flags,
    test_maps,
    test_numbers,
    test_registers,
    test_sequence,
    test_sets,
)
from tests.datatypes.cases import Case, check_forgetting

CASES = [
    *test_sets.CASES,
    *test_counters.CASES,
    *test_registers.CASES,
    *test_flags.CASES,
    *test_numbers.CASES,
    *test_maps.CASES,
    *test_sequence.CASES,
]
each_case = pytest.mark.parametrize("case", CASES, ids=[case.crdt.__name__ for case in CASES])


def test_no_type_is_left_out() -> None:
    assert {case.crdt for case in CASES} == set(catalogue().values())


@each_case
def test_a_type_is_what_its_history_says(case: Case) -> None:
    check_crdt(case.crdt, case.operations, case.specification, examples=20)


@each_case
def test_a_reset_by_a_container_takes_what_it_has_seen(case: Case) -> None:
    check_forgetting(case, examples=15)


@each_case
def test_two_operations_in_every_order(case: Case) -> None:
    ran = check_every_order(case.crdt, case.calls, case.specification, operations=2)
    assert ran.histories + ran.refused == len(case.calls) + 3 * len(case.calls) ** 2


@pytest.mark.slow
@each_case
def test_three_operations_in_every_order(case: Case) -> None:
    check_every_order(case.crdt, case.calls, case.specification, operations=3)


@pytest.mark.slow
@pytest.mark.parametrize(("members", "examples"), [(3, 1000), (4, 600), (5, 400)])
@each_case
def test_campaign(case: Case, members: int, examples: int) -> None:
    check_crdt(
        case.crdt,
        case.operations,
        case.specification,
        members=members,
        examples=examples,
        actions=40,
        seed=members,
    )
    check_forgetting(case, examples=150, members=members)
