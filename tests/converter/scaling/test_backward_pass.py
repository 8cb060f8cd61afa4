"""In which part of the backward pass a collective is issued, also where a thread of gloo does it."""

import numpy as np
import pytest
from execgraph.converter.scaling.backward_pass import Phase, phases
from execgraph.schema.graph import DependencyKind, NodeType
from support.graphs import PROGRAM_ORDER, GraphBuilder
from support.scaled_jobs import PARAMETER

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
