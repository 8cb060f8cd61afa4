"""What a command takes follows from how large its files are, not from the numbers in them.

Parents in a circle are cut where they are first known, and counted; every command then ends as always.
"""

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.converter.scaling import rank_facts
from execgraph.linker.link import link, read_linked
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import Tree, nearest, parent_rows, rows_in_circles
from execgraph.schema.linked import Ops, write_linked
from execgraph.schema.reasons import Reason, in_words
from hypothesis import given, strategies as st
from support.runs import link_run, rich_run

from fuzz.running import run
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
    "world size": lambda number: everywhere("world_size", number), "rank": lambda number: everywhere("rank", number),
    "group size": lambda number: everywhere("Group size", number), "members": members,
    "described groups": described_groups, "peer": lambda number: everywhere("Rank", number),
    "elements": lambda number: everywhere("In msg nelems", number),
    "stream": lambda number: everywhere("stream", number), "device": lambda number: everywhere("device", number),
    "thread": lambda number: everywhere("tid", number), "process": lambda number: everywhere("pid", number),
    "correlation": lambda number: everywhere("correlation", number),
    "function id": lambda number: everywhere("Record function id", number), "step": step,
}  # fmt: skip


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
            ("diagnose", folder, "--json"), ("link", *pair, "--output", linked, "--allow-mismatch"),
            ("convert", "--input", linked, "--output", graph), ("replay", "--input", graph),
            ("merge", folder, "--output", merged),
        ]  # fmt: skip
    return took(works)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_number_in_a_file_costs_nothing(claim: str, taken: dict[str, Took]) -> None:
    assert taken[claim].little, taken[claim]


