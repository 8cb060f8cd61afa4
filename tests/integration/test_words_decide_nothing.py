"""Nothing depends on the words for what is counted: with every text reversed, figures and graphs are the same."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link, read_linked
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.counts import from_json, to_json
from execgraph.schema.linked import LinkReport, write_linked
from execgraph.schema.reasons import WORDS, Reason, in_words, reason_called
from execgraph.tools.job import BuildOptions, build
from execgraph.tools.replay import replay_ranks, summarise
from execgraph.tools.report import find_sources, report_on
from support.folders import DATA
from support.generated import here

CAPTURES = ("training", "gpu/gloo", "gpu/nccl")
"""With records of waits; with waits whose event was not found; with collectives and queries on a device."""


def word_tables() -> Iterator[dict[Any, str]]:
    """The tables of words of all modules that are loaded, each once: `…WORDS…`, of texts."""
    seen: set[int] = set()
    for name, module in sorted(sys.modules.items()):
        if name.startswith("execgraph."):
            tables = (value for word, value in vars(module).items() if "WORDS" in word and isinstance(value, dict))
            for table in tables:
                if table and id(table) not in seen and all(isinstance(text, str) for text in table.values()):
                    seen.add(id(table))
                    yield table


def reversed_text(text: str) -> str:
    """The text backwards, with what stands for a subject in its mirrored place."""
    return "{}".join(part[::-1] for part in reversed(text.split("{}")))


@pytest.fixture
def reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in word_tables():
        for key, text in [*table.items()]:
            if reversed_text(text) != text:
                monkeypatch.setitem(table, key, reversed_text(text))


def outputs(capture: Path, out: Path, texts: list[str]) -> dict[str, Any]:
    """What link, convert, build, replay and report make of a capture: counts by reason, bytes of graphs, figures."""
    [host, *_], [device, *_] = (sorted(capture.glob(f"{kind}_rank*")) for kind in ("host", "device"))
    linked = link(read_host_trace(host), read_device_trace(device))
    write_linked(linked, out / "linked.json")
    texts.append((out / "linked.json").read_text())
    back = read_linked(out / "linked.json")
    assert back.report == linked.report
    graph = convert(back)
    graph.write(out / "graph.et")
    job = build(capture, out / "job", BuildOptions(target="astra-sim"), here)
    texts.append((out / "job" / "report.json").read_text())
    summary = msgspec.to_builtins(summarise(replay_ranks([graph])))
    tables = report_on(find_sources([capture])).tables
    made = sorted([out / "graph.et", *(out / "job").glob("graph*.et")])
    return {
        "counts": [getattr(back.report, name) for name in ("dropped", "guessed", "oddities", "waits")],
        "unresolved": back.info.unresolved_waits,
        "built": [rank.link for rank in job.report.ranks if rank.link],
        "graphs": [path.read_bytes() for path in made],
        "replay": figures(summary),
        "report": {
            name: {column.name: [*figures(list(column.values))] for column in table.columns}
            for name, table in tables.items()
        },
    }


def figures(value: Any) -> list[str]:
    """All numbers in a value, in their order."""
    if isinstance(value, dict | list | tuple):
        return [number for each in (value.values() if isinstance(value, dict) else value) for number in figures(each)]
    return [str(value)] if not isinstance(value, str) and value is not None else []


@pytest.mark.parametrize("capture", CAPTURES)
def test_with_every_text_reversed_figures_and_graphs_are_the_same(
    capture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    texts: list[str] = []
    results = []
    for number, name in enumerate(("as written", "reworded")):
        if number:
            request.getfixturevalue("reworded")
        (tmp_path / name).mkdir()
        results.append(outputs(DATA / capture, tmp_path / name, texts))
    assert results[0] == results[1]
    assert (texts[0], texts[1]) != (texts[2], texts[3])


def test_every_reason_has_words_of_its_own_and_is_found_by_them(reworded: None) -> None:
    assert set(WORDS) == set(Reason)
    for reason, words in WORDS.items():
        told = reason.of("12 of 30") if "{}" in words else reason
        assert reason_called(in_words(told)) == told


def test_what_another_writer_counts_keeps_its_words() -> None:
    counted = b'{"dropped":{"gremlins in the trace":3}}'
    report = from_json(counted, LinkReport)
    assert report.dropped == {Reason.OTHER.of("gremlins in the trace"): 3}
    assert b'"gremlins in the trace":3' in to_json(report)
