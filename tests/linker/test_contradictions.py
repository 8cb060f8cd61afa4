"""What cannot be is reported by readers and trace-diagnose, or a table says why nobody can notice; times are in ns."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.linker import contradictions, link
from execgraph.linker.contradictions import Contradiction, other_launches, other_units, rank_beyond_world
from execgraph.linker.match import match_ops
from execgraph.linker.odd_ops import odd_ops
from execgraph.linker.overruns import Awaited, overruns
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.linker.readers.device_rows import select
from execgraph.linker.stream_order import too_early
from execgraph.linker.windows import trace_start
from execgraph.schema.columns import CallRows
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.machine import AGREEING, MachineCalibration
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.trace_files import find_traces, hosts_of
from support.builder.timeline import TraceBuilder
from support.contradictions import (
    GRAPHS,
    READ_BY,
    SAMPLE,
    TRACES,
    GraphLie,
    Lie,
    changed_graph,
    notes_on,
    said_by_build,
    said_of,
    sound_graphs,
)
from support.folders import DATA
from support.runs import read_pair
from support.tables import ActivityRow, CallRow, OpRow, column, device_trace

from benchmarks.programs import NAMED, RANDOM, build_job

pytestmark = pytest.mark.usefixtures("in_this_process")

SEVERAL = TRACES[::8]
"""Of those that trace-link tells of, these are built: trace-build hands on what it is told of a rank."""
each_lie = pytest.mark.parametrize("lie", [pytest.param(lie, id=lie.what) for lie in TRACES])


@each_lie
def test_a_contradiction_is_said_with_file_and_advice_by_all_that_read_the_traces_or_by_none(lie: Lie) -> None:
    said = said_of(lie)
    assert (bool(said.link), bool(said.diagnose)) == (not lie.why and not lie.by_others, not lie.why)
    if lie in SEVERAL or lie.by_others:
        assert any("note: rank" in line for line in said_by_build(lie)) == (not lie.why)
    for line in said.link:
        assert ".json: " in line and line.count("; ") >= 2


def test_collectives_in_reversed_order_are_a_disagreement_of_ranks() -> None:
    reversed_order = [lie for lie in TRACES if "reversed order" in lie.what]
    assert len(reversed_order) == 2
    for lie in reversed_order:
        assert any("ranks disagree" in line for line in said_by_build(lie))


# graphs


@pytest.mark.parametrize("lie", [pytest.param(lie, id=lie.what) for lie in GRAPHS])
def test_every_command_that_reads_a_graph_says_once_what_is_wrong_with_its_nodes(lie: GraphLie) -> None:
    notes = notes_on(lie)
    assert {command: len(lines) for command, lines in notes.items()} == dict.fromkeys(READ_BY, 1)
    for [line] in notes.values():
        assert ": 3 " in line and "(the first: node 10); " in line


def test_a_sound_graph_is_read_without_a_note(tmp_path: Path) -> None:
    path = tmp_path / "graph.0.et"
    path.write_bytes(changed_graph(sound_graphs()["graph.0.et"], lambda _: None))
    assert path.read_bytes() == sound_graphs()["graph.0.et"]
    assert ExecutionGraph.read(str(path)).notes == []


# sound traces


def contradictions_below(folder: Path) -> list[str]:
    """What is said of the traces of each process in a folder and below."""
    found = find_traces([folder])
    host_of = hosts_of(found.devices, found.hosts)
    assert found.devices
    said = []
    for trace in found.devices:
        host = read_host_trace(host_of[trace.name]) if trace.name in host_of else None
        said += [one.sentence for one in contradictions.contradictions_in_traces(host, read_device_trace(trace.name))]
    return said


@pytest.mark.parametrize("job", [*NAMED[::4], RANDOM])
def test_nothing_is_said_of_generated_jobs(tmp_path: Path, job: str) -> None:
    write_traces(simulate(build_job(job, steps=1, layers=2)), tmp_path)
    assert contradictions_below(tmp_path) == []


@pytest.mark.parametrize(("rank", "size"), [(None, 2), (0, None), (0, 2), (1, 2), (2, 2)])
def test_a_rank_within_the_world_or_an_unknown_one_may_be(rank: int | None, size: int | None) -> None:
    assert (rank_beyond_world(device_trace(rank=rank, world_size=size)) is None) == (rank != 2)


@pytest.mark.parametrize(("members", "is_foreign"), [((2, 3), True), ((0, 3), False)])
def test_a_group_that_only_its_collectives_describe_is_checked_too(members: Sequence[int], is_foreign: bool) -> None:
    t = TraceBuilder(rank=0, world_size=4)
    t.collective("allreduce", group=t.group(members))
    _, device = read_pair(t)
    said = contradictions.groups_without_rank(None, replace(device, groups=[]))
    assert (said is not None) == is_foreign


def test_the_first_foreign_group_is_named() -> None:
    t = TraceBuilder(rank=0, world_size=4)
    for group in (t.group([0, 1], "a"), t.group([2, 3], "b"), t.group([1, 3], "c")):
        t.collective("allreduce", group=group)
    said = contradictions.groups_without_rank(None, read_pair(t)[1])
    assert said is not None
    assert "in 2 of 3 process groups that it is not in (the first: group 'b' of ranks 2, 3, " in said.what


def rank_of_host(members: Sequence[int], own: int, name: str = "allreduce") -> str:
    """What is said of a host trace whose process has the number `own` in a group, beside a device trace of rank 3."""
    t = TraceBuilder(rank=3, world_size=4)
    t.collective(name, group=t.group(members), root=own)
    said = contradictions.other_rank(*read_pair(t))
    return said.what.split(" by ")[0] if said is not None else ""


@pytest.mark.parametrize("members", [(0, 1, 2, 3), (0, 2, 3)])
def test_the_rank_is_that_of_the_place_in_a_group_unless_a_collective_records_its_root(members: Sequence[int]) -> None:
    found = [rank_of_host(members, own) for own in range(-1, 5)]
    assert found[: len(members) + 1] == ["", *(f"is of rank {rank}" for rank in members[:-1]), ""] and found[-1] == ""
    assert rank_of_host(members, 0, "broadcast") == ""


MACHINE = MachineCalibration()
LONG_NAME = "gemm" * 12


def what(said: Contradiction | None) -> str:
    assert said is not None
    return said.what


# the unit, by copies


def copied(*copies: tuple[int, int, int]) -> Contradiction | None:
    """Copies by length in ns, bytes and bytes per second."""
    ran = [ActivityRow(0, length, size=size, bandwidth=bandwidth) for length, size, bandwidth in copies]
    return other_units(device_trace(activities=ran), CallRows(column(*(-1 for _ in ran))), MACHINE)


@pytest.mark.parametrize(
    ("copy", "factor"),
    [
        ((1, 1, 1), "1,000,000,000 times too short"), ((2, 2_000, 1_000_000_000), "1,000 times too short"),
        ((2_000, 2, 1_000_000_000), "1,000 times too long"),
        ((5_000_000, 5, 1_000_000_000), "1,000,000 times too long"),
    ],
)  # fmt: skip
def test_copies_show_the_unit_of_device_times(copy: tuple[int, int, int], factor: str) -> None:
    assert what(copied(copy)) == f"device times are {factor}, by the bytes and bandwidth recorded of copies"
    assert copied((2, 2, 1_000_000_000)) is None


@pytest.mark.parametrize("incomplete", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, -1, -1)])
def test_a_copy_without_a_length_a_size_or_a_bandwidth_shows_nothing(incomplete: tuple[int, int, int]) -> None:
    assert copied(incomplete, incomplete) is None
    assert what(copied((1, 1, 1), incomplete)).startswith("device times are 1,000,000,000 times too short")


# the unit, by the order of launches


def started(*rows: tuple[int, int], clock_error_ns: int = 0) -> Contradiction | None:
    """Activities by their starts and those of their calls, after one without a call."""
    ran = [ActivityRow(10**12), *(ActivityRow(start) for start, _ in rows)]
    calls = [CallRow(launch) for _, launch in rows]
    machine = MachineCalibration(clock_error_ns=clock_error_ns)
    return other_units(device_trace(calls=calls, activities=ran), CallRows(column(-1, *range(len(rows)))), machine)


def test_times_are_too_short_or_long_by_the_order_of_launches_and_the_error_of_the_clock_unless_they_are_few() -> None:
    begun, early = (0, 0), [(1_000, 1_000_000), (2_000, 2_000_000), (3_000, 3_000_000)]
    said = what(started(begun, *early))
    assert said == "device times are 1,000 times too short, by the order of launches and waits"
    assert started(begun, begun, *early[1:]) is None
    rows = [(1_000 * launch, launch) for launch in (10, 20, 30, 50)]
    said = what(started(*rows, clock_error_ns=41))
    assert said == "device times are 1,000 times too long, by the order of launches and waits"
    assert started(*rows, clock_error_ns=40) is None
    rows = [(1_000 * launch, launch) for launch in (10, 20, 30, 50)]
    assert started(*rows[1:], clock_error_ns=1_000) is None
    assert started(*((start, 10) for start, _ in rows), clock_error_ns=1_000) is None
    assert started(*((10, launch) for _, launch in rows), clock_error_ns=1_000) is None


# the clock


def apart(offset_ns: int, *calls: CallRow, ops: tuple[OpRow, ...] = ()) -> Contradiction | None:
    return contradictions.clock_apart(device_trace(ops, calls), MachineCalibration(clock_offset_ns=offset_ns))


@pytest.mark.parametrize(("sign", "way"), [(1, "behind"), (-1, "ahead of")])
def test_a_clock_is_wrong_if_it_is_off_by_more_than_the_recording_is_long(sign: int, way: str) -> None:
    calls, ops = (CallRow(2_000, 3_000), CallRow(5_000, 9_000)), (OpRow(4_000, 7_000),)
    assert apart(7_000 * sign, *calls, ops=ops) is None
    said = what(apart(7_001 * sign, *calls, ops=ops))
    assert said == f"the device's clock is 7.0 µs {way} the host's, in a recording of 7.0 µs"
    assert f" {way} the host's" in what(apart(sign, CallRow(5, 5)))


def test_a_clock_that_is_not_off_is_right_however_short_the_recording() -> None:
    assert apart(0) is None


@pytest.mark.parametrize("by_us", [-50, 0, 5_000])
@pytest.mark.parametrize("run", ["attention_bf16", "copies_pageable", "decoding", "sharded", "streams"])
def test_a_step_of_the_clock_in_the_middle_of_a_capture_is_said_with_its_place_and_size(run: str, by_us: int) -> None:
    device = read_device_trace(DATA / "gpu" / run / "device_rank0.json.gz")
    rows = device.activities
    middle = int(np.median(rows.start))
    shift = 1_000 * by_us * (rows.start >= middle)
    device.activities = replace(rows, start=rows.start + shift, end=rows.end + shift)
    said = " ".join(one.what for one in contradictions.contradictions_in_traces(None, device))
    match = re.fullmatch(
        r"the device's clock goes (on|back) by ([\d.]+) (.s) at once between (.*) and (.*) µs of the trace", said
    )
    assert bool(match) == bool(by_us), said
    if match:
        way, size, unit, *between = match.groups()
        size_us = float(size) * (1_000 if unit == "ms" else 1) * (1 if way == "on" else -1)
        assert size_us == pytest.approx(by_us, abs=2)
        since, until = (1_000 * float(time) + trace_start(device) for time in between)
        assert since <= middle <= until <= since + 10e6


# activities at once


def run(*times: tuple[int, int], **other: int) -> list[ActivityRow]:
    """Activities of stream 0 by start and end."""
    return [
        ActivityRow(start, end, 20 + row, LONG_NAME, **{"stream": 0} | other) for row, (start, end) in enumerate(times)
    ]


def test_communication_does_not_run_on_beside_the_next_activity_for_longer_than_other_kernels_do() -> None:
    times = [(0, 100), (99, 150), (150, 250), (200, 300)]
    for overlap, kinds, found in (
        (0, "kkck", ["1 of 4 activities (the longest: nccl_2, 0.1 µs from 0.150 µs of the trace)"]),
        (0, "kkkk", []), (50, "kkck", []),
    ):  # fmt: skip
        names = [f"{'nccl' if kind == 'c' else 'gemm'}_{row}" for row, kind in enumerate(kinds)]
        ran = run(times[0], (99 - overlap, 150), *times[2:])
        device = device_trace(activities=[row._replace(name=name) for row, name in zip(ran, names, strict=True)])
        awaited = Awaited(CallRows(column()), column())
        assert [words for _, _, words in overruns(device, CallRows(column(-1, -1, -1, -1)), awaited)] == found


PLAIN, JOINS = "cudaLaunchKernel", "cuLaunchKernelEx"


def early(names: Sequence[str], *times: tuple[int, int], launched: Sequence[int] = (), **other: int) -> str:
    """What is said of activities of stream 0, by the names of their calls and, in µs, start, end and launch."""
    ran = run(*((1_000 * start, 1_000 * end) for start, end in times), **other)
    calls = [
        CallRow(1_000 * at, 1_000 * at + 500, name=name) for name, at in zip(names, launched or count(), strict=False)
    ]
    return too_early(device_trace(calls=calls, activities=ran), CallRows(np.arange(len(ran)))).words


def test_an_activity_does_not_begin_beside_the_one_before_it_unless_it_is_launched_so_and_then_not_beside_two() -> None:
    beside, beside_two = [(at, at + 31) for at in (0, 20, 40, 60)], [(at, at + 40) for at in (0, 20, 40, 60, 80)]
    assert early([PLAIN] * 4, *beside) == "3 while the one before them runs"
    assert early([JOINS] * 4, *beside) == early(["cudaGraphLaunch"] * 4, *beside) == ""
    assert early([JOINS] * 5, *((start, end + 11) for start, end in beside_two)) == "3 while the one before them runs"
    assert early([JOINS] * 5, *beside_two) == early([PLAIN] * 4, *((start, end - 1) for start, end in beside)) == ""
    assert early([PLAIN] * 4, *beside, stream=-1) == early([PLAIN] * 4, *beside, graph_node=1) == ""
    # few overlaps, which last for less than a hundredth of the time
    assert early([PLAIN] * 4, *beside[:3], (9_000, 9_009)) == ""
    assert early([PLAIN] * 4, *beside[:3], (900, 909)) == "2 while the one before them runs"


def test_an_activity_does_not_begin_before_one_of_its_stream_whose_call_began_after_its_own_had_returned() -> None:
    apart = [(0, 5), (10, 15), (20, 25)]
    assert early([PLAIN] * 3, *apart, launched=(0, 3, 2)) == "1 before one that was launched earlier"
    assert early([PLAIN] * 3, *apart, launched=(0, 3, 3)) == ""


@pytest.mark.parametrize(
    ("folder", "stream", "every", "to", "by_us", "words"),
    [
        ("gpu/streams", 17, 3, 7, 0, "1 before one that was launched earlier"),
        ("training", 24, 1, 24, 150, "2 on stream 7 before what that waits for on stream 24 has ended"),
    ],
)
def test_activities_on_another_stream_or_with_the_times_of_another_clock_contradict_launches_or_waits(
    folder: str, stream: int, every: int, to: int, by_us: int, words: str
) -> None:
    device = read_device_trace(DATA / folder / "device_rank0.json.gz")
    rows, streams = device.activities, device.activities.stream.copy()
    moved = np.flatnonzero((rows.stream == stream) & rows.category.equal("kernel"))
    moved = moved[np.argsort(rows.start[moved])][every - 1 :: every]
    streams[moved] = to
    shift = np.zeros(len(rows), np.int64)
    shift[moved] = 1_000 * by_us
    device.activities = replace(rows, stream=streams, start=rows.start + shift, end=rows.end + shift)
    (said,) = contradictions.contradictions_in_traces(None, device)
    assert f"begin before their stream can run them: {words} (the first: " in said.what


# which call launched an activity


def with_ids(*ids: tuple[int, int]) -> Contradiction | None:
    """External ids of activities and of their calls. The last activity has no call."""
    ran = [ActivityRow(correlation=20 + row, external_id=own, name=LONG_NAME) for row, (own, _) in enumerate(ids)]
    calls = [CallRow(external_id=of_call) for _, of_call in ids]
    return other_launches(
        device_trace(calls=calls, activities=[*ran, ActivityRow(external_id=99)]),
        CallRows(column(*range(len(ids)), -1)),
    )


def test_launches_are_wrong_if_most_activities_have_another_external_id_than_their_call() -> None:
    assert with_ids((1, 1), (6, 7)) is None
    assert what(with_ids((1, 1), (6, 7), (8, 9))) == (
        "2 of 3 activities have an External id that is not that of the call with their correlation "
        f"(the first: correlation 21, {LONG_NAME[:40]})"
    )
    assert with_ids((0, 9), (0, 8), (1, 1), (9, 0), (8, 0)) is None


def copied_by(*call_names: str) -> Contradiction | None:
    """Copies and sets of these calls, after a kernel."""
    copies = [
        ActivityRow(0, 10, 21 + row, "copy", ("gpu_memcpy", "gpu_memset")[row % 2]) for row in range(len(call_names))
    ]
    calls = [CallRow(), *(CallRow(name=name) for name in call_names)]
    return other_launches(
        device_trace(calls=calls, activities=[ActivityRow(), *copies]), CallRows(column(*range(len(calls))))
    )


def test_launches_are_wrong_if_kernel_launches_made_most_copies() -> None:
    assert copied_by("cudaMemcpyAsync", "cuLaunchKernel") is None
    assert what(copied_by("cudaMemcpyAsync", "cuLaunchKernel", "hipExtLaunchKernel")) == (
        "2 of 3 copies and sets have the correlation of a kernel launch (the first: correlation 22, copy)"
    )


def test_whole_microseconds_of_many_short_activities_are_a_note_and_no_contradiction() -> None:
    device = device_trace(activities=[ActivityRow(20_000 * row, 20_000 * row + 3_000) for row in range(100)])
    assert "100 activities may last up to 100.0 µs (33 % of their time) longer" in link(None, device).report.notes[-1]
    assert contradictions.contradictions_in_traces(None, device) == []


# the numbers of collectives


def numbered(folder: Path, *numbers: int) -> Contradiction | None:
    """Collectives of a group by their sequence numbers, as they start."""
    t = TraceBuilder(rank=0, world_size=2)
    group = t.group([0, 1])
    for number in numbers:
        t.collective(group=group, seq=number)
    return contradictions.against_numbers(read_device_trace(t.write(folder)[1]))


def test_sequence_numbers_that_go_down_more_often_than_up_are_wrong(tmp_path: Path) -> None:
    # a number that is used twice goes neither way
    assert what(numbered(tmp_path, 5, 6, 6, 4, 5, 5, 2, 1)).endswith("go down in time, 3 times (from 6 to 1)")
    assert AGREEING == 3
    assert numbered(tmp_path, 4, 5, 3, 4, 2, 3, 1) is None


def test_a_step_that_only_launches_of_several_threads_show_is_of_their_clocks() -> None:
    device = read_device_trace(str(DATA / "gpu" / "attention_fp32" / "device_rank0.json.gz"))
    for times in (device.calls.start, device.calls.end):
        times += 300_000 * (device.calls.thread == 517)
    (said,) = contradictions.contradictions_in_traces(None, device)
    assert re.fullmatch(r"the clock of thread 517 is (299|30\d)\.\d µs ahead of that of thread 496", said.what)
    assert convert(link(None, device)).metadata["contradictions"] == 1


def test_starts_that_lost_digits_make_a_run_doubtful_only_beyond_usual_latencies() -> None:
    device = read_device_trace(str(SAMPLE / "device_rank0.json.gz"))
    for unit, is_doubtful in ((1_000, False), (10_000, True)):
        for table in (device.ops, device.calls, device.activities):
            table.start[:] -= table.start % unit
        count, [said] = odd_ops(None, device, None)
        assert (count > 0) == is_doubtful and said.what == f"all starts are multiples of {unit / 1000:.1f} µs apart"


EDITS = {
    "": "",
    "lengths in ms": r"1,... of 1,... ops begin after the op ended that called them by host",
    "no lengths": r"1,142 of 1,142 ops last 0 ns",
    "clock back": r"the host's clock goes back by 39\.\d+ ms to \d+\.\d+ µs of the trace",
    "whole ms": r"all starts are multiples of 1\.00 ms apart",
    "one thread": r"\d+ ops are on the threads of others, though they are of 2 more threads in host",
    "one tid": r"8 outermost ops are on the threads of others, though they are of 2 more threads in host",
    "lost ops": r"lacks 1.. of 1,1.. ops between others of host",
    "lost nodes": r"lacks 1.. of 1,1.. ops between others of device",
    "lost backward": r"has no op of a backward pass, though \d+ ops prepare one and an optimizer runs after them",
}
"""What is said of an edit of a capture."""


@pytest.mark.parametrize("edit", EDITS)
def test_ops_that_cannot_be_as_they_are_recorded_are_said_and_counted(tmp_path: Path, edit: str) -> None:
    folder = DATA / ("threads" if edit in ("one thread", "one tid") else "ddp")
    nodes = json.loads(gzip.decompress((folder / "host_rank0.json.gz").read_bytes()))
    if edit == "lost nodes":
        nodes["nodes"] = [node for row, node in enumerate(nodes["nodes"]) if row < 10 or row % 10]
    (tmp_path / "host").write_text(json.dumps(nodes))
    host = replace(read_host_trace(str(tmp_path / "host")), path="host")
    device = replace(read_device_trace(str(folder / "device_rank0.json.gz")), path="device")
    ops, rows = device.ops, np.arange(len(device.ops.start))
    if edit == "lengths in ms":
        ops.end[:] = ops.start + (ops.end - ops.start) // 1000
    elif edit == "no lengths":
        ops.end[:] = ops.start
    elif edit == "clock back":
        for times in (ops.end, ops.start):
            times -= 40_000_000 * (ops.start >= np.sort(ops.start)[len(rows) // 2])
    elif edit == "whole ms":
        ops.start[:] = ops.start // 1_000_000 * 1_000_000
    elif edit in ("one thread", "one tid"):
        ops.thread[:] = ops.thread[0]
        host = replace(host, tid=host.tid * (edit == "one thread"))
    elif edit == "lost backward":
        device = select(device, ops=~ops.name.where(lambda name: name.startswith("autograd")))
    elif edit == "lost ops":
        device = select(device, ops=rows % 10 > 0)
    count, found = odd_ops(host, device, match_ops(host, device))
    assert (count > 0) == bool(EDITS[edit]) and len(found) == bool(EDITS[edit])
    assert all(re.search(EDITS[edit], contradiction.what) for contradiction in found)
