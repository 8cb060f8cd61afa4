"""What a report says first: what limits the run, and what its recording cannot tell."""

from pathlib import Path

import pytest
from execgraph.tools.analyses import Table
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.report import ReportRequest, find_sources, overview, report_on
from execgraph.tools.sync_records_advice import SETTING, sync_records_advice
from support.builder import TraceBuilder
from support.reports import needs_page, run, table

from benchmarks.programs import build_job


def test_a_run_without_a_device_says_so_once_and_shows_the_host(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    t = TraceBuilder(rank=0)
    t.leaf("aten::mm", 30)
    t.leaf("aten::add", 10)
    _, device = t.write(tmp_path)
    assert run(device, "--all") == 0
    said = capfd.readouterr().out
    assert said.startswith("All work is on the CPU: 100 % forward. aten::mm is the heaviest op")
    assert said.count("no device activity was recorded") == 1
    assert "Host time per op name and thread\n" in said and "Temporal breakdown\n" not in said
    report = report_on(find_sources([device]))
    tables = report.tables | {"ranks": report.ranks}
    assert "No device activity was recorded: the page shows the host alone." in overview.facts(tables)
    assert ("none", "device activities", "") in overview.key_figures(tables)


def test_the_sentences_name_what_limits_the_run(data: Path) -> None:
    report = report_on(find_sources([data / "training"]))
    assert report.verdict.startswith("Computation limits the run: 78 % of the critical path. ")
    assert report.verdict.endswith("Hiding that communication would save up to 19 % (863.3 µs).")
    tables = report.tables | {"ranks": report.ranks}
    said = overview.facts(tables)
    assert said[0] == "116 kernels, 8 communications, 2 copies and sets ran on 2 devices, 400 host ops on 2 ranks."
    assert "33 % of the communication is hidden behind computation." in said
    assert said[-1].startswith("The critical path is 78 % computation, ")
    assert [figure.label for figure in overview.key_figures(tables)][:3] == ["ranks", "measured run", "device busy"]
    assert overview.facts({}) == overview.key_figures({}) == []


def two_runs(ranks: int, loading_a: float) -> dict[str, Table]:
    """Steps of 100 and 20 ms, of which loading takes a part in the mean of the ranks."""
    runs = table(
        "trace_diff_runs", part=["step", "host: data loading"], a=[100e3, loading_a], b=[20e3, 10e3],
        difference=[-80e3, 10e3 - loading_a], change=[-80.0, -50.0],
    )  # fmt: skip
    work = table(
        "trace_diff", kind=["op"] * 3, name=["ProfilerStep#", "load batch", "aten::mm"], shape=["", "", "[[8]]"],
        category=["faster", "faster", "slower"], difference=[-240e3, -120e3, 40.0], count_a=[3, 3, 3], count_b=[3, 3, 3],
    )  # fmt: skip
    return runs | work | table("ranks", run=["A"] * ranks + ["B"] * ranks)


@pytest.mark.parametrize(
    ("ranks", "loading_a", "sentence"),
    [
        (1, 80e3, "Most of that is host data loading, 10.00 ms instead of 80.00 ms."),
        (1, 30e3, "The largest part of that is host data loading, 10.00 ms instead of 30.00 ms."),
        (2, 80e3, "Most of that is host data loading, 10.00 ms instead of 80.00 ms in the mean of 2 ranks."),
    ],
)
def test_the_cause_of_a_difference_says_how_much_of_it_and_of_how_many_ranks(
    ranks: int, loading_a: float, sentence: str
) -> None:
    assert overview.diff_verdict(two_runs(ranks, loading_a)).endswith(sentence)


def test_idle_time_is_no_cause_where_the_host_does_less() -> None:
    """Loading that takes 50 ms less explains most of 60 ms of idle time, 20 ms less do not."""

    def said(loading_b: float) -> str:
        runs = table(
            "trace_diff_runs", part=["step", "device: idle", "host: data loading"], a=[100e3, 80e3, 60e3],
            b=[40e3, 20e3, loading_b], difference=[-60e3, -60e3, loading_b - 60e3], change=[-60.0, -75.0, -80.0],
        )  # fmt: skip
        return overview.diff_verdict(runs | table("ranks", run=["A", "B"]))

    assert said(10e3).endswith("Most of that is host data loading, 10.00 ms instead of 60.00 ms.")
    assert said(40e3).endswith("Most of that is device idle, 20.00 ms instead of 80.00 ms.")


def test_work_that_differs_most_is_named_whoever_recorded_it() -> None:
    said = overview._run_difference(two_runs(1, 80e3))
    assert [*said][1:] == [
        "load batch: −120.00 ms (faster, 3 → 3 of them).",
        "aten::mm [[8]]: +40.0 µs (slower, 3 → 3 of them).",
    ]


def waiting_run(sync_records: bool) -> TraceBuilder:
    t = TraceBuilder(rank=3, sync_records=sync_records)
    with t.op("aten::mm", inputs=[t.tensor()]):
        t.launch("gemm", duration=50)
    t.stream_synchronize(7)
    return t


@needs_page
def test_a_run_without_synchronisation_records_is_told_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    waiting_run(sync_records=False).write(tmp_path)
    assert run("-q", tmp_path) == 0
    advice = sync_records_advice("rank 3")
    assert "The traces of rank 3 do not record what calls waited for" in capfd.readouterr().out
    assert run("-q", tmp_path, "--only", "temporal_breakdown") == 0
    assert capfd.readouterr().out.splitlines()[:4] == [*advice, ""]
    assert run("-q", tmp_path, "-o", tmp_path / "page.html") == 0
    html = (tmp_path / "page.html").read_text("utf-8")
    assert "The traces of rank 3 do not record what calls waited for" in html and SETTING in html


@needs_page
def test_a_run_with_synchronisation_records_gets_no_advice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    waiting_run(sync_records=True).write(tmp_path)
    assert run("-q", tmp_path) == 0
    assert "synchronisation" not in capfd.readouterr().out
    assert run("-q", tmp_path, "-o", tmp_path / "page.html") == 0
    assert "do not record what calls waited for" not in (tmp_path / "page.html").read_text("utf-8")


def test_one_advice_names_all_ranks_without_synchronisation_records(tmp_path: Path) -> None:
    write_traces(simulate(build_job("ddp", ranks=2, steps=1, layers=1)), tmp_path, sync_records=False)
    report = report_on(find_sources([tmp_path]), ReportRequest(only=["temporal_breakdown"], page=False))
    assert report.advice == sync_records_advice("ranks 0, 1")
