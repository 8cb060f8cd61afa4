"""What the main thread does in each step, on runs played by hand."""

from typing import Any

from execgraph.linker.link import link
from execgraph.tools.analyses import RankTrace, analyse
from support.builder.timeline import TraceBuilder
from support.folders import TESTS
from support.runs import link_run

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
