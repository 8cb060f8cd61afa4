"""One grammar for all commands: positional inputs, -o for the output, results on stdout, wrong usage in one line.

One name for all commands, help like a page of a manual, and completion by the shell.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from execgraph.tools.commands import execgraph
from support.commands import Run, status_of
from support.folders import DATA
from support.reports import PAGES

SAMPLE = DATA / "training"
HOST, DEVICE = "SAMPLE/host_rank0.json.gz", "SAMPLE/device_rank0.json.gz"


def words_of(line: str, output: Path | str = "OUT") -> list[str]:
    """The words of a command line, in which SAMPLE and OUT stand for paths."""
    return [word.replace("SAMPLE", str(SAMPLE)).replace("OUT", str(output)) for word in line.split()]


class Usage:
    """A command line with positional inputs, some with older options that do the same, and what it prints, if so."""

    def __init__(self, line: str, *older: str, prints: str = "") -> None:
        self.line, self.older, self.prints = line, older, prints


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grammar")
    for command, *words in (
        ("trace-link", *words_of(f"{HOST} {DEVICE} -o"), folder / "linked.json"),
        ("trace-build", SAMPLE, "-o", folder / "graphs"),
        ("trace-convert", folder / "linked.json", "-o", folder / "graph.et"),
    ):
        assert status_of(command, "-q", *words) == 0
    return folder


@pytest.fixture
def work(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what each command reads: linked.json, graphs/, graph.et. The test runs in it."""
    monkeypatch.chdir(made)
    return made


USAGES = {
    "link": Usage(
        f"{HOST} {DEVICE} -o OUT",
        f"--host-trace {HOST} --device-trace {DEVICE} --output OUT",
        f"PyTorch --chakra-host-trace {HOST} --chakra-device-trace {DEVICE} --rank 0 --output-file OUT",
        f"{DEVICE} --host-trace {HOST} -o OUT",
        f"{DEVICE} {HOST} -o OUT",
        "SAMPLE --rank 0 -o OUT",
    ),
    "convert": Usage(
        "linked.json -o OUT",
        "--input linked.json --output OUT",
        "PyTorch --input_filename linked.json --output_filename OUT",
    ),
    "jsonize": Usage(
        "graph.et --to json -o OUT",
        "--input graph.et --to json --output OUT",
        "--input_filename graph.et --to json --output_filename OUT",
    ),
    "build": Usage(
        "SAMPLE -o OUT",
        "--input-dir SAMPLE --output-dir OUT",
        f"{' '.join(f'SAMPLE/{path.name}' for path in sorted(SAMPLE.glob('*.gz')))} --output OUT",
    ),
    "replay": Usage(
        "graphs",
        "--input graphs",
        "--input_filename graphs",
        "graphs/graph.0.et graphs/graph.1.et",
        "--input graphs/graph.0.et graphs/graph.1.et",
        "graphs/graph.0.et --allow-mismatch graphs/graph.1.et",
        prints="replayed",
    ),
    "report": Usage(
        "SAMPLE --only temporal_breakdown", "--only temporal_breakdown --input SAMPLE", prints="Temporal breakdown"
    ),
    "diagnose": Usage("SAMPLE", "--input SAMPLE", "--input-dir SAMPLE", prints="host schema"),
    "merge": Usage("SAMPLE -o OUT", "--input-dir SAMPLE --output OUT"),
    "scale": Usage(
        "graphs -o OUT --data-parallel 2",
        "--input-dir graphs --output-dir OUT --data-parallel 2",
        prints="2 -> 4 members",
    ),
    "view": Usage(
        "graph.et -o OUT --time 0:300",
        "--input graph.et --output OUT --time 0:300",
        "--input_filename graph.et --output_filename OUT --time 0:300",
    ),
    "generate": Usage("simple -o OUT --steps 1 --layers 1", "--job simple --output-dir OUT --steps 1 --layers 1"),
}
NAMES = {"merge": "out.json", "view": "out.svg"}
"""Outputs whose name says what to write."""


