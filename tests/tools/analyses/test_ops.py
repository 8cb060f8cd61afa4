"""Device time by op, kernel patterns and the diff of two runs, beside references that walk up from every op; of two
runs the step and the run come first, then what they were spent on.
"""

import statistics
from collections import Counter
from typing import Any

import pytest
from execgraph.schema.linked import op_tree
from execgraph.tools.analyses import AnalysisOptions, RankTrace, analyse, trace_diff
from execgraph.tools.analyses.device_time import ARROW
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.references import Act, Call, Op, began, below, exclusive, launched_below, linked_of, ops_of, picked
from support.runs import link_run

NAMES = st.sampled_from(["aten::linear", "aten::mm", "aten::add"])
SHAPES = st.sampled_from(["[]", "[[4,8]]", "[[8,8],[]]"])


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Act], list[Call], list[Op]]:
    """Ops that call each other to any depth, each launching at any of its moments; kernels that run in any order."""
    ops: list[Op] = []
    for place in range(draw(st.integers(1, 8))):
        ops.append(Op(place, 100 - place, draw(st.integers(-1, place - 1)), draw(NAMES), draw(SHAPES)))
    moments = draw(st.permutations(range(10)))
    calls = [Call(10 * time, 10 * time + 5, draw(st.integers(-1, len(ops) - 1))) for time in moments]
    acts = st.builds(
        lambda start, length, name, call: Act(start, start + length, name=name, call=call),
        st.integers(0, 200), st.integers(0, 9), st.sampled_from("pqr"), st.integers(0, len(calls) - 1),
    )  # fmt: skip
    return draw(st.lists(acts, max_size=12)), calls, ops


def rank_of(program: tuple[list[Act], list[Call], list[Op]], rank: int = 0) -> RankTrace:
    return RankTrace(rank, linked_of(*program))


def kinds_of(ops: list[Op], keys: tuple[str, ...] = ("name", "shape")) -> dict[tuple[str, ...], list[int]]:
    """The ops of each name and shape, or of each name."""
    found: dict[tuple[str, ...], list[int]] = {}
    for place, op in enumerate(ops):
        found.setdefault((op.name, op.shapes.removeprefix("[]"))[: len(keys)], []).append(place)
    return found


def names_around(ops: list[Op], op: int) -> list[str]:
    """The names of an op's callers."""
    found = []
    while (op := ops[op].parent) >= 0:
        found.append(ops[op].name)
    return found


@given(programs())
def test_an_op_owns_the_device_time_of_its_subtree_and_ops_of_a_kind_own_it_once(program):
    acts, calls, ops = program
    tables = analyse([rank_of(program)], ["per_op_device_time"])
    rows = {row["op"] - 1: row for row in tables["per_op_device_time"].rows()}
    for op in range(len(ops)):
        own = [act.end - act.start for act in acts if calls[act.call].op == op]
        subtree = [act.end - act.start for act in launched_below(acts, calls, ops, op)]
        assert (op in rows) == bool(subtree)
        if subtree:
            found = [round(1000 * rows[op][name]) for name in ("self", "subtree")]
            assert [*found, rows[op]["count"]] == [sum(own), sum(subtree), len(subtree)]
            assert round(1000 * rows[op]["start"]) == ops[op].start - began(acts, calls, ops)
    for keys in (("name",), ("name", "shape")):
        of_kinds = tables[f"per_op_device_time_by_{keys[-1]}"].rows()
        row_of = {tuple(row[key] for key in keys): row for row in of_kinds}
        for kind, own in kinds_of(ops, keys).items():
            launching = [op for op in own if launched_below(acts, calls, ops, op)]
            inside = set().union(*(below(ops, op) for op in own))
            subtree = [act.end - act.start for act in acts if calls[act.call].op in inside]
            alone = [act.end - act.start for act in acts if calls[act.call].op in own]
            assert (kind in row_of) == bool(launching)
            if launching:
                row = row_of[kind]
                assert (row["ops"], row["count"]) == (len(launching), len(subtree))
                assert [round(1000 * row[name]) for name in ("self", "subtree")] == [sum(alone), sum(subtree)]
        assert [row["subtree"] for row in of_kinds] == sorted((row["subtree"] for row in of_kinds), reverse=True)


