"""docs/summary-lines.md explains every line that the commands' summaries may have, and no others."""

import ast
import re
from collections.abc import Iterator

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.reasons import WORDS, Reason
from execgraph.tools.job.build_report import HEADINGS as BUILT
from execgraph.tools.job.diagnosis import HEADINGS as DIAGNOSED
from execgraph.tools.replay import describe, replay_ranks, summarise
from support.folders import ROOT
from support.pages import PAGES

PAGE = PAGES["summary-lines.md"].read_text(encoding="utf-8")
WHERE = {
    "trace-link": ("tools/commands/trace_link.py",),
    "trace-convert": ("tools/commands/trace_convert.py",),
    "trace-build": (
        "tools/commands/trace_build.py",
        "tools/job/build_report.py",
    ),
    "trace-scale": ("tools/commands/trace_scale.py", "tools/job/scaling.py"),
    "trace-merge": ("tools/commands/trace_merge.py",),
    "trace-report": ("tools/commands/trace_report.py",),
}
"""The modules that make a command's summary."""
US = re.compile(r"(?<![\w`])us\b")
ELSEWHERE = {"trace-merge": {"rank"}}
"""Titles of lines that are set in columns of their own."""


def section(command: str) -> str:
    found = re.search(rf"^## {command}$(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, command
    return found[1]


def explained(command: str, head: str) -> set[str]:
    """What stands first in the rows of a section's tables with that head."""
    tables = re.findall(rf"^\| {head} \|.*?\|\n\|---\|---\|\n((?:\|.*\n)+)", section(command), re.MULTILINE)
    return {
        name for table in tables for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    }


def calls(module: str) -> Iterator[ast.Call]:
    return (one for one in ast.walk(ast.parse((ROOT / module).read_text())) if isinstance(one, ast.Call))


def titles(module: str) -> set[str]:
    """The titles of the lines that a module makes; they are written out where the line is made."""
    made = [
        one
        for one in calls(module)
        if isinstance(one.func, ast.Name) and one.func.id in ("summary_line", "format_counts")
    ]
    assert all(isinstance(one.args[0], ast.Constant) for one in made), module
    return {ast.literal_eval(one.args[0]) for one in made}


@pytest.mark.parametrize("command", WHERE)
def test_every_line_is_explained(command: str) -> None:
    made = set().union(*map(titles, WHERE[command])) | ELSEWHERE.get(command, set())
    assert explained(command, "line") == made


def test_every_line_is_made_in_a_module_that_is_looked_at() -> None:
    looked_at = {module for modules in WHERE.values() for module in modules}
    makers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tools").rglob("*.py")
        if re.search(r"terminal import .*(format_counts|summary_line)\b", path.read_text())
    }
    assert makers == looked_at


@pytest.mark.parametrize(("command", "headings"), [("trace-build", BUILT), ("trace-diagnose", DIAGNOSED)])
def test_every_column_is_explained(command: str, headings: tuple[str, ...]) -> None:
    assert {heading for heading in headings if heading} == explained(command, "column") & set(headings)


@pytest.mark.parametrize("sample", ["training", "attention"], ids=["device", "host alone"])
def test_every_line_of_a_replay_is_explained(sample: str) -> None:
    host, device = (ROOT / f"tests/data/{sample}/{kind}_rank0.json.gz" for kind in ("host", "device"))
    replayed = replay_ranks([convert(link(read_host_trace(str(host)), read_device_trace(str(device))))])
    text = describe(replayed, summarise(replayed))
    lines = {line[:15].strip() for line in text.splitlines() if not line.startswith(" ")}
    other = "thread busy" if sample == "training" else "stream busy"
    assert explained("trace-replay", "line") == lines | {
        other,
        "absent",
        "range",
        "changed",
        "recording",
        "start offset",
        "rank to rank",
    }


OF_DIAGNOSES = {
    Reason.ACTIVITIES_OF_ZERO_LENGTH,
    Reason.GRAPH_LAUNCHES_WITHOUT_ACTIVITIES,
    Reason.LAUNCHES_WITHOUT_ACTIVITY,
    Reason.OPS_OUTSIDE_HOST_WINDOW,
    Reason.OPS_NOT_IN_DEVICE_TRACE,
    Reason.OPS_OF_TWO_NAMES,
    Reason.SYNC_RECORDS,
    Reason.EVENT_RECORDS,
}
"""Reasons that no summary of linking or converting names."""


def test_everything_that_is_counted_is_explained() -> None:
    explained_elsewhere = {reason for reason in Reason if WORDS[reason].startswith("{}")} | OF_DIAGNOSES
    beginnings = {words.split("{}")[0].split(" (")[0].strip() for words in WORDS.values()}
    beginnings -= {WORDS[reason].split("{}")[0].strip() for reason in explained_elsewhere}
    assert len(beginnings) > 60
    assert {beginning for beginning in beginnings if f"`{beginning}" not in PAGE} == set()


def test_microseconds_are_written_with_a_mu() -> None:
    texts = {
        (str(path.relative_to(ROOT)), node.lineno)
        for layer in ("schema", "linker", "converter", "tools", "benchmarks")
        for path in (ROOT / layer).rglob("*.py")
        for text in [path.read_text(encoding="utf-8")]
        if US.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and US.search(str(node.value))
    }
    assert texts == set()
