"""Memory in use over time: as allocators recorded it, else by the lives of tensors; the peak, and what lives there.

What is laid over a device trace for Perfetto: the original stays as it is, and every new event has its place.
"""

import gzip
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.readers import read_device_trace
from execgraph.linker.windows import Window
from execgraph.schema.errors import DataError
from execgraph.tools.analyses import AnalysisOptions, RankTrace, analyse, overlay_events, read_rank, write_overlay
from execgraph.tools.analyses.over_time import NEGATIVE, OF_DETAILS
from execgraph.tools.analyses.overlay import counter_events, critical_path_events, pattern_events
from execgraph.tools.analyses.rank import Allocations, Recorded
from execgraph.tools.report import ReportRequest
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.references import linked_of, picked
from support.runs import link_run

HOST, CUDA, HIP = 0, 1, 6
CURVE, PEAK, LIVE = "memory_timeline", "memory_timeline_peak", "memory_timeline_live"


def memory(t: TraceBuilder, size: int, address: int, allocated: int, reserved: int = 0, kind: int = CUDA) -> None:
    """A row as the profiler writes it, now and on the current thread."""
    row = t.device_events
    t.leaf("now", 0)
    t.ops.pop()
    args = {
        "Total Reserved": reserved, "Total Allocated": allocated, "Bytes": size, "Addr": address,
        "Device Id": -1 if kind == HOST else 0, "Device Type": kind, "Ev Idx": 9,
    }  # fmt: skip
    place = {"pid": t.pid, "tid": t.pid, "ts": t.layout.origin_us + t.now}
    row.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **place, "args": args})


def training() -> TraceBuilder:
    """Two steps; 100 bytes were there before, an op gets 40, another 20 of which only the first 40 outlast the peak."""
    t = TraceBuilder()
    for number in (1, 2):
        with t.annotation(f"ProfilerStep#{number}"):
            with t.op("aten::linear", inputs=[t.tensor()]):
                with t.op("aten::empty"):
                    t.work(1)
                    memory(t, 40, 7, 140, 1000)
                    t.work(1)
                t.work(1)
            with t.op("aten::relu"):
                t.work(1)
                memory(t, 20, 8, 160, 1000)
                t.work(1)
            t.work(1)
            memory(t, -20, 8, 140, 1000)
            memory(t, -40, 7, 100, 1000)
            t.work(1)
    return t


def rank_of(t: TraceBuilder, folder: Path, **how: Any) -> RankTrace:
    host, device = t.write(folder)
    return read_rank(str(device), str(host), **how)


def test_the_curve_is_what_allocators_recorded_in_each_step(tmp_path: Path) -> None:
    of_step = (1, 140), (4, 160), (6, 140), (6, 100)
    expected = [(f"ProfilerStep#{step}", 7 * step - 7 + now, total, 1000) for step in (1, 2) for now, total in of_step]
    for how, note in (({}, ""), ({"detail_path": str(tmp_path / "device.json")}, OF_DETAILS)):
        found = analyse([rank_of(training(), tmp_path, **how)], [CURVE])[CURVE]
        assert picked(found.rows(), "step", "ts", "allocated", "reserved") == expected
        assert found.note == note


def test_at_the_peak_lives_what_was_got_and_not_yet_given_back(tmp_path: Path) -> None:
    found = analyse([rank_of(training(), tmp_path)], [CURVE])
    assert picked(found[PEAK].rows(), "device", "step", "ts", "peak", "before") == [(0, "ProfilerStep#1", 4, 160, 100)]
    assert picked(found[LIVE].rows(), "op", "allocated_by", "blocks", "size", "pct") == [
        ("before the recording", "", 0, 100, 62.5),
        ("aten::linear", "aten::empty", 1, 40, 25),
        ("aten::relu", "aten::relu", 1, 20, 12.5),
    ]


def test_allocators_that_keep_no_total_are_left_out_and_counted(t: TraceBuilder, tmp_path: Path) -> None:
    with t.op("aten::add"):
        memory(t, 64, 1, 64, kind=HOST)
        memory(t, 1024, 2, 0, 1024, kind=HOST)
        t.work(1)
        memory(t, -1024, 2, 0, 0, kind=HOST)
        memory(t, -64, 1, 0, kind=HOST)
    table = analyse([rank_of(t, tmp_path)], [CURVE])[CURVE]
    rows = picked(table.rows(), "device", "allocated", "reserved")
    assert rows == [(-1, 64, None), (-1, 0, None)]
    assert table.note == "2 allocations are of allocators that keep no total and are not in it"


def test_negative_totals_are_not_used(t: TraceBuilder, tmp_path: Path) -> None:
    with t.op("aten::add", inputs=[t.tensor((8, 8))]):
        memory(t, 64, 1, -4096)
        t.work(1)
    table = analyse([rank_of(t, tmp_path)], [CURVE])[CURVE]
    assert {row["allocated"] for row in table.rows()} == {256} and table.note.endswith(NEGATIVE)


