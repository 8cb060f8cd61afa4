"""The graph of a run: every activity once, in the order it ran, with what simulators read; replayed it is the run."""

from typing import Any

import msgspec
import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.converter.dependencies import LOOKED_BACK
from execgraph.schema import graph
from execgraph.schema.columns import ABSENT, Categorical, Ragged
from execgraph.schema.graph import STEP_WITHOUT_PROFILER_NS, STEPS, CollectiveType, Delay, DependencyKind, NodeType
from execgraph.schema.linked import Communication
from execgraph.schema.reasons import Reason
from execgraph.tools.commands.trace_convert import summary
from execgraph.tools.replay import replay
from hypothesis import example, given, strategies as st
from support import runs
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.runs import Nodes, Step, broken_rules, convert_linked, convert_run, link_run, one_thread, play, two_threads

LAUNCH, STREAM_ORDER = DependencyKind.LAUNCH, DependencyKind.STREAM_ORDER
PROGRAM_ORDER, EVENT_WAIT = DependencyKind.PROGRAM_ORDER, DependencyKind.EVENT_WAIT
COLLECTIVE = "ncclDevKernel_AllReduce"


def attributes(nodes: Nodes, label: str) -> dict[str, Any]:
    """The attributes that a node has."""
    row, found = nodes.row(label), {}
    for name, column in nodes.graph.attributes.items():
        if isinstance(column, Ragged):
            found[name] = column[row].tolist()
        elif isinstance(column, Categorical):
            found |= {name: column[row]} if column.codes[row] >= 0 else {}
        elif column[row] != ABSENT:
            found[name] = int(column[row])
    return found


# Whatever the run


def check_run(t: TraceBuilder, nodes: Nodes) -> None:
    device = np.flatnonzero(nodes.graph.is_activity).tolist()
    assert sorted(nodes.graph.name[row] for row in device) == sorted(activity.name for activity in t.activities)
    assert broken_rules(nodes) == []
    assert nodes.makespan_ns() / 1000 == pytest.approx(t.makespan_us, abs=0.002)


RUNS = st.tuples(one_thread, st.just(1)) | st.tuples(two_threads, st.just(2))
"""Steps, and on how many threads."""


@example(([Step("work", 7, 1, 1), Step("upload", 7, 1, 1), Step("op", 7, 1, 1)], 1), "2.1")
@given(RUNS, runs.VERSIONS)
def test_any_run_is_sound_and_replays_as_measured(run, torch):
    """Within 0.5 %, or what times in whole µs leave open: for each copy, whether it or its call ended first."""
    t = play(run[0], threads=run[1], torch=torch)
    linked = link_run(t)
    nodes, resolution = convert_linked(linked, t.origin_ns), linked.info.machine.resolution_ns
    check_run(t, nodes)
    untold_ns = resolution * sum(activity.name.startswith("Memcpy") for activity in t.activities)
    allowed = max(0.005 * nodes.makespan_ns(), untold_ns * (resolution > 1))
    assert nodes.replay_error() * nodes.makespan_ns() <= allowed
    again = convert_linked(linked, t.origin_ns)
    assert (again.labels, again.report) == (nodes.labels, nodes.report)
    assert again.graph.data_deps.values.tolist() == nodes.graph.data_deps.values.tolist()


@given(two_threads, st.sampled_from([{"sync_records": False}, {"event_correlations": False}]))
def test_any_run_is_sound_where_synchronisation_has_to_be_guessed(steps: list[Step], known: dict[str, Any]) -> None:
    t = play(steps, threads=2, **known)
    check_run(t, convert_run(t))


@given(one_thread, st.sampled_from([{"promote": "all"}, {"inferred": False}, {"delays": False}, {"io": "none"}]))
def test_any_run_is_sound_with_any_option(steps: list[Step], option: dict[str, Any]) -> None:
    t = play(steps)
    nodes = convert_run(t, **option)
    assert broken_rules(nodes) == []
    assert nodes.report.activities == len(t.activities)


# Streams


def two_kernels(second: float) -> TraceBuilder:
    """An op launches two kernels of 20 µs on one stream, from 4 µs and from the `second` one's start on."""
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("first", duration=20)
        t.launch("second", duration=20, start=second)
    return t


