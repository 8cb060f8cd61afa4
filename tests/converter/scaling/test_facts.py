"""What scaling knows of a rank: in which phase of a step it communicates, and which ranks stand in for missing ones."""

from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import recorded_groups
from execgraph.converter.scaling import copied, resized
from execgraph.converter.scaling.facts import BACKWARD_SCOPE, Phase, phases
from execgraph.schema.columns import Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind, ExecutionGraph, NodeType
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder
from support.scaled_jobs import (
    ALL_REDUCE,
    BROADCAST,
    FUNCTION,
    KB,
    PARAMETER,
    Rank,
    data_parallel,
    lengths,
    line,
    plan_of,
    scaled,
    sizes,
    stages,
    tensor_by_data,
)

HANDOFF = DependencyKind.HANDOFF


@pytest.mark.parametrize("waits", [0, 2])
def test_a_transfer_of_gloo_is_of_the_gradient_that_its_thread_was_handed(waits: int) -> None:
    """Of a tensor on a device the thread first waits for its copy; a later transfer of nobody's is of no gradient."""
    g = GraphBuilder(rank=0)
    giver = g.host(PARAMETER, 0, 10)
    last = g.host("host idle", 10, 5, thread=2, after=[(giver, HANDOFF)]) if waits else giver
    kind = PROGRAM_ORDER if waits else HANDOFF
    for number in range(waits):
        last = g.host("cudaStreamSynchronize", 15 + number, 1, thread=2, after=[(last, kind)])
    rows = []
    for start in (20, 40):
        rows.append(len(g.nodes))
        last = g.host("gloo:all_reduce", start, 10, thread=2, type=NodeType.COMM_COLL, after=[(last, kind)])
        kind = PROGRAM_ORDER
    assert phases(g.build(), np.array(rows)).tolist() == [Phase.PARAMETER, Phase.OTHER]


def phase_of(g: GraphBuilder, launch: int) -> Phase:
    """Of a collective that a host node launches."""
    row = len(g.nodes)
    g.collective(100, 10, ranks=[0, 1], after=[(launch, LAUNCH)], comm_type=0)
    graph = g.build()
    graph.ctrl_deps = Ragged.of([[launch] if number == row else [] for number in range(len(g.nodes))])
    return Phase(int(phases(graph, np.array([row]))[0]))


@pytest.mark.parametrize(
    ("attributes", "phase"),
    [
        ({}, Phase.OTHER),
        ({"fw_tid": 0}, Phase.OTHER),
        ({"fw_tid": 1}, Phase.FUNCTION),
        ({"scope": 0}, Phase.OTHER),
        ({"scope": BACKWARD_SCOPE}, Phase.FUNCTION),
    ],
)
def test_an_op_of_the_backward_scope_or_with_a_forward_thread_is_of_the_backward_pass(
    attributes: dict[str, int], phase: Phase
) -> None:
    g = GraphBuilder(rank=0)
    assert phase_of(g, g.host("aten::mm", 0, 10, **attributes)) == phase


@pytest.mark.parametrize(("sequence", "phase"), [(-1, Phase.OTHER), (0, Phase.THREAD), (5, Phase.THREAD)])
def test_a_thread_is_of_the_backward_pass_if_another_one_runs_ops_that_autograd_numbers(
    sequence: int, phase: Phase
) -> None:
    g = GraphBuilder(rank=0)
    g.host(FUNCTION, 0, 10, thread=2)
    g.host("aten::mm", 0, 10, thread=1, seq_id=sequence)
    assert phase_of(g, g.host("c10d::allreduce_", 20, 10, thread=2)) == phase


def test_traced_ranks_stand_in_for_missing_ones() -> None:
    for job, traced in (
        (data_parallel(4), (1, 3)),
        (tensor_by_data(), (0, 1)),
        (stages(3), (0, 1)),
        (stages(3), (4, 5)),
    ):
        some = {rank: job[rank] for rank in traced}
        whole, completed = scaled(job), scaled_from(some)
        assert [facts_of(graph) for graph in completed] == [facts_of(graph) for graph in whole]


def scaled_from(graphs: dict[int, ExecutionGraph], copies: int = 2) -> list[ExecutionGraph]:
    """The scaled job, of which not all ranks were traced."""
    plan = plan_of([*graphs.values()], copies)
    found = [
        copied(resized(graphs[one.source], one), plan, copy) for copy in range(copies) for one in plan.ranks.values()
    ]
    return sorted(found, key=lambda graph: int(graph.metadata["rank"]))


def facts_of(graph: ExecutionGraph) -> tuple[Any, ...]:
    ends = [graph.integers(f"comm_{end}").tolist() for end in ("src", "dst", "tag")]
    return graph.metadata, ends, [*graph.texts("pg_name")], lengths(graph), sizes(graph)


def test_what_members_have_in_common_is_the_shortest_of_like_collectives_if_some_are_missing() -> None:
    one, size = Rank(0, 2), 1_000_000
    for wait in (0, 300 * KB):
        one.meet(ALL_REDUCE, [0, 1], size, wait + line(ALL_REDUCE, 2, size))
    one.meet(ALL_REDUCE, [0, 1], 4 * size, line(ALL_REDUCE, 2, 4 * size))
    first, second, _ = lengths(scaled_from({0: one.build()})[0])
    assert first == pytest.approx(line(ALL_REDUCE, 4, size), rel=1e-3)
    assert second == first + 300 * KB


