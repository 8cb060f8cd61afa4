"""Python's calls give each op, call and activity its module and function; the backward pass has the forward ops'.

Which op of the forward pass a backward op differentiates, by rows made by hand.
"""

import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.details import moved_times, same_ops
from execgraph.linker.link import link
from execgraph.linker.modules import forward_ops
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.linker.windows import Window
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.linked import LinkedTrace, read_linked, write_linked
from execgraph.tools.commands import trace_build, trace_convert, trace_diagnose, trace_jsonize, trace_link, trace_merge
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.commands import status_of
from support.references import Place, Reference, rows_of
from support.runs import link_run
from support.tables import Op, column, ops

FORWARD, OTHER, BACKWARD = 1, 2, 3
"""Threads."""


def forward_op(sequence: int, start: int = 0, thread: int = FORWARD) -> Op:
    return Op(start=start, end=start + 5, thread=thread, sequence=sequence)


def backward_op(sequence: int, start: int = 50, forward_thread: int = 7) -> Op:
    return Op(start=start, end=start + 5, thread=BACKWARD, sequence=sequence, forward=forward_thread)


def forward_rows(*rows: Op, numbers: dict[int, int] | None = None) -> list[int]:
    """`numbers` are the host trace's numbers of ops, by row."""
    table = ops(*rows)
    tid = column(*((numbers or {}).get(row, -1) for row in range(len(rows))))
    return forward_ops(replace(table, tid=tid)).tolist()


def test_a_backward_op_differentiates_the_last_earlier_forward_op_with_its_number_and_a_time() -> None:
    assert forward_rows(forward_op(0), backward_op(0)) == [-1, 0]
    several = forward_op(0), forward_op(0, start=10), forward_op(1, start=20), backward_op(0)
    assert forward_rows(*several) == [-1, -1, -1, 1]
    assert forward_rows(forward_op(4), backward_op(5), backward_op(3)) == [-1, -1, -1]
    assert forward_rows(forward_op(5, start=49), backward_op(5)) == [-1, 0]
    assert forward_rows(forward_op(5, start=50), backward_op(5)) == [-1, -1]
    assert forward_rows(backward_op(5), backward_op(5, start=40)) == [-1, -1]
    assert forward_rows(forward_op(-1), backward_op(-1)) == [-1, -1]
    assert forward_rows(Op(thread=FORWARD, sequence=5), backward_op(5)) == [-1, -1]


def test_the_forward_thread_is_the_named_one_with_any_of_the_numbers_or_else_that_with_most() -> None:
    forward = forward_op(5, thread=OTHER), forward_op(5, start=10), forward_op(6, start=20)
    rows = *forward, backward_op(5), backward_op(6)
    assert forward_rows(*rows, backward_op(9)) == [-1, -1, -1, 1, 2, -1]
    assert forward_rows(*rows, numbers={0: 7}) == [-1, -1, -1, 0, -1]
    assert forward_rows(forward_op(4, thread=OTHER), *rows[1:], numbers={0: 7}) == [-1, -1, -1, 1, 2]


TRACES = os.environ.get("EXECGRAPH_TRACES")


def places(table: Any) -> dict[str, Place]:
    """The module and function of ops, calls or activities by name."""
    return {table.name[row]: Place(table.module[row], table.python_function[row]) for row in range(len(table))}


def forward(t: TraceBuilder) -> None:
    """Net_0 with Linear_0 in a block and Linear_1 beside it; each launches a kernel."""
    with t.python("train.py(3): step"), t.module("Net_0"), t.python("net.py(7): forward"):
        for number, path in ((0, ("Block_0", "Linear_0")), (1, ("Linear_1",))):
            t.work(2)
            with t.module(path[0]):
                t.work(1)
                if path[1:]:
                    with t.module(path[1]), t.python("linear.py(5): forward"):
                        product(t, number)
                else:
                    product(t, number)
        with t.op("aten::sum"):
            t.work(2)
    with t.op("aten::item"):
        t.work(3)


def product(t: TraceBuilder, number: int) -> None:
    with t.op(f"aten::linear {number}", seq_id=4 + number), t.op(f"aten::mm {number}", seq_id=4 + number):
        t.work(2)
        t.launch(f"sgemm {number}", duration=20)


