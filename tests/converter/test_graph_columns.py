"""Columns that not every graph has: bytes of tensors that live while a node runs, modules and Python functions.

Options say what can be done, at once, and convert does what they say. Node numbers are a topological order that follows
the measured times, and no unsound graph is ever written.
"""

import json
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.convert import build_generic_graph, convert
from execgraph.converter.edges import ROUNDS, Edges, check, deduplicated, order_through_circles, topological_order
from execgraph.converter.options import Options
from execgraph.converter.targets import lower_for_target
from execgraph.schema.arguments import Target
from execgraph.schema.columns import Bool, Categorical, Int64
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.analyses import read_rank
from execgraph.tools.analyses.overlay import memory_events
from hypothesis import given, strategies as st
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.runs import Nodes, broken_rules, convert_linked, convert_run, link_run, link_without_host


def training() -> TraceBuilder:
    """A weight of 64 bytes on the device; a batch of 16 on the host is copied there, multiplied, and the product
    summed.
    """
    t = TraceBuilder()
    weight, batch = t.tensor((4, 4)), t.tensor((2, 2), device="cpu")
    moved, product, total = t.tensor((2, 2)), t.tensor((3, 4)), t.tensor((1,))
    t.leaf("aten::ones", 5, outputs=[batch])
    with t.op("aten::to", inputs=[batch], outputs=[moved]):
        t.work(2)
        t.memcpy("HtoD", duration=3)
    with t.op("aten::mm", inputs=[moved, weight], outputs=[product]):
        t.work(2)
        t.launch("gemm", duration=20)
    with t.op("aten::sum", inputs=[product, weight], outputs=[total]):
        t.work(2)
        t.launch("reduce", duration=5)
    return t


def test_the_overlay_has_a_track_of_the_memory_in_use_and_the_weight_stays(tmp_path: Path) -> None:
    host, device = training().write(tmp_path)
    rank = read_rank(str(device), str(host), graph=False)
    events = [json.loads(event) for event in memory_events(rank)]
    assert {event["pid"] for event in events} == {0, rank.linked.info.pid}
    assert [event["args"]["bytes"] for event in events if event["pid"] == 0] == [64, 80, 128, 116, 64]


def texts(nodes: Nodes, name: str) -> dict[str, str]:
    return {label: text for label, text in zip(nodes.labels, nodes.graph.texts(name), strict=True) if text}


