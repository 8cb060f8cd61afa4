"""A host node after the last messages, without which one generation of the simulator stops."""

from pathlib import Path

import pytest
from execgraph.converter.ranks import measured_times
from execgraph.converter.targets import for_astra_sim
from execgraph.schema.graph import ExecutionGraph, NodeType
from support.graphs import LAUNCH, GraphBuilder
from support.simulator import Generation, read_files, simulate

NAME = "after the last messages"


def job(on_host: bool = True, awaited: bool = False) -> list[ExecutionGraph]:
    """A send from rank 0 to rank 1, with which both end."""
    graphs = []
    for rank, kind in enumerate((NodeType.COMM_SEND, NodeType.COMM_RECV)):
        g = GraphBuilder(rank=rank, world_size=2)
        before = [(g.host("op", 0, 5_000), LAUNCH)] if on_host else []
        message = g.activity(
            "message", 5_000, 9_000, type=kind, comm_src=0, comm_dst=1, comm_tag=0, comm_size=64, after=before
        )
        if awaited:
            g.activity("kernel", 14_000, 5_000, after=[(message, LAUNCH)])
        graphs.append(for_astra_sim(g.build()))
    return graphs


@pytest.mark.parametrize("generation", Generation)
def test_a_job_that_ends_with_a_message_runs_to_its_end(generation: Generation, tmp_path: Path) -> None:
    for rank, graph in enumerate(job()):
        graph.write(str(tmp_path / f"job.{rank}.et"))
    assert simulate(read_files(tmp_path / "job", 2), None, generation).good


def test_the_node_has_a_microsecond_for_the_simulator_and_no_measured_length() -> None:
    graph = job()[0]
    assert (graph.name[2], graph.duration_micros[2], graph.duration_ns[2]) == (NAME, 1, 0)
    assert measured_times(graph).start_ns[2] == 14_000
    assert graph.data_deps[2].tolist() == [graph.id[1]]


@pytest.mark.parametrize(("on_host", "awaited"), [(False, False), (True, True)])
def test_there_is_none_without_a_host_or_where_something_awaits_the_messages(on_host: bool, awaited: bool) -> None:
    assert NAME not in [name for graph in job(on_host, awaited) for name in graph.name]
