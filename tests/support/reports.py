"""Runs of trace-report and what it says as JSON, jobs for the rules of findings, and merged traces of a folder.

The pages of docs/ as Markdown with the commands in them, and the page of trace-report in a browser.
"""

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from execgraph.schema.columns import Categorical
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools import analyses
from execgraph.tools.analyses import Finding, Job, RankFacts, RankTrace, Table, analyse, find, graph_of, job_of
from execgraph.tools.job import merge_for_viewing
from execgraph.tools.report import ReportRequest, find_sources, render, report_on
from execgraph.tools.trace_files import RankFile, by_rank, find_traces

from support.builder.timeline import TraceBuilder
from support.commands import status_of
from support.databases import Api, Op, Range, write_database
from support.references import linked_of
from support.runs import link_run

needs_page = pytest.mark.skipif(find_spec("altair") is None, reason="needs the extra `report`")


def run(*arguments: object) -> int:
    return status_of("trace-report", *arguments)


def small_run(kernels: int = 2) -> TraceBuilder:
    t = TraceBuilder(rank=0)
    for number in range(kernels):
        with t.op("aten::mm", inputs=[t.tensor()]):
            t.work(2)
            t.launch(f"gemm {number}", duration=50)
    t.device_synchronize()
    return t


def as_json(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, list[dict[str, Any]]]:
    assert run("-q", "--json", *arguments) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capfd.readouterr().out)
    return found


def table(name: str, /, **columns: list[object]) -> dict[str, Table]:
    """Returns a table by its name, of columns without units."""
    values = {key: given if isinstance(given[0], str) else np.array(given) for key, given in columns.items()}
    return {name: Table(name, name, [analyses.Column(key, "", value) for key, value in values.items()])}  # type: ignore[arg-type]


def played(*runs: TraceBuilder, modules: bool = False) -> Job:
    """The job whose ranks were played."""
    linked = [link_run(t, modules) for t in runs]
    ranks = [RankTrace(number, one, graph_of(one)) for number, one in enumerate(linked)]
    job = job_of([analyses.facts_of(rank) for rank in ranks], analyse(ranks))
    assert job is not None
    return job


def built(
    *graphs: ExecutionGraph, tables: Mapping[str, Table] | None = None, as_recorded: bool = False, **facts: Any
) -> Job:
    """The job of these graphs, of which nothing else is known but `facts` of all ranks."""
    ranks = [replace(facts_alone(graph, number), **facts) for number, graph in enumerate(graphs)]
    traces = [RankTrace(rank.rank, linked_of([]), rank.graph) for rank in ranks]
    job = job_of(ranks, {**analyse(traces, ["critical_path"]), **(tables or {})}, as_recorded=as_recorded)
    assert job is not None
    return job


def facts_alone(graph: ExecutionGraph, rank: int = 0) -> RankFacts:
    nothing = Categorical.nulls(len(graph))
    return RankFacts(rank, graph, np.zeros(len(graph), np.bool_), nothing, nothing, nothing, np.empty(0, np.int64))


def titled(findings: Iterable[Finding], title: str) -> Finding:
    """The one finding whose title has this text."""
    (found,) = (finding for finding in findings if title in finding.title)
    return found


def titles(job: Job) -> list[str]:
    return [finding.title for finding in find(job)]


ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
Jobs = Callable[[int], Path]


def ranks_in(folder: Path) -> list[RankFile]:
    return by_rank(find_traces([folder]).devices, {})[0]


def merged(folder: Path, output: Path) -> dict[str, Any]:
    merge_for_viewing(ranks_in(folder), str(output))
    content = output.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(content) if output.suffix == ".gz" else content)
    return trace


def recorded_activities(folder: Path) -> Counter[tuple[int, int]]:
    """Activities by (rank, device) in the ranks' own files."""
    counts: Counter[tuple[int, int]] = Counter()
    for rank, path in ranks_in(folder):
        counts.update((rank, row["pid"]) for row in rows_of(json.loads(path.read_text())) if row["cat"] in ACTIVITIES)
    return counts


def rows_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in trace["traceEvents"] if row["ph"] == "X"]


def process_database(folder: Path, which: str, pid: int) -> Path:
    """A process whose two kernels run on its device 0."""
    ops = [Op("gemm", 1_000, 9_000, caller=1), Op("ncclDevKernel_Generic", 10_000, 19_000 + pid, caller=2, queue=5)]
    api = [Api("hipLaunchKernel", 100, 200, pid, pid), Api("hipExtLaunchKernel", 300, 400, pid, pid)]
    return write_database(folder / f"trace_{pid}.db", which, ops, api, [Range("step", 50, 30_000, pid, pid)], pid)


