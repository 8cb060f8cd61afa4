"""Time by module: device, host, operations, critical path; from annotations where Python's calls are unknown."""

import os
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.analyses import RankTrace, Table, analyse, graph_of, rank_of_graph, read_rank, trace_diff
from support.builder.timeline import TraceBuilder
from support.references import Reference, picked, rows_of
from support.runs import link_run

TRACES = os.environ.get("EXECGRAPH_TRACES")
MATRIX = 8
PRODUCT = 2 * MATRIX**3
"""Operations of a product of two such matrices."""


def rank(linked: LinkedTrace, graph: bool = False) -> RankTrace:
    return RankTrace(0, linked, graph_of(linked) if graph else None)


def table_of(one: RankTrace, name: str = "modules") -> Table:
    return analyse([one], ["modules"])[name]


def by_path(table: Table) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in table.rows()}


def product(t: TraceBuilder, name: str, duration: float, **described: Any) -> None:
    a, b, c = (t.tensor((MATRIX, MATRIX)) for _ in range(3))
    with t.op("aten::mm", inputs=[a, b], outputs=[c], **described):
        t.work(3)
        t.launch(name, duration=duration)


def run(slow: float = 1) -> TraceBuilder:
    """Net_0 with two products in Linear_0 of Block_0, one of its own, one outside; and the backward of one."""
    t = TraceBuilder()
    with t.module("Net_0"):
        t.work(2)
        with t.module("Block_0"), t.module("Linear_0"):
            product(t, "first", 20 * slow, seq_id=1)
            t.work(3)
            product(t, "second", 10)
        t.work(4)
        product(t, "own", 5)
    product(t, "outside", 7)
    with t.thread(2, start=t.now + 5):
        product(t, "backward", 40, seq_id=1, fw_thread=1)
    return t


def test_a_module_has_its_own_time_and_that_of_the_modules_in_it() -> None:
    rows = by_path(table_of(rank(link_run(run(), modules=True))))
    assert [(path, row["depth"], row["name"]) for path, row in rows.items()] == [
        ("Net_0", 0, "Net_0"),
        ("Net_0/Block_0", 1, "Block_0"),
        ("Net_0/Block_0/Linear_0", 2, "Linear_0"),
        ("", 0, "outside of modules"),
    ]
    assert [row["device_self"] for row in rows.values()] == [5, 0, 70, 7]
    assert [row["device_subtree"] for row in rows.values()] == [75, 70, 70, 7]
    assert [row["operations_self"] for row in rows.values()] == [PRODUCT, 0, 3 * PRODUCT, PRODUCT]
    assert [row["operations_subtree"] for row in rows.values()] == [4 * PRODUCT, 3 * PRODUCT, 3 * PRODUCT, PRODUCT]
    assert [row["host_subtree"] for row in rows.values()] == [28, 21, 21, 7]
    assert [row["activities"] for row in rows.values()] == [4, 3, 3, 1]
    assert [round(row["device_pct"], 6) for row in rows.values()] == [
        round(100 * part / 82, 6) for part in (75, 70, 70, 7)
    ]


def test_a_module_that_is_called_by_itself_counts_once(t: TraceBuilder) -> None:
    with t.module("Net_0"):
        product(t, "outer", 5)
        with t.module("Net_0"):
            product(t, "inner", 10)
    [row] = table_of(rank(link_run(t, modules=True))).rows()
    assert (row["path"], row["device_self"], row["device_subtree"], row["activities"]) == ("Net_0", 15, 15, 2)


def test_the_critical_path_is_shared_out_whole() -> None:
    linked = link_run(run(), modules=True)
    one = rank(linked, graph=True)
    rows = by_path(table_of(one))
    replay = one.replay
    assert replay is not None
    assert sum(row["critical_self"] for row in rows.values()) * 1000 == pytest.approx(replay.makespan_ns)
    assert rows["Net_0"]["critical_pct"] + rows[""]["critical_pct"] == pytest.approx(100)
    assert (
        rows["Net_0/Block_0/Linear_0"]["critical_self"] >= 60
    )  # the kernels that the backward one waits for, and that one


def test_idle_time_of_the_host_belongs_to_what_the_ops_beside_it_have_in_common(t: TraceBuilder) -> None:
    with t.module("Net_0"):
        for name, pause in (("Linear_0", 30), ("Linear_1", 50)):
            with t.module(name):
                t.leaf("aten::mm", 10)
                t.work(pause)
                t.leaf("aten::add", 10)
            t.work(100)
    t.leaf("aten::item", 10)
    rows = by_path(table_of(rank(link_run(t, modules=True), graph=True)))
    assert {path: row["critical_self"] for path, row in rows.items()} == {
        "Net_0": 100, "Net_0/Linear_0": 50, "Net_0/Linear_1": 70, "": 110,
    }  # fmt: skip


def test_the_functions_of_python_have_their_own_time(t: TraceBuilder) -> None:
    with t.module("Net_0"):
        for number in (5, 20):
            with t.python(f"net.py({number}): forward"):
                product(t, f"kernel {number}", number)
    rows = table_of(rank(link_run(t, modules=True)), "modules_by_function").rows()
    found = picked(rows, "function", "device", "operations")
    assert found == [("net.py(20): forward", 20, PRODUCT), ("net.py(5): forward", 5, PRODUCT)]


