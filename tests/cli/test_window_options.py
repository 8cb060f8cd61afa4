"""--steps, --annotation and --window of trace-link and trace-build: the part that is made, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.linked import read_linked
from execgraph.tools.commands import trace_build, trace_link
from support.builder.timeline import TraceBuilder

pytestmark = pytest.mark.usefixtures("in_this_process")

RANKS = 2
KERNELS = [f"kernel {step}{part}" for step in (3, 4, 5) for part in "ab"]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 3 to 5 on two ranks: of each the kernels a and b, launched 10 and 14 µs after it began; it lasts 18 µs."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(RANKS):
        t = TraceBuilder(rank=rank, world_size=RANKS, pid=1000 + rank)
        for number in (3, 4, 5):
            with t.annotation(f"ProfilerStep#{number}"):
                with t.annotation("forward"), t.op("aten::mm"):
                    t.work(10)
                    t.launch(f"kernel {number}a", duration=2)
                with t.op("aten::add"):
                    t.launch(f"kernel {number}b", duration=2)
        t.write(folder)
    return folder


def link_part(job: Path, output: Path, *options: str) -> int:
    given = ["--host-trace", job / "host_rank0.json", "--device-trace", job / "device_rank0.json", "--output", output]
    with pytest.raises(SystemExit) as end:
        trace_link.main([*map(str, given), *options])
    return int(end.value.code or 0)


def build_part(job: Path, output: Path, *options: str) -> int:
    with pytest.raises(SystemExit) as end:
        trace_build.main(["--input-dir", str(job), "--output-dir", str(output), "--jobs", "1", *options])
    return int(end.value.code or 0)


PARTS = {
    "one step": (["--steps", "4"], ["kernel 4a", "kernel 4b"]),
    "steps up to but without one": (["--steps", "3:5"], KERNELS[:4]),
    "all steps": (["--steps", "3:6"], KERNELS),
    "the first annotation of a name": (["--annotation", "forward"], ["kernel 3a"]),
    "another annotation of a name": (["--annotation", "forward:2"], ["kernel 5a"]),
    "another one in steps": (["--annotation", "forward:1", "--steps", "4:6"], ["kernel 5a"]),
    "from the first annotation to the last": (["--annotation", "forward:all"], KERNELS[:-1]),
    "a time": (["--window", "0:12"], ["kernel 3a"]),
    "a time in fractions of a µs": (["--window", "10.001:14.001"], ["kernel 3b"]),
    "a time from a step on": (["--window", "18:72"], KERNELS[2:]),
    "the annotation in a step": (["--annotation", "forward", "--steps", "4:6"], ["kernel 4a"]),
    "the annotation in a time": (["--annotation", "forward", "--window", "36:54"], ["kernel 5a"]),
    "a time in a step": (["--steps", "4", "--window", "30:50"], ["kernel 4b"]),
    "all of them": (["--steps", "4:6", "--window", "30:50", "--annotation", "forward"], ["kernel 5a"]),
}


@pytest.mark.parametrize("part", PARTS)
def test_trace_link_links_the_part_that_is_asked_for(job: Path, tmp_path: Path, part: str) -> None:
    options, kernels = PARTS[part]
    assert link_part(job, tmp_path / "part.json", "-q", *options) == 0
    activities = read_linked(str(tmp_path / "part.json")).activities
    assert [activities.name[row] for row in range(len(activities))] == kernels


@pytest.mark.parametrize("part", PARTS)
def test_trace_build_builds_that_part_of_every_rank(job: Path, tmp_path: Path, part: str) -> None:
    options, kernels = PARTS[part]
    assert build_part(job, tmp_path, "-q", *options) == 0
    for rank in range(RANKS):
        graph = ExecutionGraph.read(str(tmp_path / f"graph.{rank}.et"))
        assert [graph.name[row] for row in range(len(graph)) if graph.is_activity[row]] == kernels


def test_what_is_left_out_is_said(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert link_part(job, tmp_path / "part.json", "--steps", "4", "--json") == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert (report["activities"], report["dropped"]["activities outside the linked part"]) == (2, 4)
    assert "4 activities outside the linked part" in said.err


OUTSIDE = {
    "a time after the trace": (["--window", "1000:2000"], "nothing lies between 1000 and 2000 µs"),
    "a step before the trace": (["--steps", "2"], "no step 2 to link; the trace holds steps 3 to 5"),
    "steps that go on after the trace": (["--steps", "4:9"], "no step 6 to link; the trace holds steps 3 to 5"),
    "a name that nothing has": (
        ["--annotation", "backward"],
        "no annotation named 'backward' in that part of the trace: ",
    ),
    "a name outside the time": (["--annotation", "forward", "--window", "1:17"], "no annotation named 'forward'"),
}


@pytest.mark.parametrize("part", OUTSIDE)
def test_trace_link_refuses_a_part_that_is_not_there(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    options, complaint = OUTSIDE[part]
    assert link_part(job, tmp_path / "part.json", *options) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("trace-link: error: ") and "device_rank0.json" in line and complaint in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", OUTSIDE)
def test_trace_build_says_of_every_rank_that_a_part_is_not_there(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    options, complaint = OUTSIDE[part]
    assert build_part(job, tmp_path, *options) == 1
    failures = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trace-build: error: ")]
    assert len(failures) == RANKS
    assert all(f"rank {rank}" in line and complaint in line for rank, line in enumerate(failures))
    assert not list(tmp_path.glob("*.et"))


WRONG_WINDOWS = [
    *(("--steps", text) for text in ("", "first", "4:", ":4", "4:4", "5:4", "-1", "1.5", "3:4:5", "3,4", "1" * 19)),
    *(
        ("--window", text)
        for text in ("", "5", "5:", ":5", "5:5", "6:5", "-5:5", "0:1:2", "0:later", "1.:2", "1e1:1e2")
    ),
]


@pytest.mark.parametrize(("option", "text"), WRONG_WINDOWS)
@pytest.mark.parametrize("run", [link_part, build_part], ids=["trace-link", "trace-build"])
def test_what_is_no_part_is_wrong_usage(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Callable[..., int], option: str, text: str
) -> None:
    assert run(job, tmp_path / "out", f"{option}={text}") == 2
    said = capsys.readouterr().err
    assert f"argument {option}: {text!r} is not " in said
    assert not (tmp_path / "out").exists()
