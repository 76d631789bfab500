"""What holds of every type of the catalogue: it is what its history says, in random schedules and in
every causal order of small cases; a container's reset takes what it has seen.

More schedules, with 3 to 5 replicas, and all orders of three operations:
CRDTCAST_EFFORT=release pytest tests/datatypes/test_catalogue.py
"""

import pytest

from crdtcast import datatypes
from crdtcast.datatypes.maps import CATALOGUE
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
from tests.effort import examples, first_seed

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
    exported = (getattr(datatypes, name) for name in datatypes.__all__)
    types = {one for one in exported if isinstance(one, type) and hasattr(one, "TYPE")}
    assert {case.crdt for case in CASES} == set(CATALOGUE.values()) == types


@each_case
def test_type_matches_its_specification(case: Case) -> None:
    check_crdt(
        case.crdt, case.operations, case.specification, examples=examples(20), seed=first_seed()
    )


@each_case
def test_container_reset_removes_only_what_it_has_seen(case: Case) -> None:
    check_forgetting(case, examples=examples(15), seed=first_seed())


@each_case
def test_two_operations_in_every_order(case: Case) -> None:
    ran = check_every_order(case.crdt, case.calls, case.specification, operations=2)
    assert ran.histories + ran.refused == len(case.calls) + 3 * len(case.calls) ** 2


@pytest.mark.slow
@each_case
def test_three_operations_in_every_order(case: Case) -> None:
    check_every_order(case.crdt, case.calls, case.specification, operations=3)


@pytest.mark.slow
@pytest.mark.parametrize("members", [4, 5])
@each_case
def test_type_matches_its_specification_with_more_replicas(case: Case, members: int) -> None:
    check_crdt(
        case.crdt,
        case.operations,
        case.specification,
        members=members,
        examples=examples(20),
        actions=40,
        seed=first_seed(),
    )
    check_forgetting(case, examples=examples(8), members=members, seed=first_seed())
