"""Hostile files through all commands: they are read, or refused in one line; what was recorded is in the graph or counted as left out.

    python tests/fuzz/commands.py --cases 20000 --seed 7        many cases, the same ones for the same seed
    python tests/fuzz/commands.py --case host:7:123             one of them again; its files stay in the folder that it names

A case is a kind of file, and the seed of all that is random in it.
"""

import argparse
import gzip
import io
import json
import logging
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

from execgraph.schema.errors import DataError  # noqa: E402
from execgraph.tools.commands import trace_build, trace_scale  # noqa: E402
from mutations import change_database, changed_bytes, changed_graph, changed_json  # noqa: E402
from samples import write_pair, write_rocpd  # noqa: E402

SECONDS = 10
"""What a command may take of a core."""
MEMORY = 3 << 30
ENDED = Counter[int]()
"""How many commands ended with each exit status."""
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


class Failed(Exception):
    """A command did what none may do."""


class _TooLong(BaseException):
    """A command takes too long; not an Exception, so that no command catches it."""


def _in_turn(function: Callable[[Any], Any], tasks: Sequence[Any], *_: Any, **__: Any) -> Iterator[tuple[Any, Any]]:
    """As worker processes would, in this one, so that what goes wrong is seen."""
    for task in tasks:
        try:
            yield task, function(task)
        except DataError as error:
            yield task, error


for command in (trace_build, trace_scale):
    command.in_processes = _in_turn  # type: ignore[attr-defined]


def run(name: str, *arguments: Any) -> tuple[int, str]:
    """Runs a command in this process; its exit status and what it printed. Raises Failed."""
    given = [str(argument) for argument in arguments]
    shown = f"trace-{name} {' '.join(given)}"
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    main = import_module(f"execgraph.tools.commands.trace_{name}").main
    try:
        with redirect_stdout(out), redirect_stderr(err), _limited(), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            main(given)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except _TooLong as error:
        raise Failed(f"{shown}: takes more than {SECONDS} s\n{traceback.format_exc()}") from error
    except BaseException as error:
        raise Failed(f"{shown}: {traceback.format_exc()}") from error
    ENDED[status] += 1
    said = err.getvalue().strip()
    if "internal error" in said or "out of memory" in said or "Traceback" in said or "Warning" in said:
        raise Failed(f"{shown}: {said}\n{_again(main, given)}")
    if status not in (0, 1, 2):
        raise Failed(f"{shown}: exit {status}: {said}")
    if status and "error: " not in said:
        raise Failed(f"{shown}: exit {status} without a line that says why: {said[-300:]}")
    return status, said if status else out.buffer.getvalue().decode()  # type: ignore[attr-defined]


@contextmanager
def _limited() -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _stop), signal.getsignal(signal.SIGTERM)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGTERM, before[1])
        logging.getLogger().handlers.clear()


def _stop(*_: object) -> None:
    raise _TooLong


def _again(main: Callable[[Sequence[str]], None], given: list[str]) -> str:
    """Where the internal error came from."""
    try:
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            main([*given, "-v"])
    except SystemExit:
        return ""
    except BaseException:
        return traceback.format_exc()
    return ""


# what is made of each kind of file


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
        _check_counted(device, json.loads(summary), more)
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
    _check_kept(linked, json.loads(said))
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
        _must("link", "--host-trace", files[0], "--device-trace", files[1], "--output", files[2])
        return files[2].read_bytes()


@cache
def _graph_of(linked: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        source, graph = Path(name, "linked.json"), Path(name, "graph.et")
        source.write_bytes(linked)
        _must("convert", "--input", source, "--output", graph)
        return graph.read_bytes()


def _graph(folder: Path, random: Random) -> None:
    if random.random() < 0.6:
        graph = _sound_graph(folder, random)
        _change(graph, changed_graph, random)
        use_graph(folder, graph, random)
        return
    write_pair(folder, random)
    target = random.choice([[], [], ["--target", "astra-sim"]])
    _must("build", "--input-dir", folder, "--output-dir", folder / "graphs", "-q", *target)
    _change(folder / "graphs" / "graph.0.et", changed_graph, random)
    on_graphs(folder, random)


def _json(folder: Path, random: Random) -> None:
    text, graph = folder / "graph.json", folder / "graph.0.et"
    _must("jsonize", "--input", _sound_graph(folder, random), "--output", text)
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
        [folder / "host_rank0.json", folder / "device_rank0.json", Path(sys.executable), FOLDER / "samples.py"]
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


def _must(command: str, *arguments: Any) -> None:
    if run(command, *arguments)[0]:
        raise Failed(f"trace-{command} refuses a sound file")


def _check_counted(device: Path, summary: dict[str, Any], options: list[str]) -> None:
    """The rows of device work are activities, or counted as dropped."""
    with suppress(ValueError):
        rows = json.loads(device.read_bytes())
        rows = rows.get("traceEvents") if isinstance(rows, dict) else rows
        if isinstance(rows, list) and not {"--steps", "--window"} & {*options}:
            work = sum(isinstance(row, dict) and row.get("cat") in DEVICE_WORK and row.get("ph") == "X" for row in rows)
            known = summary["activities"] + sum(summary["dropped"].values())
            if work > known:
                raise Failed(f"{work} rows of device work became {known} activities and dropped rows")


def _check_kept(linked: Path, summary: dict[str, Any]) -> None:
    """Every activity of a linked file is in the graph, or counted."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        nodes = json.loads(linked.read_bytes())["nodes"]
        activities = sum(node.get("cat") is not None for node in nodes)
        known = summary["activities"] + sum(summary.get("dropped", {}).values())
        if activities > known:
            raise Failed(f"{activities} activities became {known} nodes and dropped ones")


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
SHARES = (
    "host",
    "device",
    "host",
    "device",
    "linked",
    "graph",
    "host",
    "device",
    "json",
    "linked",
    "database",
    "graph",
    "groups",
    "noise",
)
"""The kinds of a run's cases in turn."""


def case_of(seed: int, number: int) -> str:
    """The name of a run's case."""
    return f"{SHARES[number % len(SHARES)]}:{seed}:{number}"


def check(case: str, folder: Path) -> None:
    """Runs a case. Raises Failed."""
    KINDS[case.partition(":")[0]](folder, Random(case))


def main() -> None:
    """Runs the cases, prints what failed and how to repeat it, and exits 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if arguments.case:
        folder = Path(tempfile.mkdtemp(prefix="case."))
        print(f"{arguments.case} in {folder}")
        check(arguments.case, folder)
        return
    failed: Counter[str] = Counter()
    refused, longest, began = 0, (0.0, ""), time.monotonic()
    for number in range(arguments.first, arguments.first + arguments.cases):
        case, done, then = case_of(arguments.seed, number), ENDED[0], time.monotonic()
        commands = ENDED.total()
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(case, Path(folder))
                refused += ENDED.total() - commands > ENDED[0] - done
            except Failed as error:
                failed[case.partition(":")[0]] += 1
                print(f"--- {error}\n    again: python {sys.argv[0]} --case {case}", flush=True)
        longest = max(longest, (time.monotonic() - then, case))
    count = failed.total()
    print(
        f"{arguments.cases} cases in {time.monotonic() - began:.0f} s: {arguments.cases - refused - count} read, "
        f"{refused} refused by a command, {count} failed {dict(failed) or ''}; "
        f"{ENDED.total()} commands; the longest case {longest[0]:.1f} s, {longest[1]}"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