def test_absent_ranks_of_a_job_of_ten_million_are_runs(tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", "world size", 10**7)
    building = ("build", "--input-dir", folder, "--output-dir", tmp_path / "graphs", "--jobs", "1")
    assert took({"build": [building]})["build"].little
    report = json.loads((tmp_path / "graphs" / "report.json").read_bytes())
    assert "9999998 of 10000000 ranks are absent: 2-9999999" in report["absences"]


@pytest.mark.parametrize(("command", "output"), [("diagnose", ""), ("merge", "merged.json"), ("merge", "m.db")])
def test_members_that_are_too_many_are_counted(tmp_path: Path, command: str, output: str) -> None:
    more = ("--output", tmp_path / output) if output else ()
    folder = claiming(tmp_path / "job", "members", 2 * 10**5)
    status, said = run(command, folder, *more, "--json")
    assert status == 0 and in_words(Reason.MANY_MEMBERS) in said


def test_a_job_whose_groups_claim_very_many_members_is_built(tmp_path: Path) -> None:
    folder = claiming(tmp_path / "job", "members", 2 * 10**5)
    building = ("build", "--input-dir", folder, "--output-dir", tmp_path / "graphs", "--jobs", "1")
    assert took({"build": [building]})["build"].little
    report = json.loads((tmp_path / "graphs" / "report.json").read_bytes())
    assert in_words(Reason.MANY_MEMBERS) in json.dumps(report)


Json = dict[str, Any]
OPS = ("cpu_op", "user_annotation")


def document_of(data: Path, name: str) -> Json:
    found: Json = json.loads(gzip.decompress((data / "training" / f"{name}.json.gz").read_bytes()))
    return found


def write(folder: Path, host: Json, device: Json) -> tuple[Path, Path]:
    paths = folder / "host.json", folder / "device.json"
    for path, document in zip(paths, (host, device), strict=True):
        path.write_text(json.dumps(document))
    return paths


def goes_round(ops: Ops) -> bool:
    """Whether any op comes to itself, by walking up from each until an op comes again."""
    above = dict(zip(ops.id.tolist(), ops.parent_id.tolist(), strict=True))
    for op in above:
        passed = {op}
        while above.get(op, op) != op:
            op = above[op]
            if op in passed:
                return True
            passed.add(op)
    return False


# What a host trace and a device trace may say


def of_one_id(host: Json) -> None:
    for node in host["nodes"]:
        node["id"] = 1


def without_inputs(host: Json) -> None:
    for node in host["nodes"]:
        node["inputs"] = {"values": [], "shapes": [], "types": []}


def with_random_parents(host: Json, seed: int) -> None:
    draw, ids = random.Random(seed), [node["id"] for node in host["nodes"]]
    for node in host["nodes"]:
        node["ctrl_deps"] = draw.choice(ids)


def in_reverse(device: Json) -> None:
    """Ops in the times of others, the first in those of the last."""
    ops = [event for event in device["traceEvents"] if event.get("cat") in OPS]
    times = [(event["ts"], event["dur"]) for event in ops]
    for event, time in zip(ops, reversed(times), strict=True):
        event["ts"], event["dur"] = time


def with_reversed_times(device: Json) -> None:
    ops = [event for event in device["traceEvents"] if event.get("cat") == "cpu_op"]
    both = min(event["ts"] for event in ops) + max(event["ts"] for event in ops)
    for event in ops:
        event["ts"] = both - event["ts"]


def unchanged(_: Json) -> None:
    pass


RANDOM = [partial(with_random_parents, seed=seed) for seed in range(2)]


@pytest.mark.parametrize(
    ("host_change", "device_change"),
    [(change, unchanged) for change in (of_one_id, *RANDOM)]
    + [(change, device) for device in (in_reverse, with_reversed_times) for change in (unchanged, without_inputs)]
    + [(change, in_reverse) for change in (of_one_id, RANDOM[0])],
)
def test_commands_end_whatever_two_traces_say_of_parents(tmp_path, data, host_change, device_change):
    host, device = (document_of(data, f"{kind}_rank0") for kind in ("host", "device"))
    host_change(host)
    device_change(device)
    pair, linked = write(tmp_path, host, device), tmp_path / "linked.json"
    assert run("link", *pair, "-o", linked)[0] == 0
    assert not goes_round(read_linked(str(linked)).ops)
    assert run("convert", linked, "-o", tmp_path / "graph.et")[0] == 0


@pytest.mark.parametrize("command", ["build", "report", "diagnose"])
def test_commands_end_on_traces_that_contradict_each_other_about_parents(tmp_path, data, command):
    host, device = (document_of(data, f"{kind}_rank1") for kind in ("host", "device"))
    in_reverse(device)
    write(tmp_path, host, device)
    assert run(command, tmp_path, *(() if command == "diagnose" else ("-o", tmp_path / "output")))[0] == 0


@pytest.fixture(scope="module")
def linked_in_a_circle(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linked trace in which two ops of step 0 call each other, and nothing has inputs."""
    path = tmp_path_factory.mktemp("linked") / "linked.json"
    host, device = (str(data / "training" / f"{kind}_rank0.json.gz") for kind in ("host", "device"))
    write_linked(link(read_host_trace(host), read_device_trace(device)), str(path))
    document = json.loads(path.read_bytes())
    without_inputs(document)
    [op] = [node for node in document["nodes"] if node["id"] == 5]
    op["ctrl_deps"] = 6
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("options", [("convert", "-o"), ("report", "--output")])
def test_commands_end_on_a_linked_trace_whose_parents_go_round(tmp_path, linked_in_a_circle, options):
    command, output = options
    assert run(command, linked_in_a_circle, output, tmp_path / "output")[0] == 0


def test_a_linked_trace_whose_parents_go_round_is_read_without_the_circle_and_written_again(
    tmp_path: Path, linked_in_a_circle: Path
) -> None:
    linked, again = read_linked(str(linked_in_a_circle)), str(tmp_path / "again.json")
    assert not goes_round(linked.ops)
    assert "parents that go round in a circle: 2 ops became outermost" in linked.report.notes
    write_linked(linked, again)
    assert read_linked(again).ops.parent_id.tolist() == linked.ops.parent_id.tolist()


def test_what_the_device_trace_nests_stays_and_the_rest_of_the_circle_is_counted(tmp_path: Path, data: Path) -> None:
    host, device = (document_of(data, f"{kind}_rank0") for kind in ("host", "device"))
    nodes = {node["id"]: node for node in host["nodes"]}
    # the step is around its forward pass in the device trace, and in it by the host trace
    step, forward, thread = 5, 6, 2
    nodes[step]["ctrl_deps"], nodes[forward]["ctrl_deps"] = forward, thread
    paths = map(str, write(tmp_path, host, device))
    linked = link(read_host_trace(next(paths)), read_device_trace(next(paths)))
    assert linked.report.oddities[Reason.OPS_IN_CIRCLES] == 1
    parents = dict(zip(linked.ops.id.tolist(), linked.ops.parent_id.tolist(), strict=True))
    assert (parents[step], parents[forward]) == (-1, step)


# Columns of parents

PARENTS = st.lists(st.integers(-1, 9), max_size=10).map(lambda parents: [min(p, len(parents) - 1) for p in parents])


def ancestors(parents: list[int], row: int) -> list[int]:
    """The rows around a row, the innermost first, up to one that comes again."""
    found: list[int] = []
    while (row := parents[row]) >= 0 and row not in found:
        found.append(row)
    return found


@given(PARENTS, st.randoms(use_true_random=False))
def test_rows_in_circles_are_those_among_their_own_ancestors(parents: list[int], random: random.Random) -> None:
    ids = np.array(random.sample(range(100), len(parents)), np.int64)
    parent_ids = np.append(ids, -1)[np.array(parents, np.int64)]
    rows = [row for row, parent in enumerate(parents) if row in ancestors(parents, row) and parent != row]
    assert rows_in_circles(ids, parent_ids).tolist() == rows
    parent_ids[rows] = -1
    assert len(rows_in_circles(ids, parent_ids)) == 0
    assert parent_rows(ids, parent_ids).tolist() == [
        -1 if row in rows or row == parent else parent for row, parent in enumerate(parents)
    ]


ACYCLIC = st.lists(st.integers(-1, 8), max_size=10).map(
    lambda parents: [min(p, row - 1) for row, p in enumerate(parents)]
)


@given(ACYCLIC, st.randoms(use_true_random=False))
def test_the_nearest_row_is_the_first_chosen_one_on_the_way_up(parents: list[int], random: random.Random) -> None:
    chosen = [random.random() < 0.4 for _ in parents]
    found = nearest(np.array(chosen, np.bool_), np.array(parents, np.int64))
    ways = [[row, *ancestors(parents, row)] for row in range(len(parents))]
    assert found.tolist() == [next((row for row in way if chosen[row]), -1) for way in ways]


@given(ACYCLIC, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=12))
def test_a_pair_encloses_its_kind_where_one_of_a_row_below_is_of_that_kind(parents, pairs):
    pairs = [(row, kind) for row, kind in pairs if row < len(parents)]
    tree = Tree.of(np.array(parents, np.int64), np.zeros(len(parents), np.int64))
    rows, kinds = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    expected = [any(kind == other and row in ancestors(parents, r) for r, other in pairs) for row, kind in pairs]
    assert tree.encloses_its_kind(rows, kinds).tolist() == expected


def test_a_job_is_surveyed_whose_graphs_name_callers_that_go_round() -> None:
    graph = convert(link_run(rich_run()))
    before = rank_facts(graph)
    rows = graph.ctrl_deps.rows()
    graph.ctrl_deps.values[:] = graph.id[np.roll(rows, 1)]
    assert not rank_facts(graph).calls.phase.any()
    assert len(before.calls.phase) == len(before.calls.row)
