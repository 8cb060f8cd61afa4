"""Whose groups copies join: which groups are data-parallel, and which stay in their copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import recorded_groups
from execgraph.converter.scaling import all_groups
from execgraph.converter.scaling.roles import FEW_BYTES, GROWING, WHOLE
from execgraph.schema.errors import DataError
from execgraph.schema.graph import NodeType
from support.graphs import LAUNCH
from support.scaled_jobs import (
    ALL_REDUCE,
    ALL_TO_ALL,
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
    tensor_by_data,
)


def test_copies_join_their_data_parallel_groups() -> None:
    graphs = scaled(data_parallel(2), 3)
    assert [graph.metadata["rank"] for graph in graphs] == list(range(6))
    assert all(recorded_groups(graph).lists == [(0, 1, 2, 3, 4, 5)] for graph in graphs)
    assert {graph.metadata["world_size"] for graph in graphs} == {6}
    assert all("pg_ranks" not in graph.attributes for graph in graphs)


@pytest.mark.parametrize("description", ["", "DATA_PARALLEL_GROUP", "mesh_dp"])
def test_other_groups_are_copied(description: str) -> None:
    graphs = scaled(tensor_by_data(description), 2)
    assert [{*recorded_groups(graph).lists} for graph in graphs[4:]] == [
        {(4, 5), (0, 2, 4, 6)},
        {(4, 5), (1, 3, 5, 7)},
        {(6, 7), (0, 2, 4, 6)},
        {(6, 7), (1, 3, 5, 7)},
    ]


def test_a_group_is_known_by_the_gradients_that_it_reduces_and_by_its_description() -> None:
    of_behaviour, described = (
        {role.use.group.name: role.joined for role in plan_of(tensor_by_data(description)).roles}
        for description in ("", "dp")
    )
    assert of_behaviour == {"tp": "", "dp": "by the gradients that it reduces"}
    assert described == {"tp": "", "dp": "by its description"}


def test_a_loss_that_is_reduced_outside_the_backward_pass_is_no_activation() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, 100 * KB)
        one.meet(ALL_REDUCE, [0, 1], 4, 20 * KB, backward=False)
    assert plan_of([one.build() for one in job]).roles[0].joined


def why_refused(job: Sequence[Rank]) -> str:
    with pytest.raises(DataError, match="no data-parallel group is recognised; name it with groups") as told:
        plan_of([one.build() for one in job])
    return str(told.value)


def reducing(frame: str, ranks: int = 2, kernels: Sequence[str] = ("gemm",), **more: Any) -> list[Rank]:
    """Ranks that all-reduce something in this frame of the backward pass, and run one of these kernels each."""
    job = [Rank(rank, ranks, kernel=kernels[rank % len(kernels)]) for rank in range(ranks)]
    for one in job:
        one.meet(ALL_REDUCE, range(ranks), 1_000_000, 100 * KB, frame=frame, **more)
    return job


def reason(job: Sequence[Rank]) -> str:
    """Why the first group is joined."""
    return plan_of([one.build() for one in job]).roles[0].joined


def test_the_only_group_is_known_by_its_all_reduces_in_the_backward_pass_where_nothing_is_exchanged_before() -> None:
    job = reducing(FUNCTION)
    assert reason(job) == "by its all-reduces, which are all in the backward pass"
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 8, 20 * KB, backward=False)
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
    with_both = reducing(PARAMETER)
    for one in with_both:
        one.meet(ALL_REDUCE, [0, 1], 8_000, 10 * KB, frame=FUNCTION)
    assert "beside gradients of parameters it reduces others in the backward pass" in why_refused(with_both)


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
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_TO_ALL, range(4), 500, 10 * KB, backward=False)
        one.meet(ALL_REDUCE, range(4), 1_000_000, line(ALL_REDUCE, 4, 1_000_000))
    return job


def test_a_group_that_also_exchanges_is_refused_with_the_option_that_takes_its_reductions_alone() -> None:
    hint = "groups 0-3=all_reduce lets its all_reduce span all copies, and leaves the rest in each"
    assert hint in why_refused(exchanging())
    graphs = [one.build() for one in exchanging()]
    with pytest.raises(DataError, match=hint):
        plan_of(graphs, groups=("0-3",))
    with pytest.raises(DataError, match="0-3=reduce: no group has that name, description or ranks and reduce;"):
        plan_of(graphs, groups=("0-3=reduce",))


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ([ALL_TO_ALL], "all_to_all"),
        ([-1], "a collective of unknown type"),
        ([-1, ALL_TO_ALL], "all_to_all"),
    ],
)
def test_collectives_that_depend_on_the_number_of_members_are_named(types: Sequence[int], text: str) -> None:
    job = reducing(FUNCTION)
    for one in job:
        for kind in types:
            one.meet(ALL_REDUCE, [0, 1], 500, 10 * KB, backward=False, comm_type=int(kind))
    assert f"it carries {text})" in why_refused(job)
    with pytest.raises(DataError, match=f" carries {text}, whose parts depend on how many members there are"):
        plan_of([one.build() for one in job], groups=("0-1",))


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


def test_a_broadcast_in_the_backward_pass_is_no_reduction_of_gradients() -> None:
    job = reducing(FUNCTION)
    for one in job:
        one.meet(BROADCAST, [0, 1], 8, 10 * KB, frame=FUNCTION)
    assert "may be gradients of activations" in why_refused(job)


def test_named_types_of_collectives_span_all_copies_and_the_others_stay_in_theirs() -> None:
    graphs = scaled([one.build() for one in exchanging()], groups=("0-3=all_reduce",))
    assert [{*recorded_groups(graph).lists} for graph in (graphs[3], graphs[4])] == [
        {tuple(range(4)), tuple(range(8))},
        {(4, 5, 6, 7), tuple(range(8))},
    ]
    assert lengths(graphs[4])[0] == 10 * KB
    assert lengths(graphs[4])[1] > line(ALL_REDUCE, 4, 1_000_000)


def test_what_the_user_names_is_joined_and_nothing_else() -> None:
    for names in (("dp",), ("0,2", "1,3")):
        named = plan_of(tensor_by_data(), groups=names)
        assert [role.use.group.name for role in named.roles if role.joined] == ["dp", "dp"]
    with pytest.raises(DataError, match="groups nobody: no group has that name"):
        plan_of(tensor_by_data(), groups=("nobody",))


def test_the_group_of_all_ranks_grows_along() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_REDUCE, [one.rank % 2, one.rank % 2 + 2], 1_000_000, 100 * KB, pg_desc="dp")
        for kind in WHOLE:
            one.meet(kind, range(4), 0, 5 * KB, backward=False, pg_name="0", pg_desc="default_pg")
    assert tuple(range(8)) in recorded_groups(scaled([one.build() for one in job])[5]).lists


def test_groups_have_one_number_on_all_ranks_and_no_two_the_same() -> None:
    graphs = tensor_by_data()
    plan = plan_of(graphs, 3)
    numbers = dict(all_groups(plan.numbering, plan.rank_copies))
    assert len(numbers) == len(set(numbers.values())) == 2 + 3 * 2
    for graph in scaled(graphs, 3):
        known, names = recorded_groups(graph), graph.texts("pg_name")
        for row in np.flatnonzero(graph.type == NodeType.COMM_COLL).tolist():
            assert names[row] == str(numbers[known.lists[known.of_node[row]]])