@given(programs())
def test_ops_of_a_kind_keep_the_host_once(program: tuple[list[Act], list[Call], list[Op]]) -> None:
    _, _, ops = program
    found = analyse([rank_of(program)], ["host_time_per_op"])
    rows = {(row["name"], row["shape"]): row for row in found["host_time_per_op_by_shape"].rows()}
    assert rows.keys() == kinds_of(ops).keys()
    for kind, own in kinds_of(ops).items():
        nested = set().union(*(below(ops, op) - {op} for op in own))
        lengths = [ops[op].end - ops[op].start for op in own]
        total = sum(ops[op].end - ops[op].start for op in own if op not in nested)
        alone = sum(exclusive(ops, op) for op in own)
        assert rows[kind]["count"] == len(own)
        assert [round(1000 * rows[kind][name]) for name in ("total", "self")] == [total, alone]
        assert 1000 * rows[kind]["mean"] == pytest.approx(statistics.mean(lengths))
    alone = [round(1000 * row["self"]) for row in found["host_time_per_op"].rows()]
    assert alone == sorted(alone, reverse=True) and sum(alone) == sum(exclusive(ops, op) for op in range(len(ops)))


def test_host_time_is_told_by_thread_on_a_cpu_alone(t: TraceBuilder) -> None:
    with t.op("aten::linear", inputs=[t.tensor((4, 8))]):
        t.work(10)
        t.leaf("aten::mm", 30)
    t.leaf("aten::mm", 20)
    with t.thread(2):
        t.leaf("aten::mm", 7)
    found = analyse([RankTrace(0, link_run(t))])
    rows = {(row["name"], row["thread"]): row for row in found["host_time_per_op"].rows()}
    (main,) = {thread for name, thread in rows if name == "aten::linear"}
    (other,) = {thread for _, thread in rows} - {main}
    told = ("count", "total", "self", "mean")
    assert [rows["aten::mm", main][name] for name in told] == [2, 50.0, 50.0, 25.0]
    assert [rows["aten::mm", other][name] for name in told] == [1, 7.0, 7.0, 7.0]
    assert [rows["aten::linear", main][name] for name in told] == [1, 40.0, 10.0, 40.0]
    by_shape = {(row["name"], row["shape"]): row["total"] for row in found["host_time_per_op_by_shape"].rows()}
    assert by_shape == {("aten::linear", "[[4,8]]"): 40.0, ("aten::mm", ""): 57.0}
    assert len(found["per_op_device_time_by_shape"]) == 0


@given(programs())
def test_delays_of_launches_are_told_by_the_op_that_launched(program: tuple[list[Act], list[Call], list[Op]]) -> None:
    acts, calls, ops = program
    first = {act.call: min(other.start for other in acts if other.call == act.call) for act in acts}
    delays: dict[str, list[int]] = {}
    for call, start in first.items():
        name = ops[calls[call].op].name if calls[call].op >= 0 else ""
        delays.setdefault(name, []).append(max(start - calls[call].end, 0))
    found = analyse([rank_of(program)], ["launch_statistics"], AnalysisOptions(long_delay_us=0.05))
    rows = found["launch_statistics_delay_by_op"].rows()
    assert {row["op"]: row["launches"] for row in rows} == {name: len(own) for name, own in delays.items()}
    for row in rows:
        own = delays[row["op"]]
        expected = [statistics.mean(own), statistics.median(own), max(own)]
        assert [1000 * row[f"delay_{name}"] for name in ("mean", "median", "max")] == pytest.approx(expected)
        assert row["long_delay"] == sum(delay > 50 for delay in own)


@given(st.lists(st.integers(-1, 8), max_size=9))
def test_preorder_numbers_a_subtree_without_gaps(parents: list[int]) -> None:
    ops = [Op(place, 100, min(parent, place - 1)) for place, parent in enumerate(parents)]
    tree = op_tree(ops_of(ops))
    assert sorted(tree.first.tolist()) == list(range(len(ops)))
    for op in range(len(ops)):
        inside = {place for place in range(len(ops)) if tree.first[op] <= tree.first[place] < tree.last[op]}
        assert inside == below(ops, op)


