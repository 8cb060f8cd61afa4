"""Digests of what commands write of the small captures: the same for every Python, library, hash seed, order of files.

`python tests/support/digests.py` prints them; `--write` puts them into tests/digests.json, after an intended change of
outputs.
"""

import importlib.metadata
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from execgraph.schema.arguments import TARGETS
from execgraph.tools import workers

DATA = Path(__file__).parents[1] / "data"
KEPT = Path(__file__).parents[1] / "digests.json"
VERSION = "0.1.0"
"""What outputs name as the version that made them: a new version changes no digest."""


def run(command: str, *arguments: object) -> bytes:
    """What a command prints."""
    main = import_module(f"execgraph.tools.commands.{command}").main
    with io.TextIOWrapper(io.BytesIO(), encoding="utf-8") as printed:
        with redirect_stdout(printed):
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as end:
                assert not end.code, f"{arguments} ended with {end.code}"
        printed.flush()
        return printed.buffer.getvalue()


def without_charts(page: str) -> str:
    """The page without what chart libraries decide: how they write a chart, the scripts that draw it, their digest."""
    for part in ("<script>.*?</script>", '<script id="specs".*?</script>', "&#39;sha256-.*?&#39;"):
        page = re.sub(part, "", page, count=1, flags=re.DOTALL)
    return page


def here(function: Callable[[Any], Any], tasks: Sequence[Any], *_: object, **more: object) -> Iterator[tuple[Any, Any]]:
    """What workers do in processes of their own, in this one: their start is most of the time of so small jobs."""
    return ((task, function(task)) for task in tasks)


def one_rank(folder: Path, sample: str) -> Iterator[tuple[str, bytes]]:
    """A pair linked and converted."""
    host, device = (DATA / sample / f"{kind}_rank0.json.gz" for kind in ("host", "device"))
    linked, graph = folder / f"{sample}.json", folder / f"{sample}.et"
    run("trace_link", "-q", "--modules", "--host-trace", host, "--device-trace", device, "--output", linked)
    run("trace_convert", "-q", "--input", linked, "--output", graph)
    run("trace_jsonize", "-q", "--input", graph, "--output", f"{graph}.json")
    for what, path in ("linked trace", linked), ("graph", graph), ("graph as JSON", Path(f"{graph}.json")):
        yield f"{sample}: {what}", path.read_bytes()


def written(name: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files in a folder and below."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield f"{name}: {path.relative_to(folder).as_posix()}", path.read_bytes()


def builds(folder: Path, traces: Path) -> Iterator[tuple[str, bytes]]:
    """A job built for every target."""
    for target in TARGETS:
        built = folder / target
        run("trace_build", "-q", "--input-dir", traces, "--output-dir", built, "--target", target)
        yield from written(f"built for {target}", built)
    wide = folder / "wide"
    run("trace_scale", "-q", "--input-dir", folder / TARGETS[0], "--output-dir", wide, "--data-parallel", 2)
    yield from written("scaled", wide)


def outputs(folder: Path, in_order: Callable[[Sequence[Path]], Iterable[Path]]) -> Iterator[tuple[str, bytes]]:
    """Every output by a name; what takes several files gets them in this order."""
    yield from (output for sample in ("training", "modules") for output in one_rank(folder, sample))
    made, traces, output = folder / "made", folder / "traces", folder / "output"
    run("trace_generate", "-q", "--job", "dlrm", "--steps", 2, "--machine-seed", 1, "--output-dir", made)
    yield from written("generated", made)
    traces.mkdir()
    for path in in_order(sorted((DATA / "training").iterdir())):
        (traces / path.name).write_bytes(path.read_bytes())
    yield from builds(folder, traces)
    graphs_of = [folder / TARGETS[0] / f"graph.{rank}.et" for rank in (0, 1)]
    asked = ("--scale", "gemm=0.5", "--timeline", output)
    yield "replay: figures", run("trace_replay", "-q", "--json", *asked, "--input", *in_order(graphs_of))
    yield "replay: timeline", output.read_bytes()
    for ending in (".svg", ".dot", ".graphml"):
        picture = folder / f"picture{ending}"
        run("trace_view", "-q", "--input", graphs_of[0], "--around", 100, "--output", picture)
        yield f"view: {ending}", picture.read_bytes()
    files = list(in_order(sorted(traces.iterdir())))
    run("trace_merge", "-q", *files, "--output", folder / "merged.json")
    yield "merged trace", (folder / "merged.json").read_bytes()
    yield "diagnosis", run("trace_diagnose", "--json", *files)
    yield "report: tables", run("trace_report", "-q", "--json", *files, "--output", output)
    yield "report: page without charts", without_charts(output.read_text("utf-8")).encode()


def digests(in_order: Callable[[Sequence[Path]], Iterable[Path]]) -> dict[str, str]:
    """The outputs' digests, without the folders that they name."""
    workers.in_processes = here
    importlib.metadata.version = lambda package: VERSION if package == "execgraph" else installed_version(package)
    with TemporaryDirectory() as folder:
        outside = folder.encode(), str(DATA).encode()
        return {
            name: sha256(content.replace(outside[0], b"").replace(outside[1], b"")).hexdigest()[:16]
            for name, content in outputs(Path(folder), in_order)
        }


if __name__ == "__main__":
    found = json.dumps(digests(reversed if "--reversed" in sys.argv else iter), indent=1) + "\n"
    KEPT.write_text(found) if "--write" in sys.argv else print(found, end="")
