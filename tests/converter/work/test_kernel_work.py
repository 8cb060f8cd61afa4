"""Which kernel does which op's work, how kernels of one op share it, and what of it stands in graphs.

Storages live from the op that makes them to the last that names them, be numbers used again or results those of
other ops.
"""

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.converter.work import Lifetimes, lifetimes, live_bytes
from execgraph.converter.work.kernel_work import BEFORE, kernel_work, shares
from execgraph.schema.columns import RecordsByRow, ThreadIntervals, nest
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.linked import HOST, op_tree, read_linked, write_linked
from execgraph.tools.commands.trace_convert import summary
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.graphs import read_nodes
from support.runs import Nodes, convert_linked, convert_run, link_run, link_without_host
from support.tables import Op, ops

OPERATIONS, BYTES = 2 * 30 * 40 * 50, 4 * (1200 + 2000 + 1500)


def product(t: TraceBuilder, name: str = "aten::mm", **described: Any) -> Any:
    """A product of (30, 40) by (40, 50)."""
    inputs, outputs = [t.tensor((30, 40)), t.tensor((40, 50))], [t.tensor((30, 50))]
    return t.op(name, inputs=inputs, outputs=outputs, **described)


def work(nodes: Nodes, label: str) -> tuple[int | None, int | None]:
    """Operations and bytes of a node, None for one that it lacks."""
    row = nodes.row(label)
    found = (int(nodes.graph.integers(name, -1)[row]) for name in ("num_ops", "tensor_size"))
    operations, moved = (None if value < 0 else value for value in found)
    return operations, moved


def one_product() -> TraceBuilder:
    t = TraceBuilder()
    with product(t):
        t.launch("gemm")
    return t


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("", "aten::mm"), ("aten::matmul", "aten::mm"), ("aten::mm", "mine::gemm")],
    ids=["the op", "the innermost op that launched", "the known op around an unknown one"],
)
def test_a_kernel_does_the_work_of_the_op_that_launched_it(t: TraceBuilder, outer: str, inner: str) -> None:
    for number in range(2):
        with ExitStack() as around:
            if outer:
                around.enter_context(product(t, outer))
            around.enter_context(product(t, inner) if inner == "aten::mm" else t.op(inner))
            t.launch(f"gemm {number}")
    nodes = convert_run(t)
    assert work(nodes, "gemm 0") == work(nodes, "gemm 1") == (OPERATIONS, BYTES)


def test_the_first_op_of_a_trace_has_work_as_any() -> None:
    linked = link_without_host(one_product())
    assert linked.activities.op_row.tolist() == [0]
    assert work(convert_linked(linked), "gemm")[0] == OPERATIONS


def test_an_op_without_known_work_is_counted_by_name_be_it_the_first(t: TraceBuilder) -> None:
    with t.op("my::op"):
        t.launch("kernel")
    graph = convert(link_without_host(t))
    assert graph.report is not None and graph.report.kernels_without_work == {"my::op": 1}


