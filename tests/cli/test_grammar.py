"""One grammar for all commands: positional inputs, -o for the output, results on stdout, wrong usage in one line."""

import gzip
import importlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from support.folders import DATA

SAMPLE = DATA / "training"
DEVICE, HOST = SAMPLE / "device_rank0.json.gz", SAMPLE / "host_rank0.json.gz"
OUT = "OUT"
"""Stands for the output of a command line."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run(capfd: pytest.CaptureFixture[str], command: str, *arguments: object) -> Ended:
    capfd.readouterr()
    main = importlib.import_module(f"execgraph.tools.commands.trace_{command}").main
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return Ended(int(end.value.code or 0), *capfd.readouterr())


class Usage(NamedTuple):
    """A command line with positional inputs, one with the older options, and whether it prints the result."""

    words: list[object]
    older: Sequence[list[object]] = ()
    prints: str = ""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what each command reads: linked.json, graphs/, graph.et."""
    folder = tmp_path_factory.mktemp("grammar")
    for command, words in (
        ("link", [HOST, DEVICE, "-o", folder / "linked.json"]),
        ("build", [SAMPLE, "-o", folder / "graphs"]),
        ("convert", [folder / "linked.json", "-o", folder / "graph.et"]),
    ):
        main = importlib.import_module(f"execgraph.tools.commands.trace_{command}").main
        with pytest.raises(SystemExit) as end:
            main(["-q", *map(str, words)])
        assert not end.value.code
    yield folder


USAGES = {
    "link": Usage(
        [HOST, DEVICE, "-o", OUT],
        [
            ["--host-trace", HOST, "--device-trace", DEVICE, "--output", OUT],
            [
                "PyTorch",
                "--chakra-host-trace",
                HOST,
                "--chakra-device-trace",
                DEVICE,
                "--rank",
                0,
                "--output-file",
                OUT,
            ],
            [DEVICE, "--host-trace", HOST, "-o", OUT],
            [DEVICE, HOST, "-o", OUT],
            [SAMPLE, "--rank", 0, "-o", OUT],
        ],
    ),
    "convert": Usage(
        ["linked.json", "-o", OUT],
        [["--input", "linked.json", "--output", OUT], ["--input_filename", "linked.json", "--output_filename", OUT]],
    ),
    "jsonize": Usage(
        ["graph.et", "--to", "json", "-o", OUT],
        [
            ["--input", "graph.et", "--to", "json", "--output", OUT],
            ["--input_filename", "graph.et", "--to", "json", "--output_filename", OUT],
        ],
    ),
    "build": Usage(
        [SAMPLE, "-o", OUT],
        [
            ["--input-dir", SAMPLE, "--output-dir", OUT],
            [f"{SAMPLE}/*.gz", "-o", OUT],
            [*sorted(SAMPLE.glob("*.gz")), "--output", OUT],
        ],
    ),
    "replay": Usage(
        ["graphs"],
        [
            ["--input", "graphs"],
            ["--input_filename", "graphs"],
            ["graphs/graph.0.et", "graphs/graph.1.et"],
            ["--input", "graphs/graph.0.et", "graphs/graph.1.et"],
            ["graphs/graph.0.et", "--allow-mismatch", "graphs/graph.1.et"],
            ["graphs/*.et"],
        ],
        prints="replayed",
    ),
    "report": Usage(
        [SAMPLE, "--only", "temporal_breakdown"],
        [["--only", "temporal_breakdown", "--input", SAMPLE], [f"{SAMPLE}/*.gz", "--only", "temporal_breakdown"]],
        prints="Temporal breakdown",
    ),
    "diagnose": Usage([SAMPLE], [["--input", SAMPLE], ["--input-dir", SAMPLE]], prints="host schema"),
    "merge": Usage([SAMPLE, "-o", OUT], [["--input-dir", SAMPLE, "--output", OUT], [f"{SAMPLE}/device*", "-o", OUT]]),
    "scale": Usage(
        ["graphs", "-o", OUT, "--data-parallel", 2],
        [["--input-dir", "graphs", "--output-dir", OUT, "--data-parallel", 2]],
        prints="2 -> 4 members",
    ),
    "view": Usage(
        ["graph.et", "-o", OUT, "--time", "0:300"],
        [
            ["--input", "graph.et", "--output", OUT, "--time", "0:300"],
            ["--input_filename", "graph.et", "--output_filename", OUT, "--time", "0:300"],
        ],
    ),
    "generate": Usage(
        ["simple", "-o", OUT, "--steps", 1, "--layers", 1],
        [["--job", "simple", "--output-dir", OUT, "--steps", 1, "--layers", 1]],
    ),
}
NAMES = {"merge": "out.json", "view": "out.svg"}
"""Outputs whose name says what to write."""


