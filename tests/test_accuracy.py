"""True dependencies are told from false and missing ones, and the command reports on all of it."""

import json
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from execgraph.schema.columns import Int64, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools import accuracy
from execgraph.tools.dependency_accuracy import Tally, TrueOrder, dependency_accuracy
from execgraph.tools.generate import NAMED, PRESETS, Job, Run, build_job, simulate
from execgraph.tools.generate.instructions import (
    Activity,
    Get,
    HostWork,
    Instruction,
    Launch,
    Put,
    RecordEvent,
    SynchronizeStream,
    WaitEvent,
)
from execgraph.tools.partial_order import PartialOrder
from execgraph.tools.what_if_accuracy import VARIANTS, Variant, graphs_of

RESOLVED, UNRESOLVED, WITHOUT = VARIANTS
ACROSS = "across streams"


def rows(*numbers: int) -> Int64:
    return np.array(numbers, np.int64)


# orders


def test_order_leads_over_lanes() -> None:
    order = PartialOrder(rows(0, 0, 1, 1, 2), rows(0, 5, 3, 6, 0), rows(2, 6, 4, 9, 9), rows(0, 2, 0), rows(1, 3, 3))
    assert order.holds(rows(0, 0, 2), rows(1, 3, 3)).all()
    assert not order.holds(rows(0, 1, 3, 4, 0, -1), rows(2, 3, 1, 3, 4, 3)).any()


def test_points_are_found_by_time() -> None:
    order = PartialOrder(rows(0, 1, 0), rows(0, 2, 5), rows(3, 4, 6), rows(0), rows(2))
    assert order.last_ended(rows(0, 0, 0, 1, -1), rows(2, 3, 9, 9, 9)).tolist() == [-1, 0, 2, 1, -1]
    assert order.first_begun(rows(0, 0, 0, 1), rows(0, 1, 6, 2)).tolist() == [0, 2, -1, 1]


def launch(stream: int) -> Launch:
    return Launch("cudaLaunchKernel", Activity("kernel"), stream, 1000, 100, 100, 10, 5)


def followers(*threads: list[Instruction]) -> set[tuple[int, int]]:
    """Which activities of a program have to come after which."""
    names = tuple(f"thread {number}" for number in range(len(threads)))
    run = simulate(Job("test", 0, 1, names, (), lambda rank: iter([threads])))
    true = TrueOrder(run.ranks[0], run.job.machine)
    pairs = [(a, b) for a in range(len(true.ended)) for b in range(len(true.ended)) if a != b]
    before, after = rows(*(a for a, _ in pairs)), rows(*(b for _, b in pairs))
    holds = true.order.holds(true.ended[before], true.started[after])
    return {pair for pair, sure in zip(pairs, holds.tolist(), strict=True) if sure}


def test_streams_alone_order_nothing_between_them() -> None:
    assert followers([launch(7), launch(8), HostWork(5000), launch(8)]) == {(1, 2)}


def test_an_event_orders_what_comes_after_the_wait_and_before_the_recording() -> None:
    program = [launch(7), RecordEvent(1, 7, 1), launch(7), launch(8), WaitEvent(8, 1, 1), launch(8)]
    assert followers(program) == {(0, 1), (2, 3), (0, 3)}


def test_the_host_orders_what_it_launches_after_what_it_waited_for() -> None:
    assert followers([launch(7), SynchronizeStream(7, 1), launch(8)]) == {(0, 1)}


def test_the_order_leads_over_threads() -> None:
    assert followers([launch(7), SynchronizeStream(7, 1), Put("q")], [Get("q", 5), launch(8)]) == {(0, 1)}


# dependencies of graphs


@cache
def run_of(name: str) -> Run:
    return simulate(build_job(name, seed=1, steps=3, ranks=2 if PRESETS[name].size.ranks > 1 else 1))


def tallies_of(run: Run, graphs: list[ExecutionGraph]) -> dict[str, Tally]:
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for rank, graph in zip(run.ranks, graphs, strict=True):
        for kind, tally in dependency_accuracy(run.job, rank, graph).items():
            tallies[kind] += tally
    return tallies


@pytest.mark.parametrize("name", NAMED)
def test_with_synchronisation_records_no_dependency_of_the_device_is_false_or_missing(name: str) -> None:
    tallies = tallies_of(run_of(name), graphs_of(run_of(name), RESOLVED))
    for kind in (ACROSS, "host for device"):
        assert (tallies[kind].false, tallies[kind].missing) == (0, 0), kind


