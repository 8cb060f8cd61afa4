"""The ops of host threads that bars lie in."""

import numpy as np
from execgraph.schema.columns import Categorical
from execgraph.tools.replay import replay
from execgraph.tools.report.bars import HostOps, bars_of, on_one_clock
from support.graphs import GraphBuilder


def test_bars_lie_in_the_ops_that_called_theirs() -> None:
    """A step holds two ops, of which the first calls another; an op of another thread is not drawn."""
    g = GraphBuilder()
    for name, start, length in (("outer", 1010, 10), ("inner", 1020, 20), ("outer", 1040, 10), ("leaf", 1060, 30)):
        g.host(name, start, length)
    g.activity("kernel", 1025, 5)
    names = Categorical.of(["step", "outer", "inner", "leaf", "elsewhere"])
    thread, start, end = (np.array(times) for times in zip(
        (1, 1000, 1100), (1, 1010, 1050), (1, 1020, 1040), (1, 1060, 1090), (9, 1000, 1100), strict=True
    ))  # fmt: skip
    played = replay(g.build())
    found = bars_of(0, played, on_one_clock([played])[0]._replace(begin_ns=500), HostOps(thread, start, end, names))
    rows = {(found.name[row], int(found.row[row])) for row in range(len(found))}
    assert rows == {("outer", 1), ("inner", 2), ("leaf", 1), ("kernel", 0)}
    around = zip(found.ops.start_ns.tolist(), found.ops.end_ns.tolist(), found.ops.row.tolist(), strict=True)
    assert [found.ops.name[row] for row in range(2)] == ["step", "outer"]
    assert [*around] == [(490, 590, 0), (500, 540, 1)]
