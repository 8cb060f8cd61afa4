"""Every command refuses every kind of file that it cannot use: it says what the file is, and which command takes it."""

import gzip
import logging
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from execgraph.schema.comm_groups import write_groups
from execgraph.tools import workers
from execgraph.tools.generate import build_job, simulate, write_traces
from support.commands import Ended, Run, status_of
from support.databases import LITE, Op, write_database
from support.device_formats import write_perfetto
from support.runs import small_run
from support.tasks import in_turn

KNOWN = {
    "host.json": ("a host trace", "trace-link"), "device.json": ("a device trace", "trace-link"),
    "device.json.gz": ("a device trace", "trace-link"), "device_named.et": ("a device trace", "trace-link"),
    "rocpd.db": ("a device trace", "trace-link"), "device.pftrace": ("a device trace", "trace-link"),
    "merged.json": ("a device trace of several ranks", "trace-link --rank N"),
    "linked.json": ("a linked trace", "trace-convert"), "linked.json.gz": ("a linked trace", "trace-convert"),
    "graph.et": ("a graph", "trace-replay"), "graph.et.gz": ("a graph", "trace-replay"),
    "graph_named.json": ("a graph", "trace-replay"), "astra.et": ("a graph", "trace-replay"),
    "graph.json": ("the JSON form of a graph", "trace-jsonize"),
    "comm_groups.json": ("a communicator-group file", "trace-convert --comm-groups"),
}  # fmt: skip
"""What each file is, and the command that takes it."""
UNTAKEN = {
    "merged.db": "a database that trace-merge wrote", "report.json": "a report that execgraph wrote",
    "scale.json": "a report that execgraph wrote", "timeline.json": "a timeline that trace-replay wrote",
    "job.goal": "a GOAL file", "page.html": "an HTML page", "text": "a text file",
    "noise": "binary data that execgraph does not know",
}  # fmt: skip
"""What no command takes."""
HOSTS, LINKED, GROUPS = {"host.json"}, {"linked.json", "linked.json.gz"}, {"comm_groups.json"}
DEVICES = {"device.json", "device.json.gz", "device_named.et", "device.pftrace", "rocpd.db"}
MERGED = {"merged.json", "merged.db"}
GRAPHS = {"graph.et", "graph.et.gz", "graph_named.json", "astra.et"}
GIVE_HOST = "the one that PyTorch's ExecutionTraceObserver wrote"
GIVE_DEVICE = "the one that the PyTorch profiler wrote, or a rocpd database"
GIVE_GRAPH = "one that trace-convert or trace-build wrote"
GIVE_TRACES = "device traces, with their host traces"


class Case(NamedTuple):
    """A command line with a file in it: the kinds it takes, where to get one, and how it asks for other files.

    `own` are files of which the command has more to say.
    """

    arguments: Callable[[Path, Path], Sequence[object]]
    wanted: str
    taken: set[str]
    to_give: str
    here: Mapping[str, str] = MappingProxyType({})
    own: frozenset[str] | set[str] = frozenset()