def content(path: Path) -> object:
    """The bytes of a file, or of all files in a folder but those that say how the command was called."""
    if path.is_file():
        return path.read_bytes()
    return {one.name: one.read_bytes() for one in path.iterdir()} if path.is_dir() else None


def result(run: Run, work: Path, command: str, line: str) -> tuple[str, str, object]:
    """What stdout, stderr and the output hold after a command line that must work."""
    output = work / NAMES.get(command, "out")
    ended = run(f"trace-{command}", *words_of(line, output))
    assert ended.code == 0, ended.err
    made = content(output)
    if output.exists():
        output.unlink() if output.is_file() else shutil.rmtree(output)
    return ended.out, ended.err, made


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("command", USAGES)
def test_inputs_go_by_position_and_results_to_stdout_quiet_or_not_and_by_older_spellings_too(command, work, run):
    usage = USAGES[command]
    printed, _, made = result(run, work, command, usage.line)
    assert (made is not None) == ("OUT" in usage.line)
    assert usage.prints in printed if usage.prints else printed == ""
    for line in (*usage.older, f"-q {usage.line}"):
        assert result(run, work, command, line)[::2] == (printed, made), line
    _, said, verbosely_made = result(run, work, command, f"-v {usage.line}")
    assert verbosely_made == made
    assert f"trace-{command}: " in said and said.count(" s\n") >= 2
    assert ("reading " in said) == (command != "generate")


# Wrong usage

MISTAKES = {
    "no input": ("convert", "", "no input given: name LINKED.json, as in: trace-convert linked.json.gz -o graph.0.et"),
    "no output": ("convert", "linked.json", "no output given: add -o GRAPH.et, as in: trace-convert"),
    "two inputs where one is read": ("convert", "a.json b.json -o x.et", "reads one input, not 2: a.json, b.json"),
    "a target": ("convert", "a -o b.et --target astrasim", "unknown target 'astrasim': did you mean 'astra-sim'?"),
    "an option": ("build", "a -o b --targt generic", "unknown option --targt: did you mean '--target'?"),
    "an option like none": ("build", "a -o b --zzz", "unknown option --zzz (see"),
    "an analysis": ("report", "a --only idle_time", "unknown analysis 'idle_time': did you mean 'idle_time_breakdown'?"),
    "a job": ("generate", "dpd -o x", "unknown job 'dpd': did you mean 'ddp'?"),
    "a value like none": ("convert", "a -o b.et --io zzz", "unknown io 'zzz': choose from full, none"),
    "json and the output on stdout": ("convert", "a --json -o -", "--json and --output - both write to stdout"),
    "an output of another kind": ("convert", "a -o b.json", "b.json ends in .json; name a file that ends in .et"),
    "a factor behind a colon": ("replay", "graph.et --scale gemm:0.5", "'gemm:0.5' has no factor: write gemm=0.5"),
    "a node": ("view", "graph.et -o x.svg --around 1000000000", "there is no node 1000000000; ids are 1 to "),
    "an annotation": (
        "link", f"{HOST} {DEVICE} -o x.json --annotation ProfilerSteps#1",
        "no annotation named 'ProfilerSteps#1' in that part of the trace: did you mean 'ProfilerStep#",
    ),
    "a step": ("link", f"{HOST} {DEVICE} -o x.json --steps 99", "no step 99 to link; the trace holds steps "),
    "ranks from high to low": ("report", "SAMPLE --ranks 5-3", "'5-3' are not ranks, such as 0-3,8"),
    "some ranks from high to low": ("report", "SAMPLE --ranks 0,5-3", "'0,5-3' are not ranks, such as 0-3,8"),
    "ranks of a run": ("report", "SAMPLE --ranks 7", "rank 7 is not among the ranks there, 0, 1"),
    "a rank of a folder": ("link", "SAMPLE --rank 7 -o x.json", "holds the traces of ranks 0, 1, not of rank 7: choose one"),
    "a rank to remove": ("scale", "graphs -o x --remove-ranks 9", "rank 9 cannot be removed: the job has the ranks 0,1"),
    "a group": (
        "scale", "graphs -o x --data-parallel 2 --data-parallel-group dp",
        "no group has that name, description or ranks; there are group 0,1",
    ),
    "two traces of one kind": ("link", f"{DEVICE} SAMPLE/device_rank1.json.gz -o x.json", "are both device traces"),
    "a host trace alone": ("link", f"{HOST} -o x.json", "is a host trace: give the device trace of the same process, too"),
}  # fmt: skip


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_usage_is_one_line_that_says_what_to_write(mistake: str, work: Path, run: Run) -> None:
    command, line, said = MISTAKES[mistake]
    ended = run(f"trace-{command}", *words_of(line))
    assert (ended.code, ended.out) == (2, "")
    assert ended.line.startswith(f"trace-{command}: error: ") and said in ended.line
    assert not (work / "x.json").exists()


