"""Makes jobs of files that do not belong together, puts parts of files into others, and does all that a user could do.

`must` says that a command wrote the file just now: the next one has no reason to refuse it.
"""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fuzz import samples
from fuzz.columns import columns
from fuzz.running import Failed, check_counted, check_kept, must, run
from fuzz.samples import DEVICE, GRAPH, HOST, LINKED, Files

OPTIONS_OF_LINK = [], [], [], ["--modules"], ["--steps", "3"], ["--window", "0:100"], ["--rank", "0"], ["--strict"]
OPTIONS_OF_CONVERT = (
    [], [], ["--no-host"], ["--promote", "all"], ["--target", "astra-sim"], ["--io", "none"], ["--no-delays"],
    ["--no-inferred"],
)  # fmt: skip
OPTIONS_OF_BUILD = [], [], ["--target", "astra-sim"], ["--target", "goal"], ["--no-host"], ["--promote", "all"]
SOUND_REFUSALS = "leave out --no-host", "no node that a simulator runs"
"""What a sound linked trace may not have."""
NO_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def use_traces(folder: Path, random: Random, with_host: bool = False) -> None:
    """Links the traces of rank 0, uses what comes out, and then all ranks at once."""
    device, host, linked = (folder / name for name in (DEVICE, HOST, LINKED))
    options = random.choice(OPTIONS_OF_LINK)
    if not options or random.random() < 0.7:
        options = [*options, "--allow-mismatch"]
    traces = [
        path for path in (host, device) if path.exists() and (path is device or with_host or random.random() < 0.7)
    ]
    if traces:
        status, summary = run("link", *traces, "-o", linked, "--json", *options)
        if not status:
            check_counted(device, json.loads(summary), options)
            use_linked(folder, random, must_convert=True)
            linked.unlink()
    # what takes longest is not asked most
    random.choice([use_job] * 3 + [diagnose] * 3 + [merge] * 3 + [report])(folder, random)


def use_linked(folder: Path, random: Random, must_convert: bool = False) -> None:
    """Converts a linked trace, and uses the graph."""
    linked, graph = folder / LINKED, folder / GRAPH
    status, said = run("convert", linked, "-o", graph, "--json", *random.choice(OPTIONS_OF_CONVERT))
    if status:
        if must_convert and not any(reason in said for reason in SOUND_REFUSALS):
            raise Failed("trace-convert refuses what trace-link wrote", said)
        return
    check_kept(linked, json.loads(said))
    use_graph(folder, random, is_sound=True)
    if random.random() < 0.1:
        report(linked, random)
    graph.unlink()


def use_graph(folder: Path, random: Random, is_sound: bool = False) -> None:
    """Writes a graph as JSON, which becomes the same graph again, replays it, and draws it."""
    graph, text, again = folder / GRAPH, folder / "graph.json", folder / "again.et"
    ask = must if is_sound else run
    ask("jsonize", graph, "-o", text)
    if text.exists():
        must("jsonize", text, "-o", again)
        if again.read_bytes() != graph.read_bytes():
            raise Failed("the JSON of a graph does not become the same graph", f"{again} is not {graph}")
    ask(
        "replay", graph, "--json", *random.choice([[], ["-o", folder / "timeline.json"], ["--scale", "class:host=0.5"]])
    )
    if random.random() < 0.2:
        run("replay", graph, "--simulator", "astra-sim")
    if random.random() < 0.3:
        picture = folder / random.choice(["view.svg", "view.dot", "view.graphml"])
        status, said = run("view", graph, "-o", picture)
        if status and is_sound and "too many for a picture" not in said and "none of the 0 nodes" not in said:
            raise Failed("trace-view refuses what trace-convert wrote", said)
        check_text(picture)


def use_job(folder: Path, random: Random) -> None:
    """Builds the graphs of all ranks, and uses them."""
    graphs, options = folder / "graphs", random.choice(OPTIONS_OF_BUILD)
    status, said = run("build", folder, "-o", graphs, "--json", *options)
    if status or "goal" in options:
        return
    report = json.loads(said)
    if random.random() < 0.5 and not (report["disagreements"] or report["absences"]):
        must("replay", graphs, "--allow-mismatch", "--json")
    else:
        use_graphs(folder, random)


def use_graphs(folder: Path, random: Random) -> None:
    """Replays the graphs of a job, or scales them, or reports on them."""
    graphs, scaled, way = folder / "graphs", folder / "scaled", random.random()
    if way < 0.5:
        run("replay", graphs, "--allow-mismatch", "--json")
    elif way < 0.9:
        if not run("scale", graphs, "-o", scaled, "--data-parallel", "2", "--json")[0]:
            must("replay", scaled, "--json")
    else:
        report(graphs, random)


def diagnose(folder: Path, random: Random) -> None:
    """Looks into the traces."""
    run("diagnose", folder, *random.choice([["--json"], ["-v"]]))


