"""What graphs, linked traces and views of their nodes offer in Python, and the charts that notebooks show of them."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from execgraph import DependencyKind, NodeType, Options, build, convert, generate, link, read_graph, read_linked, replay
from execgraph.schema.columns import Ragged
from support.builder.timeline import TraceBuilder
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, PROGRAM_ORDER, GraphBuilder, rank_with_collective, training_step

GRAPH = training_step()


def test_a_graph_is_a_sequence_of_nodes() -> None:
    names = ["aten::mm", "aten::add", "sgemm", "vector_add", "Memcpy", "cudaDeviceSynchronize", "host idle"]
    assert [node.name for node in GRAPH] == [GRAPH[row].name for row in range(len(GRAPH))] == names
    assert [node.name for node in GRAPH[-2:]] == names[-2:]
    with pytest.raises(IndexError, match="no node at 7: the graph has 7"):
        _ = GRAPH[7]


def test_a_node_is_found_by_its_id_wherever_it_is() -> None:
    g = GraphBuilder()
    first = g.host("mm", 0, 5, id=40)
    g.host("add", 5, 5, id=7, after=[(first, PROGRAM_ORDER)])
    graph = g.build()
    assert (graph.node(7).name, graph.node(40).name, GRAPH.node(3).name) == ("add", "mm", "sgemm")
    with pytest.raises(KeyError, match="no node has the id 1"):
        graph.node(1)


def test_nodes_and_edges_are_tables() -> None:
    assert list(GRAPH.nodes.columns)[:5] == ["id", "name", "type", "start_ns", "duration_ns"]
    assert not {"data_deps", "data_dep_kinds"} & GRAPH.nodes.columns.keys()
    polars = pytest.importorskip("polars")
    edges = GRAPH.edges.to_polars().filter(polars.col("target") == 4)
    assert edges.rows() == [(2, 4, "launch"), (3, 4, "stream order")]


def test_what_is_asked_next_is_a_method(tmp_path: Path) -> None:
    assert GRAPH.replay().makespan_ns == 50
    assert GRAPH.what_if({"sgemm": 0.5}).saved_us == pytest.approx(0.01)
    GRAPH.write(tmp_path / "graph.json")
    assert read_graph(tmp_path / "graph.json").replay().makespan_ns == 50


def test_a_part_is_drawn_in_the_form_that_the_name_tells(tmp_path: Path) -> None:
    GRAPH.draw(tmp_path / "part.svg", streams=[7])
    GRAPH.draw(tmp_path / "near.dot", around=3, hops=1)
    assert "sgemm" in (tmp_path / "part.svg").read_text() and "Memcpy" not in (tmp_path / "part.svg").read_text()
    assert "vector_add" in (tmp_path / "near.dot").read_text() and "idle" not in (tmp_path / "near.dot").read_text()


@pytest.mark.parametrize("job", ["simple", "ddp", "moe", "prefetch", "graph"])
def test_the_longest_path_in_networkx_is_the_critical_path(job: str) -> None:
    graph = graphs_of(job)[0]
    digraph, run = graph.to_networkx(), graph.replay()
    assert nx.dag_longest_path_length(digraph, weight="weight") == run.makespan_ns
    assert len(digraph) == len(graph)


def test_an_edited_networkx_graph_tells_the_new_makespan() -> None:
    digraph = GRAPH.to_networkx()
    assert nx.dag_longest_path(digraph, weight="weight") == [1, 3, 4, 5, 6, 7]
    assert digraph.edges[3, 4]["kind"] == "stream order"
    digraph.edges[1, 3]["weight"] -= 6
    assert nx.dag_longest_path_length(digraph, weight="weight") == 44


def test_a_start_offset_is_none_of_the_time_of_a_rank_alone(g: GraphBuilder) -> None:
    offset = g.host("start offset", 0, 30, start_offset_ns=30)
    g.activity("gemm", 30, 40, after=[(offset, EVENT_WAIT)])
    graph = g.build()
    assert nx.dag_longest_path_length(graph.to_networkx(), weight="weight") == graph.replay().makespan_ns == 40


def test_a_graph_without_a_recorded_rank_is_of_an_unknown_one() -> None:
    for metadata in ({}, {"rank": -1}):
        g = GraphBuilder(**metadata)
        g.host("op", 0, 1)
        graph = g.build()
        assert repr(graph).startswith("ExecutionGraph: rank unknown")
        assert replay(graph).work.rank_labels() == ["0"]


def test_a_node_tells_its_columns() -> None:
    gemm = GRAPH[2]
    assert (gemm.id, gemm.name, gemm.type, gemm.start_ns, gemm.duration_ns) == (3, "sgemm", NodeType.COMP, 1008, 20)
    assert (gemm.attributes["stream"], gemm.attributes["cat"]) == (7, "kernel")
    assert "tid" not in gemm.attributes
    assert repr(gemm) == "Node 3: sgemm, COMP, 0.0 µs"


def test_dependencies_lead_from_node_to_node_both_ways() -> None:
    add = GRAPH.node(4)
    found = [(edge.kind.label, edge.source.name) for edge in add.dependencies]
    assert found == [("launch", "aten::add"), ("stream order", "sgemm")]
    assert [(edge.kind, edge.target.name) for edge in add.dependents] == [(DependencyKind.EVENT_WAIT, "Memcpy")]
    assert GRAPH[0].dependencies == [] and GRAPH[-1].dependents == []


def test_nodes_are_equal_if_they_are_the_same_node_of_one_graph() -> None:
    assert GRAPH[3].dependencies[0].source == GRAPH[1] and len({GRAPH[1], GRAPH[1], GRAPH[2]}) == 2
    assert GRAPH[1] != training_step()[1]


def test_a_dependency_on_a_node_that_the_graph_lacks_leads_nowhere() -> None:
    graph = replace(training_step(), data_deps=Ragged.of([[99], *[[]] * 6]))
    assert graph[0].dependencies == [] and len(graph.edges) == 0


def two_kernels_and_a_copy(folder: Path) -> tuple[Path, Path]:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("gemm", duration=100)
        t.launch("add", duration=20)
        t.memcpy("HtoD", duration=5)
    host, device = t.write(folder)
    return Path(host), Path(device)


def test_kernels_are_a_table_that_names_who_launched_them(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    kernels = link(*two_kernels_and_a_copy(tmp_path)).kernels.to_polars()
    expected = [("gemm", 100_000, "aten::mm"), ("add", 20_000, "aten::mm")]
    assert kernels.select("name", "duration_ns", "op").rows() == expected
    assert kernels["start_ns"].dtype == polars.Int64 and kernels["call"].to_list() == ["cudaLaunchKernel"] * 2


def test_recorded_rows_are_tables_with_units_in_their_names(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    trace = link(*two_kernels_and_a_copy(tmp_path))
    assert {"start_ns", "end_ns", "exclusive_ns"} <= {*trace.ops.to_polars().columns}
    assert trace.activities.to_polars()["end_ns"].to_list() == trace.activities.end.tolist()


def test_a_folder_or_open_files_link_as_the_files(tmp_path: Path) -> None:
    host, device = two_kernels_and_a_copy(tmp_path)
    streams = io.BytesIO(host.read_bytes()), io.BytesIO(device.read_bytes())
    assert len(link(tmp_path).kernels) == len(link(*streams).kernels) == 2


def test_a_trace_becomes_a_graph_and_a_file(tmp_path: Path) -> None:
    trace = link(*two_kernels_and_a_copy(tmp_path))
    trace.write(tmp_path / "linked.json")
    for graph in (trace.to_graph(host=False), convert(tmp_path / "linked.json", Options(host=False))):
        assert [node.name for node in graph if node.attributes.get("cat") == "kernel"] == ["gemm", "add"]
    assert len(read_linked(tmp_path / "linked.json").kernels) == 2


def test_a_job_that_was_made_up_is_built_as_a_recorded_one(tmp_path: Path) -> None:
    files = generate("ddp", tmp_path, ranks=2, steps=1, layers=2, machine_seed=3, compress=True)
    assert [host.name for host, _ in files] == ["host_rank0.json.gz", "host_rank1.json.gz"]
    assert abs(build(tmp_path).replay().error_pct or 0) < 1


pytest.importorskip("altair")
STEP = training_step()


def drawn(chart: Any) -> list[dict[str, Any]]:
    """The rows of a chart, which its JSON holds."""
    [rows] = chart.to_dict()["datasets"].values()
    return [*rows]


def test_a_graph_has_a_bar_for_each_node_or_those_of_a_part_or_the_longest_and_an_empty_part_is_refused() -> None:
    assert sorted(bar["name"] for bar in drawn(STEP.plot())) == sorted(node.name for node in STEP)
    assert {bar["lane"] for bar in drawn(STEP.plot(stream=7))} == {"device 0 stream 7"}
    assert [bar["name"] for bar in drawn(STEP.plot(time_us=(0.0, 0.004)))] == ["aten::mm"]
    chart = STEP.plot(max_nodes=1)
    assert [bar["name"] for bar in drawn(chart)] == ["sgemm"]
    assert chart.to_dict()["title"] == "the 1 longest of 7 nodes"
    with pytest.raises(ValueError, match=r"no node in this part of the run, which has the streams \[7, "):
        STEP.plot(stream=99)
    with pytest.raises(TypeError, match="takes start and end in µs"):
        STEP.plot(time_us=5)  # type: ignore[arg-type]


def test_a_run_shows_what_is_on_its_critical_path_and_lanes_of_each_rank() -> None:
    bars = {bar["name"]: bar["critical"] for bar in drawn(replay(STEP).plot())}
    assert bars["sgemm"] and not bars["aten::add"]
    ranks = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in (0, 1)]
    assert {bar["lane"].split(" · ")[0] for bar in drawn(replay(ranks).plot())} == {"rank 0", "rank 1"}


@pytest.mark.parametrize(
    ("folder", "bars_of"),
    [("training", {("0", "computation"), ("1", "communication")}), ("gloo_slow", {("0", "host"), ("1", "host")})],
    ids=["of streams", "of threads without a device"],
)
def test_a_job_has_a_bar_for_each_rank_by_class(folder: str, bars_of: set[tuple[str, str]]) -> None:
    bars = drawn(build(f"tests/data/{folder}").plot())
    assert {(bar["rank"], bar["class"]) for bar in bars} >= bars_of
    assert all(bar["time"] > 0 for bar in bars)
