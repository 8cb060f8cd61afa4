"""Runs of very many threads, devices, streams, groups or names: the effort grows linearly with what was recorded.

Names of process groups for a simulator, by the effort that they take. The order of every two groups that share several
ranks, beside a reference that looks at all pairs.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from execgraph.converter.ranks import Group, Groups, ranks_of
from execgraph.converter.scaling.facts import StepCalls
from execgraph.converter.scaling.roles import group_uses
from execgraph.converter.targets import separate_messages
from execgraph.converter.targets.communication import name_groups
from execgraph.converter.timeline.delays import _busy
from execgraph.linker.communication.transfers import thread_gaps
from execgraph.linker.modules import forward_ops
from execgraph.linker.readers.rocpd import _real_queues
from execgraph.schema.columns import Categorical, Intervals
from execgraph.schema.device_peaks import Peak
from execgraph.schema.graph import NodeType
from execgraph.schema.linked import took_over
from execgraph.schema.machine import MachineCalibration
from execgraph.schema.reasons import Counts
from execgraph.tools.analyses import AnalysisOptions, RankTrace
from execgraph.tools.analyses.critical_path import step_breakdown
from execgraph.tools.analyses.device_time import communication_computation_overlap, kernel_breakdown, temporal_breakdown
from execgraph.tools.analyses.overlay import _within_rows
from execgraph.tools.job.rank_comms import _digest, _orders
from execgraph.tools.replay import Kernels, roofline
from execgraph.tools.replay.player import Slots, play
from execgraph.tools.replay.workload import SlotPool
from hypothesis import given, strategies as st
from support import references
from support.graphs import LAUNCH, GraphBuilder
from support.references import COMMUNICATION, COMPUTATION, MEMORY, Act, Call, linked_of
from support.tables import Called, Counted, Op, Ran, activities, calls, counting_columns, growth, ops

Work = Callable[[], object]


def numbers(count: int) -> Any:
    return np.arange(count).view(Counted)


def backward_threads(count: int) -> Work:
    rows = [Op(start=10 * row, end=10 * row + 5, thread=row, sequence=row) for row in range(count)]
    rows += [Op(start=10**6, end=10**6 + 5, thread=-1, sequence=row, forward=1 + row) for row in range(count)]
    table = counting_columns(replace(ops(*rows), tid=np.append(1 + np.arange(count), np.zeros(count, np.int64))))
    return lambda: forward_ops(table)


def threads_without_a_number(count: int) -> Work:
    rows = [Op(start=10 * row, end=10 * row + 5, thread=row, sequence=3) for row in range(count)]
    rows += [Op(start=10**6, end=10**6 + 5, thread=-1, sequence=3, forward=1 + row) for row in range(count)]
    return lambda: forward_ops(counting_columns(ops(*rows)))


def quiet_stretches(count: int) -> Work:
    table = counting_columns(ops(*(Op("aten::mm", 10, 20, thread=row) for row in range(count))))
    called = counting_columns(replace(calls(*[Called(30, 40)] * count), thread=np.arange(count)))
    no_parent = np.full(count, -1, np.int64)

    def look() -> None:
        quiet = thread_gaps(table, no_parent, called)
        for thread in range(count):
            quiet(thread)

    return look


def takeovers(count: int) -> Work:
    table = counting_columns(activities(*(Ran(row, row + 1, device=row) for row in range(count))))
    return lambda: took_over(table, 1)


def names_of_calls(count: int) -> Work:
    names = counting_columns(Categorical.of(f"call {row}" for row in range(count)))
    return lambda: MachineCalibration().by_name(numbers(count), names, np.ones(count, np.bool_))


def delays_of_devices(count: int) -> Work:
    table = counting_columns(activities(*(Ran(row, row + 1, device=row) for row in range(count))))
    context: Any = SimpleNamespace(linked=SimpleNamespace(activities=table))
    return lambda: _busy(context, Intervals(table.start, table.start + 1), table.device)


def uses_of_groups(count: int) -> Work:
    groups, row = [Group("0-1", str(number)) for number in range(count)], numbers(count)
    facts, none = SimpleNamespace(work="", has_host=True), np.zeros(count, np.int64).view(Counted)
    columns = {field.name: row if field.name == "group" else none for field in fields(StepCalls)[1:]}
    return lambda: group_uses([cast(Any, facts)], StepCalls(groups, **columns))


def messages_of_one_kernel(count: int) -> Work:
    g = GraphBuilder(rank=0)
    of_message = {f"coalesced_{name}": [1] * count for name in ("src", "dst", "tag", "size")}
    g.activity("nccl", 0, 9, type=NodeType.COMM_SEND, **of_message)
    graph = g.build()
    attributes = {
        name: counting_columns(column) if name in of_message else column for name, column in graph.attributes.items()
    }
    return lambda: separate_messages(replace(graph, attributes=attributes))  # type: ignore[type-var]


def queues_of_devices(count: int) -> Work:
    return lambda: _real_queues(numbers(count), numbers(count), Counts())


def arrows_on_threads(count: int) -> Work:
    g = GraphBuilder()
    for thread in range(count):
        g.host("op", thread, 1, thread=thread)
    linked = linked_of([], ops=[references.Op(row, row + 1) for row in range(count)])
    linked = replace(linked, ops=counting_columns(replace(linked.ops, thread=np.arange(count))))
    graph = g.build()
    return lambda: _within_rows(graph, linked)


def exposed_on_devices(count: int) -> Work:
    linked, every = rank_of(count).linked, np.arange(3 * count)
    computes, spans = np.ones(len(linked.activities), np.bool_), Intervals(every, every + 1)
    return lambda: RankTrace(0, linked).covered_time(computes, spans, every)


def peaks_of_devices(count: int) -> Work:
    kernels = Kernels(Categorical.of(["kernel"] * count), *[numbers(count)] * 5)
    peaks = {number: Peak(*[1.0] * len(Peak._fields)) for number in range(count)}
    return lambda: roofline(kernels, peaks)


def ties_on_a_full_device(count: int) -> Work:
    none = np.empty(0, np.int64)
    cost_ns = np.full(count, 10**6)
    slot_pool = np.zeros(count, np.int64)
    return lambda: play(none, none, none, Slots(cost_ns, slot_pool, [SlotPool(1, 500)]))


def rank_of(count: int) -> RankTrace:
    """A kernel, a communication and a copy on each of many devices, each launched by a call."""
    kinds = (COMPUTATION, COMMUNICATION, MEMORY)
    acts = [
        Act(10 * row, 10 * row + 9, kind=kinds[row % 3], device=row // 3, call=row, size=100)
        for row in range(3 * count)
    ]
    linked = linked_of(acts, [Call(10 * row, 10 * row + 1) for row in range(3 * count)])
    return RankTrace(
        0, replace(linked, activities=counting_columns(linked.activities), calls=counting_columns(linked.calls))
    )


def analysis(table: Callable[..., object]) -> Callable[[int], Work]:
    def of(count: int) -> Work:
        rank = rank_of(count)
        return lambda: table([rank], AnalysisOptions())

    return of


class Ranks(tuple[int, ...]):
    """A rank list whose comparisons count, as they are calls."""

    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other)  # type: ignore[arg-type]


def many_groups(count: int) -> Callable[[], object]:
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    for number in range(count):
        g.activity("nccl", 10 + number, 1, type=NodeType.COMM_COLL, after=[(op, LAUNCH)])
    graph: Any = g.build()
    lists = [Ranks((0, rank)) for rank in range(1, count + 1)]
    of_node = np.cumsum(graph.type == NodeType.COMM_COLL) - 1
    return lambda: name_groups(graph, Groups(lists, of_node, {}), None, None)


def groups_of_two(count: int) -> Callable[[], object]:
    groups = [Group(f"0,{rank}", str(rank), "") for rank in range(1, count)]
    return lambda: _orders(groups, groups)


def overlapping_groups(count: int) -> Callable[[], object]:
    groups = [Group(f"0,{rank}-{rank + 2}", str(rank), "") for rank in range(1, count)]
    return lambda: _orders(groups, groups)


WORKS = {
    work.__name__.replace("_", " "): work
    for work in (
        backward_threads,
        threads_without_a_number,
        quiet_stretches,
        takeovers,
        names_of_calls,
        delays_of_devices,
        uses_of_groups,
        messages_of_one_kernel,
        peaks_of_devices,
        queues_of_devices,
        arrows_on_threads,
        exposed_on_devices,
        ties_on_a_full_device,
    )
} | {
    "groups for a simulator": many_groups,
    "orders of groups of two": groups_of_two,
    "orders of overlapping groups": overlapping_groups,
    "kernels by class": analysis(kernel_breakdown),
    "time of devices": analysis(temporal_breakdown),
    "overlaps": analysis(communication_computation_overlap),
    "steps": analysis(step_breakdown),
}


@pytest.mark.parametrize("name", WORKS)
def test_the_effort_grows_with_the_rows_and_not_with_their_square(name: str) -> None:
    assert growth(WORKS[name], 50) < 2.5


RANKS = st.sampled_from(["0", "0-1", "0,2", "0-3", "1-2", "0-7:7", ""])


def reference(groups: list[Group], in_order: list[Group]) -> list[tuple[int, int, str]]:
    members = [{*ranks_of(group.ranks)} for group in groups]
    return [
        (one, other, _digest(group == groups[one] for group in in_order if group in (groups[one], groups[other])))
        for one, other in permutations(range(len(groups)), 2)
        if len(members[one] & members[other]) > 1 and (one < other or groups[one].ranks == groups[other].ranks)
    ]


@given(st.lists(st.builds(Group, RANKS, st.sampled_from("ab"), st.just("")), max_size=6, unique=True), st.data())
def test_groups_that_share_several_ranks_have_an_order(groups: list[Group], data: st.DataObject) -> None:
    in_order = data.draw(st.lists(st.sampled_from(groups), max_size=9)) if groups else []
    assert _orders(groups, in_order) == reference(groups, in_order)
