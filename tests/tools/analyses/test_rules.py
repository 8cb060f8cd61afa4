"""What each rule finds on a run in which its cause is the only one, and what the run would gain: worked out by hand."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from execgraph.schema.columns import Categorical
from execgraph.schema.graph import Delay, DependencyKind, ExecutionGraph
from execgraph.schema.reasons import Counts, Reason
from execgraph.tools.analyses import (
    Column,
    Finding,
    Table,
    analyse,
    facts_of,
    find,
    job_of,
    read_rank,
    together,
    verdict,
)
from execgraph.tools.analyses.finding_words import Found
from execgraph.tools.generate import simulate, write_traces
from support.builder.timeline import TraceBuilder
from support.graphs import HOST_SYNC, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder, rank_with_collective
from support.reports import built, played, titled, titles

from benchmarks.programs import build_job

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def gain_us(finding: Finding) -> float:
    assert finding.gain is not None
    return finding.gain.us


def looping(kernel: float, work: float = 20, count: int = 40, step: int = 0) -> TraceBuilder:
    """Ops that take `work` and a launch call of 4 µs each, and launch a kernel; a `step` is so many and 150 µs."""
    t = TraceBuilder(sync_records=True)
    for number in range(count):
        if step and number % step == 0:
            t.leaf(f"ProfilerStep#{number}", 1)
            t.leaf("aten::set_", 149)
        with t.op("aten::relu"):
            t.work(work)
            t.launch("relu", duration=kernel)
    t.device_synchronize()
    return t


def test_kernels_shorter_than_their_launches_are_worth_a_cuda_graph() -> None:
    found = titled(find(played(looping(kernel=5))), "launches small kernels more slowly")
    assert "40 launches, each of which takes the host 24.0 µs and starts 5.0 µs of work on the device" in found.evidence
    # 40 · 24 µs of the host go, but for the 40 · 5 µs of the device, which then follow each other with a usual gap
    assert 39 * (24 - 5 - 2) <= gain_us(found) <= 39 * (24 - 5)
    assert "launches small kernels" not in str(titles(played(looping(kernel=100))))
    # what lies between steps stays: 3 times 150 µs, beside which the device runs kernels for 70
    assert gain_us(titled(find(played(looping(kernel=5, step=10))), "launches small")) == pytest.approx(
        1286 - 240, abs=5
    )


def steps(t: TraceBuilder, count: int) -> Iterator[None]:
    for step in range(count):
        with t.annotation(f"ProfilerStep#{step}"):
            yield


def launch(t: TraceBuilder, duration: float = 50) -> None:
    with t.op("aten::mm"):
        t.launch("gemm", duration=duration)


def reading(count: int = 10) -> TraceBuilder:
    """A kernel of 50 µs, whose result is read, and then 50 µs of work, again and again."""
    t = TraceBuilder(sync_records=True)
    with t.python("train.py(3): step"):
        for _ in range(count):
            launch(t)
            with t.op("aten::item"), t.op("aten::_local_scalar_dense"):
                t.memcpy("DtoH", duration=2)
                t.stream_synchronize(7)
            t.leaf("aten::set_", 50)
    return t


def test_calls_that_wait_for_the_device_are_named_with_their_op_and_place() -> None:
    found = titled(find(played(reading(), modules=True)), "stops to wait")
    assert (
        " in 10 calls of cudaMemcpyAsync in .item() (train.py(3): step), 20.0 µs in 10 calls of cuda" in found.evidence
    )
    assert "modules=True" not in found.advice
    assert "modules=True" in titled(find(played(reading())), "stops to wait").advice
    # the device's 10 · 52 µs go on beside the host's, and the calls take 8 µs themselves
    assert gain_us(found) == pytest.approx(10 * 58, abs=5)
    # of several ranks the waits are those of the rank that waits longest
    evidence = titled(find(played(reading(4), reading(10))), "stops to wait").evidence
    assert " on rank 1 in 10 calls of cudaMemcpyAsync in .item()" in evidence


def test_calls_in_no_op_are_one_place_in_all_steps() -> None:
    t = TraceBuilder(sync_records=True)
    for _ in steps(t, 3):
        launch(t, 200)
        t.device_synchronize()
        t.leaf("aten::set_", 50)
    assert titled(find(played(t)), "stops to wait").facts[0].endswith(" in 3 calls of cudaDeviceSynchronize")


def test_waits_at_more_places_than_are_named_are_added_up() -> None:
    t = TraceBuilder(sync_records=True)
    for op in "abcd":
        with t.op(op):
            launch(t, 200)
            t.device_synchronize()
            t.work(50)
    facts = titled(find(played(t)), "stops to wait").facts
    assert facts[0].endswith(" in c and elsewhere (1 more), in all 808.0 µs in 4 calls")


@pytest.mark.parametrize(
    ("loader", "advice"),
    [(LOADER, "num_workers=1"), (LOADER.replace("SingleProcess", "MultiProcessing"), "more of them (num_")],
)
def test_a_loop_that_waits_for_its_data_is_named_without_a_device_too(loader: str, advice: str, t: TraceBuilder):
    for _ in steps(t, 3):
        with t.annotation(loader):
            t.work(10)
            t.leaf("aten::stack", 20) if loader == LOADER else t.work(20)
        t.leaf("aten::mm", 10)
    found = titled(find(played(t)), "waits for its data")
    assert gain_us(found) == pytest.approx(90)
    under = "" if "Multi" in loader else "under:"
    assert found.question == f"trace-replay GRAPHS --scale '{under}enumerate\\(DataLoader\\)=0'"
    assert found.evidence == "90.0 µs are spent getting data"
    assert advice in found.advice and "pin_memory" not in found.advice


def test_the_time_in_the_loader_is_given_as_recorded_too_where_that_differs() -> None:
    """Two steps of 100 µs with 40 µs in the loader each; without a profiler a step takes 60 µs."""
    g = GraphBuilder(rank=0, steps=2, step_without_profiler_ns=60_000)
    before: list[tuple[int, DependencyKind]] = []
    for start in (0, 100_000):
        loaded = g.host(LOADER, start, 40_000, after=before)
        before = [(g.host("aten::mm", start + 40_000, 60_000, after=[(loaded, PROGRAM_ORDER)]), PROGRAM_ORDER)]
    job = built(g.build(), tables={}, in_loader=np.array([True, False, True, False]))
    assert titled(find(job), "is the heaviest op").evidence.endswith(
        ", 60 % of the run; 60.0 µs a step in the recorded run"
    )
    evidence = titled(find(job), "waits for its data").evidence
    assert evidence.endswith(" a step are spent getting data; 40.0 µs a step in the recorded run")
    assert "then takes about 36.0 µs" in titled(find(job), "waits for its data").advice
    g.metadata |= {"cores": 2, "own_cpu_ns": 114_000}
    busy = built(g.build(), tables={}, in_loader=np.array([True, False, True, False]))
    assert "1.9 of 2 cores are busy" in titled(find(busy), "waits for its data").advice
    unnamed = built(g.build(), tables={}, in_loader=np.array([False, True, False, True]))
    assert titled(find(unnamed), "waits for its data").question == ""
    sure = titled(find(job), "is the heaviest op").gain
    g.metadata |= {"steps_measured": 9, "step_p10_ns": 42_000, "step_p90_ns": 78_000}
    noisy = titled(find(built(g.build(), tables={})), "is the heaviest op").gain
    assert noisy is not None and sure is not None
    assert noisy.limits_pct[0] < sure.limits_pct[0] - 1 and noisy.limits_pct[1] > sure.limits_pct[1] + 1
    assert noisy._replace(most_us=1000 * noisy.us).limits_pct[1] == 100


def test_a_loop_that_loads_a_little_beside_free_cores_is_not_told_that_these_are_busy() -> None:
    g = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=100_000, cores=2, own_cpu_ns=100_000)
    loaded = g.host(LOADER, 0, 6_000)
    g.host("aten::mm", 6_000, 94_000, after=[(loaded, PROGRAM_ORDER)])
    advice = titled(find(built(g.build(), tables={}, in_loader=np.array([True, False]))), "waits for its data").advice
    assert "num_workers=1" in advice and "then takes about 94.0 µs" in advice and "cores are busy" not in advice


def test_other_processes_that_keep_the_cores_of_a_loop_busy_are_named() -> None:
    """A step of 100 µs keeps 2 cores busy for 110 µs by its loop and for 80 µs by others."""
    g = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=100_000)
    loaded = g.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 10_000)
    g.host("aten::mm", 10_000, 90_000, after=[(loaded, PROGRAM_ORDER)])
    assert not any("take cores" in finding.title for finding in find(built(g.build(), tables={})))
    g.metadata |= {"cores": 2, "own_cpu_ns": 110_000, "others_cpu_ns": 80_000}
    found = titled(find(built(g.build(), tables={})), "take cores from the loop")
    assert found.title == "Other processes, the data loader's among them, take cores from the loop"
    assert found.gain is not None and found.gain.share == "up to 50 %"
    assert found.evidence == "of 2 cores the loop kept 1.1 busy, and other processes 0.8"
    g.metadata |= {"threads": 1, "own_cpu_ns": 99_000}  # one thread, which lacked a core for 1 % of a step
    assert not any("take cores" in finding.title for finding in find(built(g.build(), tables={})))
    g.metadata |= {"threads": 2, "own_cpu_ns": 60_000, "others_cpu_ns": 0}
    assert "Only 0.6 of 2 cores are busy" in titled(find(built(g.build(), tables={})), "is the heaviest op").advice
    g.metadata |= {"own_cpu_ns": 110_000, "others_cpu_ns": 80_000}
    g.metadata["world_size"] = 2  # the other rank may be on this machine, and is one of the others
    assert not any("take cores" in finding.title for finding in find(built(g.build(), tables={})))


def test_a_loop_that_waits_for_a_thread_that_loads_is_named(tmp_path: Path) -> None:
    """The thread takes longer for a batch than the loop does for a step, so that the loop waits in its data loader."""
    ((host, device),) = write_traces(simulate(build_job("loader", steps=3, layers=2)), str(tmp_path))
    rank = read_rank(str(device), str(host))
    job = job_of([facts_of(rank)], analyse([rank]))
    assert job is not None
    assert gain_us(titled(find(job), "waits for its data")) > 0.2 * job.length_us


def test_host_work_between_steps_is_found() -> None:
    t = TraceBuilder(sync_records=True)
    for _ in steps(t, 4):
        launch(t)
        t.device_synchronize()
        t.leaf("log", 100)
    assert gain_us(titled(find(played(t)), "nothing to do between steps")) == pytest.approx(300, abs=10)


def test_copies_from_pageable_memory_are_found() -> None:
    t = TraceBuilder(sync_records=True)
    for _ in range(5):
        with t.op("aten::copy_"):
            t.memcpy("HtoD", duration=30, call_duration=60, bytes=1_088_000)
        launch(t, 10)
    # each call of 60 µs takes 4 µs, so that the device's 5 · (20 + 10) µs are what is left: it copies 54.4 GB/s
    assert gain_us(titled(find(played(t)), "pageable")) == pytest.approx(5 * 64 + 40 - 5 * 30, abs=40)


def test_a_wait_for_a_copy_from_pageable_memory_is_told_once() -> None:
    t = TraceBuilder(sync_records=True)
    for _ in range(5):
        launch(t)
        with t.op("aten::copy_"):
            t.memcpy("HtoD", duration=30, call_duration=90)
            t.stream_synchronize(7)
        t.leaf("aten::set_", 50)
    found = titles(played(t))
    assert "Copies to the device use pageable memory" in found
    assert "The host stops to wait for the device" not in found


def test_waits_that_the_program_asks_for_are_not_those_of_a_copy_from_pageable_memory() -> None:
    """Pinned memory saves less than the calls take, whatever the device still has to do."""

    def gains(synchronize: str) -> dict[str, float]:
        t = TraceBuilder(sync_records=True)
        for _ in range(5):
            launch(t, 300)
            t.memcpy("HtoD", duration=1, call_duration=6)
            getattr(t, synchronize)(*[7] * (synchronize == "stream_synchronize"))
            t.leaf("aten::set_", 200)
        return {finding.title: gain_us(finding) for finding in find(played(t)) if finding.gain}

    pageable, waits = "Copies to the device use pageable memory", "The host stops to wait for the device"
    assert gains("stream_synchronize").keys() == {pageable} and gains("device_synchronize")[waits] > 500
    assert gains("device_synchronize").get(pageable, 0) < 5 * 8


def products(*kernels: tuple[str, int, int, int]) -> ExecutionGraph:
    """Kernels one after the other: name, duration in ns, operations and bytes of an element."""
    g = GraphBuilder(rank=0, device_name_0="NVIDIA A100-SXM4-40GB")
    start, before = 0, []
    for name, duration, operations, element in kernels:
        work = {"num_ops": operations, "tensor_size": 1, "element_size": element}
        before = [(g.activity(name, start, duration, after=before, **work), STREAM_ORDER)]
        start += duration
    return g.build()


def test_products_in_fp32_could_use_the_tensor_cores() -> None:
    graph = products(("sgemm", 80_000, 10**9, 4), ("sgemm_tf32", 20_000, 10**9, 4))
    found = titled(find(built(graph, op=Categorical.of(["aten::mm"] * 2))), "do not use the tensor cores")
    # 156 TFLOP/s in place of 19.5: an eighth of 80 µs
    assert gain_us(found) == pytest.approx(70)
    assert found.evidence == "1 kernel: 80.0 µs"


def test_shapes_that_use_little_of_the_device_are_named() -> None:
    graph = products(("gemm", 10_000, 2 * 10**9, 2), ("gemm", 90_000, 2 * 10**9, 2))
    columns = {"op": Categorical.of(["aten::mm"] * 2), "shape": Categorical.of(["[[64,64]]", "[[63,65]]"])}
    found = titled(find(built(graph, **columns)), "Some shapes of matrix products")
    assert found.evidence.startswith("aten::mm [63,65] with 16-bit numbers at 7 % of the peak, 90.0 µs")
    assert gain_us(found) == pytest.approx(80)


def test_attention_and_convolutions_are_compared_with_their_like_and_have_advice_of_their_own() -> None:
    kernels = [("gemm", 10_000, 2 * 10**9, 2), ("flash", 40_000, 2 * 10**9, 2), ("flash", 90_000, 2 * 10**9, 2)]
    ops = Categorical.of(["aten::mm", *["aten::_flash_attention_forward"] * 2])
    shapes = Categorical.of(["[[64,64],[],[[]]]", "[[8,64],[8,64],[]]", "[[8,63],[],[]]"])
    found = find(built(products(*kernels), op=ops, shape=shapes))
    assert not any("matrix products" in finding.title for finding in found)
    attention = titled(found, "Some shapes of attention use little")
    assert attention.evidence.startswith("aten::_flash_attention_forward [8,63] with 16-bit numbers at 7 % of the peak")
    assert "sdpa_kernel" in attention.advice and gain_us(attention) == pytest.approx(50)


def test_kernels_that_change_the_layout_for_convolutions_are_found() -> None:
    convolutions = [("gemm", 10_000, 2 * 10**9, 2), ("gemm", 90_000, 2 * 10**9, 2)]
    graph = products(*convolutions, *[(f"{name}Kernel", 5_000, 0, 2) for name in ("nchwToNhwc", "nhwcToNchw")])
    columns = {"op": Categorical.of(["aten::conv2d"] * 4), "shape": Categorical.of(["[[8,9]]", "[[8,7]]", "", ""])}
    found = titled(find(built(graph, **columns)), "change the layout")
    assert found.facts == ["2 kernels, 10.0 µs"] and gain_us(found) == pytest.approx(10)
    assert found.question.endswith(" 'nchwToNhwc|nhwcToNchw=0'")


def test_gains_that_overlap_are_told_together() -> None:
    job = built(products(("gemm", 80_000, 1, 4), ("add", 20_000, 1, 4)))

    def halving(*factors: float) -> Finding:
        return Finding(Found.PAUSES, job.gain(np.array(factors)), "")

    both = together(job, [halving(0.5, 1), halving(0, 1)])
    assert both is not None and both.us == pytest.approx(80)
    assert together(job, [halving(0.5, 1), halving(1, 0.5)]) is None
    assert together(job, [halving(0.5, 1)]) is None


def test_communication_is_told_by_group_and_whether_it_can_be_hidden() -> None:
    graphs = [
        rank_with_collective(rank, work=20_000, collective=30_000, clock=0, comm_size=1 << 20, pg_desc="data")
        for rank in (0, 1)
    ]
    found = titled(find(built(*graphs)), "Communication of data (ranks 0, 1) is not hidden")
    assert gain_us(found) == pytest.approx(30)
    assert "at twice the bandwidth the run would be 30 % shorter" in found.evidence
    assert found.advice.startswith("There is too little computation to hide it")


def transferring(kind: int, *transfers: tuple[int, int]) -> Finding:
    """What is found of two ranks that do nothing but meet: durations in ns and bytes."""
    graphs = []
    for rank in (0, 1):
        g, clock, before = GraphBuilder(rank=rank), 0, []
        for length, size in transfers:
            meet = g.collective(clock, length, ranks=[0, 1], comm_type=kind, comm_size=size, after=before)
            before, clock = [(meet, STREAM_ORDER)], clock + length
        graphs.append(g.build())
    return titled(find(built(*graphs)), "is not hidden")


def test_transfers_are_counted_on_a_rank_and_timed_by_size() -> None:
    evidence = transferring(0, (10_000, 1 << 21), (30_000, 1 << 22), (10_000, 1 << 21)).evidence
    assert evidence.startswith("3 transfers on each rank, of 4.0 MiB in 30.0 µs and 2.0 MiB in 10.0 µs (medians); at")


def test_waiting_for_a_late_member_is_no_time_of_a_transfer() -> None:
    """Rank 1 works 60 µs longer; rank 0 waits for it in the kernel of the collective, which moves data for 20 µs."""
    graphs = [
        rank_with_collective(rank, work=work, collective=collective, clock=0, comm_size=1 << 21)
        for rank, work, collective in [(0, 10_000, 80_000), (1, 70_000, 20_000)]
    ]
    found = titled(find(built(*graphs)), "is not hidden")
    assert found.evidence.startswith("1 transfer on each rank, of 2.0 MiB in 20.0 µs (medians)")
    assert found.advice.startswith("Overlap it")


@pytest.mark.parametrize(("kind", "advice"), [(0, "merge them (DDP: bucket_cap_mb"), (6, "send fewer, larger ones")])
def test_small_transfers_are_merged_as_their_type_allows(kind: int, advice: str) -> None:
    assert advice in transferring(kind, (1_000, 1_000_000), *[(10_000, 1_000)] * 3).advice


def meeting(rank: int, works: list[int], transfers: list[int], late: int = 0) -> ExecutionGraph:
    """A rank that computes and meets the other one, again and again; it begins to record `late`."""
    g, clock, before = GraphBuilder(rank=rank), late, []
    for work, transfer in zip(works, transfers, strict=True):
        gemm = g.activity("gemm", clock, work, after=before)
        meet = g.collective(clock + work, transfer, ranks=[0, 1], comm_type=0, after=[(gemm, STREAM_ORDER)])
        before, clock = [(meet, STREAM_ORDER)], clock + work + transfer
    return g.build()


def test_a_rank_whose_own_work_takes_longer_is_a_straggler() -> None:
    fast, slow = meeting(0, [20_000] * 4, [15_000] * 4), meeting(1, [30_000] * 4, [5_000] * 4)
    found = titled(find(built(fast, slow)), "wait for rank 1")
    assert found.evidence.startswith("30.0 µs later than the others in all, at 3 collectives without the first")
    assert "its computation work takes 1.50 times as long as that of the others" in found.evidence
    assert gain_us(found) == pytest.approx(26, abs=5)


def test_a_rank_that_was_only_recorded_late_is_no_straggler() -> None:
    """Rank 1 records from 60 µs on: its first work looks short, and rank 0 waits for it there."""
    first, late = meeting(0, [20_000] * 4, [65_000, 5_000, 5_000, 5_000]), meeting(1, [20_000] * 4, [5_000] * 4)
    found = titles(built(first, late))
    assert "Rank 1 begins 60.0 µs after the first rank" in found
    assert "wait for rank" not in str(found)
    # rows that were lost may have begun on another rank first
    assert "begins" not in str(titles(built(first, late, lost_work=Counts({Reason.LAUNCHES_NOT_RECORDED: 1}))))


def test_a_late_start_is_a_share_of_the_recorded_run_also_where_the_verdict_is_without_a_profiler() -> None:
    """Rank 1 records from 60 µs on, of 110 µs; without a profiler the run would take 80 µs."""
    ranks = []
    for rank, work in enumerate((100_000, 40_000)):
        g = GraphBuilder(rank=rank, steps=1, step_without_profiler_ns=80_000)
        op = g.host("aten::mm", 0, work)
        g.collective(work, 10_000, ranks=[0, 1], comm_type=0, after=[(op, LAUNCH)])
        ranks.append(g.build())
    job = built(*ranks)
    assert (job.recorded_us, job.length_us) == (110, pytest.approx(80, abs=0.5))
    found = titled(find(job), "Rank 1 begins 60.0 µs after the first rank")
    assert found.evidence.startswith("55 % of the recorded run; ")


def test_the_heaviest_op_of_a_run_on_the_cpu_is_named(t: TraceBuilder) -> None:
    t.leaf("aten::mm", 80)
    t.leaf("aten::add", 20)
    found = titled(find(played(t)), "aten::mm is the heaviest op")
    assert gain_us(found) == pytest.approx(40) and "bf16" in found.advice


def test_an_op_that_an_annotation_mostly_has_is_left_to_the_finding_on_that(t: TraceBuilder) -> None:
    with t.annotation("check"):
        t.work(1)
        t.leaf("aten::sort", 30)
    for op, duration in (("aten::mm", 25), ("aten::relu", 20), ("aten::sort", 5)):
        t.leaf(op, duration)
    assert titled(find(played(t)), "is the heaviest op").title == "aten::mm is the heaviest op"


def test_what_an_annotation_of_a_run_on_the_cpu_costs_is_named_unless_it_is_what_a_loop_is_for(t: TraceBuilder) -> None:
    for name, duration in (("train step", 30), ("check (all)", 20), ("log", 5), ("epoch", 100)):
        with t.annotation(name):
            t.work(1)
            t.leaf("aten::mm", duration)
    found = titled(find(played(t)), "The work in 'check (all)' takes 13 % of the run")
    assert found.question == "trace-replay GRAPHS --scale 'under:^check \\(all\\)$=0'"
    assert gain_us(found) == pytest.approx(21) and found.evidence == ""


def test_an_optimizer_of_a_run_on_the_cpu_is_named(t: TraceBuilder) -> None:
    t.leaf("aten::mm", 80)
    with t.annotation("Optimizer.step#Adam.step"):
        t.work(10)
        t.leaf("aten::addcdiv_", 30)
    found = titled(find(played(t)), "The optimizer takes 33 % of the run")
    assert gain_us(found) == pytest.approx(20) and "fused" in found.advice


def test_steps_that_take_several_times_as_long_as_others_are_named() -> None:
    for second, said in ((200, False), (400, True)):
        t = TraceBuilder()
        for number, work in enumerate((100, second)):
            with t.op(f"ProfilerStep#{number}"):
                t.leaf("aten::mm", work)
        assert ("Steps take 100.0 µs to 400.0 µs" in str(titles(played(t)))) == said


@pytest.mark.parametrize(
    ("op", "schema"),
    [("aten::as_strided", "aten::as_strided(Tensor(a) self, SymInt[] size) -> Tensor(a)"), ("aten::empty", "")],
)
def test_bf16_is_no_advice_for_an_op_that_computes_nothing(g: GraphBuilder, op: str, schema: str) -> None:
    for number in range(4):
        g.host(op, 10_000 * number, 10_000, **({"op_schema": schema} if schema else {}))
    found = titled(find(built(g.build(), tables={})), f"{op} is the heaviest op")
    assert found.advice.startswith("It computes nothing, so that its time is the cost of calling it, 4 times here")


def test_results_that_are_read_are_named_where_the_profiler_slowed_the_host() -> None:
    """Two steps of 40 µs of host work that end with a read of 1 µs; without a profiler a step takes 20 µs."""

    def steps(**known: int) -> list[str]:
        g = GraphBuilder(rank=0, **known)
        before: list[tuple[int, DependencyKind]] = []
        for start in (0, 41_000):
            op = g.host("aten::mm", start, 30_000, after=before)
            kernel = g.activity("gemm", start + 30_000, 1_000, after=[(op, LAUNCH)])
            later = g.host("aten::add", start + 30_000, 10_000, after=[(op, PROGRAM_ORDER)])
            wait = g.host(
                "cudaStreamSynchronize", start + 40_000, 1_000, after=[(later, PROGRAM_ORDER), (kernel, HOST_SYNC)]
            )
            before = [(wait, PROGRAM_ORDER)]
        graph = g.build()
        ops = ["aten::item" if name == "cudaStreamSynchronize" else "" for name in graph.name]
        return titles(built(graph, op=Categorical.of(ops), step_starts=np.array([0, 41_000])))

    assert "Each step reads results of the device: .item()" in steps(steps=2, step_without_profiler_ns=20_000)
    assert not any("reads results" in title for title in steps())


def test_one_call_that_pauses_does_not_make_an_op_the_heaviest(t: TraceBuilder) -> None:
    for number in range(10):
        t.leaf("aten::as_strided", 900 if number == 6 else 2)
        t.leaf("aten::mm", 40, inputs=[t.tensor(device="cpu")])
    found = find(played(t))
    pause = titled(found, "One call of aten::as_strided took 900.0 µs, many times as long as usual")
    assert pause.evidence == "900.0 µs in aten::as_strided, which usually takes 2.0 µs"
    assert gain_us(pause) == pytest.approx(898)
    assert gain_us(titled(found, "aten::mm is the heaviest op")) == pytest.approx(200) and found[-1] is pause


def test_a_first_call_that_takes_longer_than_all_the_rest_is_in_the_verdict_of_a_device_without_shapes() -> None:
    g, end, before = GraphBuilder(rank=0), 0, list[tuple[int, DependencyKind]]()
    for length in (900_000, *[4_000] * 9):
        op = g.host("aten::add", end, length, after=before)
        end, before = end + length, [(op, PROGRAM_ORDER)]
        g.activity("add", end, 3_000, after=[(op, LAUNCH)])
    found = find(job := built(g.build()))
    assert "after a warm-up" in titled(found, "One call of aten::add took 900.0 µs").advice
    assert "The usual time for these calls would save up to 9" in verdict(job, found).sentence


def test_calls_are_compared_whole_where_a_short_part_of_one_was_left_out() -> None:
    g, clock, before = GraphBuilder(rank=0), 0, list[tuple[int, DependencyKind]]()
    for number, parts in enumerate([(2_000, 1_200_000)] * 9 + [(1_200_000,)]):
        for part, length in enumerate(parts):
            op = g.host("aten::mm", clock, length, op_id=number, slice=part, after=before)
            before, clock = [(op, PROGRAM_ORDER)], clock + length
    assert "as usual" not in str(titles(built(g.build(), shape=Categorical.of(["[[4,4]]"] * 19))))


def test_an_annotation_in_which_no_op_runs_is_named(t: TraceBuilder) -> None:
    for _ in range(4):
        with t.annotation("forward"):
            t.leaf("aten::mm", 50)
        with t.annotation("think"):
            t.idle(500)
    found = find(played(t))
    assert gain_us(titled(found, 'No op runs for most of "think"')) == pytest.approx(2000, abs=5)
    assert not {"forward", '"prepare"'} & {*" ".join(finding.title for finding in found).split()}


def test_python_and_sleeps_are_named_on_the_cpu_in_an_annotation_of_several_ops_and_outside_of_any(
    t: TraceBuilder,
) -> None:
    for number in range(3):
        with t.annotation(f"ProfilerStep#{number}"):
            with t.annotation("prepare"):
                for _ in range(10):
                    t.leaf("aten::randn", 2)
                    t.work(8)
            with t.annotation("forward"):
                t.leaf("aten::mm", 40)
                t.work(30)
            t.leaf("aten::mm", 40)
            t.work(100)
            t.leaf("aten::mm", 40)
    found = find(played(t))
    # that no op runs there either is no second finding
    assert gain_us(titled(found, "The work in 'prepare' takes")) == pytest.approx(294, abs=5)
    assert gain_us(titled(found, "No op runs in long stretches of steps")) == pytest.approx(300, abs=5)
    assert not {"forward", '"prepare"'} & {*" ".join(finding.title for finding in found).split()}


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ("hipFree", "Keep memory: unset PYTORCH_NO_HIP_"), ("cudaFree", "Keep memory: unset PYTORCH_NO_CUDA_"),
        ("cudaEventSynchronize", "Leave out"), ("cudaMemcpy", "Read results"),
    ],
)  # fmt: skip
def test_the_advice_on_waits_follows_the_call(call: str, advice: str, g: GraphBuilder) -> None:
    launch = g.host("launch", 0, 10_000)
    gemm = g.activity("gemm", 10_000, 100_000, after=[(launch, LAUNCH)])
    wait = g.host(call, 110_000, 1_000, after=[(launch, PROGRAM_ORDER), (gemm, HOST_SYNC)])
    g.host("aten::mm", 111_000, 50_000, after=[(wait, PROGRAM_ORDER)])
    assert titled(find(built(g.build())), "stops to wait").advice.startswith(advice)


def test_a_call_of_other_shapes_is_no_pause(t: TraceBuilder) -> None:
    for number in range(10):
        with t.op("aten::mm", inputs=[t.tensor((4, 4) if number else (512, 512))]):
            t.work(5 if number else 500)
    assert "as usual" not in str(titles(played(t)))


def test_time_that_nothing_explains_has_no_gain(g: GraphBuilder) -> None:
    op = g.host("aten::mm", 0, 10_000)
    late = g.delay(10_000, 30_000, Delay.LOST_RECORDS, after=[(op, LAUNCH)])
    g.activity("gemm", 40_000, 10_000, after=[(op, LAUNCH), (late, LAUNCH)])
    found = titled(find(built(g.build())), "For 60 % of the run the traces do not show what it waited for")
    assert (found.gain, found.evidence) == (None, "30.0 µs where records are missing")


def peak_of(peak: int, before: int) -> Table:
    columns = {"rank": 0, "device": 0, "peak": peak, "before": before}
    return Table("", "", [Column(name, "", np.array([value])) for name, value in columns.items()])


def test_what_limits_the_trust_is_said_without_a_gain() -> None:
    graph = rank_with_collective(0, work=10, collective=5, clock=0)
    graph.metadata["world_size"] = 4
    peak = peak_of(3 << 30, 1 << 30)
    live = Table("", "", [*peak.columns[:2], Column("op", "", ["aten::mm"]), Column("size", "B", np.array([3 << 29]))])
    tables = {"memory_timeline_peak": peak, "memory_timeline_live": live}
    dropped = Counts({Reason.NO_DURATION: 3, Reason.OPS_OUTSIDE: 9})
    found = find(built(graph, tables=tables, dropped=dropped, lacks_sync_records=True))
    assert [(finding.title, finding.gain) for finding in found[-4:]] == [
        ("3 records of the traces could not be used", None),
        ("The traces of rank 0 do not record what calls waited for", None),
        ("3 of the job's 4 ranks are absent", None),
        ("Memory peaks at 3.0 GiB on device 0 of rank 0", None),
    ]
    assert "The replay does not wait for them (1-3)" in found[-2].evidence
    assert found[-1].evidence == "Allocated by aten::mm 50 %"


@pytest.mark.parametrize(("communication", "devices", "shared"), [(0, (3, 3), 1), (5, (3, 3), 0), (0, (3, 4), 0)])
def test_ranks_that_name_one_device_may_share_it_unless_they_communicate_on_it(communication, devices, shared):
    busy = Table("", "", [Column("rank", "", np.arange(2)), Column("device", "", np.array(devices))])
    times = (
        Column(name, "µs", np.full(2, float(communication))) for name in ("communication", "exposed_communication")
    )
    overlap = Table("", "", [*busy.columns, *times])
    graphs = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in range(2)]
    tables = {"temporal_breakdown": busy, "communication_computation_overlap": overlap}
    titles = [finding.title for finding in find(built(*graphs, tables=tables))]
    assert titles.count("Ranks 0, 1 may share one device: each names device 3") == shared


def test_memory_that_never_grows_has_no_peak() -> None:
    peak = peak_of(1 << 18, 1 << 18)
    graph = rank_with_collective(0, work=10, collective=5, clock=0)
    assert "Memory" not in str(titles(built(graph, tables={"memory_timeline_peak": peak})))


def test_a_run_without_any_of_these_has_no_findings(g: GraphBuilder) -> None:
    op = g.host("aten::mm", 0, 10)
    gemm = g.activity("gemm", 10, 1_000, after=[(op, LAUNCH)])
    g.host("cudaDeviceSynchronize", 1_010, 1, after=[(op, PROGRAM_ORDER), (gemm, HOST_SYNC)])
    assert find(built(g.build())) == []
