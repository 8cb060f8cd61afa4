"""Scaled jobs: who sends to whom, ranks that are removed, and what is refused."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import graph_calls, match, recorded_groups
from execgraph.converter.scaling import rank_facts
from execgraph.converter.scaling.roles import NamedGroup
from execgraph.schema.arguments import ASTRA_SIM
from execgraph.schema.comm_groups import LARGEST_JOB
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import ExecutionGraph, NodeType
from hypothesis import given, strategies as st
from support.graphs import GraphBuilder
from support.scaled_jobs import (
    ALL_REDUCE,
    ALL_TO_ALL,
    KB,
    REDUCE_SCATTER,
    Rank,
    data_parallel,
    lengths,
    line,
    plan_of,
    scaled,
    stages,
    tensor_by_data,
)


def test_ranks_of_two_jobs_are_refused() -> None:
    graphs = data_parallel(4)
    graphs[3].metadata["world_size"] = 8
    with pytest.raises(DataError, match="rank 2 is of a job of 4 ranks, rank 3 of one of 8: build each job by itself"):
        plan_of(graphs, 2)


def test_a_group_may_be_named_with_the_only_type_that_it_has() -> None:
    named, typed = (plan_of(data_parallel(2), 2, groups=(group,)) for group in ("0", "0=all_reduce"))
    assert [role.joined for role in typed.roles] == [role.joined for role in named.roles] != [""]


# messages


def test_messages_stay_in_their_copy() -> None:
    for copy, graph in enumerate(scaled(stages(2), 2)[::2]):
        sends = graph.type == NodeType.COMM_SEND
        ends = [graph.integers(f"comm_{end}")[sends].tolist() for end in ("src", "dst", "tag")]
        assert ends == [[2 * copy] * 2, [2 * copy + 1] * 2, [0, 1]]


@given(st.integers(1, 3), st.integers(2, 4), st.integers(2, 3))
def test_every_message_has_two_ends_and_every_group_its_members(replicas: int, copies: int, more: int) -> None:
    graphs = scaled(stages(replicas + 1), copies)
    graphs = scaled(graphs, more)
    rows = [np.flatnonzero(np.isin(graph.type, (5, 6, 7))) for graph in graphs]
    calls = [graph_calls(graph, own, rank) for rank, (graph, own) in enumerate(zip(graphs, rows, strict=True))]
    found = match(calls)
    ends = Counter(number for own in found.matched for number in own.tolist())
    messages, collectives = ends_by_type(calls, found.matched, ends)
    assert set(messages) == {2}
    assert set(collectives) == {(replicas + 1) * copies * more}
    told = Counter(
        (int(call[0]), int(call[1]), int(call[2]), int(call[3]))
        for own in calls
        for call in zip(own.type, own.source, own.target, own.tag, strict=True)
        if call[0] != NodeType.COMM_COLL
    )
    assert set(told.values()) == {1}
    for rank, graph in enumerate(graphs):
        known = recorded_groups(graph)
        assert all(rank in ranks and max(ranks) < len(graphs) for ranks in known.lists)
        assert graph.metadata["rank"] == rank


def ends_by_type(calls: Sequence[Any], matched: Sequence[Any], ends: Counter[int]) -> tuple[list[int], list[int]]:
    """How many ends each message has, and how many members each collective."""
    of = [
        (int(kind) == NodeType.COMM_COLL, ends[number])
        for own, numbers in zip(calls, matched, strict=True)
        for kind, number in zip(own.type.tolist(), numbers.tolist(), strict=True)
    ]
    return [count for is_collective, count in of if not is_collective], [count for is_one, count in of if is_one]


# fewer ranks


def test_replicas_can_be_removed() -> None:
    graphs = scaled(stages(3), 1, removed=(2, 3))
    assert [recorded_groups(graph).lists for graph in graphs] == [[(0, 2)], [(1, 3)], [(0, 2)], [(1, 3)]]
    assert lengths(graphs[0]) == pytest.approx([line(ALL_REDUCE, 2, size) for size in (1_000_000, 2_000_000)], rel=1e-3)
    assert lengths(scaled(stages(3), 2, removed=(2, 3))[0]) == pytest.approx(
        [line(ALL_REDUCE, 4, size) for size in (1_000_000, 2_000_000)], rel=1e-3
    )


@pytest.mark.parametrize(
    ("job", "removed", "why"),
    [
        (stages(3), (2,), "the messages from rank 2 to rank 3 would lose one end; that is another program"),
        (tensor_by_data(), (0, 2), r"group 0,1 \(tp\) would lose members and is no data-parallel one; that is another"),
        (data_parallel(2), (1,), r"group 0,1 \(0\) would have one member left, which exchanges nothing"),
        (data_parallel(2), (0, 1), "no rank is left"),
        (data_parallel(2), (9, 5), "rank 5 cannot be removed: the job has the ranks 0,1"),
    ],
)
def test_what_would_be_another_program_is_refused(
    job: list[ExecutionGraph], removed: tuple[int, ...], why: str
) -> None:
    with pytest.raises(DataError, match=why):
        plan_of(job, 1, removed=removed)


@pytest.mark.parametrize(("ranks", "text"), [([0, 0], "0,0"), ([0, 2], "0,2"), ([-1, 1], "-1,1")])
def test_graphs_of_one_rank_or_of_none_of_the_job_are_refused(ranks: list[int], text: str) -> None:
    graphs = data_parallel(2)
    for graph, rank in zip(graphs, ranks, strict=True):
        graph.metadata["rank"] = rank
    with pytest.raises(
        DataError, match=f"the ranks of the graphs, {text}, are no ranks of a job of 2: build the whole"
    ):
        plan_of(graphs)


def test_a_group_without_recorded_ranks_is_refused() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, 100 * KB, pg_desc="dp")
        one.meet(ALL_REDUCE, [], 1000, 9 * KB, pg_name="other")
    with pytest.raises(DataError, match="it is not recorded which ranks are in group"):
        plan_of([one.build() for one in job])


@pytest.mark.parametrize("text", ["dp", "a=b", "a=all_reduce,b", "=all_reduce"])
def test_what_does_not_end_in_types_is_the_name_of_a_group(text: str) -> None:
    assert NamedGroup.of(text) == NamedGroup(text, text)
    named = NamedGroup.of("a=b=all_reduce,all_to_all")
    assert (named.name, named.kinds) == ("a=b", {ALL_REDUCE, ALL_TO_ALL})


def test_a_group_may_go_as_a_whole_and_two_replicas_are_enough() -> None:
    plan = plan_of(tensor_by_data(), 2, removed=(2, 3))
    assert plan.ranks.keys() == {0, 1}
    assert [recorded_groups(graph).lists for graph in scaled(tensor_by_data(), 2, removed=(2, 3))] == [
        [(0, 1), (0, 2)],
        [(0, 1), (1, 3)],
        [(2, 3), (0, 2)],
        [(2, 3), (1, 3)],
    ]


# groups of the scaled job


@pytest.mark.parametrize(("target", "name"), [("generic", "1"), (ASTRA_SIM, "")])
def test_only_astra_sim_has_no_name_for_the_group_of_all(target: str, name: str) -> None:
    graphs = data_parallel(2)
    for graph in graphs:
        graph.metadata["target"] = target
    for graph in scaled(graphs, 2):
        assert {graph.texts("pg_name")[row] for row in np.flatnonzero(graph.type == NodeType.COMM_COLL)} == {name}
    part = scaled([*tensor_by_data()], 2)[0]
    assert {part.texts("pg_name")[row] for row in np.flatnonzero(part.type == NodeType.COMM_COLL)} == {"1", "3"}


def test_what_a_graph_does_not_say_of_its_rank_is_unknown() -> None:
    graph = GraphBuilder()
    graph.activity("gemm", 0, 5)
    known = graph.build()
    del known.attributes["is_cpu_op"]
    facts = rank_facts(known)
    assert (facts.rank, facts.source, facts.world_size, facts.target, facts.has_host) == (-1, -1, -1, "", False)


# what is refused


def test_ranks_do_the_same_work_whose_kernels_are_the_same_as_often() -> None:
    def work(*kernels: str, copies: int = 0) -> str:
        graph = GraphBuilder(rank=0)
        for number, name in enumerate(kernels):
            graph.activity(name, 10 * number, 5, cat="kernel")
        for number in range(copies):
            graph.activity("copy", 1_000 + 10 * number, 5, cat="gpu_memcpy")
        graph.collective(5_000, 5, ranks=[0, 1], cat="kernel")
        return rank_facts(graph.build()).work

    assert work("gemm", "relu", "gemm") == work("relu", "gemm", "gemm", copies=1) != work("relu", "gemm")


@pytest.mark.parametrize("outside", [2, 7])
def test_a_group_has_ranks_of_the_job_alone(outside: int) -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1, outside], 1000, 9 * KB)
    with pytest.raises(DataError, match="has ranks that are not of the job, which has 2"):
        plan_of([one.build() for one in job], groups=("dp",))


def test_one_copy_of_all_ranks_is_refused() -> None:
    with pytest.raises(RequestError, match="the scaled job would be the same; give data_parallel above 1"):
        scaled(stages(2), 1)


def test_copies_of_a_job_have_no_more_ranks_than_a_file_can_name() -> None:
    with pytest.raises(DataError, match=f"copies of 2 ranks are more than {LARGEST_JOB}; make fewer"):
        plan_of(data_parallel(2), LARGEST_JOB // 2 + 1)


def test_a_group_whose_parts_depend_on_its_members_does_not_grow() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_TO_ALL, [0, 1], 1_000_000, 100 * KB)
    with pytest.raises(DataError, match="carries all_to_all, whose parts depend on how many members there are"):
        plan_of([one.build() for one in job], groups=("dp",))


def test_of_a_mesh_of_two_data_parallel_dimensions_the_user_names_one() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(REDUCE_SCATTER, [one.rank // 2 * 2, one.rank // 2 * 2 + 1], 1000, 9 * KB, pg_desc="dp_shard")
        one.meet(ALL_REDUCE, [one.rank % 2, one.rank % 2 + 2], 500, 9 * KB, pg_desc="dp_replicate", pg_name="r")
    graphs = [one.build() for one in job]
    with pytest.raises(DataError, match="are two dimensions of data parallelism, of which one can grow"):
        plan_of(graphs)
    assert [role.use.group.name for role in plan_of(graphs, groups=("dp_replicate",)).roles if role.joined] == [
        "r",
        "r",
    ]


def test_every_rank_has_replicas() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job[:2]:
        one.meet(ALL_REDUCE, [0, 1], 1000, 9 * KB)
    with pytest.raises(DataError, match="ranks 2,3 are in no data-parallel group"):
        plan_of([one.build() for one in job])
