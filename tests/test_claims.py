"""What a command takes follows from how large its files are, not from the numbers in them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.communication import MANY_MEMBERS

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from samples import played

SECONDS, MEGABYTES = 6, 400
MEASURED = """
import importlib, json, pathlib, re, sys, time
for command, *arguments in json.loads(sys.argv[1]):
    try:
        importlib.import_module(f"execgraph.tools.commands.trace_{command}").main(arguments)
    except SystemExit as end:
        assert end.code in (0, 1), end
# what getrusage says is at least what the process took from which this one was started
most = re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text()).group(1)
print("used", time.process_time(), int(most) >> 10)
"""
"""Runs commands one after the other, and prints the seconds of a core and the most MB that they took."""
Rows = dict[str, Any]


def assert_cheap(*commands: tuple[Any, ...]) -> None:
    given = json.dumps([[*map(str, command), "-q"] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, given], capture_output=True, text=True, timeout=60, check=True
    )
    assert "internal error" not in done.stderr
    _, seconds, megabytes = done.stdout.splitlines()[-1].split()
    assert float(seconds) < SECONDS
    assert int(megabytes) < MEGABYTES


def everywhere(key: str, number: int) -> Callable[[Any], None]:
    """Puts the number wherever the trace has that key."""

    def change(part: Any) -> None:
        for inside in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            change(inside)
        if isinstance(part, dict) and key in part:
            part[key] = number

    return change


def step(number: int) -> Callable[[Rows], None]:
    def change(trace: Rows) -> None:
        for row in trace["traceEvents"]:
            if str(row.get("name")).startswith("ProfilerStep#"):
                row["name"] = f"ProfilerStep#{number}"

    return change


def members(number: int) -> Callable[[Rows], None]:
    """A million ranks at most, in each communication at another distance."""

    def change(trace: Rows) -> None:
        told = [row["args"] for row in trace["traceEvents"] if "Group size" in row.get("args", ())]
        for distance, args in enumerate(told, 1):
            args.pop("Process Group Ranks", None)
            args |= {"Global rank start": 0, "Global rank stride": distance, "Group size": min(number, 10**6)}

    return change


def described_groups(number: int) -> Callable[[Rows], None]:
    def change(trace: Rows) -> None:
        sizes = range(min(number, 10**6) - 300, min(number, 10**6))
        trace["distributedInfo"]["pg_config"] = [{"pg_name": str(size), "pg_size": size} for size in sizes]

    return change


CLAIMS = {
    "world size": lambda number: everywhere("world_size", number),
    "rank": lambda number: everywhere("rank", number),
    "group size": lambda number: everywhere("Group size", number),
    "members": members,
    "described groups": described_groups,
    "peer": lambda number: everywhere("Rank", number),
    "elements": lambda number: everywhere("In msg nelems", number),
    "stream": lambda number: everywhere("stream", number),
    "device": lambda number: everywhere("device", number),
    "thread": lambda number: everywhere("tid", number),
    "process": lambda number: everywhere("pid", number),
    "correlation": lambda number: everywhere("correlation", number),
    "function id": lambda number: everywhere("Record function id", number),
    "step": step,
}


def claiming(folder: Path, claim: str, number: int) -> Path:
    folder.mkdir()
    for rank in (0, 1):
        _, device = played("2.13", rank).write(folder)
        trace = json.loads(device.read_bytes())
        CLAIMS[claim](number)(trace)
        device.write_text(json.dumps(trace))
    return folder


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_number_in_a_file_costs_nothing(claim: str, tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", claim, 10**9 if claim in ("world size", "rank") else 10**18)
    linked, graph, merged = (tmp_path / name for name in ("linked.json", "graph.et", "merged.json"))
    pair = "--host-trace", folder / "host_rank0.json", "--device-trace", folder / "device_rank0.json"
    assert_cheap(
        ("diagnose", folder, "--json"),
        ("link", *pair, "--output", linked, "--allow-mismatch"),
        ("convert", "--input", linked, "--output", graph),
        ("replay", "--input", graph),
        ("merge", folder, "--output", merged),
    )


def test_absent_ranks_of_a_job_of_ten_million_are_runs(tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", "world size", 10**7)
    assert_cheap(("build", "--input-dir", folder, "--output-dir", tmp_path / "graphs"))
    report = json.loads((tmp_path / "graphs" / "report.json").read_bytes())
    assert "9999998 of 10000000 ranks are absent: 2-9999999" in report["absences"]


def test_a_job_whose_groups_claim_a_million_members_is_built(tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", "members", 10**6)
    assert_cheap(("build", "--input-dir", folder, "--output-dir", tmp_path / "graphs", "--jobs", "1"))
    report = json.loads((tmp_path / "graphs" / "report.json").read_bytes())
    assert MANY_MEMBERS in json.dumps(report)
