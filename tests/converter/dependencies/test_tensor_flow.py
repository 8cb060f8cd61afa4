"""An activity follows those that wrote what its op reads, where nothing else says so; by a reference over all paths."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from execgraph.converter.dependencies import not_implied
from execgraph.converter.timeline import slice_host
from execgraph.converter.timeline.context import ConversionContext
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace
from hypothesis import given, strategies as st
from support.builder.records import LAYOUTS, Tensor
from support.builder.timeline import TraceBuilder
from support.references import Act, linked_of
from support.runs import Nodes, convert_run

TENSOR_FLOW = DependencyKind.TENSOR_FLOW
IN_PLACE = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
COPY = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"


def flows(nodes: Nodes) -> set[tuple[str, str]]:
    return nodes.edges(TENSOR_FLOW)


def write_then_read(
    read: Callable[[TraceBuilder, Tensor], Tensor],
    *,
    torch: str = "2.13",
    written: tuple[int, ...] = (8, 8),
    reader_stream: int = 20,
) -> set[tuple[str, str]]:
    """The flows of a writer on stream 7 and, well after its end, a reader elsewhere; `read` makes what is read of what
    was written.
    """
    t = TraceBuilder(torch=torch)
    buffer = t.tensor(written)
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[read(t, buffer)]):
        t.launch("reader", reader_stream, 10)
    return flows(convert_run(t))


FLOW = {("writer", "reader")}


@pytest.mark.parametrize("torch", LAYOUTS)
def test_a_reader_on_another_stream_follows_the_writer(torch: str) -> None:
    assert write_then_read(lambda t, tensor: tensor, torch=torch) == FLOW


def test_on_one_stream_its_order_says_so_already() -> None:
    assert write_then_read(lambda t, tensor: tensor, reader_stream=7) == set()


def test_another_storage_is_another_thing() -> None:
    assert write_then_read(lambda t, tensor: t.tensor()) == set()


@pytest.mark.parametrize(("offset", "found"), [(0, FLOW), (63, FLOW), (64, set()), (100, set())])
def test_a_view_is_read_where_its_bytes_overlap(offset: int, found: set[tuple[str, str]]) -> None:
    assert write_then_read(lambda t, tensor: t.tensor((4,), storage=tensor, offset=offset)) == found


def test_nothing_is_read_of_a_view_without_elements() -> None:
    assert write_then_read(lambda t, tensor: t.tensor((0,), storage=tensor, offset=3)) == set()


def test_tensors_without_storage_have_nothing_in_common() -> None:
    t = TraceBuilder()
    meta = t.tensor(storage=0)
    with t.op("aten::mm", outputs=[meta]):
        t.launch("writer", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[meta]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == set()


def test_bytes_are_counted_in_the_item_size_of_each_view() -> None:
    def as_halves(offset: int) -> Callable[[TraceBuilder, Tensor], Tensor]:
        return lambda t, tensor: t.tensor((4,), "c10::Half", storage=tensor, offset=offset)

    assert write_then_read(as_halves(127)) == FLOW
    assert write_then_read(as_halves(128)) == set()


@pytest.mark.parametrize(("first_row", "found"), [(0, FLOW), (3, FLOW), (4, set())])
def test_a_column_reaches_over_all_rows(first_row: int, found: set[tuple[str, str]]) -> None:
    """Written is one element of each of the rows 0 to 3, read is a whole row."""
    t = TraceBuilder()
    whole = t.tensor((8, 16))
    with t.op("aten::fill_", outputs=[t.tensor((4, 1), storage=whole, offset=8, strides=(16, 1))]):
        t.launch("writer", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[[t.tensor((1, 16), storage=whole, offset=16 * first_row)]]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == found


def test_a_column_does_not_hide_who_wrote_the_rest() -> None:
    t = TraceBuilder()
    whole = t.tensor((8, 16))
    column = t.tensor((8, 1), storage=whole, strides=(16, 1))
    for name, stream, written in (("rest", 7, whole), ("column", 24, column)):
        with t.op("aten::fill_", outputs=[written]):
            t.launch(name, stream, 10)
        t.idle(30)
    with t.op("aten::sum", inputs=[whole]):
        t.launch("reader", 20, 10)
    assert {source for source, target in flows(convert_run(t)) if target == "reader"} == {"rest", "column"}


@pytest.mark.parametrize("strides", [(1 << 62, 1), (-16, 1), ("a", 1), (None,)])
def test_absurd_strides_are_not_believed(strides: Any) -> None:
    t = TraceBuilder()
    whole = t.tensor((8, 16))
    with t.op("aten::fill_", outputs=[whole]):
        t.launch("writer", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[dataclasses.replace(whole, strides=strides)]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == FLOW


def test_the_host_does_not_read_device_data_without_a_synchronisation() -> None:
    assert write_then_read(lambda t, tensor: t.tensor(storage=tensor, device="cpu")) == set()


@pytest.mark.parametrize("in_place", [True, False])
def test_a_collective_without_outputs_writes_what_it_is_given(in_place: bool) -> None:
    t = TraceBuilder(rank=0, world_size=2)
    given, made = t.tensor(), t.tensor()
    with t.op("record_param_comms", inputs=[given], outputs=[] if in_place else [made]):
        t.launch("ncclDevKernel_AllReduce", 20, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[given]):
        t.launch("reader", 7, 10)
    assert flows(convert_run(t)) == ({("ncclDevKernel_AllReduce", "reader")} if in_place else set())


def test_only_the_last_writer_of_the_bytes_counts() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    for name, stream in (("overwritten", 7), ("last", 24)):
        with t.op("aten::fill_", outputs=[buffer]):
            t.launch(name, stream, 10)
        t.idle(20)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == {("last", "reader")}


def test_writers_of_different_parts_both_count() -> None:
    t = TraceBuilder()
    buffer = t.tensor((8,))
    for name, stream, offset in (("first half", 7, 0), ("second half", 24, 4)):
        with t.op("aten::fill_", outputs=[t.tensor((4,), storage=buffer, offset=offset)]):
            t.launch(name, stream, 10)
        t.idle(20)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == {("first half", "reader"), ("second half", "reader")}


def test_an_ops_last_activity_wrote_and_its_first_one_reads() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("split", 7, 10)
        t.launch("reduce", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("partial", 20, 10)
        t.launch("final", 20, 10)
    assert flows(convert_run(t)) == {("reduce", "partial")}


def test_an_op_reads_before_it_writes() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 10)
    t.idle(30)
    with t.op("aten::add_", inputs=[buffer, buffer], outputs=[buffer], schema=IN_PLACE):
        t.launch("in place", 20, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 7, 10)
    assert flows(convert_run(t)) == {("writer", "in place"), ("in place", "reader")}


# What counts as written


def written_by(name: str, **described: Any) -> set[tuple[str, str]]:
    """The flows from an op with the given arguments, named by `buffer`, to a reader of the buffer."""
    t = TraceBuilder()
    buffer, other = t.tensor(), t.tensor()
    arguments = {"buffer": buffer, "other": other}
    given: dict[str, Any] = {
        key: [arguments[value] for value in values] if isinstance(values, list) else values
        for key, values in described.items()
    }
    with t.op(name, **given):
        t.launch("writer", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    return flows(convert_run(t))


def test_outputs_are_written() -> None:
    assert written_by("aten::mm", inputs=["other"], outputs=["buffer"]) == FLOW


def test_inputs_are_only_read() -> None:
    assert written_by("aten::mm", inputs=["buffer"], outputs=["other"]) == set()


@pytest.mark.parametrize("schema", [IN_PLACE, COPY])
def test_inputs_that_the_schema_marks_are_written(schema: str) -> None:
    assert written_by("aten::op_", inputs=["buffer", "other"], schema=schema) == FLOW
    assert written_by("aten::op_", inputs=["other", "buffer"], schema=schema) == set()


def test_a_marked_argument_that_was_not_recorded_is_no_tensor() -> None:
    schema = "aten::op(Tensor self, Tensor(a!) out) -> Tensor(a!)"
    assert written_by("aten::op", inputs=["buffer"], schema=schema) == set()


def test_a_marked_list_of_inputs_is_written() -> None:
    schema = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
    t = TraceBuilder()
    weights, gradients = [t.tensor(), t.tensor()], [t.tensor(), t.tensor()]
    with t.op("aten::_foreach_add_", inputs=[weights, gradients], schema=schema):
        t.launch("update", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[weights[1]]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == {("update", "reader")}


def test_an_op_that_launched_nothing_wrote_nothing() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 10)
    t.launch("another", 24, 10)
    t.leaf("aten::view", 2, inputs=[buffer], outputs=[t.tensor(storage=buffer)])
    t.idle(30)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == FLOW


def test_what_an_op_wrote_is_by_the_op_it_called_that_lists_it() -> None:
    t = TraceBuilder()
    buffer, other = t.tensor(), t.tensor()
    with t.op("aten::linear", outputs=[buffer]):
        with t.op("aten::mm", outputs=[buffer]):
            t.launch("mm", 7, 10)
        with t.op("aten::fill_", outputs=[other]):
            t.launch("something else", 24, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == {("mm", "reader")}


def test_what_an_op_wrote_is_its_own_where_the_op_it_called_lists_something_else() -> None:
    t = TraceBuilder()
    buffer, other = t.tensor(), t.tensor()
    with t.op("aten::linear", outputs=[buffer]), t.op("aten::mm", inputs=[other]):
        t.launch("mm", 7, 10)
    t.idle(30)
    with t.op("aten::sum", inputs=[buffer, other]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == {("mm", "reader")}


@pytest.mark.parametrize("torch", LAYOUTS)
def test_a_collective_writes_its_buffer(torch: str) -> None:
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    group, buffer = t.group([0, 1]), t.tensor()
    t.collective("allreduce", group=group, tensors=[buffer], duration=10, kernel="ncclDevKernel_AllReduce", after=None)
    t.idle(30)
    with t.op("aten::div", inputs=[buffer]):
        t.launch("reader", 7, 10)
    assert flows(convert_run(t)) == {("ncclDevKernel_AllReduce", "reader")}


# What is implied is left out


def test_an_event_wait_says_so_already() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 10)
    t.wait_event(t.record_event(stream=7), stream=20)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    nodes = convert_run(t)
    assert nodes.follows("reader")["writer"] == DependencyKind.EVENT_WAIT


def test_a_wait_for_later_work_of_the_stream_implies_the_earlier() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 10)
    t.launch("later", 7, 10)
    t.wait_event(t.record_event(stream=7), stream=20)
    t.launch("waits", 20, 5)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == set()


def test_a_wait_by_way_of_a_third_stream_implies_it_too() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 10)
    t.wait_event(t.record_event(stream=7), stream=24)
    t.launch("between", 24, 5)
    t.wait_event(t.record_event(stream=24), stream=20)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == set()


def test_a_wait_for_earlier_work_implies_nothing() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    t.launch("before", 7, 1)
    event = t.record_event(stream=7)
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 10)
    t.idle(30)
    t.wait_event(event, stream=20)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == FLOW


def test_a_flow_that_the_clock_contradicts_is_none() -> None:
    t = TraceBuilder()
    buffer = t.tensor()
    with t.op("aten::mm", outputs=[buffer]):
        t.launch("writer", 7, 100)
    with t.op("aten::sum", inputs=[buffer]):
        t.launch("reader", 20, 10)
    assert flows(convert_run(t)) == set()


Pairs = list[tuple[int, int]]


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Act], Pairs, Pairs]:
    """Activities of no length on three streams, one each ns, and pairs of them of which the first started earlier."""
    count = draw(st.integers(2, 8))
    streams = draw(st.lists(st.integers(7, 9), min_size=count, max_size=count))
    pairs = st.lists(st.sampled_from([(first, later) for later in range(count) for first in range(later)]))
    acts = [Act(start, start, stream=stream) for start, stream in enumerate(streams)]
    return acts, draw(pairs), draw(pairs)


def run_of(linked: LinkedTrace) -> ConversionContext:
    return ConversionContext(linked, slice_host(linked, 0), np.zeros(len(linked.activities), np.int64))


def before(row: int, pairs: Pairs) -> set[int]:
    return {row}.union(*(before(source, pairs) for source, target in pairs if target == row))


@given(runs())
def test_what_is_kept_and_what_was_known_imply_all_and_nothing_twice(run: tuple[list[Act], Pairs, Pairs]) -> None:
    acts, candidates, known = run
    chains = [(a, b) for b in range(len(acts)) for a in range(b) if acts[a].stream == acts[b].stream]
    linked = linked_of(acts)
    source, target = not_implied(run_of(linked), candidates, known)
    kept = list(zip(source.tolist(), target.tolist(), strict=True))
    assert set(kept) <= set(candidates)
    everything, less = [*chains, *known, *candidates], [*chains, *known, *kept]
    assert all(before(row, everything) == before(row, less) for row in range(len(acts)))
    for pair in kept:
        others = [*chains, *known, *(other for other in kept if other != pair and other[1] <= pair[1])]
        latest = [other for other in others if other[1] < pair[1] or other[0] > pair[0] or other in [*chains, *known]]
        assert pair[0] not in before(pair[1], latest)
    assert len(set(kept)) == len(kept)


@given(runs())
def test_activities_may_be_listed_in_any_order(run: tuple[list[Act], Pairs, Pairs]) -> None:
    acts, candidates, known = run
    order = np.arange(len(acts))[::-1].tolist()
    linked = linked_of([acts[row] for row in order])
    turned = [[(order[a], order[b]) for a, b in pairs] for pairs in (candidates, known)]
    source, target = not_implied(run_of(linked), *turned)
    straight = linked_of(acts)
    wanted = not_implied(run_of(straight), candidates, known)
    kept = {(order[a], order[b]) for a, b in zip(source.tolist(), target.tolist(), strict=True)}
    assert kept == set(zip(*(column.tolist() for column in wanted), strict=True))