BY_OPTION = dict.fromkeys(HOSTS, "as --host-trace") | dict.fromkeys(DEVICES, "as --device-trace")
CASES = {
    "trace-link, host": Case(
        lambda file, out: ["--host-trace", file, "--device-trace", out / "device.json", "--output", out / "l.json"],
        "a host trace", HOSTS, GIVE_HOST, BY_OPTION | {"merged.json": "as --device-trace, with --rank N"},
    ),
    "trace-link, device": Case(
        lambda file, out: ["--device-trace", file, "--output", out / "l.json"],
        "a device trace", DEVICES, GIVE_DEVICE, BY_OPTION, MERGED,
    ),
    "trace-convert": Case(
        lambda file, out: ["--input", file, "--output", out / "g.et"],
        "a linked trace", LINKED, "one that trace-link wrote", dict.fromkeys(GROUPS, "as --comm-groups"),
    ),
    "trace-convert, groups": Case(
        lambda file, out: ["--input", out / "linked.json", "--comm-groups", file, "--output", out / "g.et"],
        "a communicator-group file", GROUPS, "the comm_groups.json that trace-build wrote", dict.fromkeys(LINKED, "as its input"),
    ),
    "trace-jsonize, to JSON": Case(
        lambda file, out: ["--input", file, "--to", "json", "--output", out / "o"],
        "a graph", GRAPHS, GIVE_GRAPH, {"graph.json": "with --to et"},
    ),
    "trace-jsonize, back": Case(
        lambda file, out: ["--input", file, "--to", "et", "--output", out / "o"],
        "the JSON form of a graph", {"graph.json"}, "one that trace-jsonize wrote", dict.fromkeys(GRAPHS, "with --to json"),
    ),
    "trace-replay": Case(lambda file, _: ["--input", file], "a graph", GRAPHS | {"graph.json"}, GIVE_GRAPH),
    "trace-view": Case(lambda file, out: ["--input", file, "--output", out / "v.svg"], "a graph", GRAPHS | {"graph.json"}, GIVE_GRAPH),
    "trace-report": Case(
        lambda file, _: [file], "a trace or a graph", DEVICES | LINKED | GRAPHS,
        "device traces, with their host traces, linked traces or graphs", own=MERGED | HOSTS,
    ),
    "trace-report, captures": Case(
        lambda file, out: [out / "device.json", "--capture-trace", file], "a device trace", DEVICES, GIVE_DEVICE, own=MERGED
    ),
    "trace-diagnose": Case(lambda file, _: [file], "a host or device trace", DEVICES | HOSTS | MERGED, GIVE_TRACES),
    "trace-merge": Case(
        lambda file, out: [file, "--output", out / "m.json"], "a host or device trace", DEVICES, GIVE_TRACES, own=MERGED | HOSTS
    ),
    "trace-build": Case(
        lambda file, out: ["--input-dir", file, "--output-dir", out / "b"], "a device trace or a folder of traces", set(),
        "the folder that holds them", own=DEVICES | HOSTS | {"merged.json"},
    ),
    "trace-scale": Case(
        lambda file, out: ["--input-dir", file, "--output-dir", out / "s", "--data-parallel", 2], "a folder of graphs", set(),
        "the folder that holds them", own=GRAPHS,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind, written by what writes such files where that takes no time."""
    work, made = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("files")
    level = logging.getLogger().level
    pairs = [small_run(rank=rank, world_size=2, pid=1000 + rank).write(work) for rank in (0, 1)]
    host, device = pairs[0]
    (made / "host.json").write_bytes(host.read_bytes())
    (made / "device.json").write_bytes(device.read_bytes())
    (made / "device_named.et").write_bytes(device.read_bytes())
    write_database(made / "rocpd.db", LITE, [Op("k", 1, 2)], pid=800)
    files = write_traces(simulate(build_job("simple", steps=1, layers=1)), work / "perfetto")
    (made / "device.pftrace").write_bytes(write_perfetto(files[0].device).read_bytes())
    shutil.rmtree(work / "perfetto")
    devices = [pair[1] for pair in pairs]
    for merged in ("merged.json", "merged.db"):
        assert status_of("trace-merge", "-q", *devices, "--output", made / merged) == 0
    linked, graph = made / "linked.json", made / "graph.et"
    for command, *arguments in (
        ("trace-link", "--host-trace", host, "--device-trace", device, "--output", linked),
        ("trace-convert", "--input", linked, "--output", graph),
        ("trace-convert", "--input", linked, "--output", made / "astra.et", "--target", "astra-sim"),
        ("trace-jsonize", "--input", graph, "--output", made / "graph.json"),
        ("trace-replay", "--input", graph, "--timeline", made / "timeline.json"),
    ):
        assert status_of(command, "-q", *arguments) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "in_processes", in_turn)
        assert status_of("trace-build", "-q", "--input-dir", work, "--output-dir", work / "o", "--target", "goal") == 0
    for name in ("report.json", "job.goal"):
        (made / name).write_bytes((work / "o" / name).read_bytes())
    write_groups(str(made / "comm_groups.json"), {(0, 1): 1})
    (made / "scale.json").write_text('{\n "ranks": 2,\n "scaled_ranks": 4,\n "copies": 2}')
    (made / "page.html").write_text("<!doctype html>\n<html></html>")
    (made / "text").write_text("hello world\n")
    (made / "noise").write_bytes(random.Random(3).randbytes(4000))
    (made / "nothing").touch()
    (made / "graph_named.json").write_bytes(graph.read_bytes())
    for name in ("device.json", "linked.json", "graph.et"):
        (made / f"{name}.gz").write_bytes(gzip.compress((made / name).read_bytes()))
    logging.getLogger().setLevel(level)
    return made


@pytest.fixture
def out(tmp_path: Path, folder: Path) -> Path:
    """Where outputs go, beside what a command is to be given besides."""
    for name in ("device.json", "linked.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    return tmp_path


def run_with(run: Run, case: str, file: Path, out: Path) -> Ended:
    return run(case.partition(",")[0], *CASES[case].arguments(file, out))


ErrorOf = Callable[[str, Path], str]


@pytest.fixture
def error_of(out: Path, run: Run) -> ErrorOf:
    """What a command says of a file that it cannot use, in one line."""

    def error(case: str, file: Path) -> str:
        ended = run_with(run, case, file, out)
        if case == "trace-diagnose":  # to say what is wrong with files is what it does
            assert ended.code == 0
            return ended.out.splitlines()[0].removeprefix("wrong  ")
        assert ended.code == 1
        return ended.line.removeprefix(f"{case.partition(',')[0]}: error: ")

    return error


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case, of in CASES.items() for name in [*KNOWN, *UNTAKEN] if name not in {*of.taken, *of.own}],
)
def test_a_file_of_another_kind_is_called_what_it_is(folder: Path, error_of: ErrorOf, case: str, name: str) -> None:
    of, file = CASES[case], folder / name
    kind, command = KNOWN.get(name, (UNTAKEN.get(name), ""))
    remedy = f"pass it to {command}" if command else f"give {of.to_give}"
    remedy = f"pass it {of.here[name]}" if name in of.here else remedy
    assert error_of(case, file) == f"{file} is {kind}, not {of.wanted}: {remedy}"


@pytest.mark.parametrize("case", CASES)
def test_an_empty_file_is_called_empty(folder: Path, error_of: ErrorOf, case: str) -> None:
    file = folder / "nothing"
    wanted = {
        "trace-build": f"{file} is a file, not a device trace or a folder of traces: give the folder that holds it, {folder}",
        "trace-scale": f"{file} is a file, not a folder of graphs: give the folder that holds it, {folder}",
    }
    assert error_of(case, file) == wanted.get(case, f"{file}: is empty; was it written to its end?")


@pytest.mark.parametrize(
    ("case", "name", "text"),
    [
        ("trace-link, device", "merged.json", "several ranks merged into one trace, ranks 0, 1 ("),
        ("trace-link, device", "merged.db", "several ranks merged into a database for counting; "),
        ("trace-report", "merged.json", "or take one out with trace-link --rank N"),
        ("trace-report", "host.json", "has no device trace; "),
        ("trace-report, captures", "merged.json", "several ranks merged into one trace"),
        ("trace-merge", "host.json", "host.json is a host trace, not a device trace: pass it to trace-link"),
        ("trace-merge", "merged.json", "no device trace of a single rank, but merged ones (1)"),
        (
            "trace-build",
            "host.json",
            "is a host trace, not a device trace or a folder of traces: give the folder that holds it, ",
        ),
        ("trace-scale", "graph.et", "is a graph, not a folder of graphs: give the folder that holds it, "),
    ],
)
def test_where_a_command_knows_more_of_the_file_it_says_that(folder, error_of, case, name, text):
    assert text in error_of(case, folder / name)


@pytest.mark.parametrize(
    ("case", "held", "remedy"),
    [
        ("trace-link, host", ["host.json", "text"], "give a file in it, such as {host.json} or pass it to trace-build"),
        ("trace-link, device", ["device.json"], "give a file in it, such as {device.json} or pass it to trace-build"),
        ("trace-convert", ["device.json", "host.json"], "pass it to trace-build"),
        ("trace-convert", ["graph.et"], "pass it to trace-replay"),
        ("trace-convert", [], "give one that trace-link wrote"),
        ("trace-convert, groups", ["comm_groups.json", "noise"], "give a file in it, such as {comm_groups.json}"),
        ("trace-jsonize, to JSON", ["graph.json"], "give one that trace-convert or trace-build wrote"),
        ("trace-report, captures", ["nothing"], "give the one that the PyTorch profiler wrote, or a rocpd database"),
    ],
)
def test_a_folder_for_a_file_is_answered_by_what_is_in_it(folder, out, error_of, case, held, remedy):
    given = folder_of(out, folder, held)
    remedy = remedy.replace("{", f"{given}/").replace("}", "")
    assert error_of(case, given) == f"{given} is a folder, not {CASES[case].wanted}: {remedy}"


@pytest.mark.parametrize(
    ("case", "held", "text"),
    [
        ("trace-replay", ["device.json"], "holds no graph.N.et; pass it to trace-build"),
        ("trace-replay", ["graph.et"], "holds no graph.N.et; give a file in it, such as "),
        ("trace-view", ["graph.et", "report.json"], "holds no graph.N.et; give a file in it, such as "),
        ("trace-scale", ["device.json"], "holds no graph.N.et; pass it to trace-build"),
        ("trace-build", ["graph.et", "text"], "holds no device trace but execution graphs (1), text files (1); "),
        ("trace-diagnose", [], "no traces there"),
        ("trace-merge", ["host.json"], "no device trace of a single rank, but host traces (1)"),
    ],
)
def test_a_folder_without_what_is_wanted_is_one_line(folder, out, run, case, held, text):
    given = folder_of(out, folder, held)
    ended = run_with(run, case, given, out)
    assert ended.code == 1 and f"{given}: {text}" in ended.line


def test_graphs_are_not_written_among_the_traces(folder: Path, out: Path, run: Run) -> None:
    given = folder_of(out, folder, ["device.json"])
    ended = run("trace-build", str(given), "-o", str(given))
    assert ended.code == 2 and "holds the traces: give graphs a folder" in ended.line
    assert [path.name for path in given.iterdir()] == ["device.json"]


def folder_of(out: Path, files: Path, held: list[str]) -> Path:
    given = out / "given"
    given.mkdir()
    for name in held:
        (given / name).write_bytes((files / name).read_bytes())
    return given


def test_json_of_no_known_kind_is_described_by_its_beginning(out: Path, error_of: ErrorOf) -> None:
    (out / "other.json").write_text('{"ranks": [0, 1]}')
    assert """begins with '{"ranks": [0, 1]}'""" in error_of("trace-link, host", out / "other.json")
    said = error_of("trace-replay", out / "other.json")
    assert said == f"{out}/other.json is JSON that execgraph does not know, not a graph: give {GIVE_GRAPH}"


def test_what_was_compressed_twice_is_said_to_be(folder: Path, out: Path, error_of: ErrorOf) -> None:
    twice = out / "twice.json.gz"
    twice.write_bytes(gzip.compress((folder / "device.json.gz").read_bytes()))
    assert "is compressed twice; decompress it once" in error_of("trace-link, device", twice)
    assert "is compressed twice; decompress it once" in error_of("trace-merge", twice)


def test_of_a_damaged_graph_the_damage_is_said(out: Path, error_of: ErrorOf) -> None:
    graph = out / "graph.et"
    graph.write_bytes(b"\xff" * 99)
    assert error_of("trace-replay", graph).startswith(f"{graph}: is not an execution graph, or damaged: ")


def test_a_pipe_is_read_once_and_its_reader_says_what_is_wrong(folder, run, monkeypatch):
    with (folder / "device.json").open("rb") as given:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": given}))
        ended = run("trace-replay", "--input", "-")
    assert ended.code == 1 and "trace-replay: error: -: is JSON" in ended.err