ROOT = Path(__file__).parents[2]
PAGES = {page.name: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
PROMPT = "$ "
SECONDS = re.compile(r"\b\d+\.\d s\b")
"""How long something took: the only thing that may differ without … in the page."""


class Block(NamedTuple):
    """What stands between two fences, and the language that the first one names."""

    language: str
    text: str


class Example(NamedTuple):
    """A command line, and what it prints; None where the page does not show it."""

    command: str
    printed: str | None

    @property
    def fails(self) -> bool:
        """Whether the page shows an error."""
        return ": error: " in (self.printed or "")


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(*one) for one in found]


def examples(block: Block) -> Iterator[Example]:
    """The commands of a `console` block, behind prompts, or of an `sh` block, one a line."""
    if block.language == "sh":
        yield from (Example(line, None) for line in block.text.splitlines())
    elif block.language == "console":
        for part in re.split(rf"^{re.escape(PROMPT)}", block.text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield Example(command, printed)


def run_example(example: Example, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command line prints; it must end as the page says. Our commands run in this process, others in a shell."""
    name, *arguments = shlex.split(example.command)
    if not name.startswith("trace-") or "|" in arguments:
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        line = ["bash", "-ec", example.command]
        ran = subprocess.run(line, env={"PATH": path}, capture_output=True, text=True, check=False)
        assert bool(ran.returncode) == example.fails, ran.stderr
        return ran.stdout + ran.stderr
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        import_module(f"execgraph.tools.commands.{name.replace('-', '_')}").main(arguments)
    said = capsys.readouterr()
    assert bool(ended.value.code) == example.fails, said.err
    return said.out + said.err


def agrees(printed: str, shown: str) -> bool:
    """Whether that is what the page shows; a line … stands for any lines, … in a line for any text."""
    lines = _normal(shown).splitlines()
    pattern = "".join(r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)
    return re.fullmatch(pattern, _normal(printed)) is not None


def _normal(text: str) -> str:
    return SECONDS.sub("0.0 s", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))


LAPTOP, PHONE = 1366, 390
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HAS_ALL = BROWSER is not None and find_spec("altair") is not None and find_spec("playwright") is not None
needs_browser = pytest.mark.skipif(not HAS_ALL, reason="needs chromium, playwright and the extra `report`")

FEW = ["temporal_breakdown", "kernel_duration_distribution", "critical_path"]
"""What most of these tests look at: to draw all charts takes longer than the tests."""


def written(traces: Path, folder: Path, only: list[str] | None = None) -> Path:
    page = folder / "report.html"
    page.write_text(render(report_on(find_sources([traces]), ReportRequest(only=only))), "utf-8")
    return page


def opened(browser: Any, file: Path, said: list[str], width: int = LAPTOP, color_scheme: str = "light") -> Any:
    """The page when all is drawn, nothing folded; `said` collects its console messages, errors and network requests."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 768})
    page.emulate_media(color_scheme=color_scheme)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-drawn]")
    page.evaluate("document.querySelectorAll('details.fold').forEach((fold) => { fold.open = true; })")
    page.wait_for_function("[...document.querySelectorAll('.chart')].every((chart) => chart.querySelector('svg'))")
    return page


def shown(page: Any) -> list[float]:
    """From when to when the timeline shows the run (µs), when it is drawn."""
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    times: list[float] = page.evaluate("['from', 'to'].map((name) => Number(timeline.view.element.dataset[name]))")
    return times


def place_on(page: Any, lane: str, part: float) -> dict[str, float]:
    """A place on the first lane whose name ends so, at a part of its width; it is scrolled to."""
    label = page.locator("#timeline .labels span", has_text=lane).first
    label.scroll_into_view_if_needed()
    box, canvas = label.bounding_box(), page.locator("#timeline .lanes canvas").bounding_box()
    return {"x": part * canvas["width"], "y": box["y"] - canvas["y"] + 22}


def told_at(page: Any, lane: str, part: float) -> dict[str, str]:
    """What hovering tells there."""
    page.locator("#timeline .lanes canvas").hover(position=place_on(page, lane, part))
    rows = page.locator("#tip.visible tr")
    return dict(row.split("\t", 1) for row in rows.all_inner_texts())


def cells(page: Any, section: str, column: int) -> list[str]:
    rows: list[str] = page.locator(f"#{section} details[open] tbody tr td:nth-child({column})").all_inner_texts()
    return rows
