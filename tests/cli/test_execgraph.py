"""One name for all commands, help like a page of a manual, and completion by the shell."""

import argparse
import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from execgraph.tools.commands import execgraph
from support.pages import PAGES


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