@pytest.mark.parametrize(("stream", "device"), [(20, 0), (7, 1)], ids=["another stream", "its number elsewhere"])
def test_streams_are_independent(t: TraceBuilder, stream: int, device: int) -> None:
    t.launch("a", 7, 50)
    t.device = device
    t.launch("b", stream, 50)
    t.leaf("aten::add", 1)
    assert convert_run(t).edges(STREAM_ORDER) == set()


def test_overlapping_activities_stay_chained_and_the_earlier_one_is_trimmed() -> None:
    nodes = convert_run(two_kernels(15))
    assert nodes.follows("second")["first"] == STREAM_ORDER
    assert nodes.time("first") == (4, 15)
    assert attributes(nodes, "first")["overlap_ns"] == 9_000
    assert nodes.report.overlap_us == 9
    assert nodes.replay_error() == 0


def test_small_device_gaps_are_kept_and_never_busy() -> None:
    nodes = convert_run(two_kernels(27))
    assert (attributes(nodes, "second")["gap_ns"], attributes(nodes, "second")["duration_ns"]) == (3_000, 20_000)
    assert nodes.report.gaps_us == 3
    assert nodes.graph.duration_micros[nodes.row("second")] == 23


def test_a_long_unexplained_delay_is_a_node_neither_on_the_host_nor_on_a_stream_and_counted() -> None:
    nodes = convert_run(two_kernels(100))
    usual = attributes(nodes, "second")["gap_ns"] / 1000
    assert nodes.follows("delay: unexplained") == {"first": STREAM_ORDER}
    assert nodes.time("delay: unexplained") == (24, 100 - usual)
    assert nodes.follows("second") == {"aten::mm#1": LAUNCH, "first": STREAM_ORDER, "delay: unexplained": STREAM_ORDER}
    assert (nodes.report.delays, nodes.report.delays_us) == ({"unexplained": 1}, {"unexplained": 76 - usual})
    assert nodes.replay_error() == 0
    found = attributes(nodes, "delay: unexplained")
    assert set(found) == {"is_cpu_op", "start_time_ns", "duration_ns", "delay", "data_dep_kinds"}
    assert (found["is_cpu_op"], found["delay"]) == (0, Delay.UNEXPLAINED)


def test_delays_that_are_left_out_are_not_counted() -> None:
    nodes = convert_run(two_kernels(100), delays=False)
    assert nodes.follows("second") == {"aten::mm#1": LAUNCH, "first": STREAM_ORDER}
    assert nodes.report.delays == {}
    assert replay(nodes.graph).makespan_ns < 50_000


def test_work_from_before_the_trace_holds_a_streams_first_activity_back(t: TraceBuilder) -> None:
    t.launch("late", start=100, duration=5)
    t.leaf("aten::add", 5)
    nodes = convert_run(t)
    assert nodes.time("carry-in") == (0, 100)
    assert nodes.follows("late") == {"cudaLaunchKernel": LAUNCH, "carry-in": STREAM_ORDER}
    assert nodes.report.delays == {"start of recording": 1}
    assert nodes.replay_error() == 0


# Edges from timing alone


def late_after_another_stream(**known: Any) -> TraceBuilder:
    """A kernel that starts late, right after one of another stream; nothing says why."""
    t = TraceBuilder(**known)
    with t.op("aten::mm"):
        t.launch("first", 20, 1)
        t.launch("long", 7, 100)
        t.launch("late", 20, 5, start=110)
    return t


def test_without_any_record_a_late_activity_follows_what_ended_right_before_unless_left_out() -> None:
    t = late_after_another_stream(sync_records=False)
    nodes = convert_run(t)
    assert nodes.follows("late")["long"] == EVENT_WAIT | DependencyKind.INFERRED
    assert nodes.report.edges["inferred"] == 1
    assert nodes.replay_error() == 0
    without = convert_run(t, inferred=False)
    assert "long" not in without.follows("late")
    assert without.report.delays == {"unexplained": 1}


@pytest.mark.parametrize(
    ("before", "cut_off"), [(LOOKED_BACK - 1, {}), (LOOKED_BACK, {Reason.LATE_BEYOND_SEARCH.of(LOOKED_BACK): 1})]
)
def test_a_search_among_too_many_is_cut_off_and_counted(before: int, cut_off: dict[str, int]) -> None:
    t = TraceBuilder(sync_records=False)
    with t.op("aten::mm"):
        t.launch("elsewhere", 7, 1)
        for _ in range(before):
            t.launch("own", 20, 1)
        t.launch("late", 20, 5, start=500)
    report = convert_run(t).report
    assert report.dropped == cut_off
    assert ("dropped     1 late activities" in summary(report)) == bool(cut_off)


