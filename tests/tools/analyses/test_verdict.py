"""What limits a run, in one sentence; and which figures withdraw it."""

from dataclasses import replace

import numpy as np
from execgraph.schema.graph import Delay, DependencyKind, ExecutionGraph
from execgraph.schema.reasons import Counts, Reason
from execgraph.tools.analyses import Column, Job, Table, find, verdict
from support.builder.timeline import TraceBuilder
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder, rank_with_collective
from support.reports import built, played


def sentence(job: Job) -> str:
    return verdict(job, find(job)).sentence


def host_bound() -> TraceBuilder:
    t = TraceBuilder(sync_records=True)
    for _ in range(40):
        with t.op("aten::relu"):
            t.work(20)
            t.launch("relu", duration=4)
    return t


def test_it_says_what_limits_how_it_is_known_and_what_to_do() -> None:
    said = sentence(played(host_bound()))
    assert said.startswith(
        "The GPU waits for the CPU: idle 83 % of the time. The host launches small kernels more slowly"
    )
    assert "Launching many kernels at once would save up to 7" in said


def test_a_run_on_the_cpu_is_told_by_its_phases(t: TraceBuilder) -> None:
    with t.annotation("ProfilerStep#0"):
        t.leaf("aten::mm", 60)
        t.leaf("autograd::engine::evaluate_function: MmBackward0", 40)
    assert sentence(played(t)).startswith(
        "All work is on the CPU: 60 % forward and other ops, 40 % backward. aten::mm is the heaviest op"
    )


def test_a_run_whose_device_was_not_recorded_is_not_one_on_the_cpu() -> None:
    g = GraphBuilder(rank=0, device_name_0="NVIDIA H200")
    g.host("aten::mm", 0, 50_000)
    assert sentence(built(g.build())) == (
        "What limits the run cannot be told: no activity of NVIDIA H200 was recorded, only the CPU's part: record with "
        "ProfilerActivity.CUDA, too. Of the critical path, 100 % is work of the CPU."
    )


def test_it_is_withdrawn_where_the_work_of_launches_was_not_recorded() -> None:
    t = host_bound()
    t.call("cudaLaunchKernel")
    t.launch("relu")
    uncalled = host_bound()
    uncalled.activity("relu", 7, uncalled.makespan_us, 40)
    timeless = host_bound()
    for _ in range(3):
        timeless.launch("relu", duration=0)
    silent = host_bound()
    silent.leaf("aten::copy_", 3, inputs=[silent.tensor(), silent.tensor(device="cpu")])
    silent.launch("relu")
    why = "launch calls without an activity (1)", "activities whose launch call was lost (1)"
    for job, reason in zip(
        map(played, (t, uncalled, timeless, silent)),
        (*why, "activities that last no time", "ops whose calls were lost (1)"),
        strict=True,
    ):
        assert not [finding for finding in find(job) if finding.gain]
        assert sentence(job).startswith(f"What limits the run cannot be told: {reason}")
    of_ranks = built(delayed(0), delayed(0), lost_work=Counts({Reason.ODD_OPS: 2}))
    assert of_ranks.lost_work == "ops that were lost, or whose times or threads are wrong (4)"


def test_it_says_if_no_step_shows_how_fast_the_host_is_without_a_profiler() -> None:
    job = played(host_bound())
    job.ranks[:] = [replace(rank, recorded_ops=0) for rank in job.ranks]
    assert "No steps were timed without a profiler" in sentence(job)


def delayed(delay: int) -> ExecutionGraph:
    g = GraphBuilder(rank=0)
    op = g.host("aten::mm", 0, 50_000)
    late = g.delay(50_000, delay, Delay.UNEXPLAINED, after=[(op, LAUNCH)])
    g.activity("gemm", 50_000 + delay, 10_000, after=[(op, LAUNCH), (late, LAUNCH)])
    return g.build()


def test_it_is_withdrawn_where_much_of_the_run_is_not_explained() -> None:
    assert "cannot be told" not in sentence(built(delayed(5_000)))
    assert sentence(built(delayed(40_000))) == (
        "What limits the run cannot be told: for 40.0 µs, 40 % of the run, the traces do not show what it waited for. "
        "Of the rest of the critical path, 83 % is work of the CPU."
    )


def test_it_is_withdrawn_where_a_rank_begins_much_later_than_the_first_or_is_absent() -> None:
    graphs = [
        rank_with_collective(0, work=10_000, collective=95_000, clock=0),
        rank_with_collective(1, work=30_000, collective=5_000, clock=0),
    ]
    said = sentence(built(*graphs))
    assert said.startswith(
        "What limits the run cannot be told: rank 1 begins 70.0 µs, 67 % of the run, after the first rank"
    )
    # communication of absent ranks is no verdict
    graphs[0].metadata["world_size"] = 2
    absent = "without the traces of 1 rank, waiting for them cannot be told from sending data"
    assert absent in sentence(built(graphs[0]))


