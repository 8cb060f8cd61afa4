"""One grammar for all commands: positional inputs, -o for the output, results on stdout, wrong usage in one line.

One name for all commands, help like a page of a manual, and completion by the shell.
"""

import argparse
import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import pytest
from execgraph.tools.commands import execgraph
from support.folders import DATA
from support.reports import PAGES

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
    "ranks from high to low": ("report", [SAMPLE, "--ranks", "5-3"], "'5-3' are not ranks, such as 0-3,8"),
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


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        execgraph.main(arguments)
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


INSTALLED = {one.name for one in entry_points(group="console_scripts") if one.value.startswith("execgraph.start:")}


def test_every_command_that_is_installed_has_a_short_name() -> None:
    assert {execgraph.NAME, *(f"{execgraph.PREFIX}{name}" for name in execgraph.COMMANDS)} == INSTALLED


@pytest.mark.parametrize("name", execgraph.COMMANDS)
def test_a_short_name_runs_the_command(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = ended(capsys, name, "--version")
    assert (code, out.split()[0]) == (0, f"trace-{name}")


def test_alone_it_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys)
    assert code == 0
    assert all(f"\n  {name} " in out for name in execgraph.COMMANDS)


def test_another_word_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ended(capsys, "konvert")
    assert code == 2
    assert "konvert" in err


FAILING = """
import sys
from unittest.mock import Mock
from execgraph.start import trace_build
sys.modules["execgraph.tools.commands.trace_build"] = Mock(main=Mock(side_effect=%s))
trace_build([])
"""


@pytest.mark.parametrize("error", ["MemoryError()", "ImportError('libx.so: failed to map segment from shared object')"])
def test_a_command_that_finds_no_memory_for_its_libraries_says_so_in_a_line(error: str) -> None:
    done = subprocess.run([sys.executable, "-c", FAILING % error], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "trace-build: error: out of memory; use a machine with more, or a shorter trace\n"


def test_a_command_that_lacks_a_library_still_says_which() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING % "ImportError('no numpy')"], capture_output=True, text=True, check=False
    )
    assert "ImportError: no numpy" in done.stderr


class Parsed(Exception):
    """Holds the parser of a command that was about to parse its arguments."""


@pytest.fixture
def parser(name: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    def seen(parser: argparse.ArgumentParser, *_: object) -> None:
        raise Parsed(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_intermixed_args", seen)
    with pytest.raises(Parsed) as parsed:
        importlib.import_module(f"execgraph.tools.commands.trace_{name}").main([])
    found: argparse.ArgumentParser = parsed.value.args[0]
    return found


@pytest.mark.parametrize("name", execgraph.COMMANDS)
def test_options_stand_in_groups_with_a_title(name: str, parser: argparse.ArgumentParser) -> None:
    groups = {
        group.title: [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        for group in parser._action_groups
    }
    assert len(groups["options"]) <= 6
    assert max(map(len, groups.values())) <= 10
    assert [title for title, options in groups.items() if options][-1] == "help and messages"


@pytest.mark.parametrize("name", execgraph.COMMANDS)
def test_an_option_is_told_in_one_short_sentence(name: str, parser: argparse.ArgumentParser) -> None:
    told = {one.dest: one.help or "" for one in parser._actions if one.dest != "only"}  # that names all analyses
    assert {dest: text for dest, text in told.items() if not 8 < len(text) < 280 or re.search(r"\.$|\w\. ", text)} == {}


@pytest.mark.parametrize("name", execgraph.COMMANDS)
def test_help_ends_with_an_example(capsys: pytest.CaptureFixture[str], name: str) -> None:
    _, out, _ = ended(capsys, name, "--help")
    assert re.search(rf"\nexit status: .*\n\nexample:\n  trace-{name} .*\n$", out)


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("execgraph li", ["link"]),
        ("execgraph link --host-t", ["--host-trace"]),
        ("execgraph replay --timel", ["--timeline"]),
        ("execgraph convert --target as", ["astra-sim"]),
        ("execgraph diagnose de", ["device.json.gz"]),
        ("execgraph build --input-dir g", ["graphs/"]),
    ],
)
def test_a_shell_gets_completions(
    line: str, completions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("argcomplete")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "device.json.gz").touch()
    (tmp_path / "graphs").mkdir()
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_SHELL": "bash",
    }
    told = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    # the answer goes to file descriptor 8
    command = ["sh", "-c", 'exec "$0" -m execgraph 8>&1 9>&2 >/dev/null 2>&1', sys.executable]
    answer = subprocess.run(command, env=os.environ | asked | told, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == completions


def register(shell: str) -> str:
    """The line of the documentation that has a shell complete the commands."""
    [line] = re.findall(
        rf"^.*register-python-argcomplete {shell}.*$", PAGES["first-steps.md"].read_text(), re.MULTILINE
    )
    return str(line)


def test_bash_completes_every_command_that_is_installed() -> None:
    pytest.importorskip("argcomplete")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = ["bash", "--norc", "-ec", f"{register('execgraph')}\ncomplete -p"]
    ran = subprocess.run(told, env={"PATH": path}, capture_output=True, text=True, check=True)
    assert set(re.findall(r"-F _python_argcomplete (\S+)$", ran.stdout, re.MULTILINE)) == INSTALLED


def test_fish_completes_every_command_that_is_installed() -> None:
    assert set(re.findall(r"execgraph\b|trace-\w+", register("--shell fish"))) == INSTALLED
