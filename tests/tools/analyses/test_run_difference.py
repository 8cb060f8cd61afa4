"""What is faster, and why: step and run first, then what they were spent on."""

from execgraph.tools.analyses import RankTrace, trace_diff
from support.builder.timeline import TraceBuilder
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


def test_the_note_says_which_ranks_each_row_is_of() -> None:
    def note(ranks: int) -> str:
        run = [two_steps(kernel=100, work=20)] * ranks
        return trace_diff(run, run).details[-1].note

    assert note(1) == "step: the median; parts: the mean of a step"
    assert note(2) == ("step: the median of all ranks; run: the slowest rank; parts: the mean of a step of all ranks")