def report(source: Path, random: Random) -> None:
    """Writes a report in one of its forms."""
    folder = source if source.is_dir() else source.parent
    page, tables, trace = folder / "report.html", folder / "csv", folder / "perfetto.json"
    # to draw a page takes longest
    ways = ["--json"], [], ["-o", page], ["--csv", tables], ["--modules"], ["--perfetto", trace]
    options = random.choices(ways, [3, 2, 1, 3, 2, 2])[0]
    run("report", source, *options)
    for path in (page, *tables.glob("*")):
        check_text(path)


def merge(folder: Path, random: Random) -> None:
    """Merges the device traces, and takes one out of them again."""
    merged = folder / random.choice(["merged.json", "merged.db"])
    if not run("merge", *sorted(folder.glob("device*")), "-o", merged, "--json")[0] and merged.suffix == ".json":
        run("link", merged, "--rank", "0", "-o", folder / LINKED)


def check_text(path: Path) -> None:
    """Checks that a text that people look at holds no control characters."""
    if path.exists() and (found := NO_CONTROLS.search(path.read_bytes())):
        raise Failed(f"control characters in a {path.suffix} file", f"{path}: {found[0]!r} at byte {found.start()}")


Trace = dict[str, Any]
HOSTS, DEVICES = ("host_rank0.json", "host_rank1.json"), ("device_rank0.json", "device_rank1.json")


def mixed_job(random: Random) -> tuple[Files, str]:
    """The files of a job that never ran so, and what was done, in words."""
    name = samples.draw(random)
    files = dict(samples.traces(name))
    said = []
    for way in random.sample(WAYS, random.choice([1, 1, 2, 3])):
        if way(files, random):
            said.append(way.__name__.strip("_"))
    return files, f"{name}: {', '.join(said) or 'as it is'}"


def _exchanged_hosts(files: Files, _: Random) -> bool:
    return _exchange(files, *HOSTS)


def _exchanged_devices(files: Files, _: Random) -> bool:
    return _exchange(files, *DEVICES)


def _exchange(files: Files, one: str, other: str) -> bool:
    if not {one, other} <= files.keys():
        return False
    files[one], files[other] = files[other], files[one]
    return True


def _one_pid(files: Files, random: Random) -> bool:
    """All files are of one process, or each of its own."""
    pid = random.choice([1000, 0, -1, 1 << 40])
    step = random.choice([0, 0, 1])
    for number, file in enumerate(sorted(files)):
        _edit(files, file, lambda trace, pid=pid + step * number: _set_pid(trace, pid))  # type: ignore[misc]
    return True


def _set_pid(trace: Trace, pid: int) -> None:
    if "pid" in trace:
        trace["pid"] = pid
    for row in trace.get("traceEvents", ()):
        if isinstance(row.get("pid"), int) and row.get("cat") not in (
            "kernel",
            "gpu_memcpy",
            "gpu_memset",
            "cuda_sync",
        ):
            row["pid"] = pid


def _another_run(files: Files, random: Random) -> bool:
    """A file is that of another sample."""
    file = random.choice(sorted(files))
    others = samples.traces(samples.draw(random))
    files[file] = others.get(file, others["host_rank0.json" if "host" in file else "device_rank0.json"])
    return True


def _copied_rank(files: Files, random: Random) -> bool:
    """A rank's files are there twice, or under other names, or in folders of their own."""
    rank = random.choice([2, 3, 99])
    for file in files.keys() & {"host_rank0.json", "device_rank0.json"}:
        files[file.replace("0", str(rank))] = files[file]
    return True


def _lost_file(files: Files, random: Random) -> bool:
    del files[random.choice(sorted(files))]
    return True


def _other_rank_numbers(files: Files, random: Random) -> bool:
    ranks = random.choice([(5, 6), (0, 0), (1, 0), (-1, -2), (1, 2), (1 << 31, 7), (10**6, 10**6 + 1)])
    world = random.choice([2, 2, 1, 0, -1, 4, 10**6, None])
    return _edit_info(
        files,
        lambda info, rank: info.update({"rank": ranks[rank]} | ({"world_size": world} if world is not None else {})),
    )


def _no_rank_numbers(files: Files, random: Random) -> bool:
    key = random.choice(["rank", "world_size", "pg_config", "backend"])
    return _edit_info(files, lambda info, _: info.pop(key, None))


def _edit_info(files: Files, edit: Callable[[Trace, int], object]) -> bool:
    for rank, file in enumerate(DEVICES):
        if file in files:
            _edit(files, file, lambda trace, rank=rank: edit(trace.setdefault("distributedInfo", {}), rank))  # type: ignore[misc]
    return True


