"""Steps: how long each took, what of it the device was busy, what bound it, which stand out, and what the main thread
did in each.
"""

from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.tools.analyses import RankTrace, Table, analyse, graph_of
from support.builder.timeline import TraceBuilder
from support.folders import TESTS
from support.runs import link_run


def step(t: TraceBuilder, number: int, *, host: float = 5, kernel: float = 100) -> None:
    with t.annotation(f"ProfilerStep#{number}"), t.op("aten::mm"):
        t.work(host)
        t.launch("gemm", duration=kernel)
        t.device_synchronize()


def table_of(t: TraceBuilder, graph: bool = True) -> Table:
    linked = link_run(t)
    return analyse([RankTrace(0, linked, graph_of(linked) if graph else None)], ["step_breakdown"])["step_breakdown"]


def test_steps_fill_the_time_from_the_first_to_the_last() -> None:
    t = TraceBuilder()
    for number, kernel in enumerate((100, 200, 300)):
        step(t, number, kernel=kernel)
    rows = table_of(t).rows()
    assert [row["step"] for row in rows] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert [row["busy"] for row in rows] == [row["computation"] for row in rows] == [100, 200, 300]
    assert sum(row["time"] for row in rows) == pytest.approx(t.makespan_us)
    for row in rows:
        assert row["idle_pct"] == pytest.approx(100 * (1 - row["busy"] / row["time"]))


def test_what_most_of_the_critical_path_is_bounds_a_step() -> None:
    t = TraceBuilder()
    step(t, 0, host=5, kernel=100)
    step(t, 1, host=300, kernel=100)
    device, host = table_of(t).rows()
    assert (device["bound"], host["bound"]) == ("device", "host")
    assert device["by_device"] > 80 > 30 > host["by_device"]


def test_without_a_graph_what_bounds_a_step_is_not_known() -> None:
    t = TraceBuilder()
    step(t, 0)
    (row,) = table_of(t, graph=False).rows()
    assert (row["by_device"], row["bound"], row["busy"]) == (None, "", 100)


def test_communication_beside_no_computation_is_exposed() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    group = t.group([0, 1])
    with t.annotation("ProfilerStep#0"), t.op("aten::mm"):
        t.launch("gemm", stream=7, duration=100)
        t.collective(group=group, after=None, duration=160)
        t.device_synchronize()
    (row,) = table_of(t).rows()
    assert row["computation"] == 100
    assert 0 < row["exposed_communication"] < 160
    assert row["busy"] == pytest.approx(100 + row["exposed_communication"])


def test_steps_that_stand_out_are_named() -> None:
    t = TraceBuilder()
    for number in range(9):
        step(t, number, kernel=900 if number == 4 else 20 if number == 7 else 300 + number)
    table = table_of(t)
    assert {row["step"]: row["outlier"] for row in table.rows() if row["outlier"]} == {
        "ProfilerStep#4": "slow",
        "ProfilerStep#7": "fast",
    }
    assert table.note.startswith("unlike the median of 3")
    assert "ProfilerStep#4 (9" in table.note


def test_steps_that_are_alike_have_no_outlier() -> None:
    t = TraceBuilder()
    for number in range(5):
        step(t, number, kernel=300 + number)
    assert {row["outlier"] for row in table_of(t).rows()} == {""}


def test_without_steps_the_run_is_one_and_without_activities_there_is_none() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("gemm", duration=100)
    assert [row["step"] for row in table_of(t).rows()] == ["whole run"]
    quiet = TraceBuilder()
    quiet.leaf("aten::add", 5)
    table = table_of(quiet)
    assert (len(table), table.note) == (0, "no activity ran in a step")


TRACES = TESTS / "data" / "modules"
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def phases(t: TraceBuilder) -> list[dict[str, Any]]:
    rows = analyse([RankTrace(0, link_run(t))], ["host_phases"])["host_phases"].rows()
    return [{key: round(value, 3) for key, value in row.items() if key not in ("rank", "step")} for row in rows]


def test_a_step_is_forward_backward_optimizer_data_loading_and_python() -> None:
    t = TraceBuilder()
    for step in range(2):
        with t.annotation(f"ProfilerStep#{step}"):
            with t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                t.leaf("aten::stack", 3)
                t.work(2)
            t.leaf("aten::mm", 10)
            t.work(4)
            with t.op(BACKWARD):
                t.leaf("aten::mm", 12)
            t.work(1)  # of the engine, between two ops of one pass
            with t.op(BACKWARD):
                t.leaf("aten::mm", 7)
            with t.annotation("Optimizer.step#SGD.step"):
                t.leaf("aten::add_", 6)
            t.work(5)
    step = {
        "forward": 10,
        "backward": 20,
        "optimizer": 6,
        "data_loading": 5,
        "waiting": 0,
        "between_ops": 9,
        "time": 50,
    }
    # the run ends with the last op
    assert phases(t) == [step, step | {"between_ops": 4, "time": 45}]


def test_an_op_that_had_ended_is_not_around_the_step_that_names_it_as_its_parent() -> None:
    """As in this real run, whose second step names an op of the first one's backward pass."""
    linked = link(TRACES / "host_rank0.json.gz", TRACES / "device_rank0.json.gz")
    steps = analyse([RankTrace(0, linked)], ["host_phases"])["host_phases"].rows()
    assert [round(float(str(step["forward"]))) for step in steps] == [12_441, 13_763]


def test_waiting_for_the_device_is_no_forward() -> None:
    t = TraceBuilder(sync_records=True)
    with t.annotation("ProfilerStep#0"), t.op("aten::item"):
        t.memcpy("DtoH", duration=40)
    (row,) = phases(t)
    assert row["waiting"] >= 40 and row["forward"] < 10


def test_without_steps_the_run_is_one_and_annotations_of_users_name_phases() -> None:
    t = TraceBuilder()
    with t.annotation("forward"):
        t.leaf("aten::mm", 10)
        t.work(5)
    with t.annotation("load batch"):
        t.work(20)
    t.leaf("aten::relu", 1)
    (row,) = phases(t)
    assert (row["forward"], row["data_loading"], row["time"]) == (16, 20, 36)
