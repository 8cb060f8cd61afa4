"""What `import execgraph` gives, used by a script with everything of it, and how wrong arguments are answered."""

import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import execgraph
import pytest
from execgraph import ExecutionGraph, what_if
from execgraph.schema.errors import Audience, Remedy, said_to
from support import every_call
from support.builder.timeline import TraceBuilder
from support.folders import ROOT
from support.graphs import training_step
from support.runs import convert_run

SAMPLE = ROOT / "tests" / "data" / "training"

LIGHT = ("numpy", "execgraph.api", "execgraph.linker")


def modules_after(statement: str) -> set[str]:
    """What is loaded in a new process after a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_every_name_is_there_and_no_other() -> None:
    names = {*execgraph.api.__all__, "__version__"}
    assert {name for name in names if getattr(execgraph, name, None) is None} == set()
    assert set(dir(execgraph)) == names
    with pytest.raises(AttributeError, match="module 'execgraph' has no attribute 'conjure'"):
        _ = execgraph.conjure


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    assert modules_after("import execgraph; execgraph.__version__").isdisjoint(LIGHT)
    assert modules_after("import execgraph; execgraph.convert").issuperset(LIGHT)
    assert "execgraph.api" not in modules_after("import execgraph.tools.commands.trace_jsonize")
    # who only reads traces has no PyTorch, and who trains waits for it anyway
    loaded = modules_after("import execgraph; execgraph.capture")
    assert "execgraph.tools.capture" in loaded and "torch" not in loaded
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


def test_a_changed_run_of_several_ranks_is_asked_about_as_one(graph: ExecutionGraph) -> None:
    other = replace(graph, metadata=graph.metadata | {"rank": 1})
    assert what_if([graph, other], {"gemm": 0}).saved_us == pytest.approx(100)


def test_an_answer_shows_the_speed_up_as_text_and_in_notebooks(graph: ExecutionGraph) -> None:
    answer = what_if(graph, {"class:computation": 0.5})
    assert repr(answer).splitlines()[0] == f"WhatIf: {answer.speedup:.2f} times as fast"
    assert "saved    60.0 µs" in repr(answer)
    assert f"<caption>WhatIf: {answer.speedup:.2f} times as fast</caption>" in answer._repr_html_()


TEXT = Path(every_call.__file__).read_text()
CLASSES = ("LinkedTrace", "ExecutionGraph", "Node", "Replay", "WhatIf", "Job")


def test_the_script_works(tmp_path: Path) -> None:
    graph = every_call.graphs(every_call.traces(SAMPLE, tmp_path), tmp_path)
    every_call.runs(graph, tmp_path)
    every_call.jobs(SAMPLE, tmp_path)
    every_call.before_linking(tmp_path)


def test_its_pictures_are_drawn() -> None:
    for library in ("altair", "polars", "pandas"):
        pytest.importorskip(library)
    every_call.pictures(SAMPLE)


def test_it_uses_every_name_and_every_method() -> None:
    assert {name for name in execgraph.__all__ if not re.search(rf"\beg\.{name}\b", TEXT)} == set()
    objects = [getattr(execgraph, name) for name in CLASSES]
    members = [(name, value) for cls in objects for name, value in vars(cls).items() if not name.startswith("_")]
    own = {name for name, value in members if not inspect.ismemberdescriptor(value)}
    assert {name for name in own if not re.search(rf"\.{name}\b", TEXT)} == set()


eg: Any = execgraph
"""Without types, as careless callers have none."""
FOLDER = "tests/data/training"
HOST, DEVICE = f"{FOLDER}/host_rank0.json.gz", f"{FOLDER}/device_rank0.json.gz"
GRAPH: Any = training_step()
Call = Callable[[Any], object]
"""What is done with a job of one rank."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A job of one rank."""
    folder = tmp_path_factory.mktemp("graphs")
    GRAPH.write(folder / "graph.0.et")
    return eg.read_job(folder)


