"""In which part of the backward pass a collective is issued, also where a thread of gloo does it."""

import numpy as np
import pytest
from execgraph.converter.scaling.facts import BACKWARD_SCOPE, Phase, phases
from execgraph.schema.columns import Ragged
from execgraph.schema.graph import DependencyKind, NodeType
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder
from support.scaled_jobs import FUNCTION, PARAMETER

HANDOFF = DependencyKind.HANDOFF


@pytest.mark.parametrize("waits", [0, 2])
def test_a_transfer_of_gloo_is_of_the_gradient_that_its_thread_was_handed(waits: int) -> None:
    """Of a tensor on a device the thread first waits for its copy; a later transfer of nobody's is of no gradient."""
    g = GraphBuilder(rank=0)
    giver = g.host(PARAMETER, 0, 10)
    last = g.host("host idle", 10, 5, thread=2, after=[(giver, HANDOFF)]) if waits else giver
    kind = PROGRAM_ORDER if waits else HANDOFF
    for number in range(waits):
        last = g.host("cudaStreamSynchronize", 15 + number, 1, thread=2, after=[(last, kind)])
    rows = []
    for start in (20, 40):
        rows.append(len(g.nodes))
        last = g.host("gloo:all_reduce", start, 10, thread=2, type=NodeType.COMM_COLL, after=[(last, kind)])
        kind = PROGRAM_ORDER
    assert phases(g.build(), np.array(rows)).tolist() == [Phase.PARAMETER, Phase.OTHER]


def phase_of(g: GraphBuilder, launch: int) -> Phase:
    """Of a collective that a host node launches."""
    row = len(g.nodes)
    g.collective(100, 10, ranks=[0, 1], after=[(launch, LAUNCH)], comm_type=0)
    graph = g.build()
    graph.ctrl_deps = Ragged.of([[launch] if number == row else [] for number in range(len(g.nodes))])
    return Phase(int(phases(graph, np.array([row]))[0]))


@pytest.mark.parametrize(
    ("attributes", "phase"),
    [
        ({}, Phase.OTHER),
        ({"fw_tid": 0}, Phase.OTHER),
        ({"fw_tid": 1}, Phase.FUNCTION),
        ({"scope": 0}, Phase.OTHER),
        ({"scope": BACKWARD_SCOPE}, Phase.FUNCTION),
    ],
)
def test_an_op_of_the_backward_scope_or_with_a_forward_thread_is_of_the_backward_pass(
    attributes: dict[str, int], phase: Phase
) -> None:
    g = GraphBuilder(rank=0)
    assert phase_of(g, g.host("aten::mm", 0, 10, **attributes)) == phase


@pytest.mark.parametrize(("sequence", "phase"), [(-1, Phase.OTHER), (0, Phase.THREAD), (5, Phase.THREAD)])
def test_a_thread_is_of_the_backward_pass_if_another_one_runs_ops_that_autograd_numbers(
    sequence: int, phase: Phase
) -> None:
    g = GraphBuilder(rank=0)
    g.host(FUNCTION, 0, 10, thread=2)
    g.host("aten::mm", 0, 10, thread=1, seq_id=sequence)
    assert phase_of(g, g.host("c10d::allreduce_", 20, 10, thread=2)) == phase
