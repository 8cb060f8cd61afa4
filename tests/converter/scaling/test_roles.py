"""Which ranks stand in for missing ones, in which phase of a step each communicates, and whose groups copies join."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import recorded_groups
from execgraph.converter.scaling import all_groups, copied, resized
from execgraph.converter.scaling.facts import BACKWARD_SCOPE, Phase, phases
from execgraph.converter.scaling.roles import FEW_BYTES, GROWING, WHOLE
from execgraph.schema.columns import Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind, ExecutionGraph, NodeType
from support.graphs import (
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    FUNCTION,
    KB,
    LAUNCH,
    PARAMETER,
    PROGRAM_ORDER,
    GraphBuilder,
    Rank,
    data_parallel,
    lengths,
    line,
    meeting,
    plan_of,
    scaled,
    sizes,
    stages,
    tensor_by_data,
)

HANDOFF = DependencyKind.HANDOFF


@pytest.mark.parametrize("waits", [0, 2])
def test_a_transfer_of_gloo_is_of_the_gradient_that_its_thread_was_handed(g: GraphBuilder, waits: int) -> None:
    """Of a tensor on a device the thread first waits for its copy; a later transfer of nobody's is of no gradient."""
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
        ({}, Phase.OTHER), ({"fw_tid": 0}, Phase.OTHER), ({"fw_tid": 1}, Phase.FUNCTION), ({"scope": 0}, Phase.OTHER),
        ({"scope": BACKWARD_SCOPE}, Phase.FUNCTION),
    ],
)  # fmt: skip
def test_an_op_of_the_backward_scope_or_with_a_forward_thread_is_of_the_backward_pass(g, attributes, phase):
    assert phase_of(g, g.host("aten::mm", 0, 10, **attributes)) == phase


@pytest.mark.parametrize(("sequence", "phase"), [(-1, Phase.OTHER), (0, Phase.THREAD), (5, Phase.THREAD)])
def test_a_thread_is_of_the_backward_pass_if_another_one_runs_ops_that_autograd_numbers(g, sequence, phase):
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
    assert plan_of(pairs(6)[:5]).assumed.source == {5: 1}


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
        plan_of(job[1:3])


def test_a_later_rank_stands_in_for_an_earlier_one_if_its_groups_have_a_place_there() -> None:
    job = tensor_by_data()
    assert plan_of(job[2:]).assumed.source == {0: 2, 1: 3}
    why = "rank 0 was not traced and does not repeat rank 3: there is no group in place of group 2,3; trace all ranks"
    with pytest.raises(DataError, match=why):
        plan_of(job[3:])


def test_a_pipeline_of_which_one_stage_was_traced_is_refused() -> None:
    job = meeting(2, (ALL_REDUCE, 1_000_000, 100 * KB, {"pg_desc": "dp"}))
    job[0].message(0, 1)
    with pytest.raises(DataError, match="messages from rank 0 to rank 1 would lack an end"):
        plan_of([job[0].build()])


def test_missing_ranks_that_are_removed_need_no_other_in_their_place() -> None:
    graphs = data_parallel(4)[:2]
    plan = plan_of(graphs, removed=(2, 3))
    assert (sorted(plan.ranks), plan.assumed.source, plan.rank_copies.ranks) == ([0, 1], {}, 4)


def test_messages_of_ranks_that_are_not_there_are_no_whole_job() -> None:
    one, other = meeting(2, (ALL_REDUCE, 1000, 9 * KB))
    one.message(0, -1)
    with pytest.raises(DataError, match="rank 0 has a message with a rank that is not one of the job's"):
        plan_of([one.build(), other.build()])


# whose groups copies join


def test_copies_join_their_data_parallel_groups() -> None:
    graphs = scaled(data_parallel(2), 3)
    assert [graph.metadata["rank"] for graph in graphs] == list(range(6))
    assert all(recorded_groups(graph).lists == [(0, 1, 2, 3, 4, 5)] for graph in graphs)
    assert {graph.metadata["world_size"] for graph in graphs} == {6}
    assert all("pg_ranks" not in graph.attributes for graph in graphs)


@pytest.mark.parametrize("description", ["", "DATA_PARALLEL_GROUP", "mesh_dp"])
def test_other_groups_are_copied(description: str) -> None:
    graphs = scaled(tensor_by_data(description), 2)
    found = [{*recorded_groups(graph).lists} for graph in graphs[4:]]
    assert found == [{(4, 5), (0, 2, 4, 6)}, {(4, 5), (1, 3, 5, 7)}, {(6, 7), (0, 2, 4, 6)}, {(6, 7), (1, 3, 5, 7)}]


