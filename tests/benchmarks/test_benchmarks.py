"""The benchmark and the ablation of rules on small inputs: their tables, peaks of memory, and work that fails."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.tools.replay import replay
from support.builder.timeline import TraceBuilder
from support.commands import Run
from support.folders import DATA
from support.runs import link_run

from benchmarks.bench import __main__ as bench
from benchmarks.bench.memory import anonymous_bytes, watched
from benchmarks.bench.results import Benchmark, Result, Size, build_share, changes_table, size_table

ablation = importlib.import_module("benchmarks.ablation.__main__")


def test_every_rule_has_a_row_and_without_launches_changed_runs_are_wrong(monkeypatch, run):
    monkeypatch.setattr(ablation, "NAMED", ("streams",))
    ended = run(ablation.main, "--random", "0", "--traces", str(DATA / "torch_2.9.1"))
    assert ended.code == 0
    lines = [line.split("|") for line in ended.out.splitlines()]
    rows = {cells[1].strip(): cells[3:6] for cells in lines if len(cells) > 6}
    assert rows["device_rank0.json.gz"][:2] == [" +0.00 ", " – "]
    assert float(rows["nothing"][1]) == 100
    assert float(rows["launch"][1]) < float(rows["nothing"][1])
    assert rows.keys() > {"program order", "launch", "stream order", "event wait", "host sync", "hand-off", "delays"}


def test_an_activity_that_depends_on_nothing_starts_as_long_after_the_trace_as_it_did(t: TraceBuilder) -> None:
    with t.op("aten::mm"):
        t.work(50)
        t.launch("kernel", duration=10)
    graph = convert(link_run(t), Options(left_out=("launch",), delays=False))
    [kernel] = np.flatnonzero(graph.is_activity)
    assert not len(graph.data_deps[kernel])
    assert graph.integers("gap_ns")[kernel] == graph.start_ns[kernel] - graph.start_ns.min()
    assert replay(graph).error_pct == pytest.approx(0)


@pytest.fixture
def two_sizes():
    def size(megabytes, seconds):
        results = [Result("link", seconds, 200_000_000), Result("link floor", [0.5], 80_000_000)]
        return Size(megabytes, megabytes * 1_000_000, {"graph nodes": 12_000}, results)

    return Benchmark("a machine", "3.11", "abc", [size(10, [1.0, 9.0, 2.0]), size(40, [8.0])])


def cells(table, work):
    return next(row for row in table.rows if row[0] == work)


def test_a_row_holds_the_median_rates_memory_and_ratio_to_the_floor_and_of_the_larger_size_the_growth(two_sizes):
    small, large = two_sizes.sizes
    table = size_table(small, small)
    assert cells(table, "link") == ["link", "2.00", "5", "6,000", "200", "20.0", "4.0"]
    assert len({len(line) for line in table.text().splitlines()[1:]}) == 1  # columns are aligned
    assert table.markdown().splitlines()[3].startswith("| --- | --: |")
    assert cells(size_table(large, small), "link")[-2:] == ["× 4.0", "× 1.0"]


def test_a_job_of_many_ranks_is_compared_with_the_smallest(two_sizes):
    small, large = (Size(0, ranks * 1_000_000, {}, [Result("build all", [ranks], 1)], ranks) for ranks in (2, 6))
    table = size_table(large, small)
    assert table.title == "6 ranks, 6 MB"
    assert (table.header[1], *table.header[-2:]) == ("s", "time, input × 3", "peak, input × 3")
    assert table.rows == [["build all", "6.00", "1", "0", "0.0", "× 3.0", "× 1.0"]]


def test_changes_are_given_in_percent_for_works_that_both_runs_have(two_sizes):
    small = two_sizes.sizes[0]
    faster = Size(10, small.input_bytes, small.counts, [Result("link", [1.0], 100_000_000), Result("new", [1.0], 1)])
    table = changes_table(two_sizes, Benchmark("a machine", "3.11", "def", [faster]))
    assert table.title == "abc -> def"
    assert table.rows == [["10 MB link", "2.00", "1.00", "-50 %", "200", "100", "-50 %"]]


def test_a_build_is_measured_by_its_steps(two_sizes):
    works = {"link": 2.0, "convert": 3.0, "build": 3.0}
    size = Size(1, 1, {}, [Result(work, [seconds], 1) for work, seconds in works.items()])
    assert build_share(size).strip() == "build takes 0.60 of link and convert apart"
    assert build_share(two_sizes.sizes[0]) == ""


@pytest.fixture
def run_bench(run: Run):
    """The command, of one small input and one small job, once each."""
    return lambda *options: run(bench.main, "--sizes", "1", "--ranks", "2", "--runs", "1", *options)


def test_works_run_alone_on_generated_traces_and_the_next_run_compares(tmp_path, run_bench, monkeypatch):
    monkeypatch.setattr(bench, "WORKS", {name: bench.WORKS[name] for name in ("link", "link floor", "build all")})
    keep, saved = ("--keep", str(tmp_path / "kept")), str(tmp_path / "old.json")
    assert run_bench(*keep, "--json", saved).code == 0
    measured = json.loads((tmp_path / "old.json").read_bytes())
    (size,), (job,) = measured["sizes"], measured["jobs"]
    assert 0.5e6 < size["input_bytes"] < 2e6
    assert size["counts"]["device events"] > size["counts"]["host nodes"] > 0
    assert all(result["peak_bytes"] > 10e6 for result in size["results"] + job["results"])
    assert [result["work"] for result in job["results"]] == ["build all"]
    # what is measured once more is compared
    monkeypatch.setattr(bench, "WORKS", {"link floor": bench.WORKS["link floor"]})
    ended = run_bench(*keep, "--compare", saved)
    assert ended.code == 0 and "1 MB link floor" in ended.out


def test_a_work_that_fails_is_named_with_what_it_said(tmp_path, run_bench, monkeypatch):
    monkeypatch.setattr(bench, "WORKS", {"link": bench.WORKS["link"]})
    traces = tmp_path / "1MB" / "traces"
    traces.mkdir(parents=True)
    for name in ("host_rank0.json", "device_rank0.json"):
        (traces / name).write_text("no trace")
    ended = run_bench("--keep", tmp_path)
    assert ended.code == 1 and "bench/work.py link" in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize("content", ["[]", '{"machine": "", "python": "", "commit": "", "sizes": []}'])
def test_results_that_cannot_be_compared_with_are_refused_before_any_work(tmp_path, run_bench, content):
    (tmp_path / "old.json").write_text(content)
    ended = run_bench("--compare", tmp_path / "old.json")
    assert ended.code == 1 and "old.json" in ended.err
    assert run_bench("--sizes", "5,0").code == 2


MB = 1_000_000
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")


def peak_of(program: str) -> int:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        with watched(process.pid) as peak:
            assert process.stdout is not None
            process.stdout.read()
        return peak.bytes


def test_memory_of_a_child_counts_and_that_of_a_mapped_file_or_an_ended_process_does_not(tmp_path: Path) -> None:
    nothing = peak_of("import mmap, subprocess, sys, time; time.sleep(0.1)")
    child = "import time; held = bytearray(100_000_000); time.sleep(0.2)"
    assert peak_of(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])") > nothing + 95 * MB
    file = tmp_path / "file"
    file.write_bytes(bytes(100 * MB))
    mapped = (
        f"import mmap, time; file = open({str(file)!r}, 'rb'); pages = mmap.mmap(file.fileno(), 0, prot=1); "
        "sum(pages[::4096]); time.sleep(0.1)"
    )
    assert peak_of(mapped) < nothing + 20 * MB
    ended = subprocess.Popen([sys.executable, "-c", ""])
    assert ended.wait() == 0 == anonymous_bytes(ended.pid)
