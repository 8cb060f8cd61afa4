"""What `import execgraph` gives.

A script of a user uses everything that `import execgraph` gives; its types are checked by `make types`.
"""

import inspect
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import execgraph
import pytest
from execgraph import ExecutionGraph, what_if
from support import every_call
from support.builder.timeline import TraceBuilder
from support.folders import ROOT
from support.runs import convert_run

LIGHT = ("numpy", "execgraph.api", "execgraph.linker")


def modules_after(statement: str) -> set[str]:
    """What is loaded in a new process after a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_every_name_is_there() -> None:
    names = {*execgraph.api.__all__, "__version__"}
    assert {name for name in names if getattr(execgraph, name, None) is None} == set()
    assert set(dir(execgraph)) == names


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="module 'execgraph' has no attribute 'conjure'"):
        _ = execgraph.conjure


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    assert modules_after("import execgraph; execgraph.__version__").isdisjoint(LIGHT)
    assert modules_after("import execgraph; execgraph.convert").issuperset(LIGHT)
    assert "execgraph.api" not in modules_after("import execgraph.tools.commands.trace_jsonize")


def test_what_records_is_there_without_pytorch() -> None:
    """Loaded late: who only reads traces has none, and who trains waits for it anyway."""
    loaded = modules_after("import execgraph; execgraph.capture")
    assert "execgraph.tools.capture" in loaded
    assert "torch" not in loaded
    assert execgraph.capture is execgraph.tools.capture.capture


def test_no_file_stays_open() -> None:
    """Users' tests turn warnings of open files into errors."""
    calls = "import execgraph as eg; eg.link('tests/data/training', rank=0); eg.build('tests/data/training')"
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", calls]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "ResourceWarning" not in done.stderr


@pytest.fixture(scope="module")
def graph() -> ExecutionGraph:
    """100 µs of a kernel that the host waits for, and then 20 of another."""
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("gemm", duration=100)
    t.stream_synchronize(7)
    with t.op("aten::add"):
        t.launch("add", duration=20)
    t.stream_synchronize(7)
    return convert_run(t).graph


@pytest.mark.parametrize(
    ("changes", "saved"),
    [({}, 0), ({"gemm": 0.5}, 50), ({"gemm": 0.5, "class:computation": 0.5}, 85), ({"^add$": 2}, -20)],
)
def test_what_a_change_would_bring(graph: ExecutionGraph, changes: dict[str, float], saved: float) -> None:
    answer = what_if([graph], changes)
    assert answer.saved_us == pytest.approx(saved)
    assert answer.speedup == pytest.approx(answer.before.makespan_ns / (answer.before.makespan_ns - 1000 * saved))


@pytest.mark.parametrize("changes", [{"gemm": -1}, {"class:magic": 0.5}, {"(": 0.5}])
def test_a_change_that_cannot_be_made_is_refused(graph: ExecutionGraph, changes: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        what_if([graph], changes)


def test_a_changed_run_of_several_ranks_is_asked_about_as_one(graph: ExecutionGraph) -> None:
    other = replace(graph, metadata=graph.metadata | {"rank": 1})
    assert what_if([graph, other], {"gemm": 0}).saved_us == pytest.approx(100)


def test_an_answer_shows_the_speed_up_as_text_and_in_notebooks(graph: ExecutionGraph) -> None:
    answer = what_if(graph, {"class:computation": 0.5})
    assert repr(answer).splitlines()[0] == f"WhatIf: {answer.speedup:.2f} times as fast"
    assert "saved    60.0 µs" in repr(answer)
    assert f"<caption>WhatIf: {answer.speedup:.2f} times as fast</caption>" in answer._repr_html_()


def test_a_graph_is_read_as_it_was_written(graph: ExecutionGraph, tmp_path: Path) -> None:
    graph.write(tmp_path / "graph.0.et")
    assert list(execgraph.read_graph(tmp_path / "graph.0.et").id) == list(graph.id)


FOLDER = ROOT / "tests" / "data" / "training"
TEXT = Path(every_call.__file__).read_text()
OBJECTS = (
    execgraph.LinkedTrace,
    execgraph.ExecutionGraph,
    execgraph.Node,
    execgraph.Replay,
    execgraph.WhatIf,
    execgraph.Job,
)


def test_the_script_works(tmp_path: Path) -> None:
    graph = every_call.graphs(every_call.traces(FOLDER, tmp_path), tmp_path)
    every_call.runs(graph, tmp_path)
    every_call.jobs(FOLDER, tmp_path)
    every_call.before_linking(tmp_path)


def test_its_pictures_are_drawn() -> None:
    for library in ("altair", "polars", "pandas"):
        pytest.importorskip(library)
    every_call.pictures(FOLDER)


def test_it_uses_every_name_and_every_method() -> None:
    assert {name for name in execgraph.__all__ if not re.search(rf"\beg\.{name}\b", TEXT)} == set()
    members = [(name, value) for cls in OBJECTS for name, value in vars(cls).items() if not name.startswith("_")]
    own = {name for name, value in members if not inspect.ismemberdescriptor(value)}
    assert {name for name in own if not re.search(rf"\.{name}\b", TEXT)} == set()
