"""Nodes and dependencies are views of a graph's columns, in both directions."""

from dataclasses import replace

from execgraph import DependencyKind, NodeType
from execgraph.schema.columns import Ragged
from support.graphs import training_step



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