@given(programs(), st.sampled_from(["", "linear", "aten::m"]))
def test_patterns_are_what_an_operator_launched_in_launch_order(program, operator):
    acts, calls, ops = program
    expected: Counter[tuple[str, str]] = Counter()
    device: Counter[tuple[str, str]] = Counter()
    host: Counter[tuple[str, str]] = Counter()
    for op, (start, end, _, name, _) in enumerate(ops):
        launched = launched_below(acts, calls, ops, op)
        if operator in name and launched and name not in names_around(ops, op):
            key = (name, ARROW.join(act.name for act in launched))
            expected[key] += 1
            device[key] += sum(act.end - act.start for act in launched)
            host[key] += end - start
    rows = analyse([rank_of(program)], ["frequent_kernel_patterns"], AnalysisOptions(operator=operator))[
        "frequent_kernel_patterns"
    ].rows()
    keys = picked(rows, "operator", "pattern")
    assert {key: row["count"] for key, row in zip(keys, rows, strict=True)} == expected
    assert {key: round(1000 * row["device_time"]) for key, row in zip(keys, rows, strict=True)} == device
    assert {key: round(1000 * row["host_time"]) for key, row in zip(keys, rows, strict=True)} == host
    assert [row["count"] for row in rows] == sorted((row["count"] for row in rows), reverse=True)


def test_operators_that_launch_too_much_are_counted_not_shown() -> None:
    acts = [Act(place, place + 1, call=place) for place in range(3)]
    calls = [Call(0, 1, 0), Call(2, 3, 1), Call(4, 5, 1)]
    ops = [Op(0, 9, name="outer"), Op(1, 9, 0, name="inner")]
    found = analyse([rank_of((acts, calls, ops))], ["frequent_kernel_patterns"], AnalysisOptions(longest_pattern=2))
    table = found["frequent_kernel_patterns"]
    assert [row["operator"] for row in table.rows()] == ["inner"]
    assert table.note == "1 operators that launched more than 2 activities are not in it"


def step(number: int, kernels: list[str], shape: tuple[int, int] = (4, 8)) -> RankTrace:
    """A step of one linear layer that launches these kernels, the last one by an op inside."""
    t = TraceBuilder()
    with t.annotation(f"ProfilerStep#{number}"), t.op("aten::linear", inputs=[t.tensor(shape)]):
        for name in kernels[:-1]:
            t.launch(name, duration=10)
        with t.op("aten::addmm", inputs=[t.tensor(shape)]):
            t.launch(kernels[-1], duration=30)
    t.device_synchronize()
    return RankTrace(0, link_run(t))


def by_name(rows: list[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], str]:
    return {tuple(row[name] for name in names): row["category"] for row in rows}


def test_the_same_run_twice_does_not_differ() -> None:
    found = trace_diff([step(3, ["bias", "gemm"])], [step(7, ["bias", "gemm"])])
    assert {row["category"] for row in found.rows()} == {"same"}
    assert [row["difference"] for row in found.rows()] == [0.0] * len(found)
    assert {row["category"] for row in found.details[0].rows()} == {"same"}


def test_what_was_added_removed_or_grew_is_told_by_name_and_shape() -> None:
    rows = trace_diff([step(1, ["bias", "bias", "gemm"])], [step(1, ["bias", "fused"], (16, 8))]).rows()
    categories = by_name(rows, "kind", "name", "shape")
    assert categories["kernel", "gemm", "[[4,8]]"] == "removed"
    assert categories["kernel", "fused", "[[16,8]]"] == "added"
    assert categories["op", "aten::linear", "[[4,8]]"] == "removed"
    assert categories["op", "ProfilerStep#", ""] == "faster"
    again = trace_diff([step(1, ["bias", "bias", "gemm"])], [step(1, ["bias", "gemm"])]).rows()
    assert by_name(again, "kind", "name")["kernel", "bias"] == "fewer"
    assert next(row["difference"] for row in again if row["name"] == "bias") == -10.0


def test_a_category_says_what_the_sign_of_the_difference_says() -> None:
    """Run B has more kernels of a name, which take less time in all: it is faster there."""
    one, other = [Act(0, 100, name="gemm")], [Act(0, 10, name="gemm"), Act(20, 30, name="gemm")]
    (row,) = trace_diff([RankTrace(0, linked_of(one))], [RankTrace(0, linked_of(other))]).rows()
    assert (row["count_a"], row["count_b"], row["difference"], row["category"]) == (1, 2, -0.08, "faster")


