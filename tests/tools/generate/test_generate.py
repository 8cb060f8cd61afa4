"""The simulator keeps the rules of CUDA, and its files say what it did.

The files of a run: alone in their folder, as large as asked for, with arguments as varied as in recorded traces.
"""

import gzip
import json
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.errors import DataError
from execgraph.tools.generate import Job, Run, Table, simulate, write_traces
from execgraph.tools.generate.instructions import get, put, record_event, synchronize, wait_event, work
from execgraph.tools.generate.machine import FIRST_NS
from execgraph.tools.generate.record import STREAM_SYNC, correlation, record_function
from execgraph.tools.generate.simulation import Rendezvous
from support.commands import Run as Command
from support.folders import DATA
from support.for_simulator import assert_storages_are_ordered, assert_waits_are_kept, job_of, launch, spans

from benchmarks.programs import JOBS, NAMED, RANDOM, build_job
from benchmarks.programs.more_instructions import QueryEvent

EVERY_JOB = pytest.mark.parametrize("name", JOBS)
CHANGES = ({}, {"host": 3.0}, {"computation": 4.0}, {"communication": 5.0}, {"memory": 6.0})


@cache
def run_of(name: str, **scale: float) -> Run:
    factors = {f"class:{kind}": factor for kind, factor in scale.items()}
    return simulate(build_job(name, steps=2, layers=2, seed=1), factors)


def pairs(edges: Table) -> list[tuple[int, ...]]:
    return list(zip(*edges.columns(), strict=True))


@cache
def read(folder: Path, name: str) -> dict[str, Any]:
    """What a file of a run holds, not to be changed."""
    document: dict[str, Any] = json.loads((folder / name).read_text())
    return document