def test_a_group_is_known_by_the_gradients_that_it_reduces_and_by_its_description() -> None:
    of_behaviour, described = (
        {use.group.name: use.joined for use in plan_of(tensor_by_data(description)).uses} for description in ("", "dp")
    )
    assert of_behaviour == {"tp": "", "dp": "by the gradients that it reduces"}
    assert described == {"tp": "", "dp": "by its description"}


def test_a_loss_that_is_reduced_outside_the_backward_pass_is_no_activation() -> None:
    job = meeting(2, (ALL_REDUCE, 1_000_000, 100 * KB), (ALL_REDUCE, 4, 20 * KB, {"backward": False}))
    assert plan_of(job).uses[0].joined


def why_refused(job: Sequence[Rank]) -> str:
    with pytest.raises(DataError, match="no data-parallel group is recognised; name it with groups") as told:
        plan_of(job)
    return str(told.value)


def reducing(frame: str, ranks: int = 2, kernels: Sequence[str] = ("gemm",), **more: Any) -> list[Rank]:
    """Ranks that all-reduce something in this frame of the backward pass, and run one of these kernels each."""
    job = [Rank(rank, ranks, kernel=kernels[rank % len(kernels)]) for rank in range(ranks)]
    for one in job:
        one.meet(ALL_REDUCE, range(ranks), 1_000_000, 100 * KB, frame=frame, **more)
    return job


def reason(job: Sequence[Rank]) -> str:
    """Why the first group is joined."""
    return plan_of(job).uses[0].joined


def test_the_only_group_is_known_by_its_all_reduces_in_the_backward_pass_where_nothing_is_exchanged_before() -> None:
    job = reducing(FUNCTION)
    assert reason(job) == "by its all-reduces, which are all in the backward pass"
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 80, 20 * KB, backward=False)
    assert "may be gradients of activations, as this group carries other data, too" in why_refused(job)


def test_what_may_be_gradients_of_activations_is_not_taken_for_those_of_parameters() -> None:
    with_messages = reducing(FUNCTION)
    for one in with_messages:
        one.message(0, 1)
    assert "may be gradients of activations, as other groups or messages carry other data, too" in why_refused(
        with_messages
    )
    for frame, kind, size, why in (
        (PARAMETER, ALL_REDUCE, 8_000, "beside gradients of parameters it reduces others in the backward pass"),
        (FUNCTION, BROADCAST, 8, "may be gradients of activations"),
    ):
        job = reducing(frame)
        for one in job:
            one.meet(kind, [0, 1], size, 10 * KB, frame=FUNCTION)
        assert why in why_refused(job)


def test_a_thread_that_runs_the_backward_pass_alone_reduces_gradients_outside_of_functions() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.host("aten::mm", 0, 1, seq_id=1)
        one.host(FUNCTION, one.now, 1, thread=2)
        launch = one.host("c10d::allreduce_", one.now, 1, thread=2, id=5000)
        one.collective(one.now, KB, ranks=[0, 1], after=[(launch, LAUNCH)], comm_type=0, comm_size=1_000_000)
        one.nodes[-1]["caller"] = launch
    assert reason(job) == "by its all-reduces, which are all in the backward pass"
    for one in job:
        one.host("aten::mm", one.now, 1, thread=2, seq_id=2)
    assert "it reduces nothing in the backward pass" in why_refused(job)


def test_ranks_that_compute_differently_are_replicas_only_if_all_that_they_exchange_are_gradients() -> None:
    kernels = ("gemm", "embedding")
    assert "its members run different kernels" in why_refused(reducing(FUNCTION, kernels=kernels))
    assert reason(reducing(PARAMETER, kernels=kernels)) == "by the gradients that it reduces"
    stages = reducing(PARAMETER, kernels=kernels)
    for one in stages:
        one.message(0, 1)
    assert "its members run different kernels" in why_refused(stages)


def test_graphs_without_host_do_not_show_the_backward_pass() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.collective(one.now, KB, ranks=[0, 1], comm_type=0, comm_size=1_000_000)
    assert "the graphs lack the host, which shows what the backward pass reduces" in why_refused(job)


def exchanging() -> list[Rank]:
    """A recommender: one group of all ranks for gradients and for the rows of tables that are spread over them."""
    reduced = ALL_REDUCE, 1_000_000, line(ALL_REDUCE, 4, 1_000_000)
    return meeting(4, (ALL_TO_ALL, 500, 10 * KB, {"backward": False}), reduced)