def test_calls_are_compared_beside_ops_and_kernels() -> None:
    rows = {row["name"]: row for row in trace_diff([step(1, ["gemm"])], [step(1, ["bias", "gemm"])]).rows()}
    launch, wait = rows["cudaLaunchKernel"], rows["cudaDeviceSynchronize"]
    assert (launch["kind"], launch["count_a"], launch["count_b"], launch["category"]) == ("call", 1, 2, "more")
    assert launch["time_b"] == 2 * launch["time_a"] and (wait["kind"], wait["category"]) == ("call", "slower")


def test_a_moved_kernel_shows_at_both_places_of_the_call_tree() -> None:
    tree = trace_diff([step(1, ["bias", "gemm"])], [step(1, ["gemm", "bias"])]).details[0]
    assert by_name(tree.rows(), "path") == {
        ("ProfilerStep#",): "same",
        ("ProfilerStep# > aten::linear",): "same",
        ("ProfilerStep# > aten::linear > aten::addmm",): "same",
        ("ProfilerStep# > aten::linear > cudaLaunchKernel",): "same",
        ("ProfilerStep# > aten::linear > aten::addmm > cudaLaunchKernel",): "same",
        ("cudaDeviceSynchronize",): "same",
        ("ProfilerStep# > aten::linear > aten::addmm > gemm",): "removed",
        ("ProfilerStep# > aten::linear > aten::addmm > bias",): "added",
        ("ProfilerStep# > aten::linear > bias",): "removed",
        ("ProfilerStep# > aten::linear > gemm",): "added",
    }
    rows = {row["name"]: row for row in tree.rows() if row["kind"] == "op"}
    assert rows["aten::linear"]["device_time_a"] == 40.0
    assert [row["depth"] for row in tree.rows()][:3] == [0, 1, 2]


@given(programs(), programs())
def test_sums_of_a_diff_are_those_of_its_runs(one, other):
    found = trace_diff([rank_of(one), rank_of(one, 1)], [rank_of(other)])
    rows, leaves = ([row for row in table.rows() if row["kind"] == "kernel"] for table in (found, found.details[0]))
    for side, runs in (("a", [one, one]), ("b", [other])):
        acts = [act for run in runs for act in run[0]]
        names = Counter(act.name for act in acts)
        for name in names:
            assert sum(row[f"count_{side}"] for row in rows if row["name"] == name) == names[name]
        total = sum(act.end - act.start for act in acts)
        assert round(1000 * sum(row[f"time_{side}"] for row in rows)) == total
        assert round(1000 * sum(row[f"device_time_{side}"] for row in leaves)) == total


def two_steps(kernel: float, work: float, steps: int = 2) -> RankTrace:
    t = TraceBuilder(sync_records=True)
    for step in range(steps):
        with t.annotation(f"ProfilerStep#{step}"):
            with t.op("aten::mm"):
                t.work(work)
                t.launch("gemm", duration=kernel)
            t.device_synchronize()
    return RankTrace(0, link_run(t))


def test_step_and_run_come_first_then_the_largest_differences() -> None:
    *_, table = trace_diff([two_steps(kernel=100, work=20)], [two_steps(kernel=40, work=50)]).details
    rows = {row["part"]: row for row in table.rows()}
    assert [*rows][:3] == ["step", "run", "device: computing"]
    assert rows["device: computing"]["difference"] == -60 and rows["device: computing"]["change"] == -60
    assert abs(rows["step"]["difference"] + 30) < 2  # 60 µs less of the device, 30 µs more of the host
    assert rows["host: forward and other"]["difference"] == 30


def test_runs_of_different_numbers_of_steps_are_compared_by_a_step() -> None:
    table = trace_diff([two_steps(100, 20)], [two_steps(100, 20, steps=3)])
    assert table.note == "of a step: run A has 2 steps, run B 3"
    assert {(row["category"], row["count_b"]) for row in table.rows()} == {("same", 1)}
    whole = trace_diff([two_steps(100, 20)], [rank_of(([Act(0, 100)], ()))])
    assert whole.note == "of whole runs, as the steps of run B are not known"


def test_the_note_says_which_ranks_each_row_is_of() -> None:
    def note(ranks: int) -> str:
        run = [two_steps(kernel=100, work=20)] * ranks
        return trace_diff(run, run).details[-1].note

    assert note(1) == "step: the median; parts: the mean of a step"
    assert note(2) == ("step: the median of all ranks; run: the slowest rank; parts: the mean of a step of all ranks")
