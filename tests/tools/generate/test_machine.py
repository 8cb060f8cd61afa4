"""A job runs on its machine: its figures show in the run and in the traces, and a changed run meets the same one."""

import gzip
import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import Int64
from execgraph.tools.generate import DEFAULT, Machine, RankRun, Run, as_numpy, draw_machine, simulate, write_traces
from execgraph.tools.generate.instructions import Launch, work
from execgraph.tools.generate.job import Instruction
from execgraph.tools.generate.machine import BASE_NS, FIRST_NS, Clock, Stalls
from execgraph.tools.generate.record import is_recorded
from execgraph.tools.generate.simulation import Rendezvous
from support.commands import Run as Command
from support.folders import DATA
from support.for_simulator import job_of, launch, spans

from benchmarks.programs import NAMED, build_job

SAMPLE = DATA / "training"
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
EXACT = Machine(latency_ns=20_000, latency_spread=0.0, gap_ns=5_000, gap_spread=0.0, host_spread=0.0)
SKEWED = Machine(clocks=(Clock(-4000, 150_000), Clock(2500, -90_000)))
COARSE = replace(SKEWED, whole_us=True)


@cache
def run_of(name: str, machine: Machine, **scale: float) -> Run:
    job = build_job(name, steps=2, layers=2, seed=1, machine=machine)
    return simulate(job, {f"class:{kind}": factor for kind, factor in scale.items()})


def device_trace(run: Run, folder: Path, rank: int = 0) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(write_traces(run, folder)[rank].device.read_text())
    return trace


def rows_of(trace: dict[str, Any], *categories: str) -> list[dict[str, Any]]:
    return [row for row in trace["traceEvents"] if row["ph"] == "X" and row.get("cat") in categories]


def column(rank: RankRun, name: str) -> Int64:
    return as_numpy(getattr(rank.activities, name))


# drawing


def test_the_default_machine_writes_the_sample_as_it_is(tmp_path: Path) -> None:
    for pair in write_traces(simulate(build_job("ddp", ranks=2, steps=2, layers=3)), tmp_path, compress=True):
        for path in pair:
            assert gzip.decompress(path.read_bytes()) == gzip.decompress((SAMPLE / path.name).read_bytes())


def test_a_seed_draws_one_machine_and_seeds_draw_all_kinds() -> None:
    machines = [draw_machine(seed) for seed in range(200)]
    assert machines == [draw_machine(seed) for seed in range(200)]
    assert all(1000 <= machine.latency_ns <= 25_000 and 0 <= machine.gap_ns <= 20_000 for machine in machines)
    assert all(abs(clock.offset_ns) <= 5000 for machine in machines for clock in machine.clocks)
    assert {machine.whole_us for machine in machines} == {False, True}
    assert {machine.at_once for machine in machines} == {None, 2, 3, 4}
    assert sum(machine.at_once is None for machine in machines) > 100
    assert not any(machine.lost for machine in machines)
    assert draw_machine(7, lost_records=True).lost > 0


def test_ranks_have_the_machine_in_common_and_clocks_of_their_own() -> None:
    machine = draw_machine(5)
    assert len({machine.clock(rank) for rank in range(8)}) == 8
    assert machine.clock(9) == machine.clock(1)


# what launching and waiting costs


def test_launches_arrive_after_the_latency_and_chains_have_the_gap() -> None:
    instructions = build_job("simple", machine=EXACT).instructions(0)[0]
    launches = [one for one in instructions if isinstance(one, Launch)]
    assert {one.latency_ns for one in launches} == {20_000} and {one.gap_ns for one in launches} == {5_000}
    rank = run_of("simple", EXACT).ranks[0]
    between = column(rank, "start")[1:] - column(rank, "end")[:-1]
    assert between.min() == 5_000 and 5_000 in between


@pytest.mark.parametrize("name", ["simple", "graph", "ddp"])
def test_a_slower_machine_takes_longer(name: str) -> None:
    slow = replace(DEFAULT, latency_ns=25_000, gap_ns=20_000, return_factor=4.0)
    assert run_of(name, slow).makespan_ns > run_of(name, DEFAULT).makespan_ns