def test_where_waits_are_recorded_none_is_inferred() -> None:
    t = late_after_another_stream()
    t.wait_event(t.record_event(stream=7), stream=24)
    t.launch("recorded", 24, 1)
    t.leaf("aten::add", 1)
    assert convert_run(t).edges(DependencyKind.INFERRED) == set()


# The blocking reading


def test_with_synchronous_launches_whoever_followed_a_launch_follows_what_it_launched(t: TraceBuilder) -> None:
    with t.op("aten::mm"):
        t.launch("k", duration=50)
    t.leaf("aten::add", 5)
    assert convert_run(t).follows("aten::add") == {"aten::mm": PROGRAM_ORDER}
    synchronous = convert_run(t, promote="all")
    assert synchronous.follows("aten::add") == {"k": PROGRAM_ORDER}
    assert synchronous.follows("k") == {"aten::mm": LAUNCH}


def test_with_synchronous_launches_nobody_waits_for_what_was_overtaken(t: TraceBuilder) -> None:
    """Where a stream is no queue (copies that several engines share), waiting for the one overtaken would never end."""
    with t.op("aten::first"):
        t.launch("overtaken", start=300)
    with t.op("aten::second"):
        t.launch("overtaking", start=100)
    t.leaf("aten::add", 5)
    synchronous = convert_run(t, promote="all")
    assert broken_rules(synchronous) == []
    held = {"delay: unexplained": STREAM_ORDER}
    assert synchronous.follows("overtaken") == {"aten::first": LAUNCH, "overtaking": STREAM_ORDER, **held}
    assert synchronous.follows("aten::second") == {"aten::first": PROGRAM_ORDER}
    assert synchronous.follows("aten::add") == {"overtaking": PROGRAM_ORDER}


# What a node says


def test_a_slice_says_which_op_it_is_of(t: TraceBuilder) -> None:
    schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    with t.op("aten::mm", schema=schema, seq_id=5) as op:
        t.work(2)
        t.launch("k")
        t.work(3)
    nodes = convert_run(t)
    first, second = attributes(nodes, "aten::mm#0"), attributes(nodes, "aten::mm#1")
    assert first["is_cpu_op"] == 1
    assert (first["op_id"], first["rf_id"], first["seq_id"], first["tid"]) == (op.id, op.rf_id, 5, 1000)
    assert (first["slice"], second["slice"]) == (0, 1)
    assert first["op_schema"] == schema
    assert first["start_time_ns"] == t.origin_ns
    assert "stream" not in first and "cat" not in first


def test_an_activity_says_where_it_ran_and_which_op_launched_it(t: TraceBuilder) -> None:
    with t.op("aten::mm") as op:
        kernel = t.launch("k", 20, 5)
    found = attributes(convert_run(t), "k")
    assert found["is_cpu_op"] == 0
    assert (found["device"], found["stream"], found["cat"]) == (0, 20, "kernel")
    assert (found["correlation"], found["op_id"]) == (kernel.correlation, op.id)
    assert found["start_time_ns"] == t.origin_ns + 4_000
    assert "tid" not in found and "slice" not in found


def test_the_control_dependency_is_the_launcher_or_the_calling_slice(t: TraceBuilder) -> None:
    with t.op("aten::linear"):
        t.work(2)
        with t.op("aten::addmm"):
            t.work(2)
            t.launch("k")
    nodes = convert_run(t)
    assert nodes.caller("k") == "aten::addmm"
    assert nodes.caller("aten::addmm") == "aten::linear"
    assert nodes.caller("aten::linear") is None


def test_edges_are_counted_by_kind_and_those_of_rules_that_are_left_out_are_not_there() -> None:
    t = two_kernels(27)
    nodes = convert_run(t)
    assert nodes.report.edges == {"program order": 1, "launch": 2, "stream order": 1}
    assert nodes.edges(STREAM_ORDER)
    assert not convert_run(t, left_out=("stream_order",)).edges(STREAM_ORDER)


