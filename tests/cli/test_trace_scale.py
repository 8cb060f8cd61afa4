"""trace-scale: graphs of a scaled job, all of them or none, which play as the job does on more ranks."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.scaling import Growth
from execgraph.schema.arguments import ASTRA_SIM
from execgraph.schema.comm_groups import read_groups
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import BuildOptions, Outcomes, build, scale
from execgraph.tools.replay import replay_ranks
from support.commands import Ended, Run
from support.generated import here
from support.tasks import in_turn

from benchmarks.accuracy import scaling as accuracy
from benchmarks.accuracy.scaling import DRAWN, FROM, UNDISTURBED, Scaled, Traced, measure

JOBS = {"ddp": 2, "sharded": 2, "pipeline_dp": 4, "moe_dp": 4}
Built = Callable[..., Path]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The graphs of a job of three layers, with and without host."""
    known: dict[tuple[Any, ...], Path] = {}

    def folder(job: str = "ddp", **options: Any) -> Path:
        key = job, *options.items()
        if key not in known:
            known[key] = tmp_path_factory.mktemp(job)
            write_traces(simulate(build_job(job, ranks=JOBS[job], steps=2, layers=3)), known[key] / "traces")
            report = build(known[key] / "traces", known[key] / "graphs", BuildOptions(**options), here).report
            assert report.all_failures == []
        return known[key] / "graphs"

    return folder


Scale = Callable[..., Ended]


@pytest.fixture
def run_scale(run: Run, in_this_process: None) -> Scale:
    """The command, of the folder `source`, into the folder `out`."""
    return lambda source, out, *options: run(
        "trace-scale", "--input-dir", source, "--output-dir", out, *options, "--jobs", "1"
    )


def read(folder: Path, ranks: int) -> list[ExecutionGraph]:
    return [ExecutionGraph.read(str(folder / f"graph.{rank}.et")) for rank in range(ranks)]


@pytest.mark.parametrize("job", ["ddp", "moe_dp"])
def test_all_ranks_of_a_scaled_job_replay_together_as_one_copy_does(job: str, built: Built, tmp_path: Path) -> None:
    out, ranks = tmp_path / "out", JOBS[job]
    copies = 3 if ranks == 2 else 2
    report = scale(built(job), out, Growth(copies), in_turn)
    graphs = read(out, copies * ranks)
    assert (report.scaled_ranks, report.nodes) == (copies * ranks, sum(map(len, graphs)))
    assert replay_ranks(graphs).makespan_ns == replay_ranks(graphs[:ranks]).makespan_ns
    written = {"comm_groups.json", "scale.json", *(f"graph.{rank}.et" for rank in range(copies * ranks))}
    assert {path.name for path in out.iterdir()} == written
    numbers = [*read_groups(str(out / "comm_groups.json")).values()]
    assert len(numbers) == len({*numbers})


def test_a_scaled_job_scales_again_as_at_once(built: Built, tmp_path: Path) -> None:
    for name, source, copies in (("two", built(), 2), ("four", tmp_path / "two", 2), ("once", built(), 4)):
        scale(source, tmp_path / name, Growth(copies), in_turn)
    twice, once = (replay_ranks(read(tmp_path / name, 8)).makespan_ns for name in ("four", "once"))
    assert twice == pytest.approx(once, rel=1e-4)


def test_graphs_for_the_simulator_come_with_its_configuration(built: Built, tmp_path: Path, run_scale: Scale) -> None:
    out, source = tmp_path / "out", built(target=ASTRA_SIM, host=False)
    refused = run_scale(source, out, "--data-parallel", 4)
    assert refused.code == 1
    groups = (
        "name it with --data-parallel-group: there are group 0,1 (0), default_pg: all_reduce (the graphs lack the host"
    )
    assert groups in refused.err
    ended = run_scale(source, out, "--data-parallel", 4, "--data-parallel-group", "default_pg", "--latency", 5000)
    assert ended.code == 0 and f"--workload-configuration={out}/graph" in ended.err
    assert "5000 ns a link; the latency as given, the bandwidth fitted to" in ended.err
    network = (out / "astra-sim" / "network.yml").read_text()
    assert "npus_count: [ 8 ]" in network
    assert "latency: [ 5000.0 ]" in network
    assert {graph.texts("pg_name").table[0] for graph in read(out, 8)} == {""}


