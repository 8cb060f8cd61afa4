"""Commands whose standard streams are closed or full: the right result, or one line that says what to do."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
CLOSED = ("<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-")
NO_OUTPUT = "error: -: standard output is closed; open it, or send it to a file: > FILE\n"


def started(redirected: str, name: str, *arguments: object) -> tuple[int, str]:
    """The exit status of a command, as it is installed, and what it printed on standard error."""
    words = [sys.executable, "-m", "execgraph", name, *map(str, arguments)]
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(words)} {redirected}"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("redirected", CLOSED)
def test_what_goes_to_a_file_goes_there(redirected: str, data: Path, tmp_path: Path) -> None:
    traces = [data / "training" / f"{kind}_rank0.json.gz" for kind in ("host", "device")]
    assert started(redirected, "link", *traces, "-o", tmp_path / "linked.json", "-q") == (0, "")
    assert (tmp_path / "linked.json").read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("redirected", ["<&-", "<&- >&- 2>&-"])
def test_a_build_in_processes_needs_no_streams(redirected: str, data: Path, tmp_path: Path) -> None:
    assert started(redirected, "build", data / "training", "-o", tmp_path / "out", "--jobs", 2, "-q") == (0, "")
    assert len(list(tmp_path.glob("out/graph.*.et"))) == 2


def test_closed_streams_that_are_wanted_are_one_line(data: Path, tmp_path: Path) -> None:
    assert started(">&-", "diagnose", data / "training", "-q") == (1, f"trace-diagnose: {NO_OUTPUT}")
    no_input = "trace-convert: error: -: standard input is closed; give a file name\n"
    assert started("<&-", "convert", "-", "-o", tmp_path / "graph.et") == (1, no_input)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_a_command_says_of_itself_needs_a_place_to_say_it(option: str) -> None:
    assert started(">&-", "link", option) == (1, f"trace-link: {NO_OUTPUT}")
    status, said = started(">/dev/full", "link", option)
    assert (status, said.count("\n")) == (1, 1)
    assert "error: -: cannot be written (No space left on device)" in said
    assert started("| true", "link", option) == (0, "")


def test_help_is_shown_on_a_terminal_that_knows_ascii_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:strict")
    assert started("", "build", "--help") == (0, "")


@pytest.mark.parametrize("is_input", [True, False])
@pytest.mark.parametrize("path", ["circle", "x" * 300])
def test_paths_that_cannot_be_are_one_line(data: Path, tmp_path: Path, path: str, is_input: bool) -> None:
    (tmp_path / "circle").symlink_to("circle")
    trace = data / "training" / "device_rank0.json.gz"
    given, out = (tmp_path / path, tmp_path / "out") if is_input else (trace, tmp_path / path)
    status, said = started("", "link", given, "-o", out)
    assert (status, said.count("\n")) == (1, 1)
    assert said.startswith("trace-link: error: ")
    assert said.endswith("check the path\n")
