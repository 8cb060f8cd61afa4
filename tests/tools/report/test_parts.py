"""Steps, annotations and ranks of a run: any part of it is reported on, or compared."""

import json
from pathlib import Path

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace
from execgraph.schema.linked import write_linked
from support.builder import TraceBuilder
from support.reports import as_json, run


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of two steps; in the second a kernel takes twice as long."""
    folder = tmp_path_factory.mktemp("steps")
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank)
        for number in range(2):
            with t.annotation(f"ProfilerStep#{number}"), t.op("aten::mm"):
                t.launch("gemm", duration=50 * (1 + number))
                t.device_synchronize()
        t.write(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "busy"),
    [
        ([], [150, 150]),
        (["--steps", "1"], [100, 100]),
        (["--annotation", "ProfilerStep#0"], [50, 50]),
        (["--ranks", "1"], [150]),
        (["--ranks", "0-1", "--steps", "0"], [50, 50]),
    ],
)
def test_any_part_and_any_ranks_are_reported_on(
    steps: Path, capfd: pytest.CaptureFixture[str], options: list[str], busy: list[float]
) -> None:
    rows = as_json(capfd, steps, *options)
    assert [row["busy"] for row in rows["temporal_breakdown"]] == busy
    assert {row["rank"] for row in rows["critical_path_by_rank"]} == (
        {1} if "1" in options and "--ranks" in options else {0, 1}
    )


def test_a_part_of_two_runs_is_compared(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("-q", "--json", "--diff", steps, steps, "--ranks", "0", "--steps", "1") == 0
    (kernel,) = [row for row in json.loads(capfd.readouterr().out)["trace_diff"] if row["kind"] == "kernel"]
    assert (kernel["count_a"], kernel["time_a"], kernel["difference"]) == (1, 100, 0)


def test_a_rank_that_is_not_there_is_refused(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(steps, "--ranks", "1-3") == 2
    assert "rank 2, 3 is not among the ranks there, 0, 1" in capfd.readouterr().err


def test_of_a_linked_trace_no_part_is_taken(steps: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_linked(link(None, read_device_trace(str(steps / "device_rank0.json"))), str(tmp_path / "linked.json"))
    assert run(tmp_path / "linked.json", "--steps", "1") == 1
    assert "no part can be taken; give the traces, or link that part" in capfd.readouterr().err