@pytest.mark.parametrize("with_host", [True, False])
def test_every_slice_of_an_op_a_call_outside_of_ops_and_their_activities_know_their_module_and_function(t, with_host):
    with t.module("Net_0"), t.python("net.py(7): forward"), t.op("aten::mm"):
        t.work(5)
        t.launch("gemm")
        t.work(5)
    t.idle(20)
    with t.module("Head_0"), t.python("head.py(3): forward"):
        t.launch("softmax")
    t.leaf("aten::item", 5)
    t.activity("lost", 9, 40, 5)
    nodes = convert_linked(link_run(t, modules=True) if with_host else link_without_host(t, modules=True))
    first, second = ("aten::mm#0", "aten::mm#1", "gemm"), ("cudaLaunchKernel", "softmax")
    assert texts(nodes, "module") == dict.fromkeys(first, "Net_0") | dict.fromkeys(second, "Head_0")
    functions = dict.fromkeys(first, "net.py(7): forward") | dict.fromkeys(second, "head.py(3): forward")
    assert texts(nodes, "python_function") == functions


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"target": "nonsense"}, "target is 'nonsense', not one of 'generic', 'astra-sim'"),
        ({"promote": "some"}, "promote is 'some', not one of 'sync', 'all'"),
        ({"io": "half"}, "io is 'half', not one of 'full', 'none'"),
        ({"host": "no"}, "host is 'no', not one of True, False"),
        ({"shortest_slice": -1}, "shortest_slice is -1, not a whole number of ns, 0 or more"),
        ({"shortest_slice": 0.5}, "shortest_slice is 0.5, not a whole number of ns, 0 or more"),
        ({"left_out": ("lunch",)}, "a rule in left_out is 'lunch', not one of 'program_order', 'launch'"),
    ],
)
def test_what_there_is_not_is_refused_by_name(option: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as refused:
        Options(**option)
    assert str(refused.value).startswith(f"Options: {text}")


def test_options_stay_as_they_were_checked() -> None:
    with pytest.raises(AttributeError):
        Options().target = "nonsense"


@pytest.fixture(scope="module")
def linked() -> LinkedTrace:
    t = TraceBuilder(rank=0, world_size=4)
    with t.op("aten::mm"):
        t.launch("gemm", duration=20)
    t.collective(group=t.group([0, 1], name="5"))
    return link_run(t)


@pytest.mark.parametrize("target", ["generic", "astra-sim"])
def test_a_graph_is_what_it_says_it_is_for(linked: LinkedTrace, target: Target) -> None:
    graph = convert(linked, Options(target=target))
    assert graph.metadata["target"] == target
    assert (graph.changes.notes != []) == (target == "astra-sim")
    assert (graph.texts("pg_name").table == ["5"]) == (target == "generic")


def test_before_the_target_a_graph_does_not_say_it_is_for_one(linked: LinkedTrace) -> None:
    options = Options(target="astra-sim")
    graph = build_generic_graph(linked, options)
    assert (graph.metadata["target"], graph.changes) == ("generic", None)
    assert lower_for_target(graph, options.target, {(0, 1): 7}).metadata["target"] == "astra-sim"
    assert (graph.metadata["target"], graph.texts("pg_name").table) == ("generic", ["5"])


@pytest.mark.parametrize("target", ["generic", "astra-sim"])
def test_groups_have_the_numbers_that_are_given(linked: LinkedTrace, target: Target) -> None:
    names = convert(linked, Options(target=target), {(0, 1): 7}).texts("pg_name")
    assert {names[row] for row in range(len(names))} == {"", "7"}


def edges(*pairs: tuple[int, int], kind: int = 1) -> Edges:
    source, target = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    return Edges(source, target, np.full(len(pairs), kind, np.int64))


def starts(*times: int) -> Int64:
    return np.array(times, np.int64)


def order(start: Int64, *pairs: tuple[int, int]) -> list[int]:
    return list(topological_order(start, edges(*pairs)))


def test_nodes_are_numbered_as_they_started_each_behind_its_sources() -> None:
    assert order(starts(30, 10, 20)) == [1, 2, 0]
    # of nodes that started together a source comes first, by how long a chain of them is before each
    assert order(starts(10, 10, 10), (2, 1), (1, 0)) == [2, 1, 0]
    assert order(starts(10, 10, 10, 10), (1, 0), (0, 2)) == [1, 3, 0, 2]
    # one measured before its source comes after it all the same, and counts as started with it
    assert order(starts(10, 12, 11), (1, 0)) == [2, 1, 0]
    assert order(starts(10, 12, 11, 12, 13), (1, 0)) == [2, 1, 3, 0, 4]


def test_a_long_chain_of_ties_is_settled() -> None:
    count = 3 * ROUNDS
    chain = [(node, node - 1) for node in range(1, count)]
    assert order(np.full(count, 7, np.int64), *chain) == list(reversed(range(count)))


@given(
    st.permutations(range(9)),
    st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8))),
    st.lists(st.integers(0, 3), min_size=9, max_size=9),
)
def test_any_acyclic_graph_is_ordered(hidden: list[int], pairs: set[tuple[int, int]], times: list[int]) -> None:
    acyclic = [(hidden[a], hidden[b]) for a, b in pairs if a < b]
    found = order(starts(*times), *acyclic)
    assert sorted(found) == list(range(9))
    place = {node: at for at, node in enumerate(found)}
    assert all(place[source] < place[target] for source, target in acyclic)
    if all(times[source] < times[target] for source, target in acyclic):
        assert all(times[a] <= times[b] for a, b in pairwise(found))


@pytest.mark.parametrize("torch", LAYOUTS)
def test_ties_of_whole_microseconds_are_no_trouble(torch: str) -> None:
    """Launches of no length, activities of no length, ops that begin and end together."""
    t = TraceBuilder(torch=torch)
    for number in range(20):
        with t.op("aten::outer"), t.op("aten::inner"):
            t.launch(f"k{number}", (7, 20)[number % 2], duration=0, call_duration=0)
            t.wait_event(t.record_event(stream=7), stream=20)
        t.leaf("aten::view", 0)
    t.device_synchronize()
    t.leaf("aten::add", 1)
    nodes = convert_run(t)
    assert broken_rules(nodes) == []
    assert nodes.report.activities == 20


def test_branches_of_a_graph_that_take_no_time_do_not_wait_for_each_other() -> None:
    t = TraceBuilder(torch="2.3")
    t.launch("before", 7, 5)
    t.graph_launch([("a", 7, 0), ("b", 20, 0), ("c", 7, 0), ("d", 20, 0), ("e", 24, 0)])
    t.launch("after", 7, 5)
    t.leaf("aten::add", 5)
    assert broken_rules(convert_run(t)) == []