def content(path: Path) -> object:
    """The bytes of a file, or of all files in a folder but those that say how the command was called."""
    if path.is_file():
        return path.read_bytes()
    return {one.name: one.read_bytes() for one in path.iterdir()} if path.is_dir() else None


def result(capfd: pytest.CaptureFixture[str], work: Path, command: str, *words: object) -> tuple[str, object]:
    """What stdout and the output hold after a command line that must work."""
    output = work / NAMES.get(command, "out")
    ended = run(capfd, command, *(output if word == OUT else word for word in words))
    assert ended.code == 0, ended.err
    made = content(output)
    if output.exists():
        output.unlink() if output.is_file() else shutil.rmtree(output)
    return ended.out, made


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("command", USAGES)
def test_inputs_go_by_position_and_the_older_spellings_do_the_same(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    usage = USAGES[command]
    printed, made = result(capfd, work, command, *usage.words)
    assert (made is not None) == (OUT in usage.words)
    for words in usage.older:
        assert result(capfd, work, command, *words) == (printed, made), words


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("command", USAGES)
def test_results_go_to_stdout_quiet_or_not(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    usage = USAGES[command]
    printed, made = result(capfd, work, command, *usage.words)
    assert usage.prints in printed if usage.prints else printed == ""
    assert result(capfd, work, command, "-q", *usage.words) == (printed, made)
    assert result(capfd, work, command, "-v", *usage.words)[1] == made


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("command", USAGES)
def test_verbose_says_what_is_read_and_how_long_steps_took(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    output = work / NAMES.get(command, "out")
    said = run(capfd, command, "-v", *(output if word == OUT else word for word in USAGES[command].words)).err
    if output.exists():
        output.unlink() if output.is_file() else shutil.rmtree(output)
    assert f"trace-{command}: " in said and said.count(" s\n") >= 2
    assert ("reading " in said) == (command != "generate")


# Wrong usage

MISTAKES = {
    "no input": ("convert", [], "no input given: name LINKED.json, as in: trace-convert linked.json.gz -o graph.0.et"),
    "no output": ("convert", ["linked.json"], "no output given: add -o GRAPH.et, as in: trace-convert"),
    "two inputs where one is read": ("view", ["a.et", "b.et", "-o", "x.svg"], "reads one input, not 2: a.et, b.et"),
    "a target": ("convert", ["a", "-o", "b.et", "--target", "astrasim"], "unknown target 'astrasim': did you mean 'astra-sim'?"),
    "an option": ("build", ["a", "-o", "b", "--targt", "generic"], "unknown option --targt: did you mean '--target'?"),
    "an option like none": ("build", ["a", "-o", "b", "--zzz"], "unknown option --zzz (see"),
    "an analysis": ("report", ["a", "--only", "idle_time"], "unknown analysis 'idle_time': did you mean 'idle_time_breakdown'?"),
    "a job": ("generate", ["dpd", "-o", "x"], "unknown job 'dpd': did you mean 'ddp'?"),
    "a value like none": ("convert", ["a", "-o", "b.et", "--io", "zzz"], "unknown io 'zzz': choose from full, none"),
    "json and the output on stdout": ("convert", ["a", "--json", "-o", "-"], "--json and --output - both write to stdout"),
    "an output of another kind": ("convert", ["a", "-o", "b.json"], "b.json ends in .json; name a file that ends in .et"),
    "a node": ("view", ["graph.et", "-o", "x.svg", "--around", 10**9], "there is no node 1000000000; ids are 1 to "),
    "an annotation": (
        "link",
        [HOST, DEVICE, "-o", "x.json", "--annotation", "ProfilerSteps#1"],
        "no annotation named 'ProfilerSteps#1' in that part of the trace: did you mean 'ProfilerStep#",
    ),
    "a step": ("link", [HOST, DEVICE, "-o", "x.json", "--steps", 99], "no step 99 to link; the trace holds steps "),
    "ranks of a run": ("report", [SAMPLE, "--ranks", "7"], "rank 7 is not among the ranks there, 0, 1"),
    "a rank of a folder": ("link", [SAMPLE, "--rank", 7, "-o", "x.json"], "holds the traces of ranks 0, 1, not of rank 7: choose one"),
    "a rank to remove": ("scale", ["graphs", "-o", "x", "--remove-ranks", 9], "rank 9 cannot be removed: the job has the ranks 0,1"),
    "a group": (
        "scale",
        ["graphs", "-o", "x", "--data-parallel", 2, "--data-parallel-group", "dp"],
        "no group has that name, description or ranks; there are group 0,1",
    ),
    "two traces of one kind": ("link", [DEVICE, SAMPLE / "device_rank1.json.gz", "-o", "x.json"], "are both device traces"),
    "a host trace alone": ("link", [HOST, "-o", "x.json"], "is a host trace: give the device trace of the same process, too"),
}  # fmt: skip


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_usage_is_one_line_that_says_what_to_write(
    mistake: str, work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    command, words, said = MISTAKES[mistake]
    ended = run(capfd, command, *words)
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    assert line.startswith(f"trace-{command}: error: ") and said in line
    assert not (work / "x.json").exists()


def test_a_pattern_that_matches_nothing_is_a_file_that_is_not_there(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    ended = run(capfd, "replay", "nothing*.et")
    assert ended.code == 1 and "nothing*.et: " in ended.err


def test_a_file_may_be_named_like_a_pattern(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(work / "graph.et", tmp_path / "graph[0].et")
    monkeypatch.chdir(tmp_path)
    assert run(capfd, "replay", "graph[0].et").code == 0


def test_the_timeline_on_stdout_is_alone_there(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    assert "traceEvents" in json.loads(run(capfd, "replay", "graphs", "-o", "-").out)


# An output never replaces what was measured

OVER_ITSELF = {
    "trace-link": ("link", ["device.json", "-o", "device.json"]),
    "trace-link, another spelling of the path": ("link", ["device.json", "-o", "../given/device.json"]),
    "trace-link, through a link": ("link", ["device.json", "-o", "link.json"]),
    "trace-link, of the host trace": ("link", ["host.json", "device.json", "-o", "host.json"]),
    "trace-link, by options": ("link", ["--host-trace", "host.json", "--device-trace", "device.json", "-o", "device.json"]),
    "trace-link, of a folder": ("link", [".", "-o", "device.json"]),
    "trace-convert": ("convert", ["linked.json", "-o", "same.et"]),
    "trace-jsonize": ("jsonize", ["linked.json", "--to", "et", "-o", "linked.json"]),
    "trace-merge": ("merge", ["device.json", "-o", "device.json"]),
    "trace-merge, through a hard link": ("merge", ["device.json", "-o", "hard.json"]),
    "trace-report, the counters": ("report", ["device.json", "--perfetto", "device.json"]),
    "trace-report, the counters of a folder": ("report", [".", "--only", "counters", "--perfetto", "device.json"]),
}  # fmt: skip


@pytest.mark.parametrize("case", OVER_ITSELF)
def test_an_output_does_not_replace_an_input(
    case: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.chdir(given)
    for name, source in (("host.json", HOST), ("device.json", DEVICE)):
        Path(name).write_bytes(gzip.decompress(source.read_bytes()))
    command, words = OVER_ITSELF[case]
    if "link" in command or command == "merge":
        Path("link.json").symlink_to("device.json") if "through a link" in case else None
        Path("hard.json").hardlink_to("device.json") if "hard" in case else None
    if "linked.json" in words:
        shutil.copy(work / "linked.json", "linked.json")
        Path("same.et").symlink_to("linked.json")
    before = {path.name: path.read_bytes() for path in given.iterdir()}
    ended = run(capfd, command, *words)
    assert ended.code == 2 and "give another name for the output" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in given.iterdir()} == before


def test_an_earlier_output_may_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("device_rank0.json.gz", "device_rank1.json.gz"):
        shutil.copy(SAMPLE / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    for output in ("merged.json", "merged.db"):
        for _ in range(2):
            assert run(capfd, "merge", ".", "-o", output).code == 0