def test_without_such_rows_the_lives_of_tensors_tell(t: TraceBuilder, tmp_path: Path) -> None:
    weight, made = t.tensor((8, 8)), t.tensor((4, 4))
    with t.op("aten::linear", inputs=[weight], outputs=[made]):
        t.leaf("aten::empty", 2, outputs=[made])
        t.work(2)
    t.leaf("aten::add", 3, inputs=[made], outputs=[t.tensor((2,), device="cpu")])
    found = analyse([rank_of(t, tmp_path)], [CURVE])
    assert picked(found[CURVE].rows(), "device", "ts", "allocated") == [
        (-1, 4, 8),
        (-1, 7, 0),
        (0, 0, 256 + 64),
        (0, 7, 256),  # the weight was there before, so it is there to the end, though no op names it any more
    ]
    shown = picked(found[PEAK].rows(), "device", "peak", "before", "known_by")
    assert shown == [(-1, 8, 0, "tensors"), (0, 320, 256, "tensors")]
    live = {(row["op"], row["allocated_by"], row["size"]) for row in found[LIVE].rows()}
    assert ("aten::linear", "aten::empty", 64) in live
    assert "profile_memory" in found[CURVE].note


def test_a_part_of_a_trace_has_the_memory_of_its_time(tmp_path: Path) -> None:
    found = analyse([rank_of(training(), tmp_path, window=Window(steps=(2, 3)))], [CURVE])
    assert [row["allocated"] for row in found[CURVE].rows()] == [140, 160, 140, 100]
    assert {row["step"] for row in found[CURVE].rows()} == {"ProfilerStep#2"}


def test_what_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    recorded = rank_of(training(), tmp_path, memory=False).recorded
    assert recorded is not None and len(recorded.allocations.time) == 0
    # all rows are counted, be they read or not
    device, kept = str(tmp_path / "device.json"), ("cpu_instant_event",)
    assert read_device_trace(device).ignored == read_device_trace(device, keep_categories=kept).ignored
    assert ReportRequest(only=["temporal_breakdown"]).to_read.memory is False


@pytest.mark.parametrize("args", ["null", "[]", '{"Bytes": "many"}', '{"Bytes": null, "Addr": 3}', '{"Bytes": 0}'])
def test_rows_that_make_no_sense_are_none(tmp_path: Path, args: str) -> None:
    rows = [
        f'{{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": {time}, "args": {args}}}'
        for time in ("1", '"x"', "null")
    ]
    op = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 3, "args": {}}'
    (tmp_path / "odd.json").write_text(f'{{"traceEvents": [{", ".join([*rows, op])}]}}')
    assert len(analyse([read_rank(str(tmp_path / "odd.json"))], [CURVE])[CURVE]) == 0


def test_an_argument_that_nobody_needs_costs_no_row(tmp_path):
    args = '{"Addr": 64, "Bytes": 512, "Device Type": 0, "x": 1e999}'
    row = f'{{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {args}}}'
    op = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 3, "args": {}}'
    (tmp_path / "odd.json").write_text(f'{{"traceEvents": [{row}, {op}]}}')
    assert len(analyse([read_rank(str(tmp_path / "odd.json"))], [CURVE])[CURVE]) == 1


@given(st.integers(0, 1 << 32))
def test_any_order_of_giving_and_taking_back_is_followed(seed: int) -> None:
    chance = random.Random(seed)
    held = {device: {} for device in (-1, 0)}
    before = {device: chance.randint(0, 50) for device in held}
    rows: list[tuple[int, ...]] = []
    states: list[tuple[int, int, dict[int, int]]] = []
    for time in range(chance.randint(1, 30)):
        device = chance.choice([*held])
        mine: dict[int, int] = held[device]
        address = chance.choice([1, 2, 3])
        size = -mine.pop(address) if address in mine else chance.randint(1, 40)
        if size > 0:
            mine[address] = size
        total = before[device] + sum(mine.values())
        rows.append((time, 1, 1, device, address, size, total, 99))
        states.append((device, total, dict(mine)))
    rank = RankTrace(0, linked_of([]), recorded=Recorded([], Allocations(*np.array(rows, np.int64).T)))
    found = analyse([rank], [CURVE])
    for peak in found[PEAK].rows():
        own = [(total, mine) for device, total, mine in states if device == peak["device"]]
        total, mine = max(own, key=lambda one: one[0])
        rows_there = [row for row in found[LIVE].rows() if row["device"] == peak["device"]]
        live = sum(row["size"] for row in rows_there if row["op"] != "before the recording")
        assert (peak["peak"], peak["before"], live) == (total, before[peak["device"]], sum(mine.values()))
        curve = [row["allocated"] for row in found[CURVE].rows() if row["device"] == peak["device"]]
        assert curve == [one for one, _ in own]


Event = dict[str, Any]