def tensors_of(nodes: Nodes, label: str) -> tuple[bytes, bytes] | None:
    text, row = nodes.graph.tensors, nodes.row(label)
    if text is None or row not in text.rows:
        return None
    place = text.rows.tolist().index(row)
    return text.input_values[place], text.output_types[place]


@pytest.mark.parametrize("with_host", [True, False], ids=["with host", "as the first op of a trace"])
def test_an_ops_tensors_are_on_its_first_slice_unless_left_out(t: TraceBuilder, with_host: bool) -> None:
    a = t.tensor((2, 3))
    with t.op("aten::mm", inputs=[a], outputs=[a]):
        t.work(1)
        t.launch("k")
        t.work(1)
    linked = link_run(t) if with_host else runs.link_without_host(t)
    nodes = convert_linked(linked)
    assert [attributes(nodes, f"aten::mm#{number}")["slice"] for number in (0, 1)] == [0, 1]
    value = f'[[{a.id},{a.storage},0,6,4,"cuda:0"]]'.encode()
    assert not with_host or tensors_of(nodes, "aten::mm#0") == (value, b'["Tensor(float)"]')
    assert tensors_of(nodes, "aten::mm#1") is None
    assert convert_linked(linked, io="none").graph.tensors is None


def test_an_op_may_have_only_arguments_or_only_results(t: TraceBuilder) -> None:
    a = t.tensor((2, 3))
    t.leaf("aten::print", 5, inputs=[a])
    t.leaf("aten::empty", 5, outputs=[a])
    nodes = convert_run(t)
    assert tensors_of(nodes, "aten::print") == (f'[[{a.id},{a.storage},0,6,4,"cuda:0"]]'.encode(), b"[]")
    assert tensors_of(nodes, "aten::empty") == (b"[]", b'["Tensor(float)"]')


def of_steps(*steps: int) -> TraceBuilder:
    """An op of 5 µs in each step, one outside if there is none."""
    t = TraceBuilder()
    for step in steps:
        with t.annotation(f"ProfilerStep#{step}"):
            t.leaf("aten::add", 5)
    if not steps:
        t.leaf("aten::add", 5)
    return t


@pytest.mark.parametrize(
    ("step_ns", "data_ns", "found"),
    [
        (-1, -1, {}), (0, 5, {}), (900, -1, {"step": 900}), (900, 0, {"step": 900}),
        (900, 7, {"step": 900, "data": 7}), (1, 1, {"step": 1, "data": 1}),
    ],
)  # fmt: skip
def test_a_graph_knows_its_steps_where_they_were_measured_without_a_profiler(step_ns, data_ns, found):
    linked = link_run(of_steps(3, 4))
    linked.info.step_without_profiler_ns, linked.info.data_wait_without_profiler_ns = step_ns, data_ns
    metadata = convert_linked(linked).graph.metadata
    names = {"step": STEP_WITHOUT_PROFILER_NS, "data": graph.DATA_WAIT_WITHOUT_PROFILER_NS}
    expected = {names[what]: ns for what, ns in found.items()} | ({STEPS: 2} if found else {})
    assert {key: metadata[key] for key in (STEPS, *names.values()) if key in metadata} == expected


def test_a_graph_knows_the_offset_of_the_clocks_in_the_middle_of_their_drift_and_no_time_of_steps_without_one() -> None:
    linked = link_run(of_steps())
    linked.info.machine = msgspec.structs.replace(linked.info.machine, clock_offset_ns=100, clock_drift_ns=50)
    linked.info.step_without_profiler_ns = 900
    metadata = convert_linked(linked).graph.metadata
    assert metadata["clock_offset_ns"] == 125
    assert STEPS not in metadata


def test_the_graph_knows_where_it_comes_from() -> None:
    t = TraceBuilder(rank=3, world_size=8, pid=4711)
    t.leaf("aten::add", 5)
    metadata = convert_run(t).graph.metadata
    assert (metadata["rank"], metadata["world_size"], metadata["pid"]) == (3, 8, 4711)
    assert (metadata["source_host"], metadata["source_device"]) == ("host_rank3.json", "device_rank3.json")
    assert metadata["schema"] == LAYOUTS["2.13"].schema
    assert metadata["base_time_ns"] == t.device_trace()["baseTimeNanoseconds"]
    assert str(metadata["tool"]).startswith("execgraph ")


# Communication