def test_it_is_told_which_ranks_stand_in_and_in_which_groups() -> None:
    assumed = plan_of(tensor_by_data()[:2]).assumed
    assert (assumed.source, assumed.groups, assumed.same_work) == ({2: 0, 3: 1}, [(2, 3)], True)


def test_the_root_of_a_group_that_was_traced_stays_and_that_of_one_in_its_place_moves() -> None:
    job = [Rank(rank, 4) for rank in range(2)]
    for one in job:
        one.meet(BROADCAST, [0, 1], 1000, 10 * KB, comm_src=1, pg_name="tp", pg_desc="tp")
        one.meet(BROADCAST, range(4), 1000, 10 * KB, comm_src=1, pg_name="0")
        one.meet(ALL_REDUCE, range(one.rank, 4, 2), 1_000_000, 100 * KB, pg_desc="dp")
    graphs = scaled_from({one.rank: one.build() for one in job})
    roots = [graph.integers("comm_src")[graph.type == NodeType.COMM_COLL].tolist()[:2] for graph in graphs]
    assert roots == [[root, 1] for root in (1, 1, 3, 3, 5, 5, 7, 7)]


def pairs(ranks: int) -> list[Rank]:
    """Replicas, of which every two reduce activations."""
    job = [Rank(rank, ranks) for rank in range(ranks)]
    for one in job:
        one.meet(ALL_REDUCE, range(ranks), 1_000_000, 100 * KB, pg_desc="dp")
        first = one.rank // 2 * 2
        one.meet(ALL_REDUCE, [first, first + 1], 500, 10 * KB, pg_name="tp")
    return job


def test_a_rank_stands_in_whose_groups_fit_those_of_the_missing_one() -> None:
    assert plan_of([one.build() for one in pairs(6)[:5]]).assumed.source == {5: 1}


def test_missing_ranks_unlike_the_traced_ones_are_refused() -> None:
    with pytest.raises(
        DataError,
        match="ranks 1-3 not traced, and unlike those that were: group 1,3 would lack rank 3; trace all ranks of the job",
    ):
        plan_of(tensor_by_data()[:1])
    alone = Rank(0, 5)
    alone.meet(ALL_REDUCE, [0, 2, 4], 500, 10 * KB, pg_name="tp")
    with pytest.raises(DataError, match=r"would lack rank \d"):
        plan_of([alone.build()])
    job = pairs(4)
    job[2].meet(ALL_REDUCE, [2, 3], 700, 10 * KB, pg_name="tp")
    with pytest.raises(DataError, match="rank 3 would do in group 2,3 what rank 1 does in another one"):
        plan_of([one.build() for one in job[1:3]])


def test_a_later_rank_stands_in_for_an_earlier_one_if_its_groups_have_a_place_there() -> None:
    job = tensor_by_data()
    assert plan_of(job[2:]).assumed.source == {0: 2, 1: 3}
    why = "rank 0 was not traced and does not repeat rank 3: there is no group in place of group 2,3; trace all ranks"
    with pytest.raises(DataError, match=why):
        plan_of(job[3:])


def test_a_pipeline_of_which_one_stage_was_traced_is_refused() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.message(0, 1)
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, 100 * KB, pg_desc="dp")
    with pytest.raises(DataError, match="messages from rank 0 to rank 1 would lack an end"):
        plan_of([job[0].build()])


def test_missing_ranks_that_are_removed_need_no_other_in_their_place() -> None:
    graphs = data_parallel(4)[:2]
    plan = plan_of(graphs, removed=(2, 3))
    assert (sorted(plan.ranks), plan.assumed.source, plan.rank_copies.ranks) == ([0, 1], {}, 4)


def test_messages_of_ranks_that_are_not_there_are_no_whole_job() -> None:
    one, other = Rank(0, 2), Rank(1, 2)
    for rank in (one, other):
        rank.meet(ALL_REDUCE, [0, 1], 1000, 9 * KB)
    one.message(0, -1)
    with pytest.raises(DataError, match="rank 0 has a message with a rank that is not one of the job's"):
        plan_of([one.build(), other.build()])


def test_more_ranks_than_anything_bears_are_refused_at_once() -> None:
    with pytest.raises(DataError, match="1000000000 copies of 2 ranks are more than 262144; make fewer"):
        plan_of(data_parallel(2), 1_000_000_000)


def test_a_group_with_a_rank_of_another_job_is_refused() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1, 7], 1000, 9 * KB)
    with pytest.raises(DataError, match="has ranks that are not of the job, which has 2"):
        plan_of([one.build() for one in job], groups=("dp",))


@pytest.mark.parametrize("text", ["all", "0-99999999999999999999", "9" * 5000, "0-999999999", "0-5:0", "3-", ""])
def test_metadata_that_list_no_ranks_are_one_line(text: str) -> None:
    graph = scaled(data_parallel(2))[0]
    graph.metadata["ranks_of_group_1"] = text
    with pytest.raises(DataError, match="the metadata ranks_of_group_1 of the graph is no list of ranks"):
        recorded_groups(graph)


def test_metadata_list_no_more_ranks_in_all_than_a_few_jobs_have() -> None:
    graph = scaled(data_parallel(2))[0]
    graph.metadata |= {f"ranks_of_group_{number}": f"{number}-{number + (1 << 18) - 1}" for number in range(2, 6)}
    with pytest.raises(
        DataError, match="ranks_of_group_5 of the graph is no list of ranks such as 0-3,8, or one of more"
    ):
        recorded_groups(graph)
