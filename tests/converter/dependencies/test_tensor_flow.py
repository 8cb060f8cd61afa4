"""An activity follows those that wrote what its op reads, where nothing else says so; by a reference over all paths."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from execgraph.converter.dependencies import needed_flows
from execgraph.schema.graph import DependencyKind
from hypothesis import given, strategies as st
from support.builder.records import LAYOUTS, Tensor
from support.builder.timeline import TraceBuilder
from support.graphs import sliced
from support.references import Act, linked_of
from support.runs import Nodes, convert_run

TENSOR_FLOW = DependencyKind.TENSOR_FLOW
IN_PLACE = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
COPY = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"


def flows(nodes: Nodes) -> set[tuple[str, str]]:
    return nodes.edges(TENSOR_FLOW)


def write(t: TraceBuilder, tensor: Tensor, name: str = "writer", stream: int = 7, us: float = 10) -> None:
    """An op whose kernel writes the tensor."""
    with t.op("aten::fill_", outputs=[tensor]):
        t.launch(name, stream, us)


def read(t: TraceBuilder, *tensors: Any, stream: int = 20, idle: float = 30) -> set[tuple[str, str]]:
    """The flows of the run, the last op of which reads these, long after all others unless `idle` is 0."""
    t.idle(idle)
    with t.op("aten::sum", inputs=list(tensors)):
        t.launch("reader", stream, 10)
    return flows(convert_run(t))


FLOW = {("writer", "reader")}


@pytest.mark.parametrize("torch", LAYOUTS)
@pytest.mark.parametrize(("stream", "found"), [(20, FLOW), (7, set())], ids=["another stream", "its order says so"])
def test_a_reader_on_another_stream_follows_the_writer(torch: str, stream: int, found: set[tuple[str, str]]) -> None:
    t = TraceBuilder(torch=torch)
    buffer = t.tensor()
    write(t, buffer)
    assert read(t, buffer, stream=stream) == found


@pytest.mark.parametrize(
    ("shape", "view", "found"),
    [
        ((4, 4), {"storage": None}, set()),
        ((4,), {"offset": 0}, FLOW),
        ((4,), {"offset": 63}, FLOW),
        ((4,), {"offset": 64}, set()),
        ((4,), {"offset": 100}, set()),
        ((0,), {"offset": 3}, set()),
        ((4,), {"offset": 127, "dtype": "c10::Half"}, FLOW),
        ((4,), {"offset": 128, "dtype": "c10::Half"}, set()),
        ((4, 4), {"device": "cpu"}, set()),
    ],
    ids=[
        "another storage", "begin", "last element", "behind it", "far behind it", "no elements", "last of smaller items",
        "behind smaller items", "on the host without a synchronisation",
    ],
)  # fmt: skip
def test_a_view_is_read_where_its_bytes_overlap(t, shape, view, found):
    buffer = t.tensor((8, 8))
    write(t, buffer)
    assert read(t, t.tensor(shape, **({"storage": buffer} | view))) == found


def test_tensors_without_storage_have_nothing_in_common(t: TraceBuilder) -> None:
    meta = t.tensor(storage=0)
    write(t, meta)
    assert read(t, meta) == set()


@pytest.mark.parametrize(("first_row", "found"), [(0, FLOW), (3, FLOW), (4, set())])
def test_a_column_reaches_over_all_rows(t: TraceBuilder, first_row: int, found: set[tuple[str, str]]) -> None:
    """Written is one element of each of the rows 0 to 3, read is a whole row."""
    whole = t.tensor((8, 16))
    write(t, t.tensor((4, 1), storage=whole, offset=8, strides=(16, 1)))
    assert read(t, [t.tensor((1, 16), storage=whole, offset=16 * first_row)]) == found


def test_a_column_does_not_hide_who_wrote_the_rest(t: TraceBuilder) -> None:
    whole = t.tensor((8, 16))
    write(t, whole, "rest")
    t.idle(30)
    write(t, t.tensor((8, 1), storage=whole, strides=(16, 1)), "column", 24)
    assert {source for source, target in read(t, whole) if target == "reader"} == {"rest", "column"}


@pytest.mark.parametrize("strides", [(1 << 62, 1), (-16, 1), ("a", 1), (None,)])
def test_absurd_strides_are_not_believed(t: TraceBuilder, strides: Any) -> None:
    whole = t.tensor((8, 16))
    write(t, whole)
    assert read(t, dataclasses.replace(whole, strides=strides)) == FLOW


@pytest.mark.parametrize("in_place", [True, False])
def test_a_collective_without_outputs_writes_what_it_is_given(in_place: bool) -> None:
    t = TraceBuilder(rank=0, world_size=2)
    given, made = t.tensor(), t.tensor()
    with t.op("record_param_comms", inputs=[given], outputs=[] if in_place else [made]):
        t.launch("ncclDevKernel_AllReduce", 20, 10)
    assert read(t, given, stream=7) == ({("ncclDevKernel_AllReduce", "reader")} if in_place else set())


def test_only_the_last_writer_of_the_bytes_counts(t: TraceBuilder) -> None:
    buffer = t.tensor()
    write(t, buffer, "overwritten")
    t.idle(20)
    write(t, buffer, "last", 24)
    assert read(t, buffer) == {("last", "reader")}


def test_writers_of_different_parts_both_count(t: TraceBuilder) -> None:
    buffer = t.tensor((8,))
    for name, stream, offset in (("first half", 7, 0), ("second half", 24, 4)):
        write(t, t.tensor((4,), storage=buffer, offset=offset), name, stream)
        t.idle(20)
    assert read(t, buffer) == {("first half", "reader"), ("second half", "reader")}


def test_an_ops_last_activity_wrote_and_its_first_one_reads(t: TraceBuilder) -> None:
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("split", 7, 10)
        t.launch("reduce", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("partial", 20, 10)
        t.launch("final", 20, 10)
    assert flows(convert_run(t)) == {("reduce", "partial")}


def test_an_op_reads_before_it_writes(t: TraceBuilder) -> None:
    buffer = t.tensor()
    write(t, buffer)
    t.idle(30)
    with t.op("aten::add_", inputs=[buffer, buffer], outputs=[buffer], schema=IN_PLACE):
        t.launch("in place", 20, 10)
    assert read(t, buffer, stream=7) == {("writer", "in place"), ("in place", "reader")}


@pytest.mark.parametrize(
    ("described", "found"),
    [
        ({"inputs": ["other"], "outputs": ["buffer"]}, FLOW),
        ({"inputs": ["buffer"], "outputs": ["other"]}, set()),
        ({"inputs": ["buffer", "other"], "schema": IN_PLACE}, FLOW),
        ({"inputs": ["other", "buffer"], "schema": IN_PLACE}, set()),
        ({"inputs": ["buffer", "other"], "schema": COPY}, FLOW),
        ({"inputs": ["other", "buffer"], "schema": COPY}, set()),
        ({"inputs": ["buffer"], "schema": "aten::op(Tensor self, Tensor(a!) out) -> Tensor(a!)"}, set()),
    ],
    ids=[
        "outputs", "no inputs", "a marked input", "no other input", "a marked input of a copy", "not its source",
        "no marked argument that was not recorded",
    ],
)  # fmt: skip
def test_outputs_and_inputs_that_the_schema_marks_are_written(t, described, found):
    tensors = {"buffer": t.tensor(), "other": t.tensor()}
    named = {key: [tensors[name] for name in names] for key, names in described.items() if key != "schema"}
    with t.op("aten::op_", **(described | named)):
        t.launch("writer", 7, 10)
    assert read(t, tensors["buffer"]) == found


def test_a_marked_list_of_inputs_is_written() -> None:
    schema = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
    t = TraceBuilder()
    weights, gradients = [t.tensor(), t.tensor()], [t.tensor(), t.tensor()]
    with t.op("aten::_foreach_add_", inputs=[weights, gradients], schema=schema):
        t.launch("update", 7, 10)
    assert read(t, weights[1]) == {("update", "reader")}


def test_an_op_that_launched_nothing_wrote_nothing(t: TraceBuilder) -> None:
    buffer = t.tensor()
    write(t, buffer)
    t.launch("another", 24, 10)
    t.leaf("aten::view", 2, inputs=[buffer], outputs=[t.tensor(storage=buffer)])
    assert read(t, buffer) == FLOW


def test_what_an_op_wrote_is_by_the_op_it_called_that_lists_it(t: TraceBuilder) -> None:
    buffer, other = t.tensor(), t.tensor()
    with t.op("aten::linear", outputs=[buffer]):
        with t.op("aten::mm", outputs=[buffer]):
            t.launch("mm", 7, 10)
        with t.op("aten::fill_", outputs=[other]):
            t.launch("something else", 24, 10)
    assert read(t, buffer) == {("mm", "reader")}


def test_what_an_op_wrote_is_its_own_where_the_op_it_called_lists_something_else(t: TraceBuilder) -> None:
    buffer, other = t.tensor(), t.tensor()
    with t.op("aten::linear", outputs=[buffer]), t.op("aten::mm", inputs=[other]):
        t.launch("mm", 7, 10)
    assert read(t, buffer, other) == {("mm", "reader")}


@pytest.mark.parametrize("torch", LAYOUTS)
def test_a_collective_writes_its_buffer(torch: str) -> None:
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    group, buffer = t.group([0, 1]), t.tensor()
    t.collective("allreduce", group=group, tensors=[buffer], duration=10, kernel="ncclDevKernel_AllReduce", after=None)
    assert read(t, buffer, stream=7) == {("ncclDevKernel_AllReduce", "reader")}


def test_an_event_wait_says_so_already(t: TraceBuilder) -> None:
    buffer = t.tensor()
    write(t, buffer)
    t.wait_event(t.record_event(stream=7), stream=20)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert convert_run(t).follows("reader")["writer"] == DependencyKind.EVENT_WAIT


@pytest.mark.parametrize(("stream", "between"), [(7, "later on its stream"), (24, "a third stream")])
def test_a_wait_for_later_work_of_the_stream_or_by_way_of_another_one_implies_the_earlier(t, stream, between):
    buffer = t.tensor()
    write(t, buffer)
    if stream != 7:
        t.wait_event(t.record_event(stream=7), stream=stream)
    t.launch(between, stream, 10)
    t.wait_event(t.record_event(stream=stream), stream=20)
    t.launch("waits", 20, 5)
    assert read(t, buffer, idle=0) == set()


def test_a_wait_for_earlier_work_implies_nothing(t: TraceBuilder) -> None:
    buffer = t.tensor()
    t.launch("before", 7, 1)
    event = t.record_event(stream=7)
    write(t, buffer)
    t.idle(30)
    t.wait_event(event, stream=20)
    assert read(t, buffer, idle=0) == FLOW


def test_a_flow_that_the_clock_contradicts_is_none(t: TraceBuilder) -> None:
    buffer = t.tensor()
    write(t, buffer, us=100)
    assert read(t, buffer, idle=0) == set()


Pairs = list[tuple[int, int]]


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Act], Pairs, Pairs]:
    """Activities of no length on three streams, one each ns, and pairs of them of which the first started earlier."""
    count = draw(st.integers(2, 8))
    streams = draw(st.lists(st.integers(7, 9), min_size=count, max_size=count))
    pairs = st.lists(st.sampled_from([(first, later) for later in range(count) for first in range(later)]))
    acts = [Act(start, start, stream=stream) for start, stream in enumerate(streams)]
    return acts, draw(pairs), draw(pairs)


def before(row: int, pairs: Pairs) -> set[int]:
    return {row}.union(*(before(source, pairs) for source, target in pairs if target == row))


@given(runs())
def test_what_is_kept_and_what_was_known_imply_all_and_nothing_twice_in_whatever_order_activities_are_listed(run):
    acts, candidates, known = run
    chains = [(a, b) for b in range(len(acts)) for a in range(b) if acts[a].stream == acts[b].stream]
    source, target = needed_flows(sliced(linked_of(acts)), candidates, known)
    kept = list(zip(source.tolist(), target.tolist(), strict=True))
    assert set(kept) <= set(candidates)
    everything, less = [*chains, *known, *candidates], [*chains, *known, *kept]
    assert all(before(row, everything) == before(row, less) for row in range(len(acts)))
    for pair in kept:
        others = [*chains, *known, *(other for other in kept if other != pair and other[1] <= pair[1])]
        latest = [other for other in others if other[1] < pair[1] or other[0] > pair[0] or other in [*chains, *known]]
        assert pair[0] not in before(pair[1], latest)
    assert len(set(kept)) == len(kept)
    order = np.arange(len(acts))[::-1].tolist()
    turned = [[(order[a], order[b]) for a, b in pairs] for pairs in (candidates, known)]
    source, target = needed_flows(sliced(linked_of([acts[row] for row in order])), *turned)
    assert {(order[a], order[b]) for a, b in zip(source.tolist(), target.tolist(), strict=True)} == set(kept)