def backward(t: TraceBuilder) -> None:
    with t.thread(2, start=t.now + 5):
        for number in (1, 0):
            with t.op(f"evaluate {number}", seq_id=4 + number, fw_thread=1), t.op(f"aten::mm backward {number}"):
                t.work(2)
                t.launch(f"sgemm backward {number}", duration=30)


def test_an_op_belongs_to_the_innermost_calls_around_it_and_an_activity_without_a_launch_to_none(t) -> None:
    forward(t)
    t.activity("unlaunched", 7, 0, 5)
    linked = link_run(t, modules=True)
    found = places(linked.ops)
    assert found["aten::mm 0"] == Place("Net_0/Block_0/Linear_0", "linear.py(5): forward")
    assert found["aten::mm 1"] == Place("Net_0/Linear_1", "net.py(7): forward")
    assert found["aten::sum"] == Place("Net_0", "net.py(7): forward")
    assert found["aten::item"] == Place("", "")
    kernels = places(linked.activities)
    names = "sgemm 0", "sgemm 1", "unlaunched"
    assert [kernels[name] for name in names] == [found["aten::mm 0"], found["aten::mm 1"], Place("", "")]


def test_the_backward_pass_belongs_to_the_calls_around_the_forward_ops(t: TraceBuilder) -> None:
    forward(t)
    backward(t)
    linked = link_run(t, modules=True)
    found, kernels = places(linked.ops), places(linked.activities)
    for number in (0, 1):
        assert found[f"evaluate {number}"] == found[f"aten::mm {number}"]
        assert kernels[f"sgemm backward {number}"] == found[f"aten::mm {number}"]
    assert kernels["sgemm backward 0"].module == "Net_0/Block_0/Linear_0"


def test_modules_that_are_computed_again_in_the_backward_pass_stand_where_they_stood(t: TraceBuilder) -> None:
    forward(t)
    with t.thread(2, start=t.now + 5), t.op("evaluate 0", seq_id=4, fw_thread=1):
        t.work(1)
        with t.module("Block_0"), t.op("again"):
            t.work(2)
        with t.module("Extra_0"), t.op("extra"):
            t.work(2)
        with t.op("derived"):
            t.work(2)
    found = places(link_run(t, modules=True).ops)
    assert found["again"].module == "Net_0/Block_0"
    assert found["extra"].module == "Net_0/Block_0/Linear_0/Extra_0"
    assert found["derived"].module == "Net_0/Block_0/Linear_0"


def test_a_module_in_a_backward_op_stands_below_the_forward_ops_not_below_those_around_on_its_thread(t):
    forward(t)
    t.leaf("aten::outside", 3, seq_id=9)
    with t.thread(2, start=t.now + 5), t.module("Engine_0"):
        for number in (9, 4):
            with t.op(f"evaluate {number}", seq_id=number, fw_thread=1):
                t.work(1)
                with t.module("Extra_0"), t.op(f"extra {number}"):
                    t.work(2)
    found = places(link_run(t, modules=True).ops)
    assert found["extra 4"].module == "Net_0/Block_0/Linear_0/Extra_0"
    assert found["extra 9"].module == "Extra_0"


def test_a_call_outside_of_ops_and_its_activity_belong_to_the_calls_around(t: TraceBuilder) -> None:
    t.leaf("aten::item", 3)
    with t.module("Net_0"), t.python("triton.py(9): run"):
        t.work(2)
        t.launch("triton kernel", duration=20)
        t.work(2)
    linked = link_run(t, modules=True)
    assert places(linked.calls)["cudaLaunchKernel"] == Place("Net_0", "triton.py(9): run")
    graph = convert(linked)
    told = {
        graph.name[row]: (graph.texts("module")[row], graph.texts("python_function")[row]) for row in range(len(graph))
    }
    assert told["triton kernel"] == told["cudaLaunchKernel"] == ("Net_0", "triton.py(9): run")


def test_a_module_that_calls_itself_stays_where_it_is(t: TraceBuilder) -> None:
    with t.module("Net_0"), t.module("Net_0"), t.module("Linear_0"), t.op("aten::mm"):
        t.work(2)
    assert places(link_run(t, modules=True).ops)["aten::mm"].module == "Net_0/Linear_0"


