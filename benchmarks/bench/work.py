"""Does one piece of the benchmark's work, alone in a fresh process, and prints its seconds and counts as JSON.

    python benchmarks/bench/work.py link

Files are those of the working directory, under the names below. Only the work is timed, not the start of Python.
"""

import contextlib
import gc
import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from execgraph.schema.linked import host, kineto

TRACES = "traces"
HOST, DEVICE = f"{TRACES}/host_rank0.json", f"{TRACES}/device_rank0.json"
LINKED, GRAPH, TEXT, PAGE = "linked.json", "graph.et", "graph.json", "report.html"
GRAPHS, SCALED = "built", "scaled"
PIECE = bytes(1 << 20)

Counts = dict[str, int]


Work = Callable[[], Callable[[], Counts]]
"""Imports what some work needs and returns the work."""


class Timing(msgspec.Struct):
    """What one run prints: its seconds, without the imports, and what the files hold where the work counts that."""

    seconds: float
    counts: Counts


LOADS = {
    "trace_link": ("execgraph.linker",),
    "trace_convert": ("execgraph.converter.convert", "execgraph.linker"),
    "trace_jsonize": ("execgraph.schema.graph.json_files",),
    "trace_build": ("execgraph.tools.job",),
    "trace_diagnose": ("execgraph.tools.job",),
    "trace_report": ("execgraph.tools.report.page",),
    "trace_scale": ("execgraph.tools.job",),
}
"""What commands import when they begin to work, which is no part of the work."""


def _command(module: str, *arguments: str) -> Work:
    """Returns the work of a command line."""

    def ready() -> Callable[[], Counts]:
        main = importlib.import_module(f"execgraph.tools.commands.{module}").main
        for name in LOADS.get(module, ()):
            importlib.import_module(name)

        def work() -> Counts:
            try:
                with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
                    main([*arguments, "--quiet"])
            except SystemExit as end:
                if end.code:
                    raise
            return {}

        return work

    return ready


def _anew(folder: str, work: Work) -> Work:
    """Returns the work, for which this folder must not be there yet."""

    def ready() -> Callable[[], Counts]:
        shutil.rmtree(folder, ignore_errors=True)
        return work()

    return ready


class _HostFile(msgspec.Struct):
    nodes: list[host.Node]


def _link_floor() -> Callable[[], Counts]:
    def work() -> Counts:
        gc.disable()  # its passes over a growing heap are no part of the least possible
        nodes = len(msgspec.json.decode(Path(HOST).read_bytes(), type=_HostFile).nodes)
        events = len(msgspec.json.decode(Path(DEVICE).read_bytes(), type=kineto.DeviceFile).events)
        _write_as_much_as(LINKED)
        return {"host nodes": nodes, "device events": events}

    return work


def _convert_floor() -> Callable[[], Counts]:
    from execgraph.schema.linked import LinkedFile
    from execgraph.schema.reasons import from_json

    def work() -> Counts:
        gc.disable()
        nodes = from_json(Path(LINKED).read_bytes(), LinkedFile).nodes
        _write_as_much_as(GRAPH)
        return {"linked nodes": len(nodes)}

    return work


def _write_as_much_as(path: str) -> None:
    pieces, remainder = divmod(Path(path).stat().st_size, len(PIECE))
    with Path("floor").open("wb") as out:
        for _ in range(pieces):
            out.write(PIECE)
        out.write(PIECE[:remainder])


def _link_and_convert() -> Callable[[], Counts]:
    from execgraph.converter.convert import convert
    from execgraph.converter.options import Options
    from execgraph.linker.link import link, read_traces

    def work() -> Counts:
        gc.disable()
        graph = convert(link(*read_traces(HOST, DEVICE)), Options())
        graph.write("at_once.et")
        return {"graph nodes": len(graph)}

    return work


FLOORS = {
    "link": "link floor",
    "convert": "convert floor",
    "link + convert": "link floor",
    "build": "link floor",
}
"""What the least possible work for a work is called."""

WORKS_OF_ONE: dict[str, Work] = {
    "link": _command("trace_link", "--host-trace", HOST, "--device-trace", DEVICE, "--output", LINKED),
    "link floor": _link_floor,
    "convert": _command("trace_convert", "--input", LINKED, "--output", GRAPH),
    "convert floor": _convert_floor,
    "link + convert": _link_and_convert,
    "build": _command("trace_build", "--input-dir", TRACES, "--output-dir", GRAPHS, "--jobs", "1", "--force"),
    "link a step": _command(
        "trace_link", "--host-trace", HOST, "--device-trace", DEVICE, "--output", "step.json", "--steps", "1"
    ),
    "jsonize": _command("trace_jsonize", "--input", GRAPH, "--output", TEXT),
    "jsonize back": _command("trace_jsonize", "--input", TEXT, "--output", "again.et"),
    "replay": _command("trace_replay", "--input", GRAPH),
    "diagnose": _command("trace_diagnose", TRACES),
    "report": _command("trace_report", TRACES, "--output", PAGE),
}
"""On the traces of one rank. In this order each work finds the files that it needs."""

WORKS_OF_MANY: dict[str, Work] = {
    "build all": _command("trace_build", "--input-dir", TRACES, "--output-dir", GRAPHS, "--jobs", "2", "--force"),
    "build none": _command("trace_build", "--input-dir", TRACES, "--output-dir", GRAPHS, "--jobs", "2"),
    "replay all": _command("trace_replay", "--input", GRAPHS),
    "diagnose all": _command("trace_diagnose", TRACES),
    "report all": _command("trace_report", TRACES, "--output", PAGE),
    "scale × 4": _anew(
        SCALED, _command("trace_scale", "--input-dir", GRAPHS, "--output-dir", SCALED, "--data-parallel", "4")
    ),
}
"""On the traces of a job of many ranks, in this order; `build none` finds every graph made."""

WORKS = WORKS_OF_ONE | WORKS_OF_MANY


def main() -> None:
    """Does the work that the first argument names and prints its Timing."""
    work = WORKS[sys.argv[1]]()
    begin = time.perf_counter()
    counts = work()
    timing = Timing(time.perf_counter() - begin, counts)
    sys.stdout.buffer.write(msgspec.json.encode(timing))


if __name__ == "__main__":
    main()