def test_times_that_hold_for_the_traced_ranks_alone_are_not_scaled(built, tmp_path, run_scale):
    source = Path(shutil.copytree(built(target=ASTRA_SIM), tmp_path / "graphs"))
    report = json.loads((source / "report.json").read_text())
    report["ranks"][1]["target"]["excess, µs"] = 12.0
    (source / "report.json").write_text(json.dumps(report))
    ended = run_scale(source, tmp_path / "out", "--data-parallel", 4)
    assert ended.code == 1 and "build them with --no-excess-time" in ended.err


def test_the_report_says_what_grew_and_how_right_the_fit_is(built: Built, tmp_path: Path, run_scale: Scale) -> None:
    printed = json.loads(run_scale(built(), tmp_path / "out", "--data-parallel", 4, "--json").out)
    assert printed == json.loads((tmp_path / "out" / "scale.json").read_text())
    assert printed["lengths"][0] | {"fit_error_pct": 0} == {
        "group": "group 0,1 (0)",
        "collective": "all_reduce",
        "collectives": 4,
        "members": 2,
        "scaled_members": 8,
        "times_of_latency": 7.0,
        "times": pytest.approx(2, abs=0.2),
        "latency_ns": pytest.approx(3000, rel=1e-3),
        "gib_s": pytest.approx(74.5, rel=1e-3),
        "fitted_to": "collectives of this type in this group",
        "transfers": 4,
        "fit_error_pct": 0,
        "identifiable": True,
    }
    joined = (
        "group       group 0,1 (0), default_pg: all_reduce; joined, by the gradients that it reduces: 2 -> 8 members"
    )
    assert joined in run_scale(built(), tmp_path / "again", "--data-parallel", 4, "-q").out


def test_collectives_of_one_size_may_last_much_longer_than_assumed(tmp_path: Path, run_scale: Scale) -> None:
    write_traces(simulate(build_job("ddp", ranks=2, layers=1)), tmp_path / "traces")
    build(tmp_path / "traces", tmp_path / "graphs", BuildOptions(), here)
    told = run_scale(tmp_path / "graphs", tmp_path / "out", "--data-parallel", 4)
    assert "last 1.75 times as long as measured if bandwidth limits them, as is assumed, and 7 times" in told.err


def test_ranks_that_were_not_traced_are_named_with_what_is_assumed_of_them(built, tmp_path, run_scale):
    (tmp_path / "half").mkdir()
    for rank in (0, 1):
        shutil.copy(built("pipeline_dp") / f"graph.{rank}.et", tmp_path / "half")
    told = run_scale(tmp_path / "half", tmp_path / "out", "--data-parallel", 2)
    assert "ranks       4 -> 8, 2 copies of 4; 2 traced\n" in told.out
    assert "note: ranks 2,3 not traced; assumed to do what traced ranks do, in the same time (2,3 as 0,1)\n" in told.err
    assert json.loads((tmp_path / "out" / "scale.json").read_text())["stand_ins"] == {"2": 0, "3": 1}
    graphs = read(tmp_path / "out", 8)
    assert replay_ranks(graphs).makespan_ns == replay_ranks(graphs[:4]).makespan_ns


# whole or not at all