def test_numbers_of_threads_do_not_mix(t: TraceBuilder) -> None:
    """Two forward threads count from the same number; each one's backward op says which thread it is of."""
    for thread, net in ((1, "Net_0"), (3, "Net_1")):
        with t.thread(thread):
            for number in range(thread):  # so that they do not have all numbers in common
                with t.module(net), t.op(f"forward {thread} {number}", seq_id=7 + number):
                    t.work(3)
    with t.thread(4, start=50):
        for thread in (1, 3):
            for number in reversed(range(thread)):
                t.leaf(f"backward {thread} {number}", 3, seq_id=7 + number, fw_thread=thread)
    found = places(link_run(t, modules=True).ops)
    assert found["backward 3 2"].module == found["backward 3 0"].module == "Net_1"


def test_without_the_option_nothing_tells_of_modules(t: TraceBuilder, tmp_path: Path) -> None:
    forward(t)
    linked = link_run(t)
    assert linked.ops.module is None and linked.activities.python_function is None
    write_linked(linked, str(tmp_path / "linked.json"))
    assert "module" not in (tmp_path / "linked.json").read_text()
    assert not {"module", "python_function"} & set(convert(linked).attributes)


def test_a_linked_file_keeps_them(t: TraceBuilder, tmp_path: Path) -> None:
    forward(t)
    backward(t)
    with t.module("Net_0"):
        t.launch("bare", duration=3)
    linked = link_run(t, modules=True)
    path = str(tmp_path / "linked.json.gz")
    write_linked(linked, path)
    again = read_linked(path)
    for one, other in ((linked.ops, again.ops), (linked.calls, again.calls), (linked.activities, again.activities)):
        assert [one.module[row] for row in range(len(one))] == [other.module[row] for row in range(len(other))]
        assert places(one) == places(other)
    assert texts(convert(again)) == texts(convert(linked))


def texts(graph: ExecutionGraph) -> list[tuple[str, str, str]]:
    columns = graph.texts("module"), graph.texts("python_function")
    return [(graph.name[row], *(column[row] for column in columns)) for row in range(len(graph))]


def test_a_part_of_a_trace_keeps_them(t: TraceBuilder) -> None:
    for step in range(3):
        with t.annotation(f"ProfilerStep#{step}"):
            forward(t)
    part = link_run(t, modules=True, window=Window(steps=(1, 2)))
    assert (
        places(part.ops)["aten::mm 0"].module == places(part.activities)["sgemm 0"].module == "Net_0/Block_0/Linear_0"
    )
    assert len(part.activities) == 2


def compared(linked: LinkedTrace, reference: Reference) -> int:
    """Compares all ops; how many there are in modules."""
    ops, inside = linked.ops, 0
    by_place: dict[tuple[int, int, int], set[Place]] = {}
    for row in range(len(ops)):
        key = int(ops.thread[row]), int(ops.start[row]), int(ops.end[row])
        by_place.setdefault(key, set()).add(Place(ops.module[row], ops.python_function[row]))
    for here, name in reference.ops:
        expected = reference.place(here)
        assert expected in by_place[tuple(here)], name
        inside += bool(expected.module)
    return inside


