"""What trace-report reads, in folders or by name: any part of a run, thousands of ranks in little room; and what it
says of inputs and options that it cannot use.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace
from execgraph.schema.errors import DataError
from execgraph.schema.linked import write_linked
from execgraph.tools.analyses import ANALYSES, Column, Table, analyse, rank_of_graph
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.report import ReadOptions, find_sources, read_ranks, report_on
from execgraph.tools.report.report import ALIKE, MANY, MOST_GROUPS, groups_table, in_words, of_ranks, rank_groups
from execgraph.tools.terminal import MOST_ROWS, ranges, rank_rows
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.databases import RPD_2, Api, Op, write_database
from support.graphs import GraphBuilder
from support.reports import as_json, run


def test_a_folder_its_files_and_the_linked_trace_say_the_same(given, capfd):
    folder = as_json(capfd, given["pair"])
    assert [row["activities"] for row in folder["temporal_breakdown"]] == [2]
    assert as_json(capfd, given["host"], given["device"]) == folder
    linked = as_json(capfd, given["linked"])
    assert linked["critical_path"] == folder["critical_path"]
    assert linked["temporal_breakdown"] == folder["temporal_breakdown"]


def test_what_was_made_from_traces_is_found_in_folders_too(given, tmp_path, capfd):
    for name in ("linked", "graph"):
        (tmp_path / f"of {name}" / "below").mkdir(parents=True)
        shutil.copy(given[name], tmp_path / f"of {name}" / "below")
        shutil.copy(given["text"], tmp_path / f"of {name}")
        assert as_json(capfd, tmp_path / f"of {name}") == as_json(capfd, given[name])
    shutil.copy(given["linked"], tmp_path / "of graph")
    assert as_json(capfd, tmp_path / "of graph") == as_json(capfd, given["linked"])


def test_a_file_of_another_kind_among_traces_is_left_out_with_a_note(data: Path, tmp_path: Path) -> None:
    (strange := tmp_path / "measured.json").write_text('{"a": 1}')
    sources = find_sources([*(data / "training").iterdir(), strange])
    assert len(sources.ranks) == 2 and sources.notes == [f"{strange} is JSON that execgraph does not know: not used"]


def test_a_folder_of_which_a_rank_cannot_be_used_is_refused_unless_ranks_are_chosen(data: Path, tmp_path: Path) -> None:
    for path in (data / "training").iterdir():
        shutil.copy(path, tmp_path)
    shutil.copy(data / "training" / "device_rank0.json.gz", tmp_path / "device_rank0_again.json.gz")
    with pytest.raises(DataError, match=r"rank 0: .*; or report on rank 1 alone, with ranks$"):
        find_sources([tmp_path])
    assert [source.known_rank for source in find_sources([tmp_path], chosen=[1]).ranks] == [1]


def test_numbers_in_names_are_in_order_by_value(given: dict[str, Path]) -> None:
    for name in ("graph.10.et", "graph.9.et"):
        shutil.copy(given["graph"], given["nothing"] / name)
    assert [source.path.name for source in find_sources([given["nothing"]]).ranks] == ["graph.9.et", "graph.10.et"]


def test_a_graph_alone_tells_what_its_nodes_tell_and_says_what_they_do_not(given, capfd):
    of_graph, of_traces = as_json(capfd, given["graph"]), as_json(capfd, given["pair"])
    for name in ("temporal_breakdown", "kernel_breakdown_kernels", "critical_path", "critical_path_nodes"):
        assert of_graph[name] == of_traces[name]
    empty = {analysis.name for analysis in ANALYSES if not of_graph[analysis.name]}
    assert empty - {analysis.name for analysis in ANALYSES if not of_traces[analysis.name]} == {
        "launch_statistics", "memory_timeline", "counters", "frequent_kernel_patterns", "per_op_device_time", "host_phases",
        "host_time_per_op",
    }  # fmt: skip
    assert run(given["graph"], "--all") == 0
    said = capfd.readouterr()
    assert "  no activity has a launch call: Launch statistics\n" in said.out
    assert "an execution graph alone: tables of host ops and calls are empty" in said.err


def test_collectives_of_graphs_meet_as_those_of_their_traces(data: Path) -> None:
    traces = list(read_ranks(find_sources([data / "training"]).ranks))
    graphs = [rank_of_graph(rank.graph) for rank in traces if rank.graph is not None]
    one, other = (analyse(ranks, ["collectives_over_ranks"])["collectives_over_ranks"] for ranks in (traces, graphs))
    assert len(one)
    for name in ("sequence", "present", "size", "latency", "start_skew", "straggler", "bus_bandwidth"):
        assert list(one[name]) == list(other[name])


def test_a_device_trace_alone_is_enough(given: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    found = as_json(capfd, given["device"])
    assert {analysis.name for analysis in ANALYSES} <= found.keys()
    assert [row["op"] is not None for row in found["per_op_device_time"]] == [True, True]


def test_a_rocpd_database_is_a_device_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ops = [Op("gemm.kd", 1_000, 5_000, caller=1), Op("", 6_000, 7_500, type="CopyDeviceToHost")]
    write_database(tmp_path / "run.db", RPD_2, ops, [Api("hipLaunchKernel", 100, 600)])
    for source in (tmp_path, tmp_path / "run.db"):
        found = as_json(capfd, source)
        assert [row["busy"] for row in found["temporal_breakdown"]] == [5.5]
        assert [(row["api"], row["delay"]) for row in found["launch_statistics"]] == [("hipLaunchKernel", 0.4)]
        assert {row["class"] for row in found["kernel_breakdown"]} == {"computation", "memory"}
    assert run("-q", tmp_path, "--perfetto", tmp_path / "run.json") == 0
    assert read_device_trace(str(tmp_path / "run.json")).activities.name.tolist() == ["gemm.kd", "CopyDeviceToHost"]


@pytest.mark.parametrize("folder", ["traces", "run9ab/traces"])
def test_files_of_a_run_are_named_in_one_order_wherever_they_are(data: Path, tmp_path: Path, folder: str) -> None:
    there = shutil.copytree(data / "training", tmp_path / folder)
    sources = find_sources([there / f"{kind}_rank{rank}.json.gz" for rank in (1, 0) for kind in ("host", "device")])
    assert sources.title == "device_rank0.json.gz, device_rank1.json.gz, host_rank0.json.gz and 1 more"
    assert [source.known_rank for source in sources.ranks] == [0, 1]


def test_ranks_are_read_side_by_side_each_with_its_host_trace(data: Path) -> None:
    sources = find_sources(sorted((data / "training").iterdir()))
    found = [(one.path.name, one.host and one.host.name) for one in sources.ranks]
    assert found == [("device_rank0.json.gz", "host_rank0.json.gz"), ("device_rank1.json.gz", "host_rank1.json.gz")]
    assert [rank.rank for rank in read_ranks(sources.ranks, ReadOptions(graph=False))] == [0, 1]


def test_a_host_trace_without_its_device_trace_is_said(given, data, capfd):
    stranger = data / "attention" / "host_rank0.json.gz"
    assert run("--only", "temporal_breakdown", "--csv", given["out"], given["copy"], stranger) == 0
    assert "host_rank0.json.gz: has no device trace; not used" in capfd.readouterr().err


@pytest.mark.parametrize(("inputs", "complaint"), [
    (["missing"], "cannot be read"), (["empty"], "is empty"), (["text"], "is a text file, not a trace or a graph"),
    (["nothing"], "holds no device trace"), (["host"], "has no device trace"),
    (["device", "copy"], "rank 0: 2 device traces of one process ("),
    (["device", "copy"], ", or compare two runs with --diff"), (["graph", "device"], "is of rank 0 like"),
])  # fmt: skip
def test_unusable_data_is_one_line_and_leaves_the_old_page(given, capfd, inputs, complaint):
    given["out"].write_text("precious")
    assert run("--output", given["out"], *(given[name] for name in inputs)) == 1
    said = capfd.readouterr()
    assert said.out == "" and complaint in said.err
    assert said.err.startswith("trace-report: error: ") and said.err.count("\n") == 1
    assert given["out"].read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["d", "--diff", "a", "b"], ["--diff", "a"], ["--diff", "a", "b", "--only", "counters"],
        ["d", "--only", "everything"], ["d", "--top", "0"], ["d", "--slow-call", "soon"],
        ["d", "--kernel-wait", "-1"], ["--diff", "a", "b", "--top", "3"],
        ["d", "--json", "--output", "-"], ["d", "--perfetto", "-"], ["--diff", "a", "b", "--perfetto", "x.json"],
    ],
)  # fmt: skip
def test_wrong_usage_ends_with_2(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(*arguments) == 2
    assert "error" in capfd.readouterr().err


def test_stdin_is_refused_in_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("-") == 2
    assert "give files or a folder, not stdin" in capfd.readouterr().err


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of two steps; in the second a kernel takes twice as long."""
    folder = tmp_path_factory.mktemp("steps")
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank)
        for number in range(2):
            with t.annotation(f"ProfilerStep#{number}"), t.op("aten::mm"):
                t.launch("gemm", duration=50 * (1 + number))
                t.device_synchronize()
        t.write(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "busy"),
    [
        ([], [150, 150]), (["--steps", "1"], [100, 100]), (["--annotation", "ProfilerStep#0"], [50, 50]),
        (["--ranks", "1"], [150]), (["--ranks", "0-1", "--steps", "0"], [50, 50]),
    ],
)  # fmt: skip
def test_any_part_and_any_ranks_are_reported_on(steps, capfd, options, busy):
    rows = as_json(capfd, steps, *options)
    assert [row["busy"] for row in rows["temporal_breakdown"]] == busy
    assert {row["rank"] for row in rows["critical_path_by_rank"]} == (
        {1} if "1" in options and "--ranks" in options else {0, 1}
    )