def program(machine: Machine) -> list[Instruction]:
    return [one for thread in build_job("simple", seed=2, steps=40, machine=machine).instructions(0) for one in thread]


def test_stalls_lengthen_some_host_work_and_nothing_else() -> None:
    usual, stalled = program(DEFAULT), program(replace(DEFAULT, stalls=Stalls(20.0, 100.0, 200.0)))
    launches, same = ([one for one in of if isinstance(one, Launch)] for of in (usual, stalled))
    assert launches == same
    works, longer = ([one.args[0] for one in of if getattr(one, "func", None) is work] for of in (usual, stalled))
    stalls = [after - before for before, after in zip(works, longer, strict=True) if after != before]
    assert all(100_000 <= stall <= 200_000 for stall in stalls)
    assert 0.01 < len(stalls) / len(works) < 0.03


# how many activities the device runs at once


def test_a_head_of_stream_waits_for_a_slot_in_the_order_in_which_they_are_ready() -> None:
    # two at once: the third stream waits for the first one to end, and then the first one's next for the third
    job = job_of([launch(7, 1000), launch(8, 5000), launch(9, 2000), launch(7, 50)])
    found = spans(simulate(replace(job, machine=Machine(at_once=2))).ranks[0])
    assert found == [(110, 1110), (210, 5210), (1110, 3110), (3110, 3160)]


def test_collectives_take_no_slot() -> None:
    meeting = Rendezvous(("all",), 2)
    job = replace(job_of([launch(7, 5000), launch(8, 100, meeting)], ranks=2), machine=Machine(at_once=1))
    assert [spans(rank)[1] for rank in simulate(job).ranks] == [(210, 310)] * 2


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("name", ["streams", "graph", "ddp", "prefetch"])
def test_a_device_never_runs_more_than_its_limit(name: str, limit: int) -> None:
    crowded = replace(DEFAULT, at_once=limit)
    for run in (run_of(name, crowded), run_of(name, crowded, computation=3.0), run_of(name, crowded, host=3.0)):
        for rank in run.ranks:
            counted = np.array([rank.activity_table[code].collective is None for code in rank.activities.activity])
            start, end = column(rank, "start")[counted], column(rank, "end")[counted]
            by_time = np.lexsort((np.repeat([1, 0], len(start)), np.concatenate((start, end))))
            assert np.cumsum(np.repeat([1, -1], len(start))[by_time]).max() <= limit


def test_the_limit_matters() -> None:
    alone, free = (run_of("towers", replace(DEFAULT, at_once=limit), computation=4.0) for limit in (1, None))
    assert alone.makespan_ns > 1.1 * free.makespan_ns


# the traces


@pytest.mark.parametrize("rank", [0, 1])
def test_activities_are_on_the_clock_of_their_device_and_calls_on_that_of_the_host(tmp_path: Path, rank: int) -> None:
    run, clock = run_of("ddp", SKEWED), SKEWED.clock(rank)
    assert run.ranks[rank].activities.columns() == run_of("ddp", DEFAULT).ranks[rank].activities.columns()
    trace = device_trace(run, tmp_path, rank)
    activities, calls = rows_of(trace, *DEVICE_CATEGORIES), rows_of(trace, "cuda_runtime")
    read = [round(row["ts"] * 1000) - FIRST_NS for row in activities]
    assert read == [clock.read(start) for start, _ in spans(run.ranks[rank])]
    assert [round(row["ts"] * 1000) - FIRST_NS for row in calls] == list(run.ranks[rank].calls.start)