def test_without_calls_of_python_annotations_stand_in_and_the_note_says_so(t: TraceBuilder) -> None:
    with t.annotation("ProfilerStep#1"), t.annotation("train"), t.annotation("forward"):
        product(t, "first", 20)
    table = table_of(rank(link_run(t)))
    assert "annotations of the user replace modules" in table.note
    rows = by_path(table)
    assert {path: row["device_subtree"] for path, row in rows.items()} == {"train": 20, "train/forward": 20}
    bare = TraceBuilder()
    product(bare, "kernel", 20)
    table = table_of(rank(link_run(bare)))
    assert len(table) == 0 and "of which the run has none" in table.note


def annotated(caller: bool) -> TraceBuilder:
    """A forward pass in an annotation, and its backward pass on another thread, called from an annotation or none."""
    t = TraceBuilder()
    with t.annotation("forward"):
        product(t, "first", 20, seq_id=1)
    with t.annotation("backward") if caller else t.annotation("ProfilerStep#1"):
        t.leaf("aten::ones_like", 5)
        with t.thread(2):
            product(t, "second", 40, seq_id=1, fw_thread=1)
        t.join_thread(2)
    return t


@pytest.mark.parametrize(("caller", "times"), [(True, {"forward": 20, "backward": 40}), (False, {"forward": 60})])
def test_a_worker_of_the_backward_pass_belongs_to_the_annotation_that_called_it_or_that_of_forward_ops(caller, times):
    rows = by_path(table_of(rank(link_run(annotated(caller)))))
    assert {path: row["device_self"] for path, row in rows.items() if row["device_self"]} == times


def test_a_graph_alone_tells_the_device_time_of_its_modules() -> None:
    linked = link_run(run(), modules=True)
    whole, alone = (by_path(table_of(one)) for one in (rank(linked), rank_of_graph(graph_of(linked))))
    assert {path: row["device_subtree"] for path, row in alone.items()} == {
        path: row["device_subtree"] for path, row in whole.items()
    }
    assert alone["Net_0"]["operations_subtree"] == 4 * PRODUCT and alone["Net_0"]["host_self"] is None


def test_two_runs_are_compared_by_module() -> None:
    before, after = ([rank(link_run(run(slow), modules=True))] for slow in (1, 3))
    [table] = [one for one in trace_diff(before, after).with_details() if one.name == "trace_diff_modules"]
    rows = by_path(table)
    assert {path: row["difference"] for path, row in rows.items()} == {
        "Net_0": 40, "Net_0/Block_0": 40, "Net_0/Block_0/Linear_0": 40, "": 0,
    }  # fmt: skip
    row = rows["Net_0/Block_0/Linear_0"]
    assert (row["device_time_a"], row["device_time_b"], row["count_a"], row["count_b"]) == (70, 110, 6, 6)


def test_runs_of_the_host_alone_are_compared_by_host_time(data: Path) -> None:
    ranks = [read_rank(str(data / "modules" / "device_rank0.json.gz"), graph=False, modules=True)]
    [table] = [one for one in trace_diff(ranks, []).with_details() if one.name == "trace_diff_modules"]
    rows = by_path(table)
    assert "host time" in table.title
    assert rows["Picture_0"]["difference"] == -rows["Picture_0"]["host_time_a"] < 0


def test_the_host_time_of_a_recorded_training_is_that_of_its_ops(data: Path) -> None:
    """Each op's time without that of the ops in it, from the rows of the file."""
    folder = data / "modules"
    one = read_rank(str(folder / "device_rank0.json.gz"), str(folder / "host_rank0.json.gz"), modules=True)
    reference = Reference(rows_of(folder / "device_rank0.json.gz"))
    annotations = {row["name"] for row in reference.rows if row.get("cat") == "user_annotation"}
    ops = sorted(reference.ops, key=lambda op: (op[0].start, -op[0].end))
    own = {here: here.end - here.start for here, _ in ops}
    for number, (here, _) in enumerate(ops):
        around = next((ops[before][0] for before in range(number)[::-1] if ops[before][0].holds(here)), None)
        if around:
            own[around] -= here.end - here.start
    expected: dict[str, float] = {}
    for here in (one for one, name in ops if name not in annotations):
        path = reference.place(here).module
        expected[path] = expected.get(path, 0) + own[here] / 1000
    told = {path: row["host_self"] for path, row in by_path(table_of(one)).items() if row["host_self"]}
    assert told == pytest.approx({path: time for path, time in expected.items() if time})
    assert "Picture_0/Block_0/MultiheadAttention_0" in told


@pytest.mark.skipif(not TRACES, reason="needs EXECGRAPH_TRACES")
@pytest.mark.parametrize("name", ["h100_bert", "mi300_bert", "mi300_vllm_decode_hipgraph"])
def test_the_device_time_of_real_traces_is_what_a_slow_search_sums_up(name: str) -> None:
    path = Path(str(TRACES)) / "device_only" / f"{name}.json.gz"
    rows = by_path(table_of(read_rank(str(path), modules=True)))
    found = {one: round(row["device_subtree"] * 1000) for one, row in rows.items() if row["device_subtree"]}
    assert found == Reference(rows_of(path)).device_time()