@pytest.mark.usefixtures("work")
def test_the_timeline_on_stdout_is_alone_there(run: Run) -> None:
    assert "traceEvents" in json.loads(run("trace-replay", "graphs", "-o", "-").out)


# An output never replaces what was measured

OVER_ITSELF = {
    "trace-link": ("link", "device.json -o device.json"),
    "trace-link, another spelling of the path": ("link", "device.json -o ../given/device.json"),
    "trace-link, through a link": ("link", "device.json -o link.json"),
    "trace-link, of the host trace": ("link", "host.json device.json -o host.json"),
    "trace-link, by options": ("link", "--host-trace host.json --device-trace device.json -o device.json"),
    "trace-link, of a folder": ("link", ". -o device.json"),
    "trace-convert": ("convert", "linked.json -o same.et"),
    "trace-jsonize": ("jsonize", "linked.json --to et -o linked.json"),
    "trace-merge": ("merge", ". -o device.json"),
    "trace-merge, through a hard link": ("merge", "device.json -o hard.json"),
    "trace-report, the counters": ("report", "device.json --perfetto device.json"),
    "trace-report, the counters of a folder": ("report", ". --only counters --perfetto device.json"),
}  # fmt: skip


@pytest.mark.parametrize("case", OVER_ITSELF)
def test_an_output_does_not_replace_an_input(case, made, tmp_path, monkeypatch, run):
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.chdir(given)
    for name, source in zip(("host.json", "device.json"), map(Path, words_of(f"{HOST} {DEVICE}")), strict=True):
        Path(name).write_bytes(gzip.decompress(source.read_bytes()))
    command, line = OVER_ITSELF[case]
    if "link" in command or command == "merge":
        Path("link.json").symlink_to("device.json") if "through a link" in case else None
        Path("hard.json").hardlink_to("device.json") if "hard" in case else None
    if "linked.json" in line:
        shutil.copy(made / "linked.json", "linked.json")
        Path("same.et").symlink_to("linked.json")
    before = {path.name: path.read_bytes() for path in given.iterdir()}
    ended = run(f"trace-{command}", *line.split())
    assert ended.code == 2 and "give another name for the output" in ended.line
    assert {path.name: path.read_bytes() for path in given.iterdir()} == before


INSTALLED = {one.name for one in entry_points(group="console_scripts") if one.value.startswith("execgraph.start:")}


def test_every_command_that_is_installed_has_a_short_name() -> None:
    assert {execgraph.NAME, *(f"{execgraph.PREFIX}{name}" for name in execgraph.COMMANDS)} == INSTALLED


@pytest.mark.parametrize("name", execgraph.COMMANDS)
def test_a_short_name_runs_the_command(name: str, run: Run) -> None:
    ended = run("execgraph", name, "--version")
    assert ended.code == 0 and ended.out.startswith(f"trace-{name} 0.")


def test_alone_it_lists_the_commands_and_another_word_is_wrong_usage(run: Run) -> None:
    ended = run("execgraph")
    assert ended.code == 0 and all(f"\n  {name} " in ended.out for name in execgraph.COMMANDS)
    ended = run("execgraph", "konvert")
    assert ended.code == 2 and "konvert" in ended.err