@pytest.mark.parametrize("variant", [UNRESOLVED, WITHOUT], ids=lambda variant: variant.name)
def test_most_dependencies_are_found_by_the_order_of_calls(variant: Variant) -> None:
    tally = sum((tallies_of(run_of(name), graphs_of(run_of(name), variant))[ACROSS] for name in NAMED), Tally())
    assert tally.edges > tally.needed > 0
    assert min(tally.precision_pct or 0, tally.recall_pct or 0) > 90


def changed(graph: ExecutionGraph, source: Int64, target: Int64, kind: Int64) -> ExecutionGraph:
    """The graph with these dependencies, between rows, instead of its own."""
    by_target = np.argsort(target, kind="stable")
    graph.data_deps = Ragged.grouped(target[by_target], graph.id[source[by_target]], len(graph))
    graph.attributes["data_dep_kinds"] = Ragged.grouped(target[by_target], kind[by_target], len(graph))
    return graph


def dependencies(graph: ExecutionGraph) -> tuple[Int64, Int64, Int64]:
    kinds = graph.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged)
    return graph.rows_of(graph.data_deps.values), graph.data_deps.rows(), kinds.values


def test_what_a_graph_lacks_is_counted_as_missing() -> None:
    run = run_of("prefetch")
    (graph,) = graphs_of(run, RESOLVED)
    source, target, kind = dependencies(graph)
    kept = (kind & (DependencyKind.EVENT_WAIT | DependencyKind.HOST_SYNC | DependencyKind.HAND_OVER)) == 0
    tallies = tallies_of(run, [changed(graph, source[kept], target[kept], kind[kept])])
    for kind_of in (ACROSS, "host for device", "between threads"):
        assert tallies[kind_of].missing > 0, kind_of
        assert tallies[kind_of].edges == 0, kind_of


def test_what_a_graph_makes_up_is_counted_as_false() -> None:
    run = run_of("prefetch")
    (graph,) = graphs_of(run, RESOLVED)
    copies = np.flatnonzero(graph.is_activity & (graph.integers("stream") != 7))
    kernels = np.flatnonzero(graph.is_activity & (graph.integers("stream") == 7))
    # the second copy fills the buffer that the first step does not use
    unrelated = kernels[graph.start_ns[kernels] >= (graph.start_ns + graph.duration_ns)[copies[1]]][:1]
    source, target, kind = dependencies(graph)
    before = tallies_of(run, [graph])[ACROSS]
    made_up = changed(
        graph,
        np.append(source, copies[1]),
        np.append(target, unrelated),
        np.append(kind, DependencyKind.EVENT_WAIT | DependencyKind.INFERRED),
    )
    after = tallies_of(run, [made_up])[ACROSS]
    assert (after.edges, after.false, after.missing) == (before.edges + 1, before.false + 1, before.missing)


def test_a_graph_of_another_run_is_refused() -> None:
    (graph,) = graphs_of(run_of("simple"), RESOLVED)
    with pytest.raises(DataError, match="activities are not the"):
        tallies_of(run_of("prefetch"), [graph])


# the command


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        accuracy.main(["--jobs", "critical_path", "--seeds", "1", *arguments])
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_the_tables_have_a_row_per_job_and_per_kind_of_dependency(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys)
    assert code == 0
    assert out.count("\n| critical_path | ") == len(VARIANTS)
    assert "\n| sync records | host for device | " in out
    assert len({line.count("|") for line in out.splitlines() if line.startswith("| critical_path")}) == 1


def test_json_has_every_answer_and_every_tally(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "--json")
    figures = json.loads(out)
    assert (code, figures["wrong"]) == (0, 0)
    base = next(answer for answer in figures["what_if"] if answer["scale"] == [])
    assert base["true_us"] == pytest.approx(base["replayed_us"], rel=0.005)
    assert {tally["traces"] for tally in figures["dependencies"]} == {variant.name for variant in VARIANTS}


def test_an_answer_that_is_further_off_than_allowed_is_named_and_exit_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "VARIANTS", (RESOLVED._replace(bound_pct=0.05),))
    code, _, err = run_command(capsys)
    assert code == 1
    assert "critical_path, seed 0, sync records: class:computation=0.2 is " in err


@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--jobs", "unknown"]])
def test_wrong_usage_is_exit_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, *wrong)[0] == 2