def test_a_group_that_also_exchanges_is_refused_with_the_option_that_takes_its_reductions_alone() -> None:
    hint = "groups 0-3=all_reduce lets its all_reduce span all copies, and leaves the rest in each"
    assert hint in why_refused(exchanging())
    graphs = exchanging()
    with pytest.raises(DataError, match=hint):
        plan_of(graphs, groups=("0-3",))
    with pytest.raises(DataError, match="0-3=reduce: no group has that name, description or ranks and reduce;"):
        plan_of(graphs, groups=("0-3=reduce",))


@pytest.mark.parametrize(
    ("types", "text"),
    [([ALL_TO_ALL], "all_to_all"), ([-1], "a collective of unknown type"), ([-1, ALL_TO_ALL], "all_to_all")],
)
def test_collectives_that_depend_on_the_number_of_members_are_named(types: Sequence[int], text: str) -> None:
    job = reducing(FUNCTION)
    for one in job:
        for kind in types:
            one.meet(ALL_REDUCE, [0, 1], 500, 10 * KB, backward=False, comm_type=int(kind))
    assert f"it carries {text})" in why_refused(job)
    with pytest.raises(DataError, match=f" carries {text}, whose parts depend on how many members there are"):
        plan_of(job, groups=("0-1",))


@pytest.mark.parametrize(("pairs", "text"), [(1, "(dp): "), (2, "(dp) and 1 more: "), (3, "(dp) and 2 more: ")])
def test_groups_that_are_alike_are_named_once(pairs: int, text: str) -> None:
    job = [Rank(rank, 2 * pairs) for rank in range(2 * pairs)]
    for one in job:
        first = one.rank // 2 * 2
        one.meet(ALL_TO_ALL, [first, first + 1], 500, 10 * KB, backward=False)
    assert text in why_refused(job)


def test_what_is_exchanged_outside_the_backward_pass_may_be_a_loss_but_no_more() -> None:
    for size, is_joined in ((FEW_BYTES, True), (FEW_BYTES + 1, False)):
        job = reducing(FUNCTION)
        for one in job:
            for kind in WHOLE:
                one.meet(kind, [0, 1], size, 10 * KB, backward=False)
        if is_joined:
            assert reason(job) == "by its all-reduces, which are all in the backward pass"
        else:
            assert "may be gradients of activations" in why_refused(job)


def test_gradients_of_parameters_may_be_all_that_is_large_among_collectives_that_grow() -> None:
    job = reducing(PARAMETER)
    for one in job:
        for kind in GROWING:
            one.meet(kind, [0, 1], 8, 10 * KB, backward=False)
    assert reason(job) == "by the gradients that it reduces"


def test_named_types_of_collectives_span_all_copies_and_the_others_stay_in_theirs() -> None:
    graphs = scaled(exchanging(), groups=("0-3=all_reduce",))
    found = [{*recorded_groups(graph).lists} for graph in (graphs[3], graphs[4])]
    assert found == [{tuple(range(4)), tuple(range(8))}, {(4, 5, 6, 7), tuple(range(8))}]
    assert lengths(graphs[4])[0] == 10 * KB
    assert lengths(graphs[4])[1] > line(ALL_REDUCE, 4, 1_000_000)


def test_what_the_user_names_is_joined_and_nothing_else() -> None:
    for names in (("dp",), ("0,2", "1,3")):
        named = plan_of(tensor_by_data(), groups=names)
        assert [use.group.name for use in named.uses if use.joined] == ["dp", "dp"]
    with pytest.raises(DataError, match="groups nobody: no group has that name"):
        plan_of(tensor_by_data(), groups=("nobody",))


def test_the_group_of_all_ranks_grows_along() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_REDUCE, [one.rank % 2, one.rank % 2 + 2], 1_000_000, 100 * KB, pg_desc="dp")
        for kind in WHOLE:
            one.meet(kind, range(4), 0, 5 * KB, backward=False, pg_name="0", pg_desc="default_pg")
    assert tuple(range(8)) in recorded_groups(scaled(job)[5]).lists


def test_groups_have_one_number_on_all_ranks_and_no_two_the_same() -> None:
    graphs = tensor_by_data()
    plan = plan_of(graphs, 3)
    numbers = dict(all_groups(plan.numbering, plan.rank_copies))
    assert len(numbers) == len(set(numbers.values())) == 2 + 3 * 2
    for graph in scaled(graphs, 3):
        known, names = recorded_groups(graph), graph.texts("pg_name")
        for row in np.flatnonzero(graph.type == NodeType.COMM_COLL).tolist():
            assert names[row] == str(numbers[known.lists[known.of_node[row]]])
