"""The same files give the same bytes, whatever Python, library, hash seed and order they are read with.

Commands whose standard streams are closed or full: the right result, or one line that says what to do. Nothing depends
on words for what is counted or found: with every text reversed, figures and graphs are the same.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link, read_linked
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.linked import LinkReport, write_linked
from execgraph.schema.reasons import WORDS, Counts, Reason, from_json, in_words, reason_called, to_json
from execgraph.tools.job import BuildOptions, build
from execgraph.tools.replay import replay_ranks, summarise
from execgraph.tools.report import ReportRequest, find_sources, report_on
from support import digests
from support.commands import Run
from support.folders import DATA
from support.generated import here

UPDATE = "where outputs were meant to change: python tests/support/digests.py --write"


def test_outputs_are_those_that_any_version_order_of_files_and_hash_seed_gives() -> None:
    """Those that are kept were made of files in their order, by a process with another hash seed."""
    command = [sys.executable, digests.__file__, "--reversed"]
    made = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "1"}, stdout=subprocess.PIPE, check=True)
    kept, now = json.loads(digests.KEPT.read_text()), json.loads(made.stdout)
    changed = [name for name in kept | now if kept.get(name) != now.get(name)]
    assert not changed, f"other bytes than before: {', '.join(changed)}; {UPDATE}"


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
CLOSED = "<&- >&- 2>&-"
NO_OUTPUT = "error: -: standard output is closed; open it, or send it to a file: > FILE\n"


def started(redirected: str, name: str, *arguments: object) -> tuple[int, str]:
    """The exit status of a command, as it is installed, and what it printed on standard error."""
    words = [sys.executable, "-m", "execgraph", name, *map(str, arguments)]
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(words)} {redirected}"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def test_what_goes_to_a_file_goes_there(data: Path, tmp_path: Path) -> None:
    traces = [data / "training" / f"{kind}_rank0.json.gz" for kind in ("host", "device")]
    assert started(CLOSED, "link", *traces, "-o", tmp_path / "linked.json", "-q") == (0, "")
    assert (tmp_path / "linked.json").read_bytes().endswith(b"}\n")


def test_a_build_in_processes_needs_no_streams(data: Path, tmp_path: Path) -> None:
    assert started(CLOSED, "build", data / "training", "-o", tmp_path / "out", "--jobs", 2, "-q") == (0, "")
    assert len(list(tmp_path.glob("out/graph.*.et"))) == 2


def test_closed_streams_that_are_wanted_are_one_line(data: Path, tmp_path: Path) -> None:
    assert started(">&-", "diagnose", data / "training", "-q") == (1, f"trace-diagnose: {NO_OUTPUT}")
    no_input = "trace-convert: error: -: standard input is closed; give a file name\n"
    assert started("<&-", "convert", "-", "-o", tmp_path / "graph.et") == (1, no_input)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_a_command_says_of_itself_needs_a_place_to_say_it(option: str) -> None:
    assert started(">&-", "link", option) == (1, f"trace-link: {NO_OUTPUT}")
    status, said = started(">/dev/full", "link", option)
    assert (status, said.count("\n")) == (1, 1)
    assert "error: -: cannot be written (No space left on device)" in said
    assert started("| true", "link", option) == (0, "")


def test_help_is_shown_on_a_terminal_that_knows_ascii_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:strict")
    assert started("", "build", "--help") == (0, "")


@pytest.mark.parametrize("is_input", [True, False])
@pytest.mark.parametrize("path", ["circle", "x" * 300])
def test_paths_that_cannot_be_are_one_line(data: Path, tmp_path: Path, run: Run, path: str, is_input: bool) -> None:
    (tmp_path / "circle").symlink_to("circle")
    trace = data / "training" / "device_rank0.json.gz"
    given, out = (tmp_path / path, tmp_path / "out") if is_input else (trace, tmp_path / path)
    ended = run("trace-link", given, "-o", out)
    assert ended.code == 1
    assert ended.line.startswith("trace-link: error: ") and ended.line.endswith("check the path")


CAPTURES = ("training", "gpu/nccl")
"""With records of waits; with collectives and queries on a device."""


def word_tables() -> Iterator[dict[Any, str]]:
    """The tables of words of all modules that are loaded, each once: `…WORDS…`, of texts or tuples of these."""
    seen: set[int] = set()
    for name, module in sorted(sys.modules.items()):
        if name.startswith("execgraph."):
            tables = (value for word, value in vars(module).items() if "WORDS" in word and isinstance(value, dict))
            for table in tables:
                texts = [text for each in table.values() for text in ((each,) if isinstance(each, str) else each)]
                if id(table) not in seen and all(isinstance(text, str) for text in texts):
                    seen.add(id(table))
                    yield table


def reversed_text(text: Any) -> Any:
    """The text backwards, or each of a tuple, with what stands for a subject or a number in its mirrored place."""
    if not isinstance(text, str):
        return text._make(map(reversed_text, text)) if hasattr(text, "_make") else tuple(map(reversed_text, text))
    return "".join(part if part[:1] == "{" else part[::-1] for part in reversed(re.split(r"(\{[^{}]*\})", text)))


@pytest.fixture
def reworded(linked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in word_tables():
        for key, text in [*table.items()]:
            if reversed_text(text) != text:
                monkeypatch.setitem(table, key, reversed_text(text))


def outputs(capture: Path, out: Path, texts: list[str]) -> dict[str, Any]:
    """What link, convert, build, replay and report make of a capture, without words; what they say goes to `texts`."""
    [host, *_], [device, *_] = (sorted(capture.glob(f"{kind}_rank*")) for kind in ("host", "device"))
    linked = link(read_host_trace(host), read_device_trace(device))
    write_linked(linked, out / "linked.json")
    texts.append((out / "linked.json").read_text())
    back = read_linked(out / "linked.json")
    assert back.report == linked.report
    graph = convert(back)
    graph.write(out / "graph.et")
    job, goal = (build(capture, out / target, BuildOptions(target=target), here) for target in ("astra-sim", "goal"))
    texts.append((out / "astra-sim" / "report.json").read_text())
    texts.append("".join(goal.report.goal.communication))
    report = report_on(find_sources([capture]), ReportRequest(page=False))
    texts += [
        report.verdict,
        *(text for each in report.findings for text in (each.title, each.evidence, each.advice, each.question)),
    ]
    made = sorted([out / "graph.et", *out.glob("*/graph*.et"), out / "goal" / "job.goal"])
    return {
        "counts": [getattr(back.report, name) for name in ("dropped", "guessed", "oddities", "waits")],
        "unresolved": back.info.unresolved_waits,
        "built": [rank.link for rank in job.report.ranks if rank.link],
        "graphs": [path.read_bytes() for path in made],
        "goal": sorted(goal.report.goal.communication.values()),
        "replay": figures(msgspec.to_builtins(summarise(replay_ranks([graph])))),
        "report": {
            name: {column.name: [*figures(list(column.values))] for column in table.columns}
            for name, table in report.tables.items()
        },
        "findings": [(each.what, each.table, each.values, each.more) for each in report.findings],
    }


def figures(value: Any) -> list[str]:
    """All numbers in a value, in their order."""
    if isinstance(value, dict | list | tuple):
        return [number for each in (value.values() if isinstance(value, dict) else value) for number in figures(each)]
    return [str(value)] if not isinstance(value, str) and value is not None else []


@pytest.mark.parametrize("capture", CAPTURES)
def test_with_every_text_reversed_figures_and_graphs_are_the_same(capture, tmp_path, request):
    results, texts = [], ([], [])
    for number, name in enumerate(("as written", "reworded")):
        if number:
            request.getfixturevalue("reworded")
        (tmp_path / name).mkdir()
        results.append(outputs(DATA / capture, tmp_path / name, texts[number]))
    assert results[0] == results[1]
    assert not [text for text, reworded in zip(*texts, strict=True) if text and text == reworded]


def test_every_reason_has_words_of_its_own_and_is_found_by_them(reworded: None) -> None:
    assert set(WORDS) == set(Reason)
    for reason, words in WORDS.items():
        told = reason.of("12 of 30") if "{}" in words else reason
        assert reason_called(in_words(told)) == told


@pytest.mark.parametrize("subject", ["", " spoken", "spoken\n"])
def test_subjects_keep_their_blanks(subject: str) -> None:
    counts = Counts({Reason.UNKNOWN_CATEGORY.of("spoken"): 1, Reason.UNKNOWN_CATEGORY.of(subject): 2})
    assert sum(counts.in_words().values()) == 3
    assert from_json(to_json(counts), Counts) == counts


def test_what_another_writer_counts_keeps_its_words() -> None:
    counted = b'{"dropped":{"gremlins in the trace":3}}'
    report = from_json(counted, LinkReport)
    assert report.dropped == {Reason.OTHER.of("gremlins in the trace"): 3}
    assert b'"gremlins in the trace":3' in to_json(report)
