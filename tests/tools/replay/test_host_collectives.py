"""Transfers of the host that meet over ranks: each member ends for itself."""

import numpy as np
import pytest
from execgraph.schema.graph import CollectiveType, ExecutionGraph, NodeType
from execgraph.tools.replay import gather, parse_scale, replay_ranks
from execgraph.tools.replay.gathered_job import match_nodes, on_one_clock
from support.graphs import PROGRAM_ORDER, GraphBuilder

ALL_REDUCE, BROADCAST = int(CollectiveType.ALL_REDUCE), int(CollectiveType.BROADCAST)


def rank_of(rank: int, work: int, transfers: list[tuple[int, int]], kind: int) -> ExecutionGraph:
    """Work, then transfers of given (begin, end), each followed by nothing but the next one."""
    g = GraphBuilder(rank=rank)
    before = g.host("aten::mm", 1000, work)
    for begin, end in transfers:
        before = g.host(
            "gloo", 1000 + begin, end - begin, type=NodeType.COMM_COLL, pg_ranks=[0, 1], comm_type=kind,
            after=[(before, PROGRAM_ORDER)],
        )  # fmt: skip
    return g.build()


def ends(graphs: list[ExecutionGraph], *scale: str) -> list[int]:
    replayed = replay_ranks(graphs, [parse_scale(spec) for spec in scale])
    names = np.array([graph.name[row] == "gloo" for graph in graphs for row in range(len(graph))])
    return [int(end) for end in replayed.end_ns[names]]


def test_each_member_ends_as_long_after_the_last_arrived_as_it_did() -> None:
    graphs = [rank_of(0, 100, [(100, 520)], ALL_REDUCE), rank_of(1, 500, [(500, 520)], ALL_REDUCE)]
    assert ends(graphs) == [520, 520]
    assert ends(graphs, "aten::mm=0.5") == [270, 270]


def test_who_ended_before_the_others_came_was_not_held_by_them() -> None:
    first = [(100, 520), (600, 640)]
    graphs = [rank_of(0, 100, first, BROADCAST), rank_of(1, 500, [(500, 520), (700, 740)], BROADCAST)]
    clocks = on_one_clock(gather(graphs), match_nodes(graphs))
    assert clocks.measured_end_ns.max() == 740
    assert ends(graphs)[1] == ends(graphs, "aten::mm=1.0")[1]


@pytest.mark.parametrize("noise", [0, 300])
def test_clocks_are_such_that_nobody_ends_before_all_have_come(noise: int) -> None:
    """Two of three meetings end late on one rank, which the median alone would take for its clock."""
    arrivals = [(500, 510), (600, 610 + noise), (1000, 1010 + noise)]
    graphs = [
        rank_of(0, 500, [(500, 510), (600, 610), (1000, 1010)], ALL_REDUCE),
        rank_of(1, 500, arrivals, ALL_REDUCE),
    ]
    work = on_one_clock(gather(graphs), match_nodes(graphs))
    starts = work.measured_start_ns[np.concatenate([graph.type for graph in graphs]) == NodeType.COMM_COLL].reshape(
        2, 3
    )
    assert np.abs(starts[0] - starts[1]).max() <= 10
