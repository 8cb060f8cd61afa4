"""Readers and trace-diagnose report what cannot be, or a table says why nobody can notice; sound traces have none."""

from pathlib import Path

import pytest
from execgraph.linker.contradictions import contradictions_in_traces
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.machine import AGREEING
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.job import find_traces, hosts_of
from support.builder import TraceBuilder
from support.contradictions import (
    GRAPHS,
    READ_BY,
    TRACES,
    GraphLie,
    Lie,
    changed_graph,
    notes_on,
    said_of,
    sound_graphs,
    table,
)
from support.folders import ROOT

from benchmarks.programs import NAMED, RANDOM, build_job

TABLE = ROOT / "docs" / "contradictions.md"

pytestmark = pytest.mark.usefixtures("in_this_process")

each_lie = pytest.mark.parametrize("lie", [pytest.param(lie, id=lie.what) for lie in TRACES])


@each_lie
def test_a_contradiction_is_said_by_all_that_read_the_traces_or_by_none(lie: Lie) -> None:
    said = said_of(lie)
    assert [bool(said.link), bool(said.diagnose), any("note: rank" in line for line in said.build)] == [not lie.why] * 3


@each_lie
def test_what_is_said_names_the_file_and_what_to_do(lie: Lie) -> None:
    said = said_of(lie)
    for line in said.link:
        assert ".json: " in line and line.count("; ") >= 2


def test_collectives_in_reversed_order_are_a_disagreement_of_ranks() -> None:
    reversed_order = [lie for lie in TRACES if "reversed order" in lie.what]
    assert len(reversed_order) == 2
    for lie in reversed_order:
        assert any("ranks disagree" in line for line in said_of(lie).build)


def test_sequence_numbers_that_go_down_count_from_the_first_of_a_group(tmp_path: Path) -> None:
    t = TraceBuilder(rank=0, world_size=2)
    group = t.group([0, 1])
    for number in reversed(range(AGREEING + 1)):
        t.collective(group=group, seq=number)
    (said,) = contradictions_in_traces(None, read_device_trace(t.write(tmp_path)[1]))
    assert said.what.endswith(f"go down in time, {AGREEING} times (from {AGREEING} to 0)")


def test_the_table_of_contradictions_is_current() -> None:
    written = TABLE.read_text(encoding="utf-8")
    assert written == table(), "PYTHONPATH=tests python tests/support/contradictions.py > docs/contradictions.md"


# graphs


@pytest.mark.parametrize("lie", [pytest.param(lie, id=lie.what) for lie in GRAPHS])
def test_every_command_that_reads_a_graph_says_once_what_is_wrong_with_its_nodes(lie: GraphLie) -> None:
    notes = notes_on(lie)
    assert {command: len(lines) for command, lines in notes.items()} == dict.fromkeys(READ_BY, 1)
    for [line] in notes.values():
        assert ": 3 " in line and "(the first: node 10); " in line


def test_a_sound_graph_is_read_without_a_note(tmp_path: Path) -> None:
    path = tmp_path / "graph.0.et"
    path.write_bytes(changed_graph(sound_graphs()["graph.0.et"], lambda _: None))
    assert path.read_bytes() == sound_graphs()["graph.0.et"]
    assert ExecutionGraph.read(str(path)).notes == []


# sound traces


def contradictions_below(folder: Path) -> list[str]:
    """What is said of the traces of each process in a folder and below."""
    found = find_traces([folder])
    host_of = hosts_of(found.devices, found.hosts)
    assert found.devices
    said = []
    for trace in found.devices:
        host = read_host_trace(host_of[trace.name]) if trace.name in host_of else None
        said += [one.sentence for one in contradictions_in_traces(host, read_device_trace(trace.name))]
    return said


def test_nothing_is_said_of_captures(data: Path) -> None:
    assert contradictions_below(data) == []


@pytest.mark.parametrize("folder", ["captures", "critical_path", "device_only", "dlrm_8gpu", "simple_add"])
def test_nothing_is_said_of_real_traces(real_traces: Path, folder: str) -> None:
    assert contradictions_below(real_traces / folder) == []


@pytest.mark.parametrize("job", sorted({*NAMED, RANDOM}))
def test_nothing_is_said_of_generated_jobs(tmp_path: Path, job: str) -> None:
    write_traces(simulate(build_job(job)), tmp_path)
    assert contradictions_below(tmp_path) == []


def test_nothing_is_said_of_kernels_that_were_all_launched_at_once(tmp_path: Path) -> None:
    t = TraceBuilder()
    with t.op("graph"):
        t.graph_launch([(f"kernel {number}", 7, 5) for number in range(2 * AGREEING)])
    t.device_synchronize()
    t.write(tmp_path)
    assert contradictions_below(tmp_path) == []