class Draft:
    """Plays a random run: nested modules, functions and ops, then their backward ops, which may call modules again."""

    def __init__(self, seed: int) -> None:
        self.random, self.t = random.Random(seed), TraceBuilder()
        self.thread = 1
        self.sequence = {1: 0, 2: 100}
        self.waiting: list[tuple[int, int]] = []

    def play(self) -> TraceBuilder:
        with self.t.module("Net_0"):
            self.items(4)
        if self.random.random() < 0.7:
            self.thread = 2
            with self.t.thread(2, start=self.t.now + 5):
                self.backward(2)
        else:
            with self.t.python("engine.py(1): backward"):
                self.backward(2)
        return self.t

    def items(self, depth: int) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.t.work(2)
            kind = self.random.choice(("module", "function", "op", "op"))
            if kind == "op" or not depth:
                self.op(depth)
                continue
            number = self.random.randint(0, 3)
            around = (
                self.t.module(f"Part_{number}") if kind == "module" else self.t.python(f"net.py({number}): forward")
            )
            with around:
                self.t.work(2)
                self.items(depth - 1)
                self.t.work(2)

    def op(self, depth: int) -> None:
        recorded = self.random.random() < 0.6
        described = {}
        if recorded:
            self.sequence[self.thread] += 1
            self.waiting.append((self.thread, self.sequence[self.thread]))
            described = {"seq_id": self.sequence[self.thread]}
        with self.t.op(f"op {len(self.t.ops)} {self.t.now}", **described):
            self.t.work(2)
            if depth and self.random.random() < 0.3:
                self.items(depth - 1)
            if self.random.random() < 0.5:
                self.t.launch("kernel", duration=3)
            self.t.work(2)

    def backward(self, depth: int) -> None:
        waiting, self.waiting = self.waiting[::-1], []
        for thread, number in waiting:
            self.t.work(2)
            with self.t.op(f"backward {thread} {number}", seq_id=number, fw_thread=thread):
                self.t.work(2)
                if depth > 0 and self.random.random() < 0.3:
                    self.items(2)
                self.t.leaf(f"derived {number}", 3)
                self.t.work(2)
        if self.waiting:
            self.backward(depth - 1)


@given(st.integers(0, 1 << 30))
def test_random_runs_have_the_places_that_a_slow_search_finds(seed: int) -> None:
    t = Draft(seed).play()
    compared(link_run(t, modules=True), Reference(t.device_trace()["traceEvents"]))


def test_a_recorded_training_has_the_places_that_a_slow_search_finds(data: Path) -> None:
    folder = data / "modules"
    inside = checked(folder / "host_rank0.json.gz", folder / "device_rank0.json.gz")
    assert inside > 1000


def played(step: int, length: int, pid: int) -> TraceBuilder:
    """A step that begins with so long a pause and launches a kernel outside of ops, too."""
    t = TraceBuilder(rank=0, pid=pid)
    with t.annotation(f"ProfilerStep#{step}"):
        t.work(length)
        forward(t)
        with t.module("Net_0"), t.python("triton.py(9): run"):
            t.launch("triton kernel", duration=length)
    backward(t)
    return t


def in_windows(folder: Path, pid: int = 1000) -> list[str]:
    """The paths of a host trace, of a device trace of another step, and of a detail trace of the host trace's."""
    t, other = played(3, 2, 1000), played(5, 9, pid)
    device = t.device_trace()
    device["traceEvents"] = [row for row in device["traceEvents"] if row.get("cat") != "python_function"]
    folder.mkdir(exist_ok=True)
    paths = [str(folder / f"{window}_rank0.json") for window in ("host", "device", "detail")]
    for path, trace in zip(paths, (other.host_trace(), device, other.device_trace()), strict=True):
        Path(path).write_text(json.dumps({"execgraph_window": Path(path).name.split("_")[0]} | trace))
    return paths


def test_what_a_detail_trace_tells_comes_over_to_the_same_ops_and_calls_of_other_steps(tmp_path: Path) -> None:
    host, device, detail = in_windows(tmp_path)
    linked, details = link(host, device, modules=True, detail=detail), link(host, detail, modules=True)
    for name in ("ops", "calls", "activities"):
        found, expected = (places(getattr(one, name)) for one in (linked, details))
        assert expected.pop("ProfilerStep#5", None) == found.pop("ProfilerStep#3", None)
        assert found == expected
    assert places(linked.activities)["triton kernel"] == Place("Net_0", "triton.py(9): run")
    assert not linked.report.notes
    assert linked.ops.start.tolist() == link(host, device).ops.start.tolist()
    (rows, known), middle = same_ops(linked, details), (details.ops.start + details.ops.end) // 2
    _, moved = moved_times(linked, details, details.ops.thread[known], middle[known])
    assert ((linked.ops.start[rows] <= moved) & (moved <= linked.ops.end[rows])).all()