def test_a_folder_that_is_in_use_stays_as_it_is_and_an_empty_one_is_filled(built: Built, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    scale(built(), tmp_path / "out", Growth(2), in_turn)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert "graph.3.et" in before
    with pytest.raises(DataError, match="is there and not empty; name a new folder"):
        scale(built(), tmp_path / "out", Growth(3), in_turn)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_what_fails_on_the_way_leaves_nothing(built: Built, tmp_path: Path) -> None:
    def failing(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Outcomes:
        for task, outcome in in_turn(function, tasks):
            last = task is tasks[-1] and not isinstance(task, Path)
            yield task, DataError("no room") if last else outcome

    with pytest.raises(DataError, match="no room"):
        scale(built(), tmp_path / "out", Growth(2), failing)
    assert list(tmp_path.iterdir()) == []


# what is refused


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("", "nothing to scale; give --data-parallel, --remove-ranks or both"),
        ("--data-parallel 0", "0 is not a whole number above 0"),
        ("--remove-ranks 4-", "4- is not a list of ranks such as 4-7 or 0,2"),
        ("--data-parallel 2 --latency -1", "-1 is not a number above 0"),
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_2(arguments: str, what: str, run_scale: Scale) -> None:
    ended = run_scale("a", "b", *arguments.split())
    assert ended.code == 2 and what in ended.err


def test_a_folder_without_graphs_is_one_line(tmp_path: Path, run_scale: Scale) -> None:
    empty, absent = (run_scale(tmp_path / name, tmp_path / "out", "--data-parallel", 2) for name in (".", "none"))
    assert empty.code == absent.code == 1
    assert empty.line.endswith("holds no graph.N.et; give graphs or the folder that trace-build wrote")
    assert "no such folder; check the path" in absent.line


def test_a_graph_under_another_ranks_name_is_refused(built: Built, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"graph.{rank}.et").write_bytes((built() / f"graph.{1 - rank}.et").read_bytes())
    with pytest.raises(DataError, match=r"graph\.0\.et: its graph is of rank 1; build the whole job again"):
        scale(tmp_path, tmp_path / "out", Growth(2), in_turn)


def test_ranks_can_be_removed_by_the_command(built: Built, tmp_path: Path, run_scale: Scale) -> None:
    scale(built(), tmp_path / "four", Growth(2), in_turn)
    assert run_scale(tmp_path / "four", tmp_path / "out", "--remove-ranks", "2-3", "-q").code == 0
    assert len(read(tmp_path / "out", 2)) == 2
    assert json.loads((tmp_path / "out" / "scale.json").read_text())["removed"] == [2, 3]


# the truth


@pytest.mark.parametrize(("job", "machine"), [("ddp", (DRAWN, 1)), ("pipeline_dp", (UNDISTURBED, 0, True))])
def test_a_scaled_job_takes_as_long_as_the_job_on_as_many_ranks(job, machine, monkeypatch):
    monkeypatch.setattr(accuracy, "TO", (8,))
    for scaled in measure(Traced(job, FROM[job][0], *machine)):
        assert abs(scaled.error_pct) < min(accuracy.ALLOWED_PCT, abs(scaled.unscaled_error_pct) / 2)


@pytest.fixture
def run_accuracy(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """The command, with what takes the place of measuring."""

    def ended(told: Callable[[Traced], list[Scaled]], line: str) -> Ended:
        monkeypatch.setattr(accuracy, "measure", told)
        monkeypatch.setattr(accuracy, "in_processes", in_turn)
        return run(accuracy.main, *line.split())

    return ended


@pytest.mark.parametrize(("off", "status"), [(2_900, 0), (-3_100, 1)])
def test_the_table_is_printed_and_a_wrong_makespan_is_exit_1(run_accuracy, off, status):
    def told(traced: Traced) -> list[Scaled]:
        return [Scaled(traced, ranks, 100_000, 100_000 + more, 90_000) for ranks, more in ((8, 10), (32, off))]

    ended = run_accuracy(told, "--jobs moe_dp --machines 0")
    assert ended.code == status
    assert f"| moe_dp | 4 | default |  | +0.01 |  | {off / 1000:+.2f} | -10.0 |" in ended.out


def test_figures_are_printed_as_json(run_accuracy: Callable[..., Ended]) -> None:
    ended = run_accuracy(lambda traced: [Scaled(traced, 8, 1000, 1010, 900)], "--jobs ddp --machines 1 --json")
    figures = json.loads(ended.out)["scaled"]
    assert len(figures) == 6
    assert figures[0] == {
        "job": "ddp", "from": 2, "to": 8, "machine": "default machine", "kind": "default",
        "true_us": 1.0, "scaled_us": 1.01, "error_pct": pytest.approx(1.0), "unscaled_error_pct": pytest.approx(-10.0),
    }  # fmt: skip
