"""A graph is a sequence of nodes with tables and the next steps as methods.

Nodes and dependencies are views of a graph's columns, in both directions.
"""

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from execgraph import DependencyKind, NodeType, read_graph, replay
from execgraph.schema.columns import Ragged
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, PROGRAM_ORDER, GraphBuilder, training_step

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
    with pytest.raises(ValueError, match=r"must end in \.svg, \.dot, \.graphml"):
        GRAPH.draw(tmp_path / "part.png")


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


def test_a_start_offset_is_none_of_the_time_of_a_rank_alone() -> None:
    g = GraphBuilder(rank=0)
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
    assert [(edge.kind.label, edge.source.name) for edge in add.dependencies] == [
        ("launch", "aten::add"),
        ("stream order", "sgemm"),
    ]
    assert [(edge.kind, edge.target.name) for edge in add.dependents] == [(DependencyKind.EVENT_WAIT, "Memcpy")]
    assert GRAPH[0].dependencies == [] and GRAPH[-1].dependents == []


def test_nodes_are_equal_if_they_are_the_same_node_of_one_graph() -> None:
    assert GRAPH[3].dependencies[0].source == GRAPH[1] and len({GRAPH[1], GRAPH[1], GRAPH[2]}) == 2
    assert GRAPH[1] != training_step()[1]


def test_a_dependency_on_a_node_that_the_graph_lacks_leads_nowhere() -> None:
    graph = replace(training_step(), data_deps=Ragged.of([[99], *[[]] * 6]))
    assert graph[0].dependencies == [] and len(graph.edges) == 0