@pytest.mark.parametrize("torch", LAYOUTS)
def test_only_the_collectives_kernel_is_communication_and_says_who_takes_part(torch: str) -> None:
    t = TraceBuilder(torch=torch, rank=0, world_size=4)
    group, tensor = t.group([0, 2], name="7"), t.tensor((8,), "c10::Half")
    t.collective("allreduce", group=group, tensors=[tensor], kernel=COLLECTIVE)
    nodes = convert_run(t)
    talking = np.flatnonzero(np.isin(nodes.graph.type, (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)))
    assert [nodes.labels[row] for row in talking] == [COLLECTIVE]
    found = attributes(nodes, COLLECTIVE)
    assert (found["comm_type"], found["comm_size"], found["comm_seq"]) == (CollectiveType.ALL_REDUCE, 16, 1)
    # old versions record an address and no ranks
    assert torch in ("2.1", "2.2") or (found["pg_name"], found["pg_ranks"]) == ("7", [0, 2])


def test_send_and_receive_know_their_peer() -> None:
    t = TraceBuilder(rank=1, world_size=4)
    group = t.group([0, 1, 2, 3])
    peers = {"send": (2, NodeType.COMM_SEND, (1, 2)), "recv": (0, NodeType.COMM_RECV, (0, 1))}
    for name, (peer, _, _) in peers.items():
        t.collective(name, group=group, peer=peer, kernel=f"ncclDevKernel_SendRecv {name}")
    nodes = convert_run(t)
    for name, (_, type, ends) in peers.items():
        label = f"ncclDevKernel_SendRecv {name}"
        found = attributes(nodes, label)
        assert (nodes.graph.type[nodes.row(label)], (found["comm_src"], found["comm_dst"])) == (type, ends)


def test_an_unknown_communication_stays_computation_and_is_counted() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    t.collective("mystery", group=t.group([0, 1]), kernel="ncclDevKernel_Generic_1")
    nodes = convert_run(t)
    assert nodes.graph.type[nodes.row("ncclDevKernel_Generic_1")] == NodeType.COMP
    assert nodes.report.unknown_communications == 1


def test_process_groups_are_metadata() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    t.group([0, 1])
    t.leaf("aten::add", 5)
    nodes = convert_run(t)
    assert nodes.graph.type[nodes.row("## process_group:init ##")] == NodeType.METADATA
    assert nodes.graph.duration_ns[nodes.row("## process_group:init ##")] == 0
    assert convert_run(t, target="astra-sim").labels == ["aten::add"]


def test_a_communication_without_an_activity_is_on_the_longest_slice_of_its_op(t: TraceBuilder) -> None:
    with t.op("gloo:all_reduce"):
        t.work(2)
        t.leaf("aten::first", 5)
        t.work(20)
        t.leaf("aten::second", 5)
        t.work(4)
    linked = link_run(t)
    row = linked.ops.name.equal("gloo:all_reduce").argmax()
    linked.ops.communication_row = np.where(np.arange(len(linked.ops)) == row, 0, -1)
    linked.communications = [Communication("allreduce", "Float", 4)]
    nodes = convert_linked(linked)
    rows = np.flatnonzero(nodes.graph.type == NodeType.COMM_COLL).tolist()
    assert [nodes.labels[row] for row in rows] == ["gloo:all_reduce#1"]


def test_steps_begin_where_their_first_marks_do() -> None:
    nodes = convert_run(of_steps(3, 4))
    begun = [nodes.graph.number(f"step_start_ns_{step}", 0) for step in (3, 4)]
    first, second = nodes.graph.host_clock_start_ns[nodes.graph.name.equal("aten::add")].tolist()
    assert begun[0] <= first < begun[1] <= second


# Runs with little in them


def test_a_run_without_a_device_is_its_host_threads_and_ops_without_length_are_counted(t: TraceBuilder) -> None:
    t.leaf("aten::add", 5)
    t.leaf("aten::view", 0)
    t.leaf("aten::mul", 5)
    nodes = convert_run(t)
    assert nodes.labels == ["aten::add", "aten::mul"]
    assert nodes.edges(PROGRAM_ORDER) == {("aten::add", "aten::mul")}
    assert nodes.report.zero_length_ops == 1


def test_what_is_no_linked_trace_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"convert\(linked\) takes a LinkedTrace, which link and read_linked return, not str"
    ):
        convert("host.json.gz")
