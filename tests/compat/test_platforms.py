"""What only some systems have is done without where it is not: here it is taken away, as no other system is at hand."""

import subprocess
import sys
from pathlib import Path

MISSING = """
import sys, os, mmap, subprocess, signal
for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for place, names in {
    os: ("O_TMPFILE", "fork", "getuid", "geteuid", "link", "mkfifo", "nice", "sched_getaffinity", "wait4"),
    mmap: ("MADV_DONTNEED", "MADV_SEQUENTIAL", "MADV_WILLNEED"),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"),
}.items():
    for name in names:
        if hasattr(place, name):
            delattr(place, name)
from execgraph.tools.commands.execgraph import main
main()
"""


def run(folder: Path, *arguments: object) -> None:
    command = [sys.executable, "-c", MISSING, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_pair_becomes_a_graph_that_replays_without_what_only_posix_has(data: Path, tmp_path: Path) -> None:
    host, device = (data / "training" / f"{kind}_rank0.json.gz" for kind in ("host", "device"))
    run(tmp_path, "link", "--host-trace", host, "--device-trace", device, "--output", "linked.json.gz")
    run(tmp_path, "convert", "--input", "linked.json.gz", "--output", "graph.et")
    run(tmp_path, "replay", "--input", "graph.et", "--timeline", "timeline.json")
    run(tmp_path, "build", "--input-dir", data / "ddp", "--output-dir", "graphs", "--jobs", 1)
    run(tmp_path, "report", device, "--csv", "tables", "--only", "critical_path")
    # measured for coverage, what is run leaves its figures here
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".coverage.")} == {
        "linked.json.gz",
        "graph.et",
        "timeline.json",
        "graphs",
        "tables",
    }
