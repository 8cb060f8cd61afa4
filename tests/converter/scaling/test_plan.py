"""Scaled jobs, from graphs by hand: who joins whom, what becomes of sizes and lengths, and what is refused."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import graph_calls, match, recorded_groups
from execgraph.converter.scaling import Growth, ScalePlan, all_groups, copied, plan_scaling, rank_facts, resized
from execgraph.schema.columns import Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, ExecutionGraph, NodeType
from execgraph.tools.replay import replay_ranks
from hypothesis import given, strategies as st
from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
)
ALL_TO_ALL, BROADCAST, BARRIER = CollectiveType.ALL_TO_ALL, CollectiveType.BROADCAST, CollectiveType.BARRIER
KB = 1000
PARAMETER = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
FUNCTION = "autograd::engine::evaluate_function: MmBackward0"


class Rank(GraphBuilder):
    """A rank of a job: a kernel, then what it is told, on one stream, one after the other; dependencies follow the
    stream.
    """

    def __init__(self, rank: int, ranks: int, work: int = 50 * KB, kernel: str = "gemm") -> None:
        super().__init__(rank=rank, world_size=ranks, target="generic")
        self.rank, self.now, self.seq = rank, 0, Counter[tuple[int, ...]]()
        self.last = self.activity(kernel, 0, work)
        self.now = work

    def meet(
        self,
        kind: CollectiveType,
        ranks: Sequence[int],
        size: int,
        ns: int,
        *,
        backward: bool = True,
        frame: str = PARAMETER,
        **more: Any,
    ) -> None:
        launch = self.host(frame if backward else "forward", self.now, 1, id=1000 + len(self.nodes))
        self.seq[tuple(ranks)] += 1
        told = {"comm_type": int(kind), "comm_size": size, "comm_seq": self.seq[tuple(ranks)], "pg_name": "dp", **more}
        after = [(launch, LAUNCH), (self.last, STREAM_ORDER)]
        self.last = self.collective(self.now, ns, ranks=list(ranks), after=after, **told)
        self.nodes[-1]["caller"] = launch
        self.now += ns

    def message(self, source: int, target: int, size: int = 8, tag: int = 0, ns: int = 10 * KB) -> None:
        kind = NodeType.COMM_SEND if source == self.rank else NodeType.COMM_RECV
        told = {"comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size}
        self.last = self.activity("SendRecv", self.now, ns, type=kind, after=[(self.last, STREAM_ORDER)], **told)
        self.now += ns

    def build(self) -> ExecutionGraph:
        graph = super().build()
        graph.ctrl_deps = Ragged.of([[node["caller"]] if "caller" in node else [] for node in self.nodes])
        return graph


def plan_of(graphs: Sequence[ExecutionGraph], copies: int = 2, **growth: Any) -> ScalePlan:
    return plan_scaling([rank_facts(graph) for graph in graphs], Growth(copies, **growth))


def scaled(graphs: Sequence[ExecutionGraph], copies: int = 2, **growth: Any) -> list[ExecutionGraph]:
    """The graphs of the scaled job, by rank."""
    plan = plan_of(graphs, copies, **growth)
    found = [
        copied(resized(graphs[rank], plan.ranks[rank]), plan, copy) for copy in range(copies) for rank in plan.ranks
    ]
    return sorted(found, key=lambda graph: int(graph.metadata["rank"]))


def data_parallel(ranks: int = 2, sizes: Sequence[int] = (1_000_000, 4_000_000), late: int = 0) -> list[ExecutionGraph]:
    """All-reduces of gradients among all ranks, 1 µs a step and 1 ns a byte; the others wait for the last rank, `late`
    ns each time.
    """
    job = []
    for rank in range(ranks):
        one, waits = Rank(rank, ranks), 0 if rank == ranks - 1 else late
        for size in sizes:
            one.meet(ALL_REDUCE, range(ranks), size, waits + line(ALL_REDUCE, ranks, size), pg_name="0")
        job.append(one.build())
    return job


def line(kind: CollectiveType, members: int, size: int) -> int:
    """1 µs a step and 1 ns a byte."""
    around = members - 1
    steps, sent = {
        ALL_REDUCE: (2 * around, 2 * around * size / members),
        ALL_GATHER: (around, around * size),
        REDUCE_SCATTER: (around, around * size / members),
    }[kind]
    return round(KB * steps + sent)


def lengths(graph: ExecutionGraph) -> list[int]:
    return graph.duration_ns[graph.type == NodeType.COMM_COLL].tolist()


def sizes(graph: ExecutionGraph) -> list[int]:
    return graph.integers("comm_size")[graph.type == NodeType.COMM_COLL].tolist()


# groups


def test_copies_join_their_data_parallel_groups() -> None:
    graphs = scaled(data_parallel(2), 3)
    assert [graph.metadata["rank"] for graph in graphs] == list(range(6))
    assert all(recorded_groups(graph).lists == [(0, 1, 2, 3, 4, 5)] for graph in graphs)
    assert {graph.metadata["world_size"] for graph in graphs} == {6}
    assert all("pg_ranks" not in graph.attributes for graph in graphs)


def tensor_by_data(description: str = "") -> list[ExecutionGraph]:
    """Pairs (0, 1) and (2, 3) that reduce activations both ways, and their replicas (0, 2) and (1, 3), which reduce
    gradients.
    """
    job = []
    for rank in range(4):
        one, pair, replicas = Rank(rank, 4), [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]
        for backward in (False, True):
            one.meet(ALL_REDUCE, pair, 64_000, 70 * KB, backward=backward, pg_name="tp")
        for size in (80_000, 800_000):
            one.meet(ALL_REDUCE, replicas, size, line(ALL_REDUCE, 2, size), pg_name="dp", pg_desc=description)
        job.append(one.build())
    return job


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
    with pytest.raises(
        DataError, match="no data-parallel group is recognised; name it with --data-parallel-group"
    ) as told:
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
    assert "the graphs lack the host, which tells what the backward pass reduces" in why_refused(job)


def exchanging() -> list[Rank]:
    """A recommender: one group of all ranks for gradients and for the rows of tables that are spread over them."""
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_TO_ALL, range(4), 500, 10 * KB, backward=False)
        one.meet(ALL_REDUCE, range(4), 1_000_000, line(ALL_REDUCE, 4, 1_000_000))
    return job


def test_a_group_that_also_exchanges_is_refused_with_the_option_that_takes_its_reductions_alone() -> None:
    hint = "--data-parallel-group 0-3=all_reduce lets its all_reduce span all copies, and leaves the rest in each"
    assert hint in why_refused(exchanging())
    graphs = [one.build() for one in exchanging()]
    with pytest.raises(DataError, match=hint):
        plan_of(graphs, groups=("0-3",))
    with pytest.raises(DataError, match="0-3=reduce: no group has that name, description or ranks and reduce;"):
        plan_of(graphs, groups=("0-3=reduce",))


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
    with pytest.raises(DataError, match="--data-parallel-group nobody: no group has that name"):
        plan_of(tensor_by_data(), groups=("nobody",))


def test_the_group_of_all_ranks_grows_along() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_REDUCE, [one.rank % 2, one.rank % 2 + 2], 1_000_000, 100 * KB, pg_desc="dp")
        one.meet(BARRIER, range(4), 0, 5 * KB, backward=False, pg_name="0", pg_desc="default_pg")
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


# messages


def stages(replicas: int = 1) -> list[ExecutionGraph]:
    """Two stages, the first sends the second two messages; replicas of a stage reduce gradients."""
    job = []
    for rank in range(2 * replicas):
        one, first = Rank(rank, 2 * replicas), rank // 2 * 2
        one.message(first, first + 1, tag=0)
        one.message(first, first + 1, tag=1)
        for size in (1_000_000, 2_000_000):
            one.meet(ALL_REDUCE, range(rank % 2, 2 * replicas, 2), size, line(ALL_REDUCE, replicas, size))
        job.append(one.build())
    return job


def test_messages_stay_in_their_copy() -> None:
    for copy, graph in enumerate(scaled(stages(2), 2)[::2]):
        sends = graph.type == NodeType.COMM_SEND
        ends = [graph.integers(f"comm_{end}")[sends].tolist() for end in ("src", "dst", "tag")]
        assert ends == [[2 * copy] * 2, [2 * copy + 1] * 2, [0, 1]]


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
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


# sizes


def test_shards_get_smaller_where_the_whole_stays() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_GATHER, [0, 1], 500_001, 100 * KB, backward=False)
        one.meet(REDUCE_SCATTER, [0, 1], 1_000_002, 100 * KB)
        one.meet(ALL_REDUCE, [0, 1], 7, 10 * KB)
    graphs = [one.build() for one in job]
    assert sizes(scaled(graphs, 4)[5]) == [125_001, 1_000_002, 7]


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


# lengths


@pytest.mark.parametrize("copies", [2, 4, 16])
def test_lengths_follow_the_line_that_was_measured(copies: int) -> None:
    assert lengths(scaled(data_parallel(2), copies)[0]) == pytest.approx(
        [line(ALL_REDUCE, 2 * copies, size) for size in (1_000_000, 4_000_000)], rel=1e-3
    )


def test_the_time_that_members_wait_for_each_other_does_not_grow() -> None:
    late = 3_000 * KB
    graphs, alone = scaled(data_parallel(2, late=late), 8), scaled(data_parallel(2), 8)
    assert lengths(graphs[1]) == lengths(alone[1])
    assert lengths(graphs[0]) == [length + late for length in lengths(alone[0])]


def test_collectives_of_groups_that_do_not_grow_stay_as_they_are() -> None:
    before, after = tensor_by_data()[0], scaled(tensor_by_data(), 4)[0]
    assert lengths(after)[:2] == lengths(before)[:2]
    assert all(then > now for then, now in zip(lengths(after)[2:], lengths(before)[2:], strict=True))


def test_whole_microseconds_stay_right_in_sum() -> None:
    graphs = data_parallel(2, sizes=(100_333, 200_777, 300_111))
    before, after = graphs[0], scaled(graphs, 3)[0]
    longer_ns = int((after.duration_ns - before.duration_ns).sum())
    assert int((after.duration_micros - before.duration_micros).sum()) == pytest.approx(longer_ns / 1000, abs=1)
    unchanged = after.duration_ns == before.duration_ns
    assert unchanged[0]
    assert (after.duration_micros[unchanged] == before.duration_micros[unchanged]).all()


def test_a_given_network_stands_instead_of_the_measured_one() -> None:
    gib = 1 << 30
    graphs = scaled(data_parallel(2), 2, bandwidth_gb_s=10 * 1e9 / gib, latency_ns=500.0)
    assert lengths(graphs[0]) == pytest.approx([6 * 500 + 1.5 * size / 10 for size in (1_000_000, 4_000_000)], abs=1)


def test_a_given_latency_leaves_the_bandwidth_to_be_fitted() -> None:
    graphs = data_parallel(2, sizes=(1_000_000,))
    [grown] = plan_of(graphs, latency_ns=1000.0).grown
    assert grown.fit
    assert grown.fit.line == pytest.approx((1000.0, 1.0), rel=1e-3)


def test_collectives_of_one_size_do_not_tell_latency_from_bandwidth() -> None:
    [grown] = plan_of(data_parallel(2, sizes=(1_000_000, 1_000_000))).grown
    assert grown.fit
    assert not grown.fit.identifiable
    [known] = plan_of(data_parallel(2)).grown
    assert known.fit
    assert (known.fit.identifiable, known.fit.fit_error_pct) == (True, 0.0)


def test_what_one_type_does_not_tell_others_do() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, line(ALL_REDUCE, 2, 1_000_000))
        one.meet(REDUCE_SCATTER, [0, 1], 1_000, line(REDUCE_SCATTER, 2, 1_000))
    fits = [grown.fit for grown in plan_of([one.build() for one in job]).grown]
    assert [fit and fit.source for fit in fits] == ["collectives of all types in this group"] * 2
    assert all(fit and fit.line == pytest.approx((1000, 1), rel=1e-2) for fit in fits)


def test_a_scaled_job_takes_as_long_as_its_collectives_say() -> None:
    graphs = data_parallel(2, late=0)
    grown = sum(line(ALL_REDUCE, 8, size) - line(ALL_REDUCE, 2, size) for size in (1_000_000, 4_000_000))
    longer = replay_ranks(scaled(graphs, 4)).makespan_ns - replay_ranks(graphs).makespan_ns
    assert longer == pytest.approx(grown, rel=1e-3)


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
        (data_parallel(2), (5,), "rank 5 cannot be removed: the job has the ranks 0,1"),
    ],
)
def test_what_would_be_another_program_is_refused(
    job: list[ExecutionGraph], removed: tuple[int, ...], why: str
) -> None:
    with pytest.raises(DataError, match=why):
        plan_of(job, 1, removed=removed)


# what is refused


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


# ranks that were not traced


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
    job = pairs(4)
    job[2].meet(ALL_REDUCE, [2, 3], 700, 10 * KB, pg_name="tp")
    with pytest.raises(DataError, match="rank 3 would do in group 2,3 what rank 1 does in another one"):
        plan_of([one.build() for one in job[1:3]])


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