def test_a_cycle_is_refused_by_the_nodes_on_it() -> None:
    with pytest.raises(DataError, match=r"cycle: (2 -> 4 -> 5 -> 2|4 -> 5 -> 2 -> 4|5 -> 2 -> 4 -> 5);"):
        order(starts(0, 0, 0, 0, 0, 0), (1, 2), (2, 4), (4, 5), (5, 2), (5, 3))
    names = Categorical.of(["read", "mul", "add"])
    with pytest.raises(DataError, match=r"1 \(mul\) -> 2 \(add\) -> 1 \(mul\)|2 \(add\) -> 1 \(mul\) -> 2 \(add\)"):
        topological_order(starts(0, 0, 0), edges((0, 1), (1, 2), (2, 1)), lambda: names)


NONE = edges()


@pytest.mark.parametrize(
    ("data", "control", "complaint"),
    [
        (edges((0, 3)), NONE, "1 data dependencies point to no node"),
        (edges((-1, 1)), NONE, "1 data dependencies point to no node"),
        (NONE, edges((0, 3)), "1 control dependencies point to no node"),
        (edges((2, 1)), NONE, "a data dependency points forward: node 2 on 3"),
        (edges((1, 1)), NONE, "a data dependency points forward: node 2 on 2"),
        (NONE, edges((2, 0)), "a control dependency points forward: node 1 on 3"),
        (edges((0, 1), (1, 2), (0, 1), (0, 1)), NONE, "2 dependencies are there twice"),
    ],
)
def test_an_unsound_graph_is_refused(data: Edges, control: Edges, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        check(data, control, 3)


def test_a_sound_graph_passes() -> None:
    check(edges((0, 1), (0, 2), (1, 2)), edges((0, 2)), 3)
    check(NONE, NONE, 0)


def broken(start: Int64, *pairs: tuple[int, int], kind: DependencyKind) -> list[tuple[int, int]]:
    """The skipped edges: of weak ones, and of this kind between nodes that follow each other by number."""
    given = [(source, target, kind if target == source + 1 else DependencyKind.EVENT_WAIT) for source, target in pairs]
    columns = Edges(*(np.array(column, np.int64) for column in zip(*given, strict=True)))
    order, backward = order_through_circles(start, columns)
    assert sorted(order.tolist()) == [*range(len(start))]
    return [pair for pair, is_backward in zip(pairs, backward.tolist(), strict=True) if is_backward]


@pytest.mark.parametrize("kind", [DependencyKind.PROGRAM_ORDER, DependencyKind.LAUNCH, DependencyKind.STREAM_ORDER])
def test_in_a_circle_all_else_gives_way_to_the_order_of_calls(kind: DependencyKind) -> None:
    assert broken(starts(0, 0, 0), (0, 1), (1, 2), (2, 0), kind=kind) == [(2, 0)]
    assert broken(starts(9, 5, 0), (0, 1), (1, 2), (2, 0), kind=kind) == [(2, 0)]


def test_a_circle_is_broken_at_its_earliest_node_and_what_is_behind_it_keeps_its_dependencies() -> None:
    assert broken(starts(5, 0, 9), (0, 2), (2, 1), (1, 0), kind=DependencyKind.LAUNCH) == [(2, 1)]
    assert broken(starts(0, 0, 5), (0, 1), (1, 0), (1, 2), kind=DependencyKind.EVENT_WAIT) == [(1, 0)]
    # of sure ones too
    assert len(broken(starts(0, 0), (0, 1), (1, 0), (0, 1), kind=DependencyKind.LAUNCH)) == 1


def test_convert_hands_out_no_unsound_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(start: Int64, edges: Edges) -> tuple[Int64, Bool]:
        return np.arange(len(start))[::-1], np.zeros(len(edges.source), np.bool_)

    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("k")
    monkeypatch.setattr(import_module("execgraph.converter.convert"), "order_through_circles", backwards)
    with pytest.raises(DataError, match="points forward"):
        convert_run(t)


def test_edges_between_the_same_nodes_become_one_with_all_reasons() -> None:
    several = Edges.joined([edges((0, 2), kind=2), edges((1, 2), kind=4), edges((0, 2), kind=8)])
    merged = deduplicated(several, 3)
    assert list(zip(*(column.tolist() for column in merged), strict=True)) == [(0, 2, 10), (1, 2, 4)]
