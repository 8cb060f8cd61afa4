"""The rank that does nothing, for a simulator that needs two."""

from execgraph.converter.targets.times import FIRST_BYTES, idle_rank
from execgraph.schema.graph import NodeType


def test_an_idle_rank_computes_for_a_microsecond() -> None:
    graph = idle_rank(5)
    assert (graph.id.tolist(), graph.type.tolist()) == ([1], [NodeType.COMP])
    assert (graph.start_time_micros.tolist(), graph.duration_micros.tolist()) == ([0], [1])
    assert [len(column[0]) for column in (graph.data_deps, graph.ctrl_deps)] == [0, 0]
    assert {name: graph.integers(name).tolist() for name in graph.attributes} == {
        "is_cpu_op": [0],
        "num_ops": [1],
        "tensor_size": [FIRST_BYTES],
    }
    assert graph.metadata["rank"] == 5
