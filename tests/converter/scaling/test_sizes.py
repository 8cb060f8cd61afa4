"""The sizes of collectives in a scaled job."""

import pytest
from support.scaled_jobs import ALL_GATHER, ALL_REDUCE, BROADCAST, KB, REDUCE_SCATTER, Rank, plan_of, scaled, sizes


def test_shards_get_smaller_where_the_whole_stays() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_GATHER, [0, 1], 500_001, 100 * KB, backward=False)
        one.meet(REDUCE_SCATTER, [0, 1], 1_000_002, 100 * KB)
        one.meet(ALL_REDUCE, [0, 1], 7, 10 * KB)
    graphs = [one.build() for one in job]
    assert sizes(scaled(graphs, 4)[5]) == [125_001, 1_000_002, 7]


@pytest.mark.parametrize(
    ("target", "expected"), [("generic", [1, 75, 500]), ("astra-sim", [2, 128, 500])], ids=["generic", "astra-sim"]
)
def test_shards_for_astra_sim_keep_the_bytes_without_which_it_never_ends(target: str, expected: list[int]) -> None:
    """What was smaller before stays as it is."""
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.metadata["target"] = target
        one.meet(REDUCE_SCATTER, [0, 1], 4, 10 * KB)
        for size in (2, 150, 1000):
            one.meet(ALL_GATHER, [0, 1], size, 10 * KB, backward=False)
    assert sizes(scaled([one.build() for one in job])[0])[1:] == expected


def test_what_is_gathered_without_being_scattered_grows_with_the_group() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, 100 * KB)
        one.meet(ALL_GATHER, [0, 1], 64, 10 * KB, backward=False)
    graphs = [one.build() for one in job]
    assert sizes(scaled(graphs)[0]) == [1_000_000, 64]
    assert plan_of(graphs).undivided == 2


def test_the_root_of_a_joined_group_is_one_for_all() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, 100 * KB)
        one.meet(BROADCAST, [0, 1], 1000, 10 * KB, comm_src=1)
    graphs = scaled([one.build() for one in job], 3)
    assert {int(graph.integers("comm_src").max()) for graph in graphs} == {1}


def test_groups_that_stay_as_they_are_keep_what_they_gather() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_REDUCE, range(4), 1_000_000, 100 * KB, pg_name="0", pg_desc="dp")
        one.meet(ALL_GATHER, [one.rank // 2 * 2, one.rank // 2 * 2 + 1], 64, 10 * KB, backward=False, pg_name="tp")
    graphs = [one.build() for one in job]
    assert sizes(scaled(graphs)[0]) == [1_000_000, 64]
    assert plan_of(graphs).undivided == 0
