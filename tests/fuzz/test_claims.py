"""What a command takes follows from how large its files are, not from the numbers in them."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from execgraph.schema.reasons import Reason, in_words

from fuzz.samples import played

SECONDS, MEGABYTES = 6, 400
MEASURED = """
import importlib, json, os, pathlib, re, sys, time
works = json.load(sys.stdin)
mains = {}
for command in {command for work in works.values() for command, *_ in work}:
    mains[command] = importlib.import_module(f"execgraph.tools.commands.trace_{command}").main
for name, work in works.items():
    if child := os.fork():
        ended = os.waitpid(child, 0)[1]
        assert not ended, (name, ended)
        continue
    for command, *arguments in work:
        try:
            mains[command](arguments)
        except SystemExit as end:
            assert end.code in (0, 1), end
    # what getrusage says is at least what the process took from which this one was started
    most = re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text()).group(1)
    print(json.dumps([name, time.process_time(), int(most) >> 10]), flush=True)
    os._exit(0)
"""
"""Runs each work's commands in a process of its own, in turn; prints the seconds of a core and the MB it took."""
Rows = dict[str, Any]
Commands = Sequence[tuple[Any, ...]]


class Took(NamedTuple):
    """What a work took of a core, and of memory."""

    seconds: float
    megabytes: int

    @property
    def little(self) -> bool:
        return self.seconds < SECONDS and self.megabytes < MEGABYTES


def took(works: dict[str, Commands]) -> dict[str, Took]:
    """What each of the works took, which are commands with their arguments."""
    given = {name: [[*map(str, command), "-q"] for command in work] for name, work in works.items()}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "internal error" not in done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {name: Took(*figures) for name, *figures in told}


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
    """Very many ranks at most, in each communication at another distance."""

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


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Took]:
    """What the commands took on files with each of the claims."""
    works = {}
    for claim in CLAIMS:
        out = tmp_path_factory.mktemp("claim")
        folder = claiming(out / "job", claim, 10**9 if claim in ("world size", "rank") else 10**18)
        linked, graph, merged = (out / name for name in ("linked.json", "graph.et", "merged.json"))
        pair = "--host-trace", folder / "host_rank0.json", "--device-trace", folder / "device_rank0.json"
        works[claim] = [
            ("diagnose", folder, "--json"),
            ("link", *pair, "--output", linked, "--allow-mismatch"),
            ("convert", "--input", linked, "--output", graph),
            ("replay", "--input", graph),
            ("merge", folder, "--output", merged),
        ]
    return took(works)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_number_in_a_file_costs_nothing(claim: str, taken: dict[str, Took]) -> None:
    assert taken[claim].little, taken[claim]


def test_absent_ranks_of_a_job_of_ten_million_are_runs(tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", "world size", 10**7)
    building = ("build", "--input-dir", folder, "--output-dir", tmp_path / "graphs")
    assert took({"build": [building]})["build"].little
    report = json.loads((tmp_path / "graphs" / "report.json").read_bytes())
    assert "9999998 of 10000000 ranks are absent: 2-9999999" in report["absences"]


@pytest.mark.parametrize("command", [["diagnose"], ["merge", "--output", "merged.json"], ["merge", "--output", "m.db"]])
def test_members_that_are_too_many_are_counted(command: list[str], tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", "members", 2 * 10**5)
    script = [sys.executable, "-m", "execgraph", *command, str(folder), "--json"]
    done = subprocess.run(script, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert in_words(Reason.MANY_MEMBERS) in done.stdout


def test_a_job_whose_groups_claim_very_many_members_is_built(tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", "members", 2 * 10**5)
    building = ("build", "--input-dir", folder, "--output-dir", tmp_path / "graphs", "--jobs", "1")
    assert took({"build": [building]})["build"].little
    report = json.loads((tmp_path / "graphs" / "report.json").read_bytes())
    assert in_words(Reason.MANY_MEMBERS) in json.dumps(report)
