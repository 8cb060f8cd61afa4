"""What is laid over a device trace for Perfetto: the original stays as it is, and every new event has its place."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.errors import DataError
from execgraph.tools.analyses import AnalysisOptions, RankTrace, overlay_events, read_rank, write_overlay
from execgraph.tools.analyses.overlay import counter_events, critical_path_events, pattern_events
from support.builder.timeline import TraceBuilder
from support.runs import link_run

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


def rank_of(t: TraceBuilder, folder: Path) -> RankTrace:
    host, device = t.write(folder)
    return read_rank(str(device), str(host))


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


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"nodes": []}', "holds no traceEvents"),
        (gzip.compress(b'{"traceEvents": [' + bytes(range(48, 58)) * 9999, mtime=0)[:-40], "damaged compressed file"),
    ],
)
def test_a_file_that_takes_no_overlay_leaves_none_behind(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "in.json").write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        write_overlay(str(tmp_path / "in.json"), str(tmp_path / "out.json"), [])
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


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
    assert [(mark["ts"], mark["dur"], mark["tid"]) for mark in marks] == [
        (norm["ts"], norm["dur"], norm["tid"]) for norm in norms
    ]
    for mark in marks:
        assert mark["name"] == "pattern 1: aten::norm"
        assert mark["args"] == {"kernels": ["mean", "scale"], "count": 3}
    assert list(pattern_events(rank_of(t, tmp_path), AnalysisOptions(operator="linear"))) == []
    assert list(pattern_events(rank_of(t, tmp_path), AnalysisOptions(top=0))) == []
