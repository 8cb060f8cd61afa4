"""The timeline that trace-replay writes: the measured run and the replay side by side, and dependencies as flows."""

import gzip
import json
from pathlib import Path
from typing import Any

from execgraph.tools.replay import replay
from execgraph.tools.view import write_timeline
from support.graphs import GraphBuilder, training_step
from support.runs import delayed, scaled


def test_delays_have_a_track_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    write_timeline(scaled(delayed()), str(path))
    events = timeline_events(path)
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"thread 1", "device 0 stream 7", "delays"}
    assert [event["dur"] for event in events if event["name"] == "delay"] == [0.068, 0.068]


def timeline_events(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    return list(json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["traceEvents"])


def test_the_timeline_shows_the_measured_run_and_the_replay_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json.gz"
    write_timeline(scaled(training_step(), "gemm=1.5"), str(path))
    events = timeline_events(path)
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(named.values()) == ["rank 0 measured", "rank 0 replay"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"thread 1", "device 0 stream 7", "device 0 stream 8"}
    adds = {named[event["pid"]]: event for event in events if event["name"] == "vector_add"}
    assert adds["rank 0 measured"]["ts"] == 0.028
    assert adds["rank 0 replay"]["ts"] == 0.038
    assert adds["rank 0 replay"]["cat"] == "computation"


def test_dependencies_between_tracks_are_flows_from_slice_to_slice(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    write_timeline(replay(training_step()), str(path))
    slice_name, ends = "", dict[int, list[tuple[str, str, str]]]()
    for event in timeline_events(path):
        slice_name = event["name"] if event["ph"] == "X" else slice_name
        if event["ph"] in "sf":
            ends.setdefault(event["id"], []).append((event["ph"], slice_name, event["name"]))
    flows = [{phase: (name, reason) for phase, name, reason in pair} for pair in ends.values()]
    assert flows.count({"s": ("aten::mm", "launch"), "f": ("sgemm", "launch")}) == 2  # measured and replay
    assert all(set(pair) == {"s", "f"} for pair in flows)
    assert ("sgemm", "stream order") not in [pair["s"] for pair in flows]


def test_names_with_quotes_and_control_characters_survive_the_timeline(tmp_path: Path) -> None:
    g = GraphBuilder()
    g.host('a "b"\n\\ é', 0, 1)
    path = tmp_path / "timeline.json"
    write_timeline(replay(g.build()), str(path))
    assert [event["name"] for event in timeline_events(path) if event["ph"] == "X"] == ['a "b"\n\\ é'] * 2
