"""What `make` and `make demo` show to people who have just cloned the project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

if not shutil.which("make"):
    pytest.skip("make is not installed", allow_module_level=True)


def make(*arguments: str) -> str:
    """What a target prints; as of the shell, not of a make that runs these tests."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"
    }
    command = ["make", "--no-print-directory", *arguments]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert not ran.returncode, ran.stdout
    return ran.stdout


def test_make_alone_lists_every_target_in_a_line() -> None:
    [targets] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    listed = [line.split(maxsplit=1) for line in make().splitlines()]
    assert sorted(target for target, _ in listed) == sorted(targets.split())
    assert {len(what) > 5 for _, what in listed} == {True}


def test_the_demo_ends_with_an_answer_a_picture_a_page_and_what_to_do_next(tmp_path: Path) -> None:
    """With what is installed here in place of a new environment."""
    pytest.importorskip("altair")
    binaries = Path(sys.executable).parent
    printed = make("demo", "-o", ".venv/.report", f"BIN={binaries}", f"OUT={tmp_path}")
    lines = printed.splitlines()
    assert len(lines) < 40
    commands = [line.split()[0] for line in lines if line.startswith(f"{binaries}/trace-")]
    assert [Path(command).name for command in commands] == [
        "trace-build",
        "trace-replay",
        "trace-replay",
        "trace-view",
        "trace-report",
    ]
    assert (
        "\nIf all computation were twice as fast, the run would take 2.73 ms instead of 4.50 ms, 39 % less: " in printed
    )
    for name in ("graph.svg", "report.html"):
        assert (tmp_path / name).stat().st_size > 10_000
        assert str(tmp_path / name) in lines[-3]
    assert (ROOT / lines[-2].split()[-1]).is_file()  # the page about recording
    assert {path.name for path in (tmp_path / "graphs").glob("*.et")} == {"graph.0.et", "graph.1.et"}