def test_it_is_withdrawn_where_the_replay_is_off_with_the_reason_for_graphs_of_a_simulator() -> None:
    for metadata in ({}, {"target": "astra-sim"}):
        g = GraphBuilder(rank=0, **metadata)
        op = g.host("aten::mm", 0, 50_000)
        g.activity("gemm", 80_000, 10_000, after=[(op, LAUNCH)])
        said = sentence(built(g.build()))
        assert said.startswith("What limits the run cannot be told: the replay is -33.3 % off the measured run")
        of_simulator = "these graphs are made for astra-sim, whose waits differ: build generic ones"
        assert (of_simulator in said) == bool(metadata)


def test_it_is_withdrawn_where_the_device_computes_while_the_host_is_said_to_limit(g: GraphBuilder) -> None:
    """By its dependencies the host's path is as long as the run, yet the device computes nearly all the time."""
    before: list[tuple[int, DependencyKind]] = []
    for step in range(4):
        op = g.host("aten::mm", 100_000 * step, 100_000, after=before)
        g.activity("gemm", 100_000 * (step + 1), 90_000, stream=step, after=[(op, LAUNCH)])
        before = [(op, PROGRAM_ORDER)]
    columns = [Column(name, "", np.array([value])) for name, value in (("compute", 360.0), ("busy", 360.0))]
    job = built(g.build(), tables={"temporal_breakdown": Table("", "", columns)})
    assert "the device already computes for 73 % of the run" in sentence(job)


def test_it_is_withdrawn_where_what_takes_longest_would_hardly_shorten_the_run() -> None:
    """A kernel and a collective of another stream, both as long as the run."""
    g = GraphBuilder(rank=0, world_size=1)
    op = g.host("aten::mm", 0, 1_000)
    g.activity("gemm", 1_000, 99_000, stream=7, after=[(op, LAUNCH)])
    g.collective(1_000, 98_900, ranks=[0], stream=20, after=[(op, LAUNCH)])
    assert "no kind of work at twice its speed would make the run more than 0.5 % shorter" in sentence(built(g.build()))


def test_it_is_withdrawn_where_nothing_shows_that_the_ranks_are_of_one_job() -> None:
    def rank(number: int, **metadata: int) -> ExecutionGraph:
        g = GraphBuilder(rank=number, **metadata)
        g.host("aten::mm", 0, 50_000)
        return g.build()

    said = sentence(built(rank(0), rank(1)))
    assert "nothing shows that ranks 0, 1 are of one job, neither a collective nor a world size" in said
    assert "one job" not in sentence(built(rank(0, world_size=2), rank(1, world_size=2)))
    assert "ranks 0, 1 do not fit together, as rank 0 is of 2 ranks, rank 1 of 4" in sentence(
        built(rank(0, world_size=2), rank(1, world_size=4))
    )


def test_a_withdrawn_verdict_tells_the_cost_of_recording_only_of_a_path_on_the_host() -> None:
    """A CPU twice as fast would save most, but only as an unrelated rank ends nearly as late; the path is a kernel."""
    first, second = GraphBuilder(rank=0), GraphBuilder(rank=1)
    op = first.host("aten::mm", 0, 20_000)
    first.activity("gemm", 20_000, 80_000, after=[(op, LAUNCH)])
    second.host("aten::mm", 0, 99_000)
    said = sentence(built(first.build(), second.build(), recorded_ops=4))
    assert "Of the critical path, 80 % is computation" in said
    assert "Recording a host trace" not in said


def recorded_steps(without_profiler_ns: int = 0, pause: int = 0) -> ExecutionGraph:
    """Two steps in which the host takes 80 µs to launch a kernel of 20 µs, and in the second a `pause`."""
    known = {"steps": 2, "step_without_profiler_ns": without_profiler_ns} if without_profiler_ns else {}
    g = GraphBuilder(rank=0, **known)
    before: list[tuple[int, DependencyKind]] = []
    earlier: list[tuple[int, DependencyKind]] = []
    for start, end in ((0, 80_000), (80_000, 160_000 + pause)):
        op = g.host("aten::mm", start, end - start, after=before)
        kernel = g.activity("gemm", end, 20_000, after=[(op, LAUNCH), *earlier])
        before, earlier = [(op, PROGRAM_ORDER)], [(kernel, STREAM_ORDER)]
    return g.build()


