"""Collectives of all ranks in networks of several dimensions."""

import pytest
from execgraph.converter.ranks import stages
from execgraph.schema.graph import CollectiveType

REDUCE_SCATTER, ALL_REDUCE, ALL_GATHER, ALL_TO_ALL = (
    int(kind)
    for kind in (
        CollectiveType.REDUCE_SCATTER,
        CollectiveType.ALL_REDUCE,
        CollectiveType.ALL_GATHER,
        CollectiveType.ALL_TO_ALL,
    )
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ALL_REDUCE, [(0, REDUCE_SCATTER, 800), (2, ALL_REDUCE, 200), (0, ALL_GATHER, 200)]),
        (REDUCE_SCATTER, [(0, REDUCE_SCATTER, 800), (2, REDUCE_SCATTER, 200)]),
        (ALL_GATHER, [(2, ALL_GATHER, 800), (0, ALL_GATHER, 1600)]),
        (ALL_TO_ALL, [(0, ALL_TO_ALL, 800), (2, ALL_TO_ALL, 800)]),
    ],
)
def test_dimensions_of_one_rank_are_passed_over(kind: int, expected: list[tuple[int, int, int]]) -> None:
    assert [tuple(stage) for stage in stages(kind, (4, 1, 2), 800)] == expected


def test_one_dimension_has_one_stage() -> None:
    assert [tuple(stage) for stage in stages(ALL_REDUCE, (8,), 800)] == [(0, ALL_REDUCE, 800)]