def test_folders_give_the_detail_trace_and_one_that_is_of_something_else_is_said(tmp_path: Path, capsys) -> None:
    host, device, detail = in_windows(tmp_path / "traces")
    out = tmp_path / "out"
    run(trace_build.main, "--modules", tmp_path / "traces", "-o", out)
    run(trace_link.main, "-q", "--modules", detail, host, device, "-o", tmp_path / "linked.json")
    told = texts(ExecutionGraph.read(str(out / "graph.0.et")))
    assert told == texts(convert(read_linked(str(tmp_path / "linked.json"))))
    run(trace_diagnose.main, tmp_path / "traces")
    assert "modules, stacks or memory of 11 host ops in a detail trace beside these" in capsys.readouterr().out
    Path(in_windows(tmp_path / "other", pid=77)[2]).rename(detail)
    run(trace_build.main, tmp_path / "traces", "-o", out)
    run(trace_diagnose.main, tmp_path / "traces")
    said = capsys.readouterr()
    assert "detail_rank0.json: has no device trace (process 77" in said.err
    assert "1 detail traces without the device trace of their process, skipped" in said.out
    refused = link(host, device, modules=True, detail=detail)
    assert refused.ops.module is None and re.search("process 77 in .*; so its modules", refused.report.notes[-1])


@pytest.mark.skipif(not TRACES, reason="needs EXECGRAPH_TRACES")
@pytest.mark.parametrize("name", ["captures/mlp_attn_stack", "device_only/h100_bert", "device_only/mi300_bert"])
def test_real_traces_have_the_places_that_a_slow_search_finds(name: str) -> None:
    path = Path(str(TRACES)) / name
    pair = (path / "et.json.gz", path / "kineto.json.gz") if path.is_dir() else (None, Path(f"{path}.json.gz"))
    assert checked(*pair) > 400


def checked(host: Path | None, device: Path) -> int:
    read = read_host_trace(str(host)) if host else None
    linked = link(read, read_device_trace(str(device), modules=True))
    return compared(linked, Reference(rows_of(device)))


def run(main: Any, *arguments: object) -> None:
    """A command that ends well."""
    assert status_of(main, *arguments) == 0


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    t = TraceBuilder(rank=0)
    forward(t)
    backward(t)
    (tmp_path / "traces").mkdir()
    return t.write(tmp_path / "traces")


def test_commands_carry_them_from_the_traces_to_the_graph_and_its_json_form(pair, tmp_path):
    linked, graph, built = tmp_path / "linked.json.gz", tmp_path / "graph.et", tmp_path / "built"
    run(trace_link.main, "-q", "--modules", "--host-trace", pair[0], "--device-trace", pair[1], "--output", linked)
    run(trace_convert.main, "-q", "--input", linked, "--output", graph)
    for more in (["--modules"], [], ["--modules"]):  # one without is another build
        run(trace_build.main, "-q", *more, "--input-dir", pair[0].parent, "--output-dir", built)
        assert ("module" in ExecutionGraph.read(str(built / "graph.0.et")).attributes) is bool(more)
    expected = texts(ExecutionGraph.read(str(graph)))
    assert ("sgemm backward 0", "Net_0/Block_0/Linear_0", "linear.py(5): forward") in expected
    assert texts(ExecutionGraph.read(str(built / "graph.0.et"))) == expected
    run(trace_jsonize.main, "-q", "--input", graph, "--output", tmp_path / "graph.json")
    run(trace_jsonize.main, "-q", "--input", tmp_path / "graph.json", "--output", tmp_path / "again.et")
    assert (tmp_path / "again.et").read_bytes() == graph.read_bytes()


def test_a_rank_that_is_taken_out_of_merged_ones_keeps_them(tmp_path: Path) -> None:
    expected = []
    for rank in (0, 1):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000)
        t.work(rank)
        with t.module(f"Net_{rank}"):
            product(t, rank)
        _, device = t.write(tmp_path)
        expected.append(places(link(None, read_device_trace(str(device), modules=True)).ops))
    merged = tmp_path / "merged.json"
    run(trace_merge.main, "-q", *(tmp_path / f"device_rank{rank}.json" for rank in (0, 1)), "--output", merged)
    for rank in (0, 1):
        found = places(link(None, read_device_trace(str(merged), modules=True), rank).ops)
        assert found == expected[rank] and found[f"aten::mm {rank}"].module == f"Net_{rank}"
