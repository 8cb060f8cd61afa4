"""The same files give the same bytes, whatever Python, library, hash seed and order they are read with.

Commands whose standard streams are closed or full: the right result, or one line that says what to do.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import digests

UPDATE = "where outputs were meant to change: python tests/support/digests.py --write"


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    """The digests by how they were made, each in a process of its own, as a process has one hash seed."""
    ways = {"hash seed 0": ("0",), "hash seed 1, files in the other order": ("1", "--reversed")}
    running = {
        way: subprocess.Popen(
            [sys.executable, digests.__file__, *options],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for way, (seed, *options) in ways.items()
    }
    return {way: json.loads(process.communicate()[0]) for way, process in running.items()}


def test_the_order_of_files_and_the_hash_seed_change_nothing(found: dict[str, dict[str, str]]) -> None:
    one, other = found.values()
    assert [name for name in one if one[name] != other.get(name)] == []


def test_outputs_are_those_that_every_supported_version_gives(found: dict[str, dict[str, str]]) -> None:
    kept, now = json.loads(digests.KEPT.read_text()), found["hash seed 0"]
    changed = [name for name in kept | now if kept.get(name) != now.get(name)]
    assert not changed, f"other bytes than before: {', '.join(changed)}; {UPDATE}"


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