def rows_of(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read(folder, f"device_rank{rank}.json")["traceEvents"]
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per job with the traces of its run."""
    target = tmp_path_factory.mktemp("traces")
    for name in JOBS:
        write_traces(run_of(name), target / name)
    return target


# the simulator by hand


def test_kernels_start_when_launched_after_a_gap_on_a_busy_stream_and_after_the_events_they_wait_for() -> None:
    run = simulate(job_of([launch(7, 1000), launch(7, 50)]))
    assert spans(run.ranks[0]) == [(110, 1110), (1115, 1165)]
    record, wait = partial(record_event, 1, 7, 10), partial(wait_event, 8, 1, 10)
    run = simulate(job_of([launch(7, 1000), record, launch(8, 20), wait, launch(8, 30), launch(7, 40)]))
    assert spans(run.ranks[0]) == [(110, 1110), (220, 240), (1115, 1145), (1115, 1155)]
    assert pairs(run.ranks[0].event_waits) == [(0, 2)]


def test_an_event_recorded_behind_a_wait_stands_for_what_was_waited_for() -> None:
    chained = [
        partial(record_event, 1, 7, 0),
        partial(wait_event, 8, 1, 0),
        partial(record_event, 2, 8, 0),
        partial(wait_event, 9, 2, 0),
    ]
    run = simulate(job_of([launch(7, 1000), *chained, launch(9, 10)]))
    assert spans(run.ranks[0])[1] == (1115, 1125)


def test_a_synchronisation_or_blocking_copy_returns_after_its_work_and_events_are_queried_until_they_happened() -> None:
    run = simulate(job_of([launch(7, 1000), *[partial(synchronize, STREAM_SYNC, 7, -1, 20)] * 2]))
    assert list(run.ranks[0].calls.end) == [100, 1130, 1150]
    run = simulate(job_of([launch(7, 1000), launch(7, 50, blocking=True)]))
    assert run.ranks[0].calls.end[1] == 1165 + 7
    run = simulate(job_of([launch(7, 300), partial(record_event, 1, 7, 0), QueryEvent(1, 100, 50)]))
    assert list(run.ranks[0].calls.start)[2:] == [100, 250, 400, 550]


def test_members_of_a_collective_end_together_after_the_last_has_come() -> None:
    meeting = Rendezvous(("all",), 2)
    late = [partial(work, 500), launch(7, 200, meeting)]
    job = Job("test", 0, 2, ("main",), (), lambda rank: iter([[[launch(7, 200, meeting)] if rank == 0 else late]]))
    first, second = simulate(job).ranks
    assert spans(first) == [(110, 810)]
    assert spans(second) == [(610, 810)]


def longest_in_common(job: str, ranks: int, name: str) -> int:
    """How long the largest collective of a name takes once all members have come."""
    run = simulate(build_job(job, ranks=ranks, steps=1, layers=2))
    found = [
        (activity.collective.elements[0], end - start)
        for rank in run.ranks
        for code, start, end in zip(rank.activities.activity, rank.activities.start, rank.activities.end, strict=True)
        if (activity := rank.activity_table[code]).collective and activity.collective.name == name
    ]
    largest = max(size for size, _ in found)
    return min(ns for size, ns in found if size == largest)


@pytest.mark.parametrize(("job", "name", "around"), [("ddp", "allreduce", 2), ("sharded", "_reduce_scatter_base", 1)])
def test_a_ring_takes_a_latency_per_step_and_its_share_of_the_bytes(job: str, name: str, around: int) -> None:
    size = 4 * (2049 * 2048) * (2 if job == "ddp" else 1)
    for ranks in (2, 8):
        sent_us = around * (ranks - 1) / ranks * size / 80_000
        assert longest_in_common(job, ranks, name) == pytest.approx(
            1000 * (6 * around * (ranks - 1) + sent_us), rel=1e-3
        )


def test_replicas_reduce_gradients_only_where_there_are_some() -> None:
    pairs = {
        ranks: {group.ranks for group in build_job("moe_dp", ranks=ranks).groups if len(group.ranks) > 1}
        for ranks in (2, 4)
    }
    assert pairs == {2: {(0, 1)}, 4: {(0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3)}}


def test_a_collective_without_all_members_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="1 collectives wait"):
        simulate(job_of([launch(7, 10, Rendezvous(("all",), 2))]))


def test_a_thread_waits_for_an_item_and_a_full_queue_for_room() -> None:
    giver = [partial(work, 10), *[partial(put, "q", 1)] * 3, partial(work, 1)]
    taker = [partial(get, "q", 5), partial(work, 100), partial(get, "q", 5), partial(get, "q", 5)]
    run = simulate(job_of(giver, taker))
    found = pairs(run.ranks[0].handoffs)
    assert found == [(0, 10, 1, 15, 1), (0, 10, 1, 115, 0), (1, 115, 0, 120, 1), (0, 10, 1, 115, 0)]


def test_scaling_the_host_leaves_waiting_alone() -> None:
    program = [launch(7, 1000), partial(synchronize, STREAM_SYNC, 7, -1, 20), partial(work, 30)]
    assert simulate(job_of(program)).ranks[0].calls.end[1] == 1130
    assert simulate(job_of(program), {"class:host": 2.0}).ranks[0].calls.end[1] == 1210 + 40


# the rules, in every job and under changed durations


@EVERY_JOB
def test_nothing_runs_before_it_was_launched_and_streams_waits_and_storages_are_in_order(name: str) -> None:
    place = 1 + [*JOBS].index(name) % 4
    for rank in (rank for change in (CHANGES[0], CHANGES[place]) for rank in run_of(name, **change).ranks):
        launched = (rank.calls.start[call] for call in rank.activities.call)
        assert all(start > launch for start, launch in zip(rank.activities.start, launched, strict=True))
        assert all(rank.calls.end[call] > rank.activities.end[row] for call, row in pairs(rank.host_waits))
        assert_waits_are_kept(rank)
        assert_storages_are_ordered(rank)


@EVERY_JOB
def test_ops_lie_within_their_parents_and_beside_their_siblings(name: str) -> None:
    for rank in run_of(name).ranks:
        last_end: dict[tuple[int, int], int] = Counter()
        for row, parent in enumerate(rank.ops.parent):
            start, end = rank.ops.start[row], rank.ops.end[row]
            assert last_end[rank.ops.thread[row], parent] <= start <= end
            last_end[rank.ops.thread[row], parent] = end
            assert parent < 0 or rank.ops.start[parent] <= start <= end <= rank.ops.end[parent]


@pytest.mark.parametrize("name", ["streams", "moe_dp"])
def test_scaling_by_one_changes_nothing(name: str) -> None:
    run = simulate(build_job(name, steps=2, layers=2, seed=1), {"class:host": 1.0, ".": 1.0})
    assert [rank.activities for rank in run.ranks] == [rank.activities for rank in run_of(name).ranks]


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("simple", {"class:host": 20.0}),
        ("prefetch", {"class:memory": 5.0}),
        ("event_sync", {"class:computation": 4.0}),
        ("graph", {"class:memory": 5.0}),
        ("loader", {"class:computation": 3.0}),
        ("ddp", {"class:communication": 5.0}),
        ("moe", {"class:communication": 5.0}),
        ("pipeline", {"class:communication": 9.0}),
        ("dlrm", {"SendRecv": 20.0}),
    ],
)  # fmt: skip
def test_a_wait_that_costs_nothing_holds_the_run_up_once_durations_change(name: str, scale: dict[str, float]) -> None:
    job = build_job(name, steps=3, layers=2, seed=1)
    assert simulate(job, scale).makespan_ns > 1.3 * simulate(job).makespan_ns


def test_every_job_but_the_random_one_has_a_number() -> None:
    assert sorted([*NAMED, RANDOM]) == sorted(JOBS)


# the files


@EVERY_JOB
def test_both_traces_know_the_same_ops(name: str, folder: Path) -> None:
    for rank in range(JOBS[name].size.ranks):
        host = read(folder / name, f"host_rank{rank}.json")
        nodes = {_attrs(node)["rf_id"]: node for node in host["nodes"]}
        rows = [row for row in rows_of(folder / name, rank) if row.get("cat") in ("cpu_op", "user_annotation")]
        assert {row["args"]["Record function id"]: row["name"] for row in rows}.items() <= {
            number: node["name"] for number, node in nodes.items()
        }.items()
        assert {row["pid"] for row in rows} == {host["pid"]}
        for row in rows:
            attrs = _attrs(nodes[row["args"]["Record function id"]])
            if attrs["scope"] == 1 and attrs["seq_id"] >= 0:
                assert row["args"]["Sequence number"] == attrs["seq_id"]
                assert row["args"]["Fwd thread id"] == attrs["fw_tid"] == 1


def _attrs(node: dict[str, Any]) -> dict[str, Any]:
    return {attr["name"]: attr["value"] for attr in node["attrs"]}


@EVERY_JOB
def test_host_nodes_stand_in_the_order_of_their_ends_and_have_known_parents(name: str, folder: Path) -> None:
    host = read(folder / name, "host_rank0.json")
    position = {node["id"]: place for place, node in enumerate(host["nodes"])}
    assert host["schema"] == "1.1.1-chakra.0.0.4" and len(position) == len(host["nodes"])
    for node in host["nodes"]:
        caller = host["nodes"][position[node["ctrl_deps"]]]
        if not any("execution_trace|" in one["name"] for one in (node, caller)):
            assert position[node["id"]] < position[caller["id"]]
        for side in ("inputs", "outputs"):
            assert len({len(node[side][column]) for column in ("values", "shapes", "types", "strides")}) == 1


@EVERY_JOB
def test_device_rows_hold_the_run_to_the_nanosecond(name: str, folder: Path) -> None:
    run = run_of(name).ranks[0]
    rows = rows_of(folder / name)
    activities = [row for row in rows if row.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    times = [(round(row["ts"] * 1000) - FIRST_NS, round(row["dur"] * 1000)) for row in activities]
    assert times == [(start, end - start) for start, end in spans(run)]
    assert [row["args"]["correlation"] for row in activities] == [correlation(call) for call in run.activities.call]
    calls = {row["args"]["correlation"]: row for row in rows if row.get("cat") == "cuda_runtime"}
    assert len(calls) == len(run.calls)
    assert {row["args"]["correlation"] for row in activities} <= set(calls)


@EVERY_JOB
def test_the_truth_agrees_with_the_traces(name: str, folder: Path) -> None:
    truth = read(folder / name, "truth.json")
    assert truth["makespan_ns"] == run_of(name).makespan_ns
    for rank, known in enumerate(truth["ranks"]):
        rows = rows_of(folder / name, rank)
        ends = {(cor, index): start + duration for cor, index, _, _, start, duration in known["activities"]}
        starts = {(cor, index): start for cor, index, _, _, start, _ in known["activities"]}
        call_ends = {
            row["args"]["correlation"]: round((row["ts"] + row["dur"]) * 1000) - FIRST_NS
            for row in rows
            if row.get("cat") == "cuda_runtime"
        }
        assert all(ends[tuple(a)] < starts[tuple(b)] for a, b in known["event_waits"] + known["graph_order"])
        assert all(call_ends[call] > ends[tuple(awaited)] for call, awaited in known["host_waits"])
        launched = Counter(
            row["args"]["correlation"] for row in rows if row.get("cat", "").startswith(("kernel", "gpu_mem"))
        )
        assert launched == Counter(cor for cor, *_ in known["activities"])


def test_the_truth_names_the_op_around_each_launch(folder: Path) -> None:
    run = run_of("ddp").ranks[0]
    truth = read(folder / "ddp", "truth.json")["ranks"][0]
    names = {record_function(row): run.op_table[code].name for row, code in enumerate(run.ops.op)}
    around = Counter(names[rf_id] for _, _, rf_id, *_ in truth["activities"])
    assert around["nccl:all_reduce"] == 2 and around["aten::addmm"] == 4


def test_synchronisation_records_lead_to_the_event_only_where_they_are_resolved(tmp_path: Path) -> None:
    found = []
    for options in ({"sync_records": False}, {"resolved_events": False}, {}):
        folder = tmp_path / str(len(found))
        write_traces(run_of("prefetch"), folder, **options)
        waits = [row["args"] for row in rows_of(folder) if row.get("name") == "Stream Wait Event"]
        found.append([args["wait_on_cuda_event_record_corr_id"] for args in waits])
    assert found[:2] == [[], [-1] * 3]
    assert len(found[2]) == 3 and min(found[2]) > 0


def test_collectives_carry_their_arguments_in_both_traces(folder: Path) -> None:
    rows = [row for row in rows_of(folder / "dlrm", 1) if row.get("cat") == "kernel"]
    kernels = [row["args"] for row in rows if "Collective name" in row["args"]]
    assert {args["Collective name"] for args in kernels} == {"allreduce", "all_to_allv"}
    assert all(args["Process Group Ranks"] == "[0, 1, 2, 3]" and args["Group size"] == 4 for args in kernels)
    nodes = read(folder / "dlrm", "host_rank1.json")["nodes"]
    attrs = [_attrs(node) for node in nodes if node["name"] == "record_param_comms"]
    sizes = Counter(
        (a["collective_name"], a["in_msg_nelems"], a["pg_name"]) for a in attrs if a["collective_name"] != "wait"
    )
    assert sizes == Counter((k["Collective name"], k["In msg nelems"], k["Process Group Name"]) for k in kernels)
    groups = next(node for node in nodes if node["name"] == "## process_group:init ##")
    assert [group["ranks"] for group in json.loads(groups["inputs"]["values"][0])] == [[0, 1, 2, 3]] * 2


def test_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    for number, seed in enumerate((3, 3, 4)):
        write_traces(simulate(build_job("ddp", steps=2, layers=1, seed=seed)), tmp_path / str(number), compress=True)
    files = [sorted((tmp_path / str(number)).iterdir()) for number in range(3)]
    contents = [[path.read_bytes() for path in paths] for paths in files]
    assert [path.name for path in files[0]][:2] == ["device_rank0.json.gz", "device_rank1.json.gz"]
    assert contents[0] == contents[1] != contents[2]
    assert json.loads(gzip.decompress(contents[0][0]))["distributedInfo"]["rank"] == 0


# the command


def test_the_command_writes_traces_and_makespans_of_changes(tmp_path: Path, run: Command) -> None:
    scale = ["--scale", "class:communication=4", "--scale", "class:host=2", "sgemm=0.5"]
    ended = run("trace-generate", "--job", "ddp", "--layers", 2, "--output-dir", tmp_path, "--json", *scale)
    assert ended.code == 0
    summary = json.loads(ended.out)
    assert set(summary["makespans_ns"]) == {"class:communication=4", "class:host=2 sgemm=0.5"}
    assert read(tmp_path, "truth.json")["makespans_ns"] == summary["makespans_ns"]
    assert all(Path(path).is_file() for pair in summary["files"] for path in pair)


@pytest.mark.parametrize(
    "wrong", [["--scale", "class:gpu=2"], ["--scale", "sgemm"], ["--ranks", "1"], ["--layers", "0"]]
)
def test_wrong_usage_is_one_line_and_exit_2(wrong: list[str], tmp_path: Path, run: Command) -> None:
    ended = run("trace-generate", "--job", "ddp", "--output-dir", tmp_path, *wrong)
    assert ended.code == 2 and ended.line


def test_as_many_steps_as_make_a_size_with_calls_of_python(tmp_path: Path, run: Command) -> None:
    assert not run("trace-generate", "--job", "ddp", "--size", 2, "--stacks", 30, "--output-dir", tmp_path).code
    size = sum(path.stat().st_size for path in tmp_path.glob("*_rank0.json"))
    assert 1_800_000 < size < 2_200_000
    rows = [row for row in rows_of(tmp_path) if row.get("cat")]
    calls = [row for row in rows if row["cat"] == "python_function"]
    called = {(row["tid"], row["ts"]) for row in calls}
    assert len(calls) == 30 * len(called)
    assert called < {(row["tid"], row["ts"]) for row in rows if row["cat"] == "cpu_op"}


@pytest.mark.parametrize("job", ["pipeline_dp", "moe_dp"])
def test_replicas_are_whole(job: str) -> None:
    with pytest.raises(ValueError, match=f"{job}: a replica is 2 ranks, give it a multiple of them"):
        build_job(job, ranks=3)


RECORDED = ("attention", "ddp", "modules", "torch_2.14.0")


def test_traces_of_another_job_are_not_mixed_with_this_one(tmp_path: Path) -> None:
    pair = simulate(build_job("ddp", ranks=2, layers=1, steps=1))
    write_traces(simulate(build_job("ddp", ranks=3, layers=1, steps=1)), tmp_path)
    with pytest.raises(DataError, match=r"holds traces of another job, such as device_rank2\.json; name a new folder"):
        write_traces(pair, tmp_path)
    with pytest.raises(DataError, match="holds traces of another job"):
        write_traces(pair, tmp_path, compress=True)


def test_the_same_job_is_written_again(tmp_path: Path) -> None:
    run = simulate(build_job("ddp", ranks=2, layers=1, steps=1))
    assert write_traces(run, tmp_path) == write_traces(run, tmp_path)


# Numbers of tensors, which are reused as addresses are


def nodes_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    nodes: list[dict[str, Any]] = json.loads(text)["nodes"]
    return nodes


def distinct_share(nodes: list[dict[str, Any]], member: str) -> float:
    texts = [json.dumps(node[member]) for node in nodes if node[member]["values"]]
    return len({*texts}) / len(texts)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    run = simulate(build_job("ddp", ranks=2, steps=8, layers=6))
    return nodes_of(write_traces(run, tmp_path_factory.mktemp("traces"))[0].host)


@pytest.mark.parametrize("member", ["inputs", "outputs"])
def test_as_many_arguments_are_distinct_as_in_recorded_traces(nodes: list[dict[str, Any]], member: str) -> None:
    shares = [distinct_share(nodes_of(DATA / name / "host_rank0.json.gz"), member) for name in RECORDED]
    assert min(shares) - 0.05 < distinct_share(nodes, member) < max(shares) + 0.3


def test_what_an_op_makes_has_a_new_number_in_each_step_and_parameters_keep_theirs(nodes: list[dict[str, Any]]) -> None:
    products = [node for node in nodes if node["name"] == "aten::linear"]
    weights = [node["inputs"]["values"][1][1] for node in products]
    results = [node["outputs"]["values"][0][1] for node in products]
    assert len({*weights}) == 6
    assert len({*results}) > 3 * 6


def test_numbers_of_tensors_that_are_gone_are_used_again(nodes: list[dict[str, Any]]) -> None:
    made = [node["outputs"]["values"][0][0] for node in nodes if node["name"] == "aten::mm"]
    assert len({*made}) < len(made)


def test_a_caller_lists_the_tensor_that_the_op_which_it_calls_makes(nodes: list[dict[str, Any]]) -> None:
    name_of = {node["id"]: node for node in nodes}
    inner = [node for node in nodes if node["name"] == "aten::addmm"]
    assert inner
    assert all(node["outputs"] == name_of[node["ctrl_deps"]]["outputs"] for node in inner)