def test_it_is_of_the_run_without_a_profiler_where_that_was_measured() -> None:
    said = sentence(built(recorded_steps(21_000)))
    assert said.startswith("Computation limits the run: ")
    assert (
        "All this is about the unprofiled run (21.0 µs a step). Tables and timeline show the recorded run (90.0" in said
    )
    assert "class:" not in said


def test_it_says_that_recording_may_be_what_limits_where_nothing_was_measured() -> None:
    said = sentence(built(recorded_steps(), recorded_ops=4))
    assert "The device waits for the CPU" in said
    assert "Recording a host trace slows every op, by about 16 µs" in said
    assert "so 64.0 µs of these 180.0 µs may come from it (4 ops)" in said
    assert "4 ops" not in sentence(built(recorded_steps(), recorded_ops=0))


def test_recording_on_a_cpu_may_cost_as_much_unless_the_host_trace_is_of_other_steps_or_slows_little() -> None:
    first, second = (GraphBuilder(rank=0, **known) for known in ({}, {"recorded_alone": 1}))
    for g in (first, second):
        g.host("aten::mm", 0, 200_000)
    cost = "so 64.0 µs of these 200.0 µs may come from it (4 ops)"
    assert cost in sentence(built(first.build(), recorded_ops=4))
    assert "Recording" not in sentence(built(second.build(), recorded_ops=4))
    first.host("aten::mm", 200_000, 2_000_000, after=[(1, PROGRAM_ORDER)])
    assert "Recording" not in sentence(built(first.build(), recorded_ops=4))


def test_it_is_withdrawn_without_gains_where_no_factor_for_the_host_explains_a_step_without_a_profiler() -> None:
    job = built(recorded_steps(2_000))
    told = verdict(job, find(job))
    withdrawn = "What limits the run cannot be told: an unprofiled step takes 2.0 µs and a recorded one 90.0 µs, which"
    assert told.sentence.startswith(withdrawn)
    assert not len(told.twice_as_fast)
    # of the recorded run alone there is a verdict
    assert sentence(built(recorded_steps(2_000), as_recorded=True)).startswith("The device waits for the CPU")


def test_it_is_withdrawn_where_a_replay_without_a_profiler_is_far_off() -> None:
    assert sentence(built(recorded_steps(19_900))).startswith("Computation limits")
    said = sentence(built(recorded_steps(19_400)))
    assert said.startswith("What limits the run cannot be told: a replay is +3.62 % off the unprofiled steps.")


def test_it_is_withdrawn_where_a_pause_is_much_longer_than_recording_makes_a_step() -> None:
    said = sentence(built(recorded_steps(30_000, pause=1_000_000_000)))
    assert said.startswith(
        "What limits the run cannot be told: a step took 500.09 ms recorded, 30.0 µs unprofiled; recording slows"
    )
    assert "something paused it, longest for 1.00 s, in aten::mm: record again" in said


def test_a_withdrawn_verdict_knows_no_class_that_would_be_faster(g: GraphBuilder) -> None:
    before: list[tuple[int, DependencyKind]] = []
    for number in range(40):
        op = g.host("aten::relu", 24_000 * number, 24_000, after=before)
        g.activity("relu", 24_000 * (number + 1), 5_000, after=[(op, LAUNCH)])
        before = [(op, PROGRAM_ORDER)]
    job = built(g.build())
    assert not verdict(job, find(job)).doubts and len(verdict(job, find(job)).twice_as_fast)
    late = g.delay(24_000 * 40, 400_000, Delay.UNEXPLAINED, after=before)
    g.activity("last", 24_000 * 40 + 400_000, 5_000, after=[(late, LAUNCH)])
    job = built(g.build())
    told = verdict(job, find(job))
    withdrawn = "What limits the run cannot be told: for 400.0 µs, 29 % of the run, the traces do not show"
    assert told.sentence.startswith(withdrawn) and not len(told.twice_as_fast)


def test_a_limit_of_less_than_half_of_the_critical_path_is_told_by_its_gain(g: GraphBuilder) -> None:
    """Work of the host that ran once, then two streams that wait for nothing: the kernels are 40 of 100 µs."""
    op = g.host("aten::mm", 0, 30_000)
    copy = g.activity("Memcpy DtoD", 30_000, 30_000, cat="gpu_memcpy", after=[(op, LAUNCH)])
    g.activity("gemm", 60_000, 40_000, after=[(copy, STREAM_ORDER)])
    assert sentence(built(g.build())).startswith(
        "Computation limits the run most: twice as fast, it would make the run 20 % shorter."
    )
