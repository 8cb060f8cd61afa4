"""How long a step takes without a profiler goes from the device trace to the graph of every whole step."""

import json
from pathlib import Path

import pytest
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.linker.foreign import read_linked
from execgraph.linker.link import link
from execgraph.linker.windows import EVERYTHING, Window
from execgraph.schema.graph import read_graph
from execgraph.schema.linked import write_linked
from support.reports import merged

from support.builder import TraceBuilder

KNOWN = {"steps": 2, "step_without_profiler_ns": 12_500, "data_wait_without_profiler_ns": 4_000}


def recorded(folder: Path, rank: int | None = None) -> tuple[Path, Path]:
    """Two steps of 30 µs, of which each takes 12.5 µs without a profiler, 4 of them waiting for data."""
    t = TraceBuilder(rank=rank, world_size=2)
    for step in range(2):
        with t.annotation(f"ProfilerStep#{step}"), t.op("aten::relu"):
            t.work(20)
            t.launch("relu", duration=4)
    host, device = t.write(folder)
    times = {"execgraph_step_without_profiler_us": 12.5, "execgraph_data_wait_without_profiler_us": 4.0}
    device.write_text(json.dumps({**times, **json.loads(device.read_text())}))
    return host, device


def known(metadata: dict[str, str | int]) -> dict[str, str | int]:
    return {key: metadata[key] for key in KNOWN if key in metadata}


def test_files_between_keep_it(tmp_path: Path) -> None:
    linked, graph = str(tmp_path / "linked.json"), str(tmp_path / "graph.et")
    write_linked(link(*recorded(tmp_path)), linked)
    convert(read_linked(linked)).write(graph)
    assert known(read_graph(graph).metadata) == KNOWN


def test_a_trace_that_does_not_say_it_leaves_it_out(tmp_path: Path) -> None:
    host, device = recorded(tmp_path)
    trace = json.loads(device.read_text())
    device.write_text(json.dumps({key: value for key, value in trace.items() if "execgraph" not in key}))
    assert known(convert(link(host, device)).metadata) == {}


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (EVERYTHING, KNOWN),
        (Window(steps=(1, 2)), KNOWN | {"steps": 1}),
        (Window(annotation="ProfilerStep#0"), {}),
        (Window(clock=(0, 35)), {}),
    ],
)
def test_a_part_keeps_it_if_it_is_of_whole_steps(
    tmp_path: Path, window: Window, expected: dict[str, str | int]
) -> None:
    assert known(convert(link(*recorded(tmp_path), window=window)).metadata) == expected


def test_a_rank_of_a_merged_trace_keeps_it(tmp_path: Path) -> None:
    for rank in range(2):
        recorded(tmp_path, rank)
    path = tmp_path / "merged" / "merged.json"
    path.parent.mkdir()
    merged(tmp_path, path)
    assert known(convert(link(None, path, rank=1), Options()).metadata) == KNOWN
