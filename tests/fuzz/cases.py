"""The kinds of hostile files, and what is done with each: all that a user could."""

import gzip
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from byte_changes import changed_bytes
from database_changes import change_database
from graph_changes import changed_graph
from json_changes import changed_json
from running import Failed, check_counted, check_kept, must, run
from samples import write_pair, write_rocpd


def traces_case(folder: Path, random: Random, kind: str) -> None:
    """A changed trace of rank 0: alone, and as part of its job."""
    device, host, linked = (folder / name for name in ("device_rank0.json", "host_rank0.json", "linked.json"))
    more = random.choice(
        [[], [], [], ["--modules"], ["--allow-mismatch"], ["--steps", "3"], ["--window", "0:100"], ["--rank", "0"]]
    )
    if not more or random.random() < 0.7:
        more = [*more, "--allow-mismatch"]
    beside = ["--host-trace", host] if kind == "host" or random.random() < 0.7 else []
    status, summary = run("link", *beside, "--device-trace", device, "--output", linked, "--json", *more)
    if not status:
        check_counted(device, json.loads(summary), more)
        convert(folder, linked, random, must=True)
    # what takes longest is not asked most
    whole_job(folder, random, random.choice(["build", "diagnose", "diagnose", "report", "merge", "merge"]))


def whole_job(folder: Path, random: Random, command: str) -> None:
    """What looks at all ranks at once."""
    if command == "build":
        target = random.choice([[], [], ["--target", "astra-sim"], ["--target", "goal"], ["--no-host"]])
        status, _ = run("build", "--input-dir", folder, "--output-dir", folder / "graphs", "--json", *target)
        if not status and "goal" not in target:
            on_graphs(folder, random)
    elif command == "diagnose":
        run("diagnose", folder, *random.choice([["--json"], ["-v"]]))
    elif command == "report":
        run(
            "report",
            folder,
            *random.choice(
                [["--json"], [], ["--csv", folder / "csv"], ["--modules"], ["--perfetto", folder / "perfetto.json"]]
            ),
        )
    else:
        run(
            "merge",
            *sorted(folder.glob("device*.json")),
            "--output",
            folder / random.choice(["merged.json", "merged.db"]),
            "--json",
        )


def on_graphs(folder: Path, random: Random) -> None:
    """What takes the graphs of a job."""
    if random.random() < 0.5:
        run("replay", "--input", folder / "graphs", "--allow-mismatch", "--json")
    else:
        run(
            "scale",
            "--input-dir",
            folder / "graphs",
            "--output-dir",
            folder / "scaled",
            "--data-parallel",
            "2",
            "--json",
        )


def convert(folder: Path, linked: Path, random: Random, must: bool = False) -> None:
    """A linked file becomes a graph, the graph JSON, and the JSON the graph again; `must` it be possible."""
    graph = folder / "graph.0.et"
    options = random.choice(
        [
            [],
            [],
            ["--no-host"],
            ["--promote", "all"],
            ["--live-bytes"],
            ["--target", "astra-sim"],
            ["--io", "none"],
            ["--no-delays"],
        ]
    )
    status, said = run("convert", "--input", linked, "--output", graph, "--json", *options)
    if status:
        if must and "leave out --no-host" not in said:
            raise Failed(f"convert refuses what link wrote: {said}")
        return
    check_kept(linked, json.loads(said))
    use_graph(folder, graph, random, must=True)
    if random.random() < 0.2:
        run("report", linked, "--json")


def use_graph(folder: Path, graph: Path, random: Random, must: bool = False) -> None:
    """A graph as JSON and back is the same; replayed and drawn."""
    text, again = folder / "graph.json", folder / "again.et"
    status, _ = run("jsonize", "--input", graph, "--output", text, "--to", "json")
    if status and must:
        raise Failed("jsonize refuses what convert wrote")
    if not status:
        status, _ = run("jsonize", "--input", text, "--output", again, "--to", "et")
        if status or again.read_bytes() != graph.read_bytes():
            raise Failed("the JSON of a graph does not become the graph again")
    status, _ = run(
        "replay",
        "--input",
        graph,
        "--json",
        *random.choice(
            [[], ["--timeline", folder / "timeline.json"], ["--scale", "class:host=0.5"], ["--simulator", "astra-sim"]]
        ),
    )
    if random.random() < 0.3:
        run("view", "--input", graph, "--output", folder / random.choice(["view.svg", "view.dot", "view.graphml"]))


def _host(folder: Path, random: Random) -> None:
    write_pair(folder, random)
    _change(folder / "host_rank0.json", changed_json, random)
    traces_case(folder, random, "host")