TYPES: list[tuple[Call, str]] = [
    (lambda _: eg.link(HOST, DEVICE, window=(0, 100)), "link(window=…) takes a Window, such as Window(steps=(1, 2)), n"),
    (lambda _: eg.link(FOLDER, rank="0"), "link(rank=…) takes a whole number, not str"),
    (lambda _: eg.link(eg.read_device_trace(DEVICE), eg.read_host_trace(HOST)), "these two are swapped"),
    (lambda _: eg.Window(steps=1), "Window(steps=…) takes the first step and the one after the last, as (1, 2), not 1"),
    (lambda _: eg.Window(clock=("0", "1")), "Window(clock=…) takes start and end in µs, as (0, 1500), not ('0', '1')"),
    (lambda _: eg.convert(eg.link(HOST, DEVICE), "astra-sim"), 'takes Options, such as Options(target="astra-sim"), not str'),
    (lambda _: eg.build(3), "build(traces) takes a path, or a list of paths, not int"),
    (lambda _: eg.build(FOLDER, None, "goal"), "takes Options, such as"),
    (lambda _: eg.build(FOLDER, eg.Options()), "build(traces, output) takes a folder as output, not Options"),
    (lambda _: eg.build(FOLDER, window=1), "build(window=…) takes a Window"),
    (lambda _: eg.report(FOLDER, 5), "takes a path, not int"),
    (lambda _: eg.report(FOLDER, options={"top": 1}), "report(options=…) takes AnalysisOptions, not dict"),
    (lambda _: eg.compare(FOLDER, 3), "compare(before, after) takes a path, or a list of paths, not int"),
    (lambda _: eg.generate("ddp", "nowhere", ranks="2"), "generate(ranks=…) takes a whole number, not str"),
    (lambda _: eg.AstraSimOptions(latency_ns="9"), "AstraSimOptions(latency_ns=…) takes a number, not str"),
    (lambda _: eg.Scale("x", "gemm", 0.5), 'Scale(target=…) takes a compiled regular expression, as re.compile("gemm"), not s'),
    (lambda _: GRAPH.what_if({"gemm": None}), "what_if(changes) for 'gemm' takes a number, not NoneType"),
    (lambda _: GRAPH.draw("part.svg", streams=7), "graph.draw(streams=…) takes whole numbers in a list"),
    (lambda _: eg.what_if(3, {"gemm": 0.5}), "what_if(graphs) takes an ExecutionGraph (trace.to_graph() makes one), a"),
    (lambda _: GRAPH["aten::mm"], "graph[position] takes a whole number, not str"),
    (lambda _: GRAPH.node("3"), "graph.node(id) takes a whole number, not str"),
    (lambda _: eg.read_job([]), "read_job(folder) takes a path, not list"),
    (lambda job: job["0"], "job[position] takes a whole number, not str"),
    (lambda job: job.graph("0"), "job.graph(rank) takes a whole number, not str"),
    (lambda job: job.scale(2, groups="0"), "scale(groups=…) takes"),
]  # fmt: skip
VALUES: list[tuple[Call, str]] = [
    (lambda _: eg.Window(clock=(100, 0)), "100 is not before 0"),
    (lambda _: eg.Scale("x", re.compile("gemm"), -3), "Scale(factor=…) takes a number of 0 or more, not -3"),
    (lambda _: eg.link(HOST, DEVICE).to_graph("astra"), "target is 'astra'"),
    (lambda _: eg.build(FOLDER, jobs=0), "build(jobs=…) takes 1 or more, not 0"),
    (lambda _: eg.build(FOLDER, start_offsets=False), "build(start_offsets=False) is for astra-sim and goal"),
    (lambda _: eg.build(FOLDER, excess_time=False), "build(excess_time=False) is for astra-sim and goal"),
    (lambda _: eg.build(FOLDER, target=eg.AstraSimOptions(roofline="V100:fp32")), "roofline needs Options(host=False)"),
    (lambda _: eg.AstraSimOptions(bandwidth_gib_s=0), "AstraSimOptions(bandwidth_gib_s=…) takes a number above 0, not 0"),
    (lambda _: eg.AstraSimOptions(roofline="V100:fp32", replay=True), "replay has no use for roofline"),
    (lambda _: eg.AstraSimOptions(roofline="nonsense"), "'nonsense' is not DEVICE:FORMAT"),
    (lambda _: eg.GoalOptions(chunk_bytes=0), "numbers from 1 on"),
    (lambda _: eg.GoalOptions(simulator="ns-3"), "simulator is 'ns-3', not one of"),
    (lambda job: job.scale(data_parallel=0), "takes 1 or more, not 0"),
    (lambda job: job.scale(2, latency_ns=-1), "scale(latency_ns=…) takes a number above 0, not -1"),
    (lambda _: GRAPH.what_if({"gemm": -1}), "what_if(changes) for 'gemm' takes a number of 0 or more, not -1"),
    (lambda _: GRAPH.what_if({"class:magic": 0.5}), "there is no class 'magic', only host, computation, "),
    (lambda _: GRAPH.what_if({"(": 0.5}), "'(' is not a regular expression"),
    (lambda _: GRAPH.draw("part.jpg"), "must end in .svg, .png, .pdf, .dot, .graphml"),
    (lambda _: eg.merge(FOLDER, "merged.txt"), "end it in .db, .json, .json.gz"),
    (lambda _: eg.generate("nonsense", "nowhere"), "no such job"),
    (lambda _: eg.report(FOLDER, only=["kernel_breakdwon"]), "there is no analysis 'kernel_breakdwon': did you mean 'kernel_breakdown'"),
    (lambda _: eg.report(FOLDER, "run.pdf"), "run.pdf: the report is an HTML page"),
]  # fmt: skip
DATA_ERRORS: list[tuple[Call, str]] = [
    (lambda _: eg.report([FOLDER, "tests/data/ddp"]), "execgraph.compare compares two"),
    (lambda _: eg.report("docs"), "holds no device trace but "),
    (lambda _: eg.read_linked(HOST), "is a host trace, not a linked trace: pass it to execgraph.link"),
    (lambda job: eg.read_linked(job.folder / "graph.0.et"), "is a graph, not a linked trace: pass it to "),
    (lambda _: eg.read_graph("README.md"), "one that ExecutionGraph.write or execgraph.build wrote"),
    (lambda _: GRAPH.what_if({"flash_attention": 0.5}), "the table `nodes` of a graph has the names"),
    (lambda _: eg.link(FOLDER), "holds the traces of ranks 0, 1: choose one with rank=N"),
    (lambda _: eg.merge("nowhere", "merged.json"), "no such file or folder"),
    (lambda _: eg.read_job("nowhere"), "no such folder"),
    (lambda job: job.scale(data_parallel=2, groups=["nonsense"]), "groups nonsense"),
    (lambda job: job.scale(), "would be the same; give data_parallel above 1 or remove_ranks"),
    (lambda job: job.simulate(), 'not for astra-sim; build the job with execgraph.build(…, target="astra-sim")'),
]  # fmt: skip
REFUSED = [
    pytest.param(call, kind, answer, id=f"{kind.__name__}: {answer}")
    for kind, table in ((TypeError, TYPES), (ValueError, VALUES), (execgraph.DataError, DATA_ERRORS))
    for call, answer in table
]