def test_kernels_of_one_op_share_its_work_by_their_time(t: TraceBuilder) -> None:
    with product(t):
        for duration in (30, 10):
            t.launch("part", duration=duration)
    with product(t):
        for duration in (7, 11, 13):
            t.launch("odd part", duration=duration)
    nodes = convert_run(t)
    assert work(nodes, "part#0") == (OPERATIONS * 3 // 4, BYTES * 3 // 4)
    assert work(nodes, "part#1") == (OPERATIONS // 4, BYTES // 4)
    odd = [work(nodes, f"odd part#{number}") for number in range(3)]
    assert [sum(column) for column in np.array(odd).T.tolist()] == [OPERATIONS, BYTES]


def test_a_kernel_without_time_has_a_share_as_of_a_nanosecond() -> None:
    assert shares(110, [0, 10]) == [10, 100]
    assert shares(10, [0, 0]) == [5, 5]
    assert shares(7, [2, 5]) == [2, 5]


def test_a_copy_in_an_op_takes_none_of_its_work(t: TraceBuilder) -> None:
    with product(t):
        t.memcpy("HtoD")
        t.launch("gemm", bytes=77)
    t.launch("alone", bytes=77)
    nodes = convert_run(t)
    assert work(nodes, "gemm") == (OPERATIONS, BYTES)
    assert work(nodes, "Memcpy HtoD (Pageable -> Device)") == (0, 1024)
    assert work(nodes, "alone") == (None, None)


def test_an_activity_without_known_work_is_of_no_op(t: TraceBuilder) -> None:
    t.leaf("aten::first", 5)
    with product(t, "aten::quantum"):
        t.launch("unknown")
    with product(t):
        t.launch("gemm")
    linked = link_run(t)
    assert kernel_work(linked, op_tree(linked.ops)).op_row.tolist() == [-1, linked.ops.name.equal("aten::mm").argmax()]


def test_no_work_is_done_twice(t: TraceBuilder) -> None:
    """What an unknown op does beside the product is not the product's work, nor what the op around launches itself."""
    with product(t, "aten::matmul"):
        with product(t):
            t.launch("gemm")
        with t.op("mine::check"):
            t.launch("check")
        t.launch("finish")
    for nodes in (convert_run(t), convert_linked(link_without_host(t))):
        assert work(nodes, "gemm") == (OPERATIONS, BYTES)
        assert work(nodes, "check") == work(nodes, "finish") == (None, None)
        assert nodes.report.kernels_without_work == {"mine::check": 1, "aten::matmul": 1}


@pytest.mark.parametrize("is_split", [False, True], ids=["alone", "an unknown op inside shares its work"])
def test_an_op_of_another_family_inside_has_its_own_work(t: TraceBuilder, is_split: bool) -> None:
    with product(t):
        with t.op("aten::neg", inputs=[t.tensor((1500,))], outputs=[t.tensor((1500,))]):
            t.launch("neg")
        if is_split:
            with t.op("mine::split"):
                t.launch("split", duration=30)
        t.launch("gemm", duration=30)
    nodes = convert_run(t)
    share = 2 if is_split else 1
    assert {work(nodes, label) for label in ["gemm", *["split"] * is_split]} == {(OPERATIONS // share, BYTES // share)}
    assert work(nodes, "neg") == (1500, 12000)


def test_copies_and_sets_move_what_was_recorded_and_a_copy_without_a_size_has_no_known_bytes(t: TraceBuilder) -> None:
    with t.op("aten::copy_"):
        t.memcpy("HtoD", bytes=1000)
        t.memcpy("DtoD", bytes=1000)
    t.memset(bytes=500)
    t.memcpy("HtoD", bytes=0)
    t.launch("Memcpy DtoD (Device -> Device)", category="gpu_memcpy")
    nodes = convert_run(t)
    assert [work(nodes, f"Memcpy HtoD (Pageable -> Device)#{number}") for number in (0, 1)] == [(0, 1000), (0, 0)]
    assert [work(nodes, f"Memcpy DtoD (Device -> Device)#{number}") for number in (0, 1)] == [(0, 2000), (None, None)]
    assert work(nodes, "Memset (Device)") == (0, 500)


def test_of_triton_kernels_the_bytes_of_their_arguments_are_known(t: TraceBuilder) -> None:
    with t.op("triton_poi_fused_add_0", inputs=[t.tensor((8,)), t.tensor((8,)), 8, 7]):
        t.launch("triton_poi_fused_add_0")
    nodes = convert_run(t)
    (label,) = (label for label in nodes.labels if nodes.graph.is_activity[nodes.row(label)])
    assert work(nodes, label) == (None, 64)
    assert nodes.report.kernels_without_work == {"triton_poi_fused_add_0": 1}


def test_an_op_that_the_trace_says_is_tritons_is_one_whatever_its_name(t: TraceBuilder) -> None:
    with t.op("fused_add", inputs=[t.tensor((8,)), t.tensor((8,)), 8, 7]) as op:
        t.launch("fused_add")
    linked = link_run(t)
    (row,) = np.flatnonzero(linked.ops.id == op.id)
    linked.ops.extra = RecordsByRow.of(dict, {int(row): {"kernel_backend": "triton"}})
    graph = convert(linked)
    assert graph.integers("tensor_size", -1)[graph.is_activity].tolist() == [64]


def test_communication_has_no_work() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    t.collective("allreduce", group=t.group([0, 1]), tensors=[t.tensor()])
    nodes = convert_run(t)
    assert "num_ops" not in nodes.graph.attributes
    assert (nodes.report.kernels_with_work, nodes.report.kernels_without_work) == (0, {})


def test_what_is_not_known_is_counted_and_said(t: TraceBuilder) -> None:
    with product(t):
        t.launch("gemm", duration=30)
    for number in range(4):
        with t.op(f"mine::op{number}"):
            t.launch("kernel", duration=2.5)
    report = convert_run(t).report
    assert report.kernels_with_work == 1
    assert report.time_with_work_pct == pytest.approx(75)
    line = next(line for line in summary(report).splitlines() if line.startswith("work"))
    assert line.split(maxsplit=1)[1] == (
        "known of 1 of 5 kernels and memory operations, 75.0 % of their time; unknown: 1 of mine::op0, 1 of mine::op1, 1 of mine::op2, …"
    )


def test_the_linked_file_keeps_what_a_copy_moves(tmp_path: Path) -> None:
    t = one_product()
    t.memcpy("HtoD", bytes=1000)
    write_linked(link_run(t), str(tmp_path / "linked.json"))
    assert read_linked(str(tmp_path / "linked.json")).activities.size.tolist() == [-1, 1000]


def attribute_kinds(path: Path, name: str) -> list[str]:
    """Which value carries an attribute, of each node that has it."""
    return [node.attributes[name].kind for node in read_nodes(path) if name in node.attributes]


@pytest.mark.parametrize("target", ["generic", "astra-sim"])
def test_simulators_read_them_by_these_types(tmp_path: Path, target: Any) -> None:
    graph = convert(link_run(one_product()), Options(target=target, host=False))
    graph.write(str(tmp_path / "graph.et"))
    assert attribute_kinds(tmp_path / "graph.et", "num_ops") == ["int64_val"]
    assert attribute_kinds(tmp_path / "graph.et", "tensor_size") == ["uint64_val"]
    read = ExecutionGraph.read(str(tmp_path / "graph.et"))
    least = BYTES if target == "generic" else 1 << 16
    assert (read.integers("num_ops").tolist(), read.integers("tensor_size").tolist()) == ([OPERATIONS], [least])


def test_roofline_mode_finds_an_operation_and_a_byte_wherever_work_is_known() -> None:
    t = one_product()
    t.memcpy("HtoD", bytes=1000)
    t.memset(bytes=0)
    with t.op("mine::op"):
        t.launch("kernel")
    nodes = convert_run(t, target="astra-sim", host=False)
    assert work(nodes, "Memcpy HtoD (Pageable -> Device)") == (1, 1000)
    assert work(nodes, "Memset (Device)") == (1, 1)
    assert work(nodes, "kernel") == (None, None)
    changes = nodes.graph.changes
    assert changes is not None and changes.counts["without work"] == 1
    assert any("for roofline mode only with AstraSimOptions" in note for note in changes.notes)


Span = tuple[int, int, int, int, int]
"""Number, bytes, begin, until, the row of the op that made it."""


def spans(found: Lifetimes) -> set[Span]:
    columns = (found.storage, found.size, found.begin, found.until, found.op_row)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def of(t: TraceBuilder) -> Lifetimes:
    return lifetimes(link_run(t).ops)


def in_us(found: Lifetimes) -> list[tuple[float, float]]:
    begin, until = ((column - found.begin.min()) / 1000 for column in (found.begin, found.until))
    return list(zip(begin.tolist(), until.tolist(), strict=True))


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
def test_a_storage_lives_from_its_making_to_the_end_of_the_last_reader(torch: str) -> None:
    t = TraceBuilder(torch=torch)
    made = t.tensor((8, 8))
    t.leaf("aten::empty", 5, outputs=[made])
    t.idle(7)
    t.leaf("aten::sum", 3, inputs=[t.tensor((2,), storage=made, offset=4)])
    t.leaf("aten::add", 9)
    assert in_us(of(t)) == [(0, 15)]
    assert of(t).size.tolist() == [256]


def test_what_is_read_before_it_is_made_was_there_before(t: TraceBuilder) -> None:
    weight = t.tensor((4,))
    t.leaf("aten::add", 5)
    t.leaf("aten::mul", 5, inputs=[weight], outputs=[t.tensor((4,))])
    found = of(t)
    assert in_us(found) == [(0, 10), (5, 10)]
    assert (found.op_row == BEFORE).tolist() == [True, False]


def test_devices_are_apart_and_what_has_no_memory_is_left_out(t: TraceBuilder) -> None:
    places = ["cpu", "meta", "cuda:0", "cuda:3", "mps"]
    t.leaf("aten::empty", 2, outputs=[t.tensor((4,), device=one) for one in places])
    t.leaf("aten::empty", 2, outputs=[t.tensor((0,))])
    assert sorted(of(t).device.tolist()) == [HOST, 0, 0, 3]


def test_without_tensors_nothing_lives(t: TraceBuilder) -> None:
    t.leaf("aten::empty", 2)
    assert len(of(t).storage) == 0


@dataclass
class Program:
    """Plays nested ops that make storages and use those that live, and keeps what becomes of each."""

    chance: random.Random
    clock: int = 0
    rows: list[Op] = field(default_factory=list)
    live: dict[int, Span] = field(default_factory=dict)
    gone: list[Span] = field(default_factory=list)

    def named(self, number: int) -> str:
        return f'[9,{number},0,{self.live[number][1]},1,"cuda:0"]'

    def op(self, depth: int = 0) -> set[int]:
        """One op with those that it calls; what it and these have made."""
        start, given = self.clock, set(self.some())
        self.clock += self.chance.randint(0, 2)
        made: set[int] = set()
        for _ in range(self.chance.randint(0, 3) if depth < 3 else 0):
            made |= self.op(depth + 1)
            self.clock += self.chance.randint(0, 1)
        self.clock += 1
        if not made and self.chance.random() < 0.6:
            number = self.chance.choice([n for n in range(1, 9) if n not in self.live] or [100 + len(self.rows)])
            self.live[number] = (number, self.chance.randint(1, 50), start, self.clock, len(self.rows))
            made = {number}
        results = {one for one in made if self.chance.random() < 0.7 or len(made) == 1} | {
            one for one in given if self.chance.random() < 0.3
        }
        for number in given | results:
            name, size, begin, until, by = self.live[number]
            self.live[number] = name, size, begin, max(until, self.clock), by
        lists = (f'{{"values":[{",".join(map(self.named, sorted(one)))}]}}'.encode() for one in (given, results))
        self.rows.append(Op("aten::op", start, self.clock, 0, -1, 0, "", *lists))
        return made

    def some(self) -> list[int]:
        return [one for one in self.live if self.chance.random() < 0.3]

    def play(self, count: int) -> "Program":
        self.live = {number: (number, 5 * number, BEFORE, BEFORE, BEFORE) for number in (7, 8)}
        for _ in range(count):
            self.op()
            self.clock += self.chance.randint(1, 3)
            for number in self.some():
                self.gone.append(self.live.pop(number))
        self.gone += self.live.values()
        # what was there before begins with the recording, if any op names it
        self.gone = [(n, s, max(b, 0), u, by) for n, s, b, u, by in self.gone if u >= 0]
        return self


@given(st.integers(0, 1 << 32))
def test_whatever_ops_make_and_use_each_storage_is_found(seed: int) -> None:
    program = Program(random.Random(seed)).play(8)
    table = ops(*program.rows)
    table.parent_id = nest(ThreadIntervals(table.thread, table.start, table.end)).parent
    found = lifetimes(table)
    assert spans(found) == set(program.gone)
    steps = live_bytes(found)

    def live(time: int) -> int:
        return sum(size for _, size, begin, until, _ in program.gone if begin <= time < until)

    times = range(program.clock)
    before = np.searchsorted(steps.time, np.array(times), side="right")
    assert np.append(0, steps.value)[before].tolist() == [*map(live, times)]
