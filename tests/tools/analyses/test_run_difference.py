"""What is faster, and why: step and run first, then what they were spent on."""

from execgraph.tools.analyses import RankTrace, trace_diff
from support.builder import TraceBuilder
from support.runs import link_run


def two_steps(kernel: float, work: float) -> RankTrace:
    t = TraceBuilder(sync_records=True)
    for step in range(2):
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
    assert rows["host: forward"]["difference"] == 30