@pytest.mark.parametrize(("call", "kind", "answer"), REFUSED)
def test_an_error_says_what_the_call_takes_and_names_calls_in_place_of_commands(job, call, kind, answer):
    with pytest.raises(kind, match=re.escape(answer)) as raised:
        call(job)
    assert not re.search(r"\btrace-|--", str(raised.value))


def test_a_job_is_not_written_over_what_is_there(job: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    for path, answer in ((tmp_path, "is there and not empty"), (tmp_path / "notes.md", "is a file")):
        with pytest.raises(execgraph.DataError, match=f"{answer}; name a new folder"):
            job.write(path)


def test_paths_are_linked_in_either_order_as_by_the_command() -> None:
    assert eg.link(DEVICE, HOST).info == eg.link(Path(HOST), Path(DEVICE)).info


def test_nothing_is_written_under_a_name_that_says_another_thing(tmp_path: Path) -> None:
    trace, run = eg.link(FOLDER, rank=0), GRAPH.replay()
    for write, names in ((trace.write, "x.et x.txt"), (GRAPH.write, "x.txt x.svg.gz"), (run.write_timeline, "x.txt")):
        for name in names.split():
            with pytest.raises(ValueError, match=rf"{name} ends in \.\w+; name a file that ends in \."):
                write(tmp_path / name)
    GRAPH.write(tmp_path / "rank0")
    assert [path.name for path in tmp_path.iterdir()] == ["rank0"]


def test_an_error_carries_its_remedy_which_each_audience_reads_in_its_own_words() -> None:
    with pytest.raises(execgraph.RequestError) as raised:
        eg.link(FOLDER, rank=7)
    assert {Remedy.RANK, Remedy.BUILD} < set(raised.value.args)
    assert str(raised.value).endswith("choose one with rank=N, or build all with execgraph.build")
    again = pickle.loads(pickle.dumps(raised.value))
    with said_to(Audience.TERMINAL):
        assert str(again).endswith("choose one with --rank N, or build all with trace-build")


@pytest.mark.parametrize("remedy", Remedy)
def test_a_remedy_is_an_option_or_command_to_one_and_none_to_the_other(remedy: Remedy) -> None:
    assert re.search(r"\btrace-|--", remedy.value.in_terminal) and not re.search(r"\btrace-|--", remedy.value.in_python)


def test_a_missing_table_or_column_names_those_that_are_there() -> None:
    tables = eg.report(FOLDER, only="temporal_breakdown").tables
    with pytest.raises(KeyError, match="no table 'temporal_brakdown': did you mean 'temporal_breakdown'"):
        _ = tables["temporal_brakdown"]
    with pytest.raises(KeyError, match="temporal_breakdown: no column 'ranks'; there are rank, "):
        _ = tables["temporal_breakdown"]["ranks"]