def test_a_part_of_two_runs_is_compared(steps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("-q", "--json", "--diff", steps, steps, "--ranks", "0", "--steps", "1") == 0
    (kernel,) = [row for row in json.loads(capfd.readouterr().out)["trace_diff"] if row["kind"] == "kernel"]
    assert (kernel["count_a"], kernel["time_a"], kernel["difference"]) == (1, 100, 0)


def test_a_rank_that_is_not_there_or_a_part_of_a_linked_trace_is_refused(steps, capfd, tmp_path):
    assert run(steps, "--ranks", "1-3") == 2
    assert "rank 2, 3 is not among the ranks there, 0, 1" in capfd.readouterr().err
    write_linked(link(None, read_device_trace(str(steps / "device_rank0.json"))), str(tmp_path / "linked.json"))
    assert run(tmp_path / "linked.json", "--steps", "1") == 1
    assert "no part can be taken; give the traces, or link that part" in capfd.readouterr().err


def tables_of(spans: list[float], computing: list[float] | None = None) -> dict[str, Table]:
    """What the analyses say of ranks that span and compute so many µs."""
    count = len(spans)
    rank, same = Column("rank", "", np.arange(count)), np.full(count, 50)
    facts = [rank, *(Column(name, "", same) for name in ("host_ops", "calls", "activities"))]
    busy = np.array(computing or spans, np.float64)
    times = [
        rank,
        Column("span", "µs", np.array(spans, np.float64)),
        Column("busy", "µs", busy),
        Column("compute", "µs", busy),
    ]
    return {"ranks": Table("ranks", "", facts), "temporal_breakdown": Table("temporal_breakdown", "", times)}


def test_few_ranks_are_all_shown_of_many_those_alike_are_a_group_and_outliers_and_roles_their_own() -> None:
    assert rank_groups(tables_of([100.0] * MANY)) == []
    spans = [1000.0 + number % 5 for number in range(100)]
    spans[42] = 1500
    large, alone = rank_groups(tables_of(spans))
    assert alone == (42, [42])
    assert large.ranks == [rank for rank in range(100) if rank != 42]
    assert in_words([large, alone]).startswith("Of 100 ranks some are shown")
    busy = [900.0, 500.0] * 20
    groups = rank_groups(tables_of([1000.0] * 40, busy))
    assert sorted(group.ranks[0] for group in groups) == [0, 1]
    assert {len(group.ranks) for group in groups} == {20}


@given(st.lists(st.floats(1, 1e6), min_size=MANY + 1, max_size=60))
def test_each_rank_is_in_one_group_and_near_its_own_if_there_are_few(spans: list[float]) -> None:
    groups = rank_groups(tables_of(spans))
    assert sorted(rank for group in groups for rank in group.ranks) == list(range(len(spans)))
    assert all(group.rank in group.ranks for group in groups)
    assert len(groups) <= MOST_GROUPS
    if len(groups) < MOST_GROUPS:
        middle = float(np.median(spans))
        assert all(
            abs(spans[one] - spans[group.rank]) <= ALIKE * middle * 1.001 for group in groups for one in group.ranks
        )


def test_of_tables_the_rows_of_the_shown_ranks_stay_and_a_table_says_for_whom_each_stands() -> None:
    table = tables_of([1.0, 2, 3])["temporal_breakdown"]
    assert of_ranks(table, [2, 0])["span"].tolist() == [1, 3]  # type: ignore[union-attr]
    without = Table("mine", "", [Column("name", "", ["a"])])
    assert of_ranks(without, []) is without
    tables = tables_of([10.0] * 20 + [30.0])
    table = groups_table(rank_groups(tables), tables["ranks"])
    assert [(row["stands_for"], row["ranks"]) for row in table.rows()] == [(20, "0-19"), (1, "20")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("many")
    write_traces(simulate(build_job("ddp", ranks=MANY + 4, steps=1, layers=1)), folder)
    return report_on(find_sources([folder]))


def test_a_page_of_many_ranks_shows_those_that_stand_for_others(report: Any) -> None:
    shown = {group.rank for group in report.groups}
    assert 0 < len(shown) < MANY
    assert set(report.timeline.ranks) == shown
    assert set(report.page_table("kernel_breakdown")["rank"].tolist()) == shown
    assert len(set(report.tables["kernel_breakdown"]["rank"].tolist())) == MANY + 4
    assert report.twice_as_fast.note.startswith(f"{MANY + 4} ranks, which wait for each other; ")
    assert report.page_table("critical_path") is report.tables["critical_path"]


HEADINGS = ("rank", "nodes", "mark", "status")


def rows_of(count: int) -> list[tuple[str, ...]]:
    return [(str(rank), str(10 + rank % 3), "", "failed" if rank == 7 else "built") for rank in range(count)]


def test_of_few_ranks_each_has_a_line_of_many_those_alike_share_one_and_a_long_list_is_cut_and_counted() -> None:
    assert len(rank_rows(HEADINGS, rows_of(MOST_ROWS), alike=("mark", "status"))) == MOST_ROWS + 1
    head, built, failed = rank_rows(HEADINGS, rows_of(1000), alike=("mark", "status"))
    assert built.split() == ["0-6,", "8-999", "10–12", "built"]
    assert failed.split() == ["7", "11", "failed"]
    assert len({len(line.rpartition("  ")[0]) for line in (head, built, failed)}) == 1
    rows = [(str(2 * rank), "1", "", "built") for rank in range(100)]
    (_, line) = rank_rows(HEADINGS, rows, alike=("status",))
    assert "0, 2, 4, 6" in line
    assert "… 100 in all" in line


@given(st.sets(st.integers(0, 300), min_size=1))
def test_ranges_name_each_number_once(numbers: set[int]) -> None:
    named: list[int] = []
    for part in ranges(sorted(numbers)).split(", "):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(numbers)


def test_a_graph_that_is_empty_is_not_passed_over(tmp_path: Path) -> None:
    GraphBuilder(rank=0).build().write(tmp_path / "graph.0.et")
    (tmp_path / "graph.1.et").write_bytes(b"")
    with pytest.raises(DataError, match=r"graph\.1\.et: is empty"):
        find_sources([tmp_path])