def test_whole_microseconds_look_like_those_of_old_profilers(tmp_path: Path) -> None:
    run = run_of("ddp", COARSE)
    trace = device_trace(run, tmp_path)
    assert "baseTimeNanoseconds" not in trace
    times = [row[key] for row in trace["traceEvents"] for key in ("ts", "dur") if key in row]
    assert {type(time) for time in times} == {int}
    activities = rows_of(trace, *DEVICE_CATEGORIES)
    true = [(COARSE.clock(0).read(start), COARSE.clock(0).read(end)) for start, end in spans(run.ranks[0])]
    first_us = (BASE_NS + FIRST_NS) // 1000
    assert [(row["ts"] - first_us, row["dur"]) for row in activities] == [
        (start // 1000, (end - start) // 1000) for start, end in true
    ]


def test_in_whole_microseconds_ops_still_lie_within_each_other_and_streams_in_order(tmp_path: Path) -> None:
    trace = device_trace(run_of("ddp", COARSE), tmp_path)
    for tid in {row["tid"] for row in rows_of(trace, "cpu_op")}:
        open_until: list[int] = []
        for row in rows_of(trace, "cpu_op", "user_annotation"):
            if row["tid"] == tid:
                while open_until and row["ts"] >= open_until[-1]:
                    open_until.pop()
                assert not open_until or row["ts"] + row["dur"] <= open_until[-1]
                open_until.append(row["ts"] + row["dur"])
    for stream in {row["tid"] for row in rows_of(trace, *DEVICE_CATEGORIES)}:
        own = [row for row in rows_of(trace, *DEVICE_CATEGORIES) if row["tid"] == stream]
        assert all(before["ts"] + before["dur"] <= after["ts"] for before, after in pairwise(own))


@pytest.mark.parametrize("name", ["graph", "ddp"])
def test_lost_records_are_a_run_of_activities_whose_calls_are_there(name: str, tmp_path: Path) -> None:
    run = run_of(name, replace(DEFAULT, lost=0.1))
    assert run.ranks[0].activities.columns() == run_of(name, DEFAULT).ranks[0].activities.columns()
    for number, rank in enumerate(run.ranks):
        kept = is_recorded(rank)
        by_end = kept[np.argsort(column(rank, "end"), kind="stable")]
        lost = np.flatnonzero(~by_end)
        assert len(lost) == round(0.1 * len(kept)) and lost[-1] - lost[0] == len(lost) - 1
        trace = device_trace(run, tmp_path, number)
        assert len(rows_of(trace, *DEVICE_CATEGORIES)) == kept.sum()
        assert len(rows_of(trace, "cuda_runtime")) == len(rank.calls)
        ends = sum(row["ph"] == "f" and row["cat"] == "ac2g" and row["pid"] == number for row in trace["traceEvents"])
        assert ends == kept.sum() + len(rows_of(trace, "cuda_sync"))


@pytest.mark.parametrize(
    ("name", "seed"), [(name, place % 2) for place, name in enumerate(NAMED[::3]) if name != "queue"]
)
def test_traces_of_drawn_machines_can_be_read_and_linked(name: str, seed: int, tmp_path: Path) -> None:
    run = run_of(name, draw_machine(seed, lost_records=seed == 3))
    files = write_traces(run, tmp_path)[0]
    linked = link(read_host_trace(str(files.host)), read_device_trace(str(files.device)))
    assert linked.report.matched == linked.report.host_ops
    assert len(linked.activities) == is_recorded(run.ranks[0]).sum()


def test_equal_machines_give_equal_runs() -> None:
    for scale in ({}, {"class:computation": 4.0}):
        once, again = (simulate(build_job("ddp", seed=3, machine=draw_machine(4)), scale) for _ in range(2))
        assert [(rank.activities, rank.calls) for rank in once.ranks] == [
            (rank.activities, rank.calls) for rank in again.ranks
        ]


# the command


def test_the_command_draws_a_machine_and_says_which(tmp_path: Path, run: Command) -> None:
    ended = run("trace-generate", "--job", "simple", "--machine-seed", 3, "--output-dir", tmp_path, "--json")
    machine = draw_machine(3)
    assert not ended.code and "machine 3; truth.json has its figures" in ended.err
    for told in (json.loads(ended.out), json.loads((tmp_path / "truth.json").read_text())):
        assert told["machine"]["latency_ns"] == machine.latency_ns
