"""The blocking reading of any run in which no launch overtook another: launching slices are replaced by what they
launched.
"""

from collections import defaultdict

from execgraph.schema.graph import DependencyKind
from hypothesis import assume, given, strategies as st
from support.builder import TraceBuilder
from support.programs import Step, one_thread, play
from support.runs import Nodes, broken_rules, convert_run

Node = tuple[str, int, int, tuple[int, int, int]]
LAUNCH, PROGRAM_ORDER = DependencyKind.LAUNCH, DependencyKind.PROGRAM_ORDER


def nodes_of(nodes: Nodes) -> list[Node]:
    """Name, start, duration and lane of each node."""
    times = zip(nodes.graph.start_ns.tolist(), nodes.graph.duration_ns.tolist(), nodes.lanes(), strict=True)
    return [(nodes.graph.name[row], *where) for row, where in enumerate(times)]


def edges_of(nodes: Nodes) -> dict[tuple[Node, Node], int]:
    by_label = dict(zip(nodes.labels, nodes_of(nodes), strict=True))
    pairs = ((source, target, kind) for target in nodes.labels for source, kind in nodes.follows(target).items())
    return {(by_label[source], by_label[target]): int(kind) for source, target, kind in pairs}


def test_whoever_followed_one_of_several_graphs_follows_the_tails_of_that_one() -> None:
    t = TraceBuilder()
    for name in ("first", "second", "third"):
        with t.op(name):
            t.graph_launch([(f"{name} on {stream}", stream, 5) for stream in (7, 20, 24)])
    t.leaf("aten::add", 5)
    nodes = convert_run(t, promote="all")
    for before, after in (("first", "second"), ("second", "third"), ("third", "aten::add")):
        assert nodes.follows(after) == {f"{before} on {stream}": PROGRAM_ORDER for stream in (7, 20, 24)}


@given(one_thread, st.booleans())
def test_whoever_followed_a_launching_slice_follows_its_tails(steps: list[Step], sync_records: bool) -> None:
    t = play(steps, sync_records=sync_records)
    free, blocking = convert_run(t), convert_run(t, promote="all")
    assume(len(set(nodes_of(free))) == len(free.labels))
    launched: dict[Node, list[Node]] = defaultdict(list)
    for (source, target), kind in edges_of(free).items():
        if kind & LAUNCH:
            launched[source].append(target)
    wanted: dict[tuple[Node, Node], int] = defaultdict(int)
    for (source, target), kind in edges_of(free).items():
        own = launched.get(source, [])
        last = {node[3]: node for node in sorted(own, key=lambda node: node[1:3])}
        for node in [source] if not own or target in own else last.values():
            wanted[node, target] |= kind
    assert edges_of(blocking) == wanted
    assert broken_rules(blocking) == []
