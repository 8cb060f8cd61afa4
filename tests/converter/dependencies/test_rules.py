"""Rules of dependencies on runs made by hand: callers, launches that block, branches of graphs, marked waits.

One host thread starts another and is blocked until it is done: known from sequence numbers, else from timing.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from execgraph.converter.dependencies import calling_slices, event_wait, graph_launch, host_sync, inferred
from execgraph.converter.timeline import names_of
from execgraph.schema.columns import ABSENT, Categorical
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import DeviceWaits, HostWaits, LinkedTrace, Provenance
from hypothesis import assume, given, strategies as st
from support import runs
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.graphs import Named, edges_of, named, run_of, sliced
from support.references import Act, Call, Op, linked_of
from support.runs import VERSIONS, Nodes, Step, broken_rules, convert_linked, convert_run, link_run, one_thread, play
from support.tables import Called, Ran, column


def called_from(linked: LinkedTrace) -> set[tuple[str, str]]:
    """(called, caller), each as its name and start."""
    run = sliced(linked)
    names = names_of(linked, run.timeline)
    label = [f"{names[row]} {start}" for row, start in enumerate(run.timeline.start.tolist())]
    edges = calling_slices(run)
    assert not edges.kind.any()
    return {(label[target], label[source]) for source, target in zip(edges.source, edges.target, strict=True)}


def test_a_slice_was_called_by_the_last_earlier_slice_of_the_op_around_its_op() -> None:
    ops = [Op(0, 100, name="outer"), Op(10, 20, 0, "first"), Op(40, 60, 0, "second"), Op(45, 50, 2, "inner")]
    assert called_from(linked_of([], ops=ops)) == {
        ("first 10", "outer 0"),
        ("second 40", "outer 20"),
        ("inner 45", "second 40"),
        ("second 50", "outer 20"),
    }


def test_nothing_called_what_has_no_op_around_it_or_none_that_had_begun() -> None:
    ops = [Op(0, 100, name="outer"), Op(0, 20, 0, "at once"), Op(200, 300, name="alone")]
    assert called_from(linked_of([], ops=ops)) == set()
    waits = linked_of([Act(30, 80)], [Call(20, 90, name="cudaStreamSynchronize")], host_waits=[(0, 0)])
    assert called_from(waits) == set()


def test_a_wait_was_called_by_the_op_around_its_call() -> None:
    linked = linked_of(
        [Act(30, 80, call=0)],
        [Call(0, 10, 0), Call(20, 90, 0, "cudaStreamSynchronize")],
        [Op(0, 100, name="outer"), Op(0, 10, 0, "before")],
        host_waits=[(1, 0)],
    )
    assert ("cudaStreamSynchronize 80", "outer 10") in called_from(linked)


def test_an_op_of_another_thread_called_nothing_here() -> None:
    linked = linked_of([], ops=[Op(0, 100, name="outer"), Op(10, 20, 0, "elsewhere"), Op(30, 40, 0, "here")])
    linked.ops.thread[1] = 2
    assert called_from(linked) == {("here 30", "outer 0")}


Node = tuple[str, int, int, tuple[int, int, int]]
LAUNCH, PROGRAM_ORDER = DependencyKind.LAUNCH, DependencyKind.PROGRAM_ORDER


def nodes_of(nodes: Nodes) -> list[Node]:
    """Name, start, duration and lane of each node."""
    times = zip(nodes.graph.start_ns.tolist(), nodes.graph.duration_ns.tolist(), nodes.lanes(), strict=True)
    return [(nodes.graph.name[row], *where) for row, where in enumerate(times)]


def with_blocking_edges(nodes: Nodes) -> dict[tuple[Node, Node], int]:
    by_label = dict(zip(nodes.labels, nodes_of(nodes), strict=True))
    pairs = ((source, target, kind) for target in nodes.labels for source, kind in nodes.follows(target).items())
    return {(by_label[source], by_label[target]): int(kind) for source, target, kind in pairs}


def test_whoever_followed_one_of_several_graphs_follows_the_tails_of_that_one(t: TraceBuilder) -> None:
    for name in ("first", "second", "third"):
        with t.op(name):
            t.graph_launch([("head", 7, 5), *((f"{name} on {stream}", stream, 5) for stream in (7, 20, 24))])
    t.leaf("aten::add", 5)
    nodes = convert_run(t, promote="all")
    for before, after in (("first", "second"), ("second", "third"), ("third", "aten::add")):
        assert nodes.follows(after) == {f"{before} on {stream}": PROGRAM_ORDER for stream in (7, 20, 24)}


@given(one_thread, st.booleans())
def test_whoever_followed_a_launching_slice_follows_its_tails(steps: list[Step], sync_records: bool) -> None:
    t = play(steps, sync_records=sync_records)
    free, blocking = convert_run(t), convert_run(t, promote="all")
    assume(len(set(nodes_of(free))) == len(free.labels))
    launched: dict[Node, list[Node]] = defaultdict(list)
    for (source, target), kind in with_blocking_edges(free).items():
        if kind & LAUNCH:
            launched[source].append(target)
    wanted: dict[tuple[Node, Node], int] = defaultdict(int)
    for (source, target), kind in with_blocking_edges(free).items():
        own = launched.get(source, [])
        last = {node[3]: node for node in sorted(own, key=lambda node: node[1:3])}
        for node in [source] if not own or target in own else last.values():
            wanted[node, target] |= kind
    assert with_blocking_edges(blocking) == wanted
    assert broken_rules(blocking) == []


GRAPH_CALLS = [Called(0, 100, "cudaGraphLaunch"), Called(200, 300), Called(400, 500, "cudaGraphLaunch")]
WAITS = DependencyKind.EVENT_WAIT
GUESSED = DependencyKind.EVENT_WAIT | DependencyKind.INFERRED


def on(stream: int, start: int, end: int, name: str, call: int = 0) -> Ran:
    return Ran(start, end, call, stream, name)


TRUNK, BRANCH, BESIDE = on(7, 1_000, 2_000, "trunk"), {("trunk", "branch", GUESSED)}, on(8, 1_000, 4_000, "before")
OTHER, LONG_TRUNK = on(7, 1_000, 4_100, "other"), on(7, 1_000, 9_000, "trunk")
JOIN, MIDDLE = on(10, 4_400, 6_000, "join"), on(9, 1_000, 4_100, "middle")
ENDS = [on(7, 1_000, 5_000, "trunk"), on(8, 1_100, 9_000, "branch"), on(9, 1_200, 9_100, "too long")]
BRANCHES: dict[str, tuple[list[Ran], Named]] = {
    "starts as another one has ended": ([TRUNK, on(8, 2_000, 5_000, "branch")], BRANCH),
    "starts by a usual gap after": ([TRUNK, on(8, 2_700, 5_000, "branch")], BRANCH),
    "starts later": ([TRUNK, on(8, 2_701, 5_000, "branch")], set()),
    "starts before that": ([TRUNK, on(8, 1_999, 5_000, "branch")], set()),
    "its own branch explains it": ([OTHER, BESIDE, on(8, 4_700, 6_000, "next")], set()),
    "its own branch does not": ([OTHER, BESIDE, on(8, 4_701, 6_000, "next")], {("other", "next", GUESSED)}),
    "of several branches the last end": (
        [on(7, 1_000, 4_000, "early"), on(8, 1_000, 4_300, "late"), MIDDLE, JOIN],
        {("late", "join", GUESSED)},
    ),
    "of one branch the last end": (
        [on(7, 1_000, 4_000, "first"), on(7, 4_000, 4_300, "second"), JOIN],
        {("second", "join", GUESSED)},
    ),
    # that the first one does is stream order
    "every branch follows what the stream did before": (
        [on(7, 100, 1_000, "before", 1), LONG_TRUNK, on(8, 1_500, 8_500, "branch")],
        {("before", "branch", WAITS)},
    ),
    "without length at one time": ([on(7, 1_000, 1_000, "one"), on(8, 1_000, 1_000, "other")], set()),
    "elsewhere before": ([LONG_TRUNK, on(8, 1_500, 8_500, "branch"), on(9, 100, 200, "elsewhere", 1)], set()),
    "elsewhere after": (
        [on(7, 1_000, 5_000, "trunk"), on(8, 1_100, 6_000, "branch"), on(9, 9_000, 9_500, "elsewhere", 1)],
        set(),
    ),
    "without a recorded launch": ([on(7, 1_000, 2_000, "one", -1), on(8, 2_000, 3_000, "other", -1)], set()),
    "the stream goes on after a branch": ([*ENDS, on(7, 9_000, 20_000, "after", 1)], {("branch", "after", WAITS)}),
    "the stream goes on after every branch": (
        [*ENDS, on(7, 12_000, 20_000, "after", 1)],
        {("branch", "after", WAITS), ("too long", "after", WAITS)},
    ),
    "each launch is a graph of its own": (
        [TRUNK, on(8, 2_000, 3_000, "branch"), on(7, 9_000, 9_500, "second", 2), on(8, 9_500, 9_900, "other", 2)],
        {*BRANCH, ("branch", "second", WAITS), ("trunk", "other", WAITS), ("second", "other", GUESSED)},
    ),
}


@pytest.mark.parametrize(("rows", "edges"), BRANCHES.values(), ids=BRANCHES)
def test_a_branch_of_a_graph_follows_the_last_end_right_before_it_and_its_stream_all_branches(rows, edges):
    """On a machine on which gaps of up to 700 ns are usual; the graph is launched by call 0, call 1 launches what is
    beside it.
    """
    assert edges_of(graph_launch, run_of(rows, GRAPH_CALLS)) == edges


CALLS = [Called(0, 1_000), Called(2_000, 3_000)]
RAN = [Ran(5_000, 9_000, 0, name="first"), Ran(9_500, 29_000, 1, stream=8, name="second")]
INFERRED, CALL_ORDER, UNMARKED = DependencyKind.INFERRED, DependencyKind.CALL_ORDER, DependencyKind(0)
EVIDENCE = pytest.mark.parametrize(
    ("known_by", "mark"),
    [(Provenance.TIMING, INFERRED), (Provenance.CALL_ORDER, CALL_ORDER), (Provenance.RECORD, UNMARKED)],
)


def run_with(*, device=None, host=None, known_by=Provenance.RECORD, call="cudaStreamSynchronize", second_device=0):
    """`device` are source and target of a wait between streams, `host` is what the last call awaits; -1 is unknown."""
    held, awaited = [] if device is None else [device], [] if host is None else [host]
    first, second = RAN
    sources, targets = (column(*(pair[end] for pair in held)) for end in (0, 1))
    rows, unknown = (column(*(value for _ in awaited)) for value in (2, ABSENT))
    known_device, known_host = (Categorical.of(known_by.value for _ in waits) for waits in (held, awaited))
    return run_of(
        [first, second._replace(device=second_device)],
        [*CALLS, Called(20_000, 30_000, call)],
        device_waits=DeviceWaits(sources, targets, known_device),
        host_waits=HostWaits(rows, column(*awaited), unknown, known_host),
    )


@EVIDENCE
def test_a_wait_between_streams_leads_from_what_was_marked_to_what_was_held(known_by, mark):
    edges = edges_of(event_wait, run_with(device=(0, 1), known_by=known_by))
    assert edges == {("first", "second", DependencyKind.EVENT_WAIT | mark)}


def test_a_wait_for_nothing_that_is_known_is_no_edge() -> None:
    assert edges_of(event_wait, run_with(device=(-1, 1))) == set()
    assert len(host_sync(run_with(host=-1)).source) == 0


@EVIDENCE
@pytest.mark.parametrize("awaited", [0, 1])
def test_a_blocking_calls_wait_follows_what_it_awaited(awaited, known_by, mark):
    run = run_with(host=awaited, known_by=known_by)
    edges = host_sync(run)
    assert edges.source.tolist() == [run.activities_from + awaited]
    assert edges.target.tolist() == np.flatnonzero(run.timeline.is_wait).tolist()
    assert edges.kind.tolist() == [int(DependencyKind.HOST_SYNC | mark)]


@pytest.mark.parametrize(("second_device", "mark"), [(0, UNMARKED), (1, CALL_ORDER)])
def test_what_a_call_for_all_work_of_the_only_device_waits_for_is_certain(second_device, mark):
    given = {"known_by": Provenance.CALL_ORDER, "call": "cudaDeviceSynchronize", "second_device": second_device}
    assert host_sync(run_with(host=1, **given)).kind.tolist() == [int(DependencyKind.HOST_SYNC | mark)]


@pytest.mark.parametrize("other", Provenance)
def test_a_wait_that_is_recorded_too_is_not_known_by_order_alone(other: Provenance) -> None:
    run = run_with()
    run.linked.device_waits = DeviceWaits(
        column(0, 0), column(1, 1), Categorical.of([Provenance.CALL_ORDER.value, other.value])
    )
    assert bool(np.bitwise_or.reduce(event_wait(run).kind) & CALL_ORDER) == (other != Provenance.RECORD)


# What timing alone tells


WAITED = {("source", "late", DependencyKind.EVENT_WAIT | INFERRED)}
SOURCE, LATE = Ran(1_000, 5_000, 0, name="source"), Ran(5_500, 9_000, 1, stream=8, name="late")
ON_ITS_STREAM = [Ran(5_000 + n, 5_001 + n, 1 + n, stream=8, name="own") for n in range(8)]


@pytest.mark.parametrize(
    ("ran", "found"),
    [
        ([SOURCE, LATE._replace(start=5_000)], WAITED),
        ([SOURCE, LATE._replace(start=6_000)], WAITED),
        ([SOURCE, LATE._replace(start=6_001)], set()),
        ([SOURCE, LATE._replace(start=4_999)], set()),
        ([SOURCE, Ran(1_000, 4_900, 1, 9), Ran(1_000, 4_950, 2, 10), LATE._replace(call=3)], WAITED),
        ([Ran(1_000, 5_000, 0), LATE._replace(stream=7)], set()),
        ([SOURCE._replace(device=1), LATE._replace(stream=7)], WAITED),
        ([SOURCE._replace(call=1), LATE], set()),
        ([SOURCE._replace(call=2), LATE], set()),
        ([SOURCE, *ON_ITS_STREAM[:7], LATE._replace(call=8)], WAITED),
        ([SOURCE, *ON_ITS_STREAM, LATE._replace(call=9)], set()),
    ],
    ids=[
        "as it ended", "right after", "long after", "before", "of several the last end", "the own stream",
        "that stream of another device", "launched with it", "launched later", "behind seven ends", "behind eight ends",
    ],
)  # fmt: skip
def test_what_starts_late_right_after_another_streams_end_waited_for_it(ran: list[Ran], found: Named) -> None:
    """Each call began one ns after the one before; what ended up to 1 µs ago counts."""
    run = run_of(ran, [Called(time, time) for time in range(10)])
    assert named(inferred(run, column(len(ran) - 1), 1_000)[0], run) == found


@pytest.mark.parametrize("count", [4, 5])
def test_what_usually_passes_between_two_streams_is_not_long(count: int) -> None:
    """More than the tolerance each time: usual if that is so often enough."""
    rows = [
        row
        for n in range(count)
        for row in (
            Ran(100_000 * n, 100_000 * n + 5_000, 2 * n, name="source"),
            Ran(100_000 * n + 7_000, 100_000 * n + 9_000, 2 * n + 1, stream=8, name="late"),
        )
    ]
    run = run_of(rows, [Called(time, time) for time in range(2 * count)])
    found, _ = inferred(run, column(*range(1, 2 * count, 2)), 1_000)
    assert len(found.source) == (count if count == 5 else 0)


def test_nothing_late_waited_for_nothing() -> None:
    assert len(inferred(run_of([]), column(), 1_000)[0].source) == 0


MAIN, WORKER = 1000, 1001
HANDOFF = DependencyKind.HANDOFF
BACKWARD_OP = "autograd::engine::evaluate_function: MmBackward0"


@contextmanager
def backward(t: TraceBuilder, *, sequence: int = 0, recorded: bool = True, delay: float = 2) -> Iterator[None]:
    """A backward op on a worker thread, which the current thread waits for."""
    described = {"seq_id": sequence, "fw_thread": 1} if recorded else {}
    with t.thread(2, start=t.now + delay), t.op(BACKWARD_OP if recorded else "aten::sum", **described):
        yield
    t.join_thread(2)


def training_step(torch: str = "2.13", *, recorded: bool = True) -> TraceBuilder:
    """9 µs of forward; in `## backward ##` 3 µs, 2 µs until the worker starts, its 8 µs, 6 µs; 10 µs of optimiser."""
    t = TraceBuilder(torch=torch)
    with t.op("aten::mm", seq_id=0 if recorded else -1):
        t.work(5)
        t.launch("forward", duration=20)
    with t.annotation("## backward ##"):
        t.work(3)
        with backward(t, recorded=recorded):
            t.work(4)
            t.launch("backward", duration=30)
        t.work(6)
    t.leaf("Optimizer.step", 10)
    return t


def found(linked: LinkedTrace) -> list[str]:
    return [linked.handoffs.known_by[row] for row in range(len(linked.handoffs.source_thread))]


# An autograd worker


@pytest.mark.parametrize("torch", LAYOUTS)
def test_backward_runs_because_the_main_thread_called_it_and_waits_as_sequence_numbers_say(torch: str) -> None:
    t = training_step(torch)
    linked = link_run(t)
    nodes = convert_linked(linked, t.origin_ns)
    expected = [("aten::mm", 0, 9), ("## backward ##", 9, 14), ("## backward ##", 22, 28), ("Optimizer.step", 28, 38)]
    assert nodes.times(MAIN) == expected
    assert nodes.follows(BACKWARD_OP) == {"## backward ###0": HANDOFF}
    assert nodes.follows("## backward ###1")[BACKWARD_OP] == HANDOFF
    assert nodes.replay_error() == 0
    assert found(linked) == ["record", "record"]


def test_a_slower_worker_delays_the_main_thread() -> None:
    nodes = convert_run(training_step())
    before = nodes.earliest_start_makespan_ns()
    duration = nodes.graph.attributes["duration_ns"]
    duration[nodes.row(BACKWARD_OP)] += 100_000
    host_end = 38 + 100
    assert before == 59_000
    assert nodes.earliest_start_makespan_ns() == max(host_end, 14 + 108 + 30) * 1000


def test_the_main_thread_may_wait_outside_any_annotation(t: TraceBuilder) -> None:
    t.leaf("aten::mm", 9, seq_id=0)
    with backward(t):
        t.work(8)
    t.leaf("Optimizer.step", 10)
    nodes = convert_run(t)
    assert nodes.times(MAIN) == [("aten::mm", 0, 9), ("host idle", 9, 11), ("Optimizer.step", 19, 29)]
    assert nodes.follows(BACKWARD_OP) == {"host idle": HANDOFF}


def test_several_bursts_are_handed_over_one_by_one(t: TraceBuilder) -> None:
    for sequence in range(3):
        t.leaf("aten::mm", 9, seq_id=sequence)
        with backward(t, sequence=sequence):
            t.work(8)
        t.leaf(f"step {sequence}", 5)
    nodes = convert_run(t)
    resumed = {target for _, target in nodes.edges(HANDOFF)}
    assert resumed == {f"{BACKWARD_OP}#{k}" for k in range(3)} | {f"step {k}" for k in range(3)}
    assert sum(end - start for _, start, end in nodes.times(WORKER)) == 3 * 8
    assert nodes.replay_error() == 0


def test_two_threads_that_ran_backward_for_each_other() -> None:
    """As where checkpoints run forward ops again on the autograd thread: the larger thread is the caller."""
    t = training_step()
    with t.thread(2), t.op("aten::mm", seq_id=7):
        t.work(5)
    with t.op(BACKWARD_OP, seq_id=7, fw_thread=2):
        t.work(5)
    t.leaf("aten::add", 5)
    nodes = convert_run(t)
    assert broken_rules(nodes) == []
    assert nodes.replay_error() == 0


# Timing as the last resort


def test_a_worker_without_sequence_numbers_is_found_by_timing_and_marked() -> None:
    t = training_step(recorded=False)
    assert found(link_run(t)) == ["timing", "timing"]
    assert convert_run(t).follows("aten::sum") == {"## backward ###0": HANDOFF | DependencyKind.INFERRED}


def test_inferred_handoffs_can_be_left_out_and_their_thread_keeps_its_time() -> None:
    assert convert_run(training_step(recorded=False), inferred=False).edges(HANDOFF) == set()
    t = TraceBuilder()
    t.leaf("aten::mm", 9)
    with backward(t, recorded=False):
        t.work(80)
    t.leaf("Optimizer.step", 10)
    assert convert_run(t, inferred=False).replay_error() == 0


def test_one_thread_and_threads_that_work_at_the_same_time_hand_nothing_over(t: TraceBuilder) -> None:
    t.leaf("aten::mm", 9, seq_id=0)
    t.leaf(BACKWARD_OP, 9, seq_id=0, fw_thread=1)
    assert found(link_run(t)) == []
    t = TraceBuilder()
    with t.thread(2, start=3):
        for _ in range(5):
            t.leaf("aten::embedding", 9)
    for _ in range(20):
        t.leaf("aten::mm", 5)
    assert found(link_run(t)) == []


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
def test_work_right_before_a_handoff_is_no_waiting(torch: str) -> None:
    """The worker's first op begins while the main thread is busy, the second one while that thread is blocked."""
    t = TraceBuilder(torch=torch)
    with t.thread(2, start=5):
        for _ in range(2):
            t.leaf(BACKWARD_OP, 7, seq_id=0, fw_thread=1)
    t.leaf("aten::mm", 10, seq_id=0)
    t.join_thread(2)
    t.leaf("Optimizer.step", 10)
    assert sum(end - start for _, start, end in convert_run(t).times(WORKER)) == 14


# Whatever the run


@given(st.lists(runs.BACKWARD | runs.STEPS, min_size=3, max_size=15), VERSIONS)
def test_any_run_with_handoffs_replays_as_measured(steps: list[Step], torch: str) -> None:
    t = play(steps, torch=torch)
    nodes = convert_linked(link_run(t), t.origin_ns)
    assert broken_rules(nodes) == []
    assert nodes.replay_error() <= 0.005


def test_a_worker_whose_only_op_ends_as_the_caller_falls_quiet_is_linked(t: TraceBuilder) -> None:
    with t.thread(2, start=4.2):
        t.leaf(BACKWARD_OP, 0.5, seq_id=0, fw_thread=1)
    t.leaf("aten::mm", 5, seq_id=0)
    with t.annotation("## backward ##"):
        t.work(6)
    assert convert_run(t).replay_error() == 0