def _other_groups(files: Files, random: Random) -> bool:
    """Groups have other members wherever they are recorded: without the own rank, more, none, others on each rank."""
    members = [
        random.choice([[1], [0], [5, 6], [], [1, 0], [0, 0], [0, 1, 2, 3], [*range(5000)], [-1, 0]]) for _ in range(2)
    ]
    same = random.random() < 0.5
    for number, file in enumerate(sorted(files)):
        ranks = json.dumps(members[0 if same else number % 2])
        for spelled in ("[0, 1]", "[0,1]"):
            files[file] = files[file].replace(f'ranks": {spelled}'.encode(), f'ranks": {ranks}'.encode())
            files[file] = files[file].replace(f'ranks\\": {spelled}'.encode(), f'ranks\\": {ranks}'.encode())
            files[file] = files[file].replace(f'Ranks": "{spelled}'.encode(), f'Ranks": "{ranks}'.encode())
    return True


def _rotated_correlations(files: Files, random: Random) -> bool:
    """Each kernel has the correlation of the next one."""

    def rotate(trace: Trace) -> None:
        kernels = [row for row in trace.get("traceEvents", ()) if row.get("cat") == "kernel"]
        values = [row["args"].get("correlation") for row in kernels]
        for row, value in zip(kernels, values[1:] + values[:1], strict=True):
            row["args"]["correlation"] = value

    return _edit(files, random.choice([file for file in sorted(files) if "device" in file] or sorted(files)), rotate)


def _both_in_one(files: Files, _: Random) -> bool:
    """The rows of both ranks' device traces are in one file."""
    if not {*DEVICES} <= files.keys():
        return False
    second = json.loads(files[DEVICES[1]])
    return _edit(files, DEVICES[0], lambda trace: trace["traceEvents"].extend(copy.deepcopy(second["traceEvents"])))


def _edit(files: Files, file: str, edit: Callable[[Trace], object]) -> bool:
    trace = json.loads(files[file])
    edit(trace)
    files[file] = json.dumps(trace).encode()
    return True


WAYS: tuple[Callable[[Files, Random], bool], ...] = (
    _exchanged_hosts, _exchanged_devices, _one_pid, _another_run, _copied_rank, _lost_file, _other_rank_numbers, _no_rank_numbers,
    _other_groups, _rotated_correlations, _both_in_one,
)  # fmt: skip


OTHER_IDS = 1 << 20


def change_parts(document: dict[str, Any], file: str, random: Random) -> str:
    """Takes a part of the same file of another sample into this one. Returns what was done, in words."""
    name = samples.draw(random)
    other = json.loads(samples.linked(name) if file == samples.LINKED else samples.traces(name)[file])
    rows = "traceEvents" if "traceEvents" in document else "nodes"
    choose = random.choice([_subtree, _subtree, _stretch]) if rows == "nodes" else _stretch
    part = copy.deepcopy(choose(other[rows], random))
    ways = [way for way in (_renumber, _move_in_time, _graft) if random.random() < 0.5]
    changed = [way.__name__.strip("_") for way in ways if way(part, document[rows], random)]
    at = random.randrange(len(document[rows]) + 1)
    instead = random.choice([0, 0, len(part)])
    document[rows][at : at + instead] = part
    for key in ("calls", "communications", "groups", "device_waits", "host_waits", "handoffs", "distributedInfo"):
        if key in other and random.random() < 0.1:
            document[key] = other[key]
            changed.append(key)
    return f"{len(part)} rows of {name} in place of {instead}: {', '.join(changed) or 'as they were'}"


def _stretch(rows: list[Any], random: Random) -> list[Any]:
    begin = random.randrange(len(rows))
    return rows[begin : begin + random.choice([1, 5, 50, len(rows)])]


def _subtree(nodes: list[dict[str, Any]], random: Random) -> list[Any]:
    """A node and all below it."""
    inside = {random.choice(nodes).get("id")}
    for _ in range(20):
        inside |= {node.get("id") for node in nodes if node.get("ctrl_deps", node.get("parent")) in inside}
    return [node for node in nodes if node.get("id") in inside]


def _renumber(part: list[Any], _: list[Any], __: Random) -> bool:
    for key, slots in columns(part, ("id", "ctrl_deps", "parent", "rf_id", "correlation", "External id")).items():
        for container, place in slots:
            container[place] += OTHER_IDS if key else 0
    return True


def _move_in_time(part: list[Any], rows: list[Any], random: Random) -> bool:
    timed = [row for row in part if isinstance(row.get("ts"), int | float)]
    there = [row["ts"] for row in rows if isinstance(row.get("ts"), int | float)]
    if timed and there:
        by = random.choice(there) - timed[0]["ts"]
        for row in timed:
            row["ts"] += by
    return bool(timed)


def _graft(part: list[Any], rows: list[Any], random: Random) -> bool:
    """Gives the part's first node a parent in this file."""
    key = next((key for key in ("ctrl_deps", "parent") if key in part[0]), None) if part else None
    if key:
        part[random.choice([0, -1])][key] = random.choice(rows).get("id")
    return key is not None