OUT_OF_MEMORY = "trace-build: error: out of memory; use a machine with more, or a shorter trace\n"
FAILING = """
import sys
from unittest.mock import Mock
from execgraph.start import trace_build
sys.modules["execgraph.tools.commands.trace_build"] = Mock(main=Mock(side_effect=%s))
trace_build([])
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("MemoryError()", f"^{OUT_OF_MEMORY}$"),
        ("ImportError('libx.so: failed to map segment from shared object')", f"^{OUT_OF_MEMORY}$"),
        ("ImportError('no numpy')", "ImportError: no numpy\n$"),
    ],
)
def test_a_command_that_finds_no_memory_for_its_libraries_says_so_in_a_line_and_which_one_it_lacks(error, said):
    done = subprocess.run([sys.executable, "-c", FAILING % error], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(said, done.stderr)


class Parsed(Exception):
    """Holds the parser of a command that was about to parse its arguments."""


@pytest.fixture
def parser(name: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    def seen(parser: argparse.ArgumentParser, *_: object) -> None:
        raise Parsed(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_intermixed_args", seen)
    with pytest.raises(Parsed) as parsed:
        import_module(f"execgraph.tools.commands.trace_{name}").main([])
    found: argparse.ArgumentParser = parsed.value.args[0]
    return found


@pytest.mark.parametrize("name", execgraph.COMMANDS)
def test_options_stand_in_titled_groups_each_told_in_one_short_sentence_and_help_ends_with_an_example(name, parser):
    groups = {
        group.title: [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        for group in parser._action_groups
    }
    assert len(groups["options"]) <= 6
    assert max(map(len, groups.values())) <= 10
    assert [title for title, options in groups.items() if options][-1] == "help and messages"
    told = {one.dest: one.help or "" for one in parser._actions if one.dest != "only"}  # that names all analyses
    assert {dest: text for dest, text in told.items() if not 8 < len(text) < 280 or re.search(r"\.$|\w\. ", text)} == {}
    assert re.search(rf"\nexit status: .*\n\nexample:\n  trace-{name} .*\n$", parser.format_help())


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("execgraph li", ["link"]), ("execgraph link --host-t", ["--host-trace"]),
        ("execgraph replay --timel", ["--timeline"]), ("execgraph convert --target as", ["astra-sim"]),
        ("execgraph diagnose de", ["device.json.gz"]), ("execgraph build --input-dir g", ["graphs/"]),
    ],
)  # fmt: skip
def test_a_shell_gets_completions(line, completions, tmp_path, monkeypatch):
    pytest.importorskip("argcomplete")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "device.json.gz").touch()
    (tmp_path / "graphs").mkdir()
    how = {"": "1", "_IFS": "\n", "_SUPPRESS_SPACE": "1", "_SHELL": "bash"}
    asked = {f"_ARGCOMPLETE{name}": value for name, value in how.items()}
    told = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    # the answer goes to file descriptor 8
    command = ["sh", "-c", 'exec "$0" -m execgraph 8>&1 9>&2 >/dev/null 2>&1', sys.executable]
    answer = subprocess.run(command, env=os.environ | asked | told, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == completions


def register(shell: str) -> str:
    """The line of the documentation that has a shell complete the commands."""
    lines = PAGES["install.md"].read_text().splitlines()
    [found] = [line for line in lines if f"register-python-argcomplete {shell}" in line]
    return found


def test_bash_completes_every_command_that_is_installed() -> None:
    pytest.importorskip("argcomplete")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = ["bash", "--norc", "-ec", f"{register('execgraph')}\ncomplete -p"]
    ran = subprocess.run(told, env={"PATH": path}, capture_output=True, text=True, check=True)
    assert set(re.findall(r"-F _python_argcomplete (\S+)$", ran.stdout, re.MULTILINE)) == INSTALLED


def test_fish_completes_every_command_that_is_installed() -> None:
    assert set(re.findall(r"execgraph\b|trace-\w+", register("--shell fish"))) == INSTALLED
