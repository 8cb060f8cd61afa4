"""When nodes ran on the host's clock, and when their rank began."""

from execgraph.converter.ranks.clocks import measured_times
from execgraph.schema.graph import NodeType
from support.graphs import STREAM_ORDER, GraphBuilder


def test_times_count_from_the_first_start_on_the_hosts_clock() -> None:
    g = GraphBuilder(rank=0, clock_offset_ns=1_000)
    g.host("op", 5_000, 10)
    g.activity("kernel", 4_300, 20, overlap_ns=7)
    begin, start, end = measured_times(g.build())
    assert (begin, start.tolist(), end.tolist()) == (5_000, [0, 300], [10, 327])


def test_a_rank_without_a_host_begins_with_the_delay_of_its_first_activity() -> None:
    """A gap alone, and the delay of an activity that follows another one, come later."""
    g = GraphBuilder(rank=0)
    first = g.activity("first", 1_000, 10, gap=30, host_delay_ns=200)
    g.activity("second", 1_100, 10, gap=50, host_delay_ns=900, after=[(first, STREAM_ORDER)])
    g.activity("alone", 1_000, 10, stream=8, gap=500)
    assert measured_times(g.build()).begin_ns == 1_000 - 230


def test_metadata_has_no_time() -> None:
    g = GraphBuilder(rank=0)
    g.host("group", 0, 0, type=NodeType.METADATA)
    assert measured_times(g.build()).begin_ns == 0
    g.host("op", 5_000, 10)
    assert measured_times(g.build()).begin_ns == 5_000


def test_a_graph_without_nodes_begins_at_zero() -> None:
    assert measured_times(GraphBuilder(rank=0).build()).begin_ns == 0
