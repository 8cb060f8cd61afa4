"""The critical path of replayed graphs, hardware counters and copy bandwidth.

Steps: how long each took, what of it the device was busy, what bound it, which stand out, and what the main thread
did in each.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.schema.machine import MachineCalibration
from execgraph.tools.analyses import RankTrace, Table, analyse, graph_of, read_rank
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.folders import TESTS
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, LAUNCH, STREAM_ORDER, GraphBuilder, rank_with_collective
from support.references import MEMORY, Act, bandwidth_at, began, linked_of, picked
from support.runs import link_run

TO_DEVICE, GB_S = "Memcpy HtoD (Pageable -> Device)", "memory bandwidth (GB/s)"
FMA, ADD = (f"smsp__sass_thread_inst_executed_op_f{name}_pred_on.sum" for name in ("fma", "add"))


def two_streams() -> TraceBuilder:
    """Two kernels on one stream while a long one on another holds the copy at the end, for which the host waits."""
    t = TraceBuilder(sync_records=True)
    with t.op("aten::linear"):
        t.launch("long", stream=9, duration=500)
        t.launch("short", stream=7, duration=20)
        t.launch("short", stream=7, duration=20)
        t.wait_event(t.record_event(stream=9), stream=7)
        t.memcpy("DtoH", stream=7, duration=8, bytes=4096)
    return t


def rank_of(t: TraceBuilder, folder: Path) -> RankTrace:
    host, device = t.write(folder)
    return read_rank(str(device), str(host))


def test_the_path_leads_through_what_held_the_run_up(tmp_path: Path) -> None:
    found = analyse([rank_of(two_streams(), tmp_path)], ["critical_path"])
    times = {row["kind"]: row["time"] for row in found["critical_path"].rows()}
    assert (times["computation"], times["memory"]) == (500.0, 8.0)
    assert {row["name"] for row in found["critical_path_nodes"].rows() if row["kind"] == "computation"} == {"long"}


@pytest.mark.parametrize("job", ["simple", "prefetch", "graph"])
def test_pieces_fill_the_replayed_run(job: str) -> None:
    rank = RankTrace(0, linked_of([]), graphs_of(job)[0])
    found, replay = analyse([rank], ["critical_path"]), rank.replay
    assert replay is not None
    longest = replay.makespan_ns
    assert sum(row["time"] for row in found["critical_path"].rows()) == pytest.approx(longest / 1000)
    assert sum(row["pct"] for row in found["critical_path"].rows()) == pytest.approx(100)
    nodes, end = found["critical_path_nodes"].rows(), 0.0
    for row in nodes:
        assert row["start"] == pytest.approx(end)
        end = row["start"] + row["time"]
    assert end == pytest.approx(longest / 1000)


@given(
    st.lists(
        st.builds(
            lambda start, length, size, speed: Act(
                start, start + length, MEMORY, name=TO_DEVICE, size=size, bandwidth=speed
            ),
            st.integers(0, 40),
            st.integers(0, 30),
            st.integers(-1, 1 << 14),
            st.sampled_from((-1, 10**6, 25 * 10**9)),
        ),
        max_size=8,
    ),
    st.sampled_from((1, 2)),
)
def test_bandwidth_is_what_all_running_copies_move(acts: list[Act], resolution: int) -> None:
    rank = RankTrace(0, linked_of(acts, machine=MachineCalibration(resolution_ns=resolution)))
    for row in analyse([rank], ["counters"])["counters"].rows():
        assert row["counter"] == "HtoD"
        time = round(1000 * row["ts"]) + began(acts)
        assert row["value"] == pytest.approx(bandwidth_at(acts, resolution, time), abs=1e-6)


def test_of_times_in_whole_microseconds_short_copies_tell_no_bandwidth_but_the_recorded_one(tmp_path: Path) -> None:
    """A copy of 1.9 µs lasts 1 µs in such a trace: by its length it would be nearly twice as fast as it was."""
    t = TraceBuilder(torch="2.1")
    too_fast = 40.5, {"bytes": 405_000_000}
    for duration, args in (
        (1.9, {"bytes": 1900}),
        (1.9, {"bytes": 1900, GB_S: 1.0}),
        (40.5, {"bytes": 81_000}),
        too_fast,
    ):
        t.memcpy("HtoD", duration=duration, **args)
    table = analyse([read_rank(str(t.write(tmp_path)[1]))], ["counters"])["counters"]
    found = {row["value"] for row in table.rows() if row["counter"] == "HtoD" and row["value"]}
    assert found == {1.0, 81_000 / 40_000}
    assert table.note.startswith(
        "1 of 4 copies have no recorded bandwidth and are in none, as they last less than 10 µs"
    )
    assert "1 of 4 copies are faster than any link of a host (2,000 GB/s)" in table.note


def profiled(names: list[str], launches: int) -> TraceBuilder:
    """What the range profiler leaves: launch calls without kernels, and a range with counters for each kernel."""
    t = TraceBuilder()
    with t.op("aten::linear"):
        for number in range(launches):
            with t.op(f"aten::mm{number}"):
                t.call("cudaLaunchKernel")
    t.activity("Memset (Device)", 7, 900, 1, category="gpu_memset")
    for number, name in enumerate(names):
        counters = {FMA: 10 * number, ADD: 3, "sm__cycles": 7}
        row: dict[str, Any] = {"ph": "X", "cat": "cuda_profiler_range", "name": name, "pid": 0, "tid": 0}
        t.add_device_event(row | {"ts": 10 + number, "dur": 1, "args": counters})
    return t


def test_counters_belong_to_the_op_that_launched_in_the_same_place(tmp_path: Path) -> None:
    rows = analyse([rank_of(profiled(["gemm", "relu"], 2), tmp_path)])["cupti_counters"].rows()
    found = picked(rows, "op_stack", "kernel", "flops")
    assert found == [("aten::linear > aten::mm0", "gemm", 3.0), ("aten::linear > aten::mm1", "relu", 23.0)]
    assert [row["sm__cycles"] for row in rows] == [7.0, 7.0]
    # they are attached to nothing where the numbers disagree
    table = analyse([rank_of(profiled(["gemm", "relu"], 3), tmp_path)])["cupti_counters"]
    assert picked(table.rows(), "op_stack", "correlation") == [("", -1), ("", -1)]
    assert "2 ranges were recorded and 3 kernel launches" in table.note
    # nor where the names do
    t = profiled(["relu"], 0)
    t.launch("gemm")
    table = analyse([rank_of(t, tmp_path)], ["cupti_counters"])["cupti_counters"]
    assert table.note.startswith("rank 0: device 0: range 1 is of relu, launch 1 of gemm, so that no range")


def test_waits_on_the_path_are_told_by_what_was_waited_for() -> None:
    g = GraphBuilder()
    op = g.host("aten::mm", start=0, duration=5_000)
    first = g.activity("first", 8_000, 10_000, gap=3_000, after=[(op, LAUNCH)])
    second = g.activity("second", 30_000, 1_000, gap=1_000, host_delay_ns=11_000, after=[(first, STREAM_ORDER)])
    g.activity("third", 33_000, 4_000, stream=9, gap=2_000, after=[(second, EVENT_WAIT)])
    found = analyse([RankTrace(0, linked_of([]), g.build())], ["critical_path"])
    times = picked(found["critical_path_nodes"].rows(), "name", "kind", "time")
    assert times == [
        ("aten::mm", "host", 5.0),
        ("first", "launch", 3.0),
        ("first", "computation", 10.0),
        ("second", "stream order", 1.0),
        ("second", "host delay", 11.0),
        ("second", "computation", 1.0),
        ("third", "event wait", 2.0),
        ("third", "computation", 4.0),
    ]


def test_how_far_the_replay_is_off_stands_beside_the_path() -> None:
    """Of 8 µs the replay lacks 1, and 2 are a delay: neither is explained."""
    g = GraphBuilder()
    op = g.host("aten::mm", start=0, duration=4_000)
    late = g.delay(4_000, 2_000, after=[(op, LAUNCH)])
    g.activity("kernel", 7_000, 1_000, after=[(op, LAUNCH), (late, LAUNCH)])
    found = analyse([RankTrace(0, linked_of([]), g.build())], ["critical_path"])
    (row,) = found["critical_path_replay"].rows()
    assert (row["measured"], row["replayed"], row["error"]) == (8, 7, -12.5)
    assert row["explained"] == pytest.approx(100 - 100 * 3 / 8)
    assert found["critical_path"].note == (
        "the replay is -12.50 % off the measured run and explains 62.5 % of it: too far off to rely on"
    )


def test_without_a_graph_or_of_one_that_cannot_run_there_is_no_path_and_the_reason_is_said(g: GraphBuilder) -> None:
    first = g.host("a", 0, 5, id=1, after=[(2, STREAM_ORDER)])
    g.host("b", 5, 5, id=2, after=[(first, STREAM_ORDER)])
    for graph, reason in ((None, "there is no execution graph to replay"), (g.build(), "never become ready")):
        found = analyse([RankTrace(0, linked_of([]), graph)], ["critical_path"])
        assert [len(table) for table in found.values()] == [0, 0, 0, 0, 0]
        assert reason in found["critical_path"].note


def test_the_path_of_a_job_goes_from_rank_to_rank_through_what_they_share() -> None:
    """Rank 1 works for longer, so that rank 0 waits for it; the transfer belongs to who came last."""
    graphs = [
        rank_with_collective(0, work=10_000, collective=25_000, clock=0),
        rank_with_collective(1, work=15_000, collective=20_000, clock=0),
    ]
    ranks = [RankTrace(4 + number, linked_of([]), graph) for number, graph in enumerate(graphs)]
    found = analyse(ranks, ["critical_path"])
    nodes = picked(found["critical_path_nodes"].rows(), "rank", "name", "time")
    assert nodes[:2] == [(5, "gemm", 15.0), (5, "ncclAllReduce", 20.0)]
    assert sum(row["time"] for row in found["critical_path"].rows()) == found["critical_path_replay"]["measured"][0]
    by_rank = {row["rank"]: row for row in found["critical_path_by_rank"].rows()}
    assert [by_rank[rank]["begins"] for rank in (4, 5)] == [0, 0]
    assert by_rank[5]["on_path"] >= 35


def test_what_takes_the_path_from_rank_to_rank_is_named_and_counted() -> None:
    """Rank 1 comes last to the collective; after it only rank 0 has work, for which the path goes there."""
    graphs = []
    for rank, work in enumerate((10_000, 15_000)):
        g = GraphBuilder(rank=rank)
        op = g.host("aten::mm", 0, 0)
        kernel = g.activity("gemm", 0, work, after=[(op, LAUNCH)])
        end = g.collective(work, 35_000 - work, ranks=[0, 1], name="ncclAllReduce", after=[(kernel, STREAM_ORDER)])
        if rank == 0:
            g.activity("relu", 35_000, 7_000, after=[(end, STREAM_ORDER)])
        graphs.append(g.build())
    ranks = [RankTrace(4 + number, linked_of([]), graph) for number, graph in enumerate(graphs)]
    found = analyse(ranks, ["critical_path"])
    (row,) = found["critical_path_between_ranks"].rows()
    assert (row["rank"], row["to_rank"], row["name"], row["crossings"], row["time"]) == (5, 4, "ncclAllReduce", 1, 20.0)
    pieces = found["critical_path_nodes"].rows()
    assert sum(one["rank"] != after["rank"] for one, after in itertools.pairwise(pieces)) == row["crossings"]


def step(t: TraceBuilder, number: int, *, host: float = 5, kernel: float = 100) -> None:
    with t.annotation(f"ProfilerStep#{number}"), t.op("aten::mm"):
        t.work(host)
        t.launch("gemm", duration=kernel)
        t.device_synchronize()


def table_of(t: TraceBuilder, graph: bool = True) -> Table:
    linked = link_run(t)
    return analyse([RankTrace(0, linked, graph_of(linked) if graph else None)], ["step_breakdown"])["step_breakdown"]


def test_steps_fill_the_time_from_the_first_to_the_last(t: TraceBuilder) -> None:
    for number, kernel in enumerate((100, 200, 300)):
        step(t, number, kernel=kernel)
    rows = table_of(t).rows()
    assert [row["step"] for row in rows] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert [row["busy"] for row in rows] == [row["computation"] for row in rows] == [100, 200, 300]
    assert sum(row["time"] for row in rows) == pytest.approx(t.makespan_us)
    for row in rows:
        assert row["idle_pct"] == pytest.approx(100 * (1 - row["busy"] / row["time"]))


def test_what_most_of_the_critical_path_is_bounds_a_step(t: TraceBuilder) -> None:
    step(t, 0, host=5, kernel=100)
    step(t, 1, host=300, kernel=100)
    device, host = table_of(t).rows()
    assert (device["bound"], host["bound"]) == ("device", "host")
    assert device["by_device"] > 80 > 30 > host["by_device"]
    # without a graph it is not known
    assert picked(table_of(t, graph=False).rows(), "by_device", "bound", "busy") == [(None, "", 100)] * 2


def test_communication_beside_no_computation_is_exposed() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    group = t.group([0, 1])
    with t.annotation("ProfilerStep#0"), t.op("aten::mm"):
        t.launch("gemm", stream=7, duration=100)
        t.collective(group=group, after=None, duration=160)
        t.device_synchronize()
    (row,) = table_of(t).rows()
    assert row["computation"] == 100
    assert 0 < row["exposed_communication"] < 160
    assert row["busy"] == pytest.approx(100 + row["exposed_communication"])


def test_steps_that_stand_out_are_named(t: TraceBuilder) -> None:
    for number in range(9):
        step(t, number, kernel=900 if number == 4 else 20 if number == 7 else 300 + number)
    table = table_of(t)
    found = {row["step"]: row["outlier"] for row in table.rows() if row["outlier"]}
    assert found == {"ProfilerStep#4": "slow", "ProfilerStep#7": "fast"}
    assert table.note.startswith("unlike the median of 3")
    assert "ProfilerStep#4 (9" in table.note
    alike = TraceBuilder()
    for number in range(5):
        step(alike, number, kernel=300 + number)
    assert {row["outlier"] for row in table_of(alike).rows()} == {""}


def test_without_steps_the_run_is_one_and_without_activities_there_is_none(t: TraceBuilder) -> None:
    with t.op("aten::mm"):
        t.launch("gemm", duration=100)
    assert [row["step"] for row in table_of(t).rows()] == ["whole run"]
    quiet = TraceBuilder()
    quiet.leaf("aten::add", 5)
    table = table_of(quiet)
    assert (len(table), table.note) == (0, "no activity ran in a step")


TRACES = TESTS / "data" / "modules"
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def phases(t: TraceBuilder) -> list[dict[str, Any]]:
    rows = analyse([RankTrace(0, link_run(t))], ["host_phases"])["host_phases"].rows()
    return [{key: round(value, 3) for key, value in row.items() if key not in ("rank", "step")} for row in rows]


def test_a_step_is_forward_backward_optimizer_data_loading_and_python(t: TraceBuilder) -> None:
    for step in range(2):
        with t.annotation(f"ProfilerStep#{step}"):
            with t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                t.leaf("aten::stack", 3)
                t.work(2)
            t.leaf("aten::mm", 10)
            t.work(4)
            with t.op(BACKWARD):
                t.leaf("aten::mm", 12)
            t.work(1)  # of the engine, between two ops of one pass
            with t.op(BACKWARD):
                t.leaf("aten::mm", 7)
            with t.annotation("Optimizer.step#SGD.step"):
                t.leaf("aten::add_", 6)
            t.work(5)
    # the run ends with the last op
    names = "forward_and_other", "backward", "optimizer", "data_loading", "waiting", "between_ops", "time"
    assert picked(phases(t), *names) == [(10, 20, 6, 5, 0, 9, 50), (10, 20, 6, 5, 0, 4, 45)]


def test_an_op_that_had_ended_is_not_around_the_step_that_names_it_as_its_parent() -> None:
    """As in this real run, whose second step names an op of the first one's backward pass."""
    linked = link(TRACES / "host_rank0.json.gz", TRACES / "device_rank0.json.gz")
    steps = analyse([RankTrace(0, linked)], ["host_phases"])["host_phases"].rows()
    assert [round(float(str(step["forward_and_other"]))) for step in steps] == [12_441, 13_763]


def test_waiting_for_the_device_is_no_forward() -> None:
    t = TraceBuilder(sync_records=True)
    with t.annotation("ProfilerStep#0"), t.op("aten::item"):
        t.memcpy("DtoH", duration=40)
    (row,) = phases(t)
    assert row["waiting"] >= 40 and row["forward_and_other"] < 10


def test_without_steps_the_run_is_one_and_annotations_of_users_name_phases(t: TraceBuilder) -> None:
    with t.annotation("forward"):
        t.leaf("aten::mm", 10)
        t.work(5)
    with t.annotation("load batch"):
        t.work(20)
    t.leaf("aten::relu", 1)
    (row,) = phases(t)
    assert (row["forward_and_other"], row["data_loading"], row["time"]) == (16, 20, 36)
