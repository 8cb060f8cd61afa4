"""One name for all commands, and completion by the shell."""

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from execgraph.tools.commands import execgraph


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        execgraph.main(arguments)
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_every_command_that_is_installed_has_a_short_name() -> None:
    installed = {one.name for one in entry_points(group="console_scripts") if one.value.startswith("execgraph.tools")}
    assert installed == {execgraph.NAME, *(f"{execgraph.PREFIX}{name}" for name in execgraph.COMMANDS)}


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


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("execgraph li", ["link"]),
        ("execgraph link --host-t", ["--host-trace"]),
        ("execgraph replay --timel", ["--timeline"]),
    ],
)
def test_a_shell_gets_completions(line: str, completions: list[str]) -> None:
    pytest.importorskip("argcomplete")
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