def two_streams() -> TraceBuilder:
    """Three times two kernels on a stream, beside a long one on another; the host waits for the copy at the end."""
    t = TraceBuilder(sync_records=True)
    with t.op("aten::linear"):
        t.launch("long", stream=9, duration=500)
    for _ in range(3):
        with t.op("aten::norm"):
            t.launch("mean", stream=7, duration=20)
            t.launch("scale", stream=7, duration=20)
    with t.op("aten::item"):
        t.wait_event(t.record_event(stream=9), stream=7)
        t.memcpy("DtoH", stream=7, duration=8, bytes=4096)
    return t


def decoded(events: Any) -> list[Event]:
    return [json.loads(event) for event in events]


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_an_overlay_adds_events_and_changes_no_byte(tmp_path: Path, suffix: str) -> None:
    events = list(overlay_events(rank_of(two_streams(), tmp_path), AnalysisOptions()))
    output = tmp_path / f"overlay.{suffix}"
    write_overlay(str(tmp_path / "device.json"), str(output), events)
    text, original = output.read_bytes(), (tmp_path / "device.json").read_bytes()
    text = gzip.decompress(text) if suffix.endswith("gz") else text
    added = b"\n" + b",\n".join(events) + b",\n"
    assert text.replace(added, b"") == original
    made = json.loads(text)["traceEvents"]
    assert made == decoded(events) + json.loads(original)["traceEvents"]
    assert {event["ph"] for event in made[: len(events)]} == {"C", "s", "f", "X"}


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[]", '{"a": 1, "traceEvents" : [ ], "z": 2}'])
def test_an_empty_trace_takes_an_overlay_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "in.json").write_text(text)
    for events in ([], [b'{"ph":"C"}'], [b'{"ph":"C"}', b'{"ph":"C"}']):
        write_overlay(str(tmp_path / "in.json"), str(tmp_path / "out.json"), events)
        made = json.loads((tmp_path / "out.json").read_text())
        assert len(made if isinstance(made, list) else made["traceEvents"]) == len(events)


def test_a_damaged_trace_gives_an_overlay_of_its_sound_rows_and_another_file_none(tmp_path: Path) -> None:
    path, made = tmp_path / "in.json", tmp_path / "out.json"
    path.write_bytes(b'{"nodes": []}')
    with pytest.raises(DataError, match="holds no traceEvents"):
        write_overlay(str(path), str(made), [])
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]
    text = json.dumps({"traceEvents": [{"ph": "X", "name": f"mm {number}"} for number in range(9999)]}).encode()
    for damaged in (text[:-40], gzip.compress(text, mtime=0)[:-40]):
        path.write_bytes(damaged)
        write_overlay(str(path), str(made), [b'{"ph": "C"}'])
        assert 5000 < len(json.loads(made.read_bytes())["traceEvents"]) < 10_000


def test_the_path_over_the_trace_is_a_chain_of_arrows_between_rows(tmp_path: Path) -> None:
    t = two_streams()
    arrows = decoded(critical_path_events(rank_of(t, tmp_path)))
    starts, ends = arrows[::2], arrows[1::2]
    assert {one["ph"] for one in starts} == {"s"} and {one["ph"] for one in ends} == {"f"}
    assert [one["id"] for one in starts] == [one["id"] for one in ends]
    assert all(one["ts"] <= other["ts"] for one, other in zip(starts, ends, strict=True))
    long = next(activity for activity in t.activities if activity.name == "long")
    assert (0, 9, (t.origin_ns + long.start) / 1000) in [(one["pid"], one["tid"], one["ts"]) for one in ends]
    rows = defaultdict(list)
    for event in t.device_trace()["traceEvents"]:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for one in arrows:
        assert any(start <= one["ts"] <= end for start, end in rows[one["pid"], one["tid"]])


def test_without_a_graph_there_are_no_arrows() -> None:
    assert list(critical_path_events(RankTrace(0, link_run(two_streams())))) == []


def test_counter_tracks_begin_and_end_at_nothing(tmp_path: Path) -> None:
    events = decoded(counter_events(rank_of(two_streams(), tmp_path), AnalysisOptions()))
    names = {event["name"] for event in events}
    assert names == {"queue length stream 7", "queue length stream 9", "DtoH (GB/s)"}
    for name in names:
        assert [event["args"]["value"] for event in events if event["name"] == name][-1] == 0
    assert max(event["args"]["value"] for event in events if event["name"].startswith("DtoH")) == 4096 / 8_000


def test_operators_whose_kernels_come_again_are_marked(tmp_path: Path) -> None:
    t = two_streams()
    marks = decoded(pattern_events(rank_of(t, tmp_path), AnalysisOptions()))
    norms = [op for op in t.device_trace()["traceEvents"] if op["name"] == "aten::norm"]
    for mark, norm in zip(marks, norms, strict=True):
        assert all(mark[key] == norm[key] for key in ("ts", "dur", "tid"))
        assert mark["name"] == "pattern 1: aten::norm"
        assert mark["args"] == {"kernels": ["mean", "scale"], "count": 3}
    assert list(pattern_events(rank_of(t, tmp_path), AnalysisOptions(operator="linear"))) == []
    assert list(pattern_events(rank_of(t, tmp_path), AnalysisOptions(top=0))) == []