def _device(folder: Path, random: Random) -> None:
    write_pair(folder, random)
    _change(folder / "device_rank0.json", changed_json, random)
    traces_case(folder, random, "device")


def _linked(folder: Path, random: Random) -> None:
    linked = _sound_linked(folder, random)
    _change(linked, changed_json, random)
    convert(folder, linked, random)


def _sound_linked(folder: Path, random: Random) -> Path:
    write_pair(folder, random)
    linked = folder / "linked.json"
    linked.write_bytes(_linked_of(*((folder / f"{side}_rank0.json").read_bytes() for side in ("host", "device"))))
    return linked


def _sound_graph(folder: Path, random: Random) -> Path:
    graph = folder / "graph.0.et"
    graph.write_bytes(_graph_of(_sound_linked(folder, random).read_bytes()))
    return graph


@cache
def _linked_of(host: bytes, device: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name, side) for side in ("host", "device", "linked")]
        files[0].write_bytes(host)
        files[1].write_bytes(device)
        must("link", "--host-trace", files[0], "--device-trace", files[1], "--output", files[2])
        return files[2].read_bytes()


@cache
def _graph_of(linked: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        source, graph = Path(name, "linked.json"), Path(name, "graph.et")
        source.write_bytes(linked)
        must("convert", "--input", source, "--output", graph)
        return graph.read_bytes()


def _graph(folder: Path, random: Random) -> None:
    if random.random() < 0.6:
        graph = _sound_graph(folder, random)
        _change(graph, changed_graph, random)
        use_graph(folder, graph, random)
        return
    write_pair(folder, random)
    target = random.choice([[], [], ["--target", "astra-sim"]])
    must("build", "--input-dir", folder, "--output-dir", folder / "graphs", "-q", *target)
    _change(folder / "graphs" / "graph.0.et", changed_graph, random)
    on_graphs(folder, random)


def _json(folder: Path, random: Random) -> None:
    text, graph = folder / "graph.json", folder / "graph.0.et"
    must("jsonize", "--input", _sound_graph(folder, random), "--output", text)
    _change(text, changed_json, random)
    if not run("jsonize", "--input", text, "--output", graph)[0]:
        use_graph(folder, graph, random)


def _groups(folder: Path, random: Random) -> None:
    groups = folder / "groups.json"
    groups.write_text('{"1": [0, 1], "2": [0], "3": [1, 0]}')
    linked = _sound_linked(folder, random)
    _change(groups, changed_json, random)
    run("convert", "--input", linked, "--output", folder / "graph.0.et", "--comm-groups", groups)


def _database(folder: Path, random: Random) -> None:
    database, linked = folder / "device_rank0.db", folder / "linked.json"
    write_rocpd(database, random)
    change_database(database, random)
    if not run("link", "--device-trace", database, "--output", linked)[0]:
        convert(folder, linked, random, must=True)
    run(random.choice(["diagnose", "report"]), database)
    if random.random() < 0.3:
        run("merge", database, "--output", folder / "merged.json")


def _noise(folder: Path, random: Random) -> None:
    """What is none of these, and files that are in another's place."""
    write_pair(folder, random)
    noise = folder / "noise"
    source = random.choice(
        [
            folder / "host_rank0.json",
            folder / "device_rank0.json",
            Path(sys.executable),
            Path(__file__).parent / "samples.py",
        ]
    )
    content = source.read_bytes()[: random.choice([0, 1, 9, 5000])]
    noise.write_bytes(
        random.choice([content, gzip.compress(content), random.randbytes(len(content)), changed_bytes(content, random)])
    )
    for command, *arguments in (
        ("link", "--device-trace", noise, "--output", folder / "linked.json"),
        (
            "link",
            "--host-trace",
            noise,
            "--device-trace",
            folder / "device_rank0.json",
            "--output",
            folder / "linked.json",
        ),
        ("convert", "--input", noise, "--output", folder / "graph.et"),
        ("jsonize", "--input", noise, "--output", folder / "graph.et", "--to", "et"),
        ("jsonize", "--input", noise, "--output", folder / "graph.json", "--to", "json"),
        ("replay", "--input", noise),
        ("view", "--input", noise, "--output", folder / "view.svg"),
        ("diagnose", noise),
        ("report", noise, "--json"),
        ("merge", noise, "--output", folder / "merged.json"),
    ):
        run(command, *arguments)


def _change(path: Path, changed: Callable[[bytes, Random], bytes], random: Random) -> None:
    path.write_bytes(changed(path.read_bytes(), random))


KINDS: dict[str, Callable[[Path, Random], None]] = {
    "host": _host,
    "device": _device,
    "linked": _linked,
    "graph": _graph,
    "json": _json,
    "groups": _groups,
    "database": _database,
    "noise": _noise,
}
