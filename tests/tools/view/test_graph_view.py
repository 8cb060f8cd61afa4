"""trace-view: which nodes a selection holds, and that pictures and graph files show them; and the timeline that
trace-replay writes.
"""

import gzip
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import execgraph as eg
import networkx as nx
import numpy as np
import pytest
from execgraph.schema.columns import ABSENT
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph, digraph_of
from execgraph.tools.replay import Replay, gather, replay
from execgraph.tools.view import PICTURED, Selection, draw_lanes, lane_names, short_name, view, write_timeline
from support.commands import Run as Command, status_of
from support.graphs import LAUNCH, GraphBuilder, training_step
from support.runs import delayed, scaled

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    return file_of(training_step(), tmp_path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def file_of(graph: GraphBuilder | ExecutionGraph, folder: Path) -> Path:
    path = folder / "graph.et"
    (graph.build() if isinstance(graph, GraphBuilder) else graph).write(str(path))
    return path


def drawn(graph: Path, *arguments: object) -> int:
    return status_of("trace-view", "--input", graph, "--output", *arguments)


def selected(**selection: object) -> list[str]:
    found = view(training_step(), Selection(**selection)).graph  # type: ignore[arg-type]
    return [found.name[row] for row in range(len(found))]


def test_only_threads_without_recorded_nodes_are_called_unrecorded(g: GraphBuilder) -> None:
    g.host("aten::mm", 0, 5, thread=-549452224)
    g.host("unrecorded host", 0, 5, thread=-549452225)
    g.activity("gemm", 9, 5)
    assert lane_names(gather([g.build()])) == ["unrecorded host", "thread A", "device 0 stream 7"]


def test_threads_are_named_for_what_they_do() -> None:
    g = GraphBuilder(pid=11)
    backward, reduce = "autograd::engine::evaluate_function: MmBackward0", "gloo:all_reduce"
    names = ("aten::mm", backward, reduce, reduce, "aten::to", "load batch", "cudaEventQuery")
    for thread, name in (*enumerate(names, 11), (15, "cudaEventQuery")):
        g.host(name, 5, 5, thread=thread)
    g.activity("gemm", 9, 5)
    assert sorted(lane_names(gather([g.build()]))) == [
        "DataLoader thread", "autograd thread", "device 0 stream 7", "gloo thread 13", "gloo thread 14", "main thread",
        "thread 15", "watchdog thread",
    ]  # fmt: skip


def test_without_the_number_of_the_process_the_main_thread_is_the_one_that_steps_an_optimizer(g: GraphBuilder) -> None:
    g.host("Optimizer.step#SGD.step", 0, 5, thread=-5)
    g.host("aten::mm", 0, 5, thread=-6)
    assert sorted(lane_names(gather([g.build()]))) == ["main thread", "thread A"]


def test_a_selection_holds_hops_either_way_a_stream_or_a_window_and_conditions_narrow_each_other() -> None:
    assert selected(around=3, hops=0) == ["sgemm"]
    assert selected(around=3, hops=1) == ["aten::mm", "sgemm", "vector_add"]
    assert selected(around=3, hops=2) == ["aten::mm", "aten::add", "sgemm", "vector_add", "Memcpy"]
    assert selected(streams=(7,)) == ["sgemm", "vector_add"]
    assert selected(streams=(7, 8)) == ["sgemm", "vector_add", "Memcpy"]
    assert selected(time_us=(0.03, 0.035)) == ["vector_add"]
    assert selected(time_us=(0.0465, 1)) == ["cudaDeviceSynchronize", "host idle"]
    assert selected(around=3, hops=2, streams=(8,)) == ["Memcpy"]


def test_nodes_keep_ids_attributes_and_the_edges_between_them() -> None:
    whole = training_step()
    found = view(whole, Selection(streams=(7,)))
    assert found.graph.id.tolist() == [3, 4]
    assert [found.graph.data_deps[row].tolist() for row in range(2)] == [[], [3]]
    assert found.graph.integers("gap_ns").tolist() == [3, 0]
    assert (found.cut, found.origin_ns) == (3, 1000)


def test_a_selection_of_everything_changes_nothing() -> None:
    whole, found = training_step(), view(training_step(), Selection())
    assert found.cut == 0
    assert np.array_equal(found.graph.data_deps.values, whole.data_deps.values)
    assert nx.utils.graphs_equal(found.graph.to_networkx(), whole.to_networkx())


@pytest.mark.parametrize(
    ("selection", "complaint"),
    [
        (Selection(around=99), "no node 99; ids are 1 to 7"),
        (Selection(streams=(5,)), "streams are 7, 8"),
        (Selection(time_us=(500, 600)), "none of the 7 nodes"),
    ],
)
def test_a_selection_of_nothing_says_what_there_is(selection: Selection, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        view(training_step(), selection)


def test_graphml_gives_nodes_attributes_and_reasons_back(graph_file: Path, out: Path) -> None:
    assert drawn(graph_file, out / "g.graphml") == 0
    read = nx.read_graphml(out / "g.graphml", node_type=int)
    whole = digraph_of(eg.read_graph(str(graph_file)))  # the Python API adds weights to edges of its own
    assert set(read.edges) == set(whole.edges)
    assert read.nodes[3] == whole.nodes[3]
    assert read.edges[3, 4] == {"kind": 4, "reason": "stream order"}


def test_graphml_survives_names_that_xml_cannot_hold(g: GraphBuilder, tmp_path: Path) -> None:
    g.host('a\x00b <&> "ü"', 0, 5)
    assert drawn(file_of(g, tmp_path), tmp_path / "g.graphml") == drawn(tmp_path / "graph.et", tmp_path / "g.svg") == 0
    assert nx.read_graphml(tmp_path / "g.graphml", node_type=int).nodes[1]["name"] == 'a?b <&> "ü"'
    ElementTree.parse(tmp_path / "g.svg")


def test_dot_has_a_cluster_per_lane_and_quotes_names(g: GraphBuilder, tmp_path: Path) -> None:
    op = g.host('say "hi"\\', 0, 5)
    g.activity("kernel", 5, 5, after=[(op, LAUNCH)])
    assert drawn(file_of(g, tmp_path), tmp_path / "g.dot") == 0
    text = (tmp_path / "g.dot").read_text()
    assert re.findall(r'label="(thread 1|device 0 stream 7)"', text) == ["thread 1", "device 0 stream 7"]
    assert r'"say \"hi\"\\\n0.0 µs"' in text
    assert '1 -> 2 [tooltip="launch"]' in text


def test_markup_in_names_is_text_in_dot_and_graphml(tmp_path: Path) -> None:
    name, g = '"]; } <b onload=x> &quot; \\N', GraphBuilder()
    g.host(name + "\x1b", 0, 5)
    for form in ("dot", "graphml"):
        assert drawn(file_of(g, tmp_path), tmp_path / f"g.{form}") == 0
    [quoted] = re.findall(r'label=("(?:[^"\\]|\\.)*"), fillcolor', (tmp_path / "g.dot").read_text())
    assert quoted == r'"\"]; } <b onload=x> &amp;quot; \\N?\n0.0 µs"'
    assert nx.read_graphml(tmp_path / "g.graphml", node_type=int).nodes[1]["name"] == f"{name}?"


def test_the_picture_has_a_bar_per_node_and_an_arrow_per_edge_between_lanes() -> None:
    tree = ElementTree.fromstring(draw_lanes(training_step(), 1000, outlined=3))
    bars = [bar for bar in tree.iter(f"{SVG}rect") if "bar" in bar.get("class", "").split()]
    arrows = [arrow.get("class") for arrow in tree.iter(f"{SVG}path") if "C" in arrow.get("d", "")]
    assert len(bars) == 7
    assert sorted(arrows, key=str) == ["event-wait", "host-sync", "launch", "launch"]
    lanes = [text.text for text in tree.iter(f"{SVG}text") if text.get("text-anchor") == "end"]
    assert lanes == ["µs", "thread 1", "device 0 stream 7", "device 0 stream 8"]
    sought = [bar.findtext(f"{SVG}title") for bar in bars if "sought" in bar.get("class", "")]
    assert sought == ["sgemm\ncomputation, node 3, device 0 stream 7\n0.008 µs + 0.020 µs"]


def test_bars_are_as_long_as_their_nodes_and_start_where_these_do() -> None:
    tree = ElementTree.fromstring(draw_lanes(training_step(), 1000))
    titled = ((bar.findtext(f"{SVG}title"), bar) for bar in tree.iter(f"{SVG}rect"))
    place = {
        title.splitlines()[0]: (float(bar.get("x", 0)), float(bar.get("width", 0))) for title, bar in titled if title
    }
    (gemm, long), (add, short) = place["sgemm"], place["vector_add"]
    assert long == pytest.approx(2 * short, abs=0.05)
    assert add == pytest.approx(gemm + long, abs=0.05)


def test_a_picture_of_a_window_is_of_just_that_time() -> None:
    window = (0.012, 0.018)
    seen = view(training_step(), Selection(time_us=window))
    picture = draw_lanes(seen.graph, seen.origin_ns, time_us=window)
    tree = ElementTree.fromstring(picture)
    (plot,) = tree.iter(f"{SVG}clipPath")
    (gemm,) = (bar for bar in tree.iter(f"{SVG}rect") if (bar.findtext(f"{SVG}title") or "").startswith("sgemm"))
    left, width = (float(plot[0].get(name, 0)) for name in ("x", "width"))
    assert float(gemm.get("x", 0)) < left and float(gemm.get("width", 0)) > width
    ticks = [float(text.text or "") for text in tree.iter(f"{SVG}text") if text.get("text-anchor") == "middle"]
    assert (min(ticks), max(ticks)) == window
    assert 'clip-path="url(#plot)"' in picture


def test_a_graph_is_as_long_as_its_nodes_with_times(g: GraphBuilder) -> None:
    g.host("op", 5_000_000, 2_000_000)
    g.host("no time", 0, 0)
    graph = g.build()
    graph.attributes["start_time_ns"][1] = ABSENT  # type: ignore[index]
    graph.start_time_micros[1] = 0
    with pytest.raises(DataError, match="the graph lasts 2,000 µs"):
        view(graph, Selection(time_us=(9000, 9001)))


def test_a_graph_without_times_is_not_drawn(g: GraphBuilder) -> None:
    g.host("op", 0, 0)
    graph = g.build()
    del graph.attributes["start_time_ns"]
    with pytest.raises(DataError, match="no selected node has a recorded time"):
        draw_lanes(graph, 0)


def test_gzip_by_suffix(graph_file: Path, out: Path) -> None:
    assert drawn(graph_file, out / "g.svg.gz") == 0
    assert gzip.decompress((out / "g.svg.gz").read_bytes()).startswith(b"<svg")


@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_every_graph_of_a_folder_is_drawn_and_two_of_one_rank_are_refused(tmp_path, out, run, form, magic) -> None:
    pytest.importorskip("vl_convert")
    for rank in range(2):
        of_rank = GraphBuilder(rank=rank)
        of_rank.host("op", 0, 10)
        of_rank.build().write(str(tmp_path / f"graph.{rank}.et"))
    assert run("trace-view", tmp_path, "-o", out / f"g.{form}").code == 0
    assert {path.name: path.read_bytes()[:4] for path in out.iterdir()} == {f"g.rank{n}.{form}": magic for n in (0, 1)}
    (tmp_path / "again.et").write_bytes((tmp_path / "graph.0.et").read_bytes())
    ended = run("trace-view", tmp_path, tmp_path / "again.et", "-o", out / "h.svg")
    assert ended.code == 1 and "again.et are graphs of one rank" in ended.err


@pytest.mark.parametrize("form", ["svg", "dot"])
def test_too_many_nodes_for_a_picture_are_refused_with_the_remedy(g: GraphBuilder, tmp_path, out, run, form) -> None:
    for number in range(PICTURED + 1):
        g.host("op", number, 1)
    ended = run("trace-view", file_of(g, tmp_path), "-o", out / f"g.{form}", "--picture", "lanes")
    assert ended.code == 1
    assert "3,001 nodes are too many" in ended.line and "--around NODE --hops N" in ended.line
    assert list(out.iterdir()) == []
    assert drawn(tmp_path / "graph.et", out / f"g.{form}", "--time", "1:1.5") == 0


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [("missing.et", [], 1), ("broken.et", [], 1), ("graph.et", ["--around", 99], 2), ("graph.et", ["--stream", 99], 2)],
)
def test_what_cannot_be_drawn_is_one_line_and_leaves_the_old_file(graph_file, out, run, name, arguments, code):
    graph_file.with_name("broken.et").write_bytes(b"\x00\x01hello")
    (out / "g.svg").write_text("precious")
    ended = run("trace-view", graph_file.with_name(name), "-o", out / "g.svg", *arguments)
    assert ended.code == code and ended.line.startswith("trace-view: error: ")
    assert [path.read_text() for path in out.iterdir()] == ["precious"]


SVG_WITH_WRONG = ("--hops 2", "--around 1 --hops -1", "--time 5", "--time 5:1", "--time a:b")


@pytest.mark.parametrize("arguments", ["", "-o g.jpg", "-o g", *(f"-o g.svg {wrong}" for wrong in SVG_WITH_WRONG)])
def test_wrong_usage_ends_with_2(graph_file: Path, run: Command, arguments: str) -> None:
    ended = run("trace-view", graph_file, *arguments.split())
    assert ended.code == 2 and "error" in ended.err


def test_the_summary_counts_what_is_shown_and_what_is_cut(graph_file: Path, out: Path, run: Command) -> None:
    ended = run("trace-view", graph_file, "-o", out / "g.svg", "--stream", 7)
    assert (ended.code, ended.line) == (0, "nodes 2 of 7, dependencies 1, to nodes outside 3")


@pytest.mark.parametrize(
    ("recorded", "short"),
    [
        ("void at::native::(anonymous namespace)::foo<float, c10::Half>(int, at::A<1>)", "foo<float, Half>"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("ampere_sgemm_128x128_nt", "ampere_sgemm_128x128_nt"),
        ("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pageable)"),
        ("aten::add_", "aten::add_"),
        ("autograd::engine::evaluate_function: MulBackward0", "autograd::engine::evaluate_function: MulBackward0"),
        ("", ""),
    ],
)  # fmt: skip
def test_short_names_keep_what_tells_kernels_apart(recorded: str, short: str) -> None:
    assert short_name(recorded) == short


def test_delays_have_a_track_of_their_own(tmp_path: Path) -> None:
    events = timeline_events(scaled(delayed()), tmp_path / "timeline.json")
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"thread 1", "device 0 stream 7", "delays"}
    assert [event["dur"] for event in events if event["name"] == "delay"] == [0.068, 0.068]


def timeline_events(replayed: Replay, path: Path) -> list[dict[str, Any]]:
    write_timeline(replayed, str(path))
    raw = path.read_bytes()
    return list(json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["traceEvents"])


def test_the_timeline_shows_the_measured_run_and_the_replay_side_by_side(tmp_path: Path) -> None:
    events = timeline_events(scaled(training_step(), "gemm=1.5"), tmp_path / "timeline.json.gz")
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(named.values()) == ["rank 0 measured", "rank 0 replay"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"thread 1", "device 0 stream 7", "device 0 stream 8"}
    adds = {named[event["pid"]]: event for event in events if event["name"] == "vector_add"}
    assert adds["rank 0 measured"]["ts"] == 0.028
    assert adds["rank 0 replay"]["ts"] == 0.038
    assert adds["rank 0 replay"]["cat"] == "computation"


def test_dependencies_between_tracks_are_flows_from_slice_to_slice(tmp_path: Path) -> None:
    slice_name, ends = "", dict[int, list[tuple[str, str, str]]]()
    for event in timeline_events(replay(training_step()), tmp_path / "timeline.json"):
        slice_name = event["name"] if event["ph"] == "X" else slice_name
        if event["ph"] in "sf":
            ends.setdefault(event["id"], []).append((event["ph"], slice_name, event["name"]))
    flows = [{phase: (name, reason) for phase, name, reason in pair} for pair in ends.values()]
    assert flows.count({"s": ("aten::mm", "launch"), "f": ("sgemm", "launch")}) == 2  # measured and replay
    assert all(set(pair) == {"s", "f"} for pair in flows)
    assert ("sgemm", "stream order") not in [pair["s"] for pair in flows]


def test_names_with_quotes_and_control_characters_survive_the_timeline(g: GraphBuilder, tmp_path: Path) -> None:
    g.host('a "b"\n\\ é', 0, 1)
    events = timeline_events(replay(g.build()), tmp_path / "timeline.json")
    assert [event["name"] for event in events if event["ph"] == "X"] == ['a "b"\n\\ é'] * 2
