"""What is done with hostile files: all that a user could do, and what then must hold.

`must` says that a command wrote the file just now: the next one has no reason to refuse it.
"""

import json
import re
from pathlib import Path
from random import Random

from fuzz.running import Failed, check_counted, check_kept, must, run
from fuzz.samples import DEVICE, GRAPH, HOST, LINKED

OPTIONS_OF_LINK = [], [], [], ["--modules"], ["--steps", "3"], ["--window", "0:100"], ["--rank", "0"], ["--strict"]
OPTIONS_OF_CONVERT = (
    [], [], ["--no-host"], ["--promote", "all"], ["--live-bytes"], ["--target", "astra-sim"], ["--io", "none"], ["--no-delays"],
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
