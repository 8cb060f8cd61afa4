"""What trace-report reads, in folders or by name, and what it says of inputs and options that it cannot use."""

import shutil
from pathlib import Path

import pytest
from execgraph.tools.analyses import ANALYSES, analyse, rank_of_graph
from execgraph.tools.report import ReadOptions, find_sources, read_ranks
from support.databases import RPD_2, Api, Op, write_database
from support.reports import as_json, run


def test_a_folder_its_files_and_the_linked_trace_say_the_same(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = as_json(capfd, given["pair"])
    assert [row["activities"] for row in folder["temporal_breakdown"]] == [2]
    assert as_json(capfd, given["host"], given["device"]) == folder
    linked = as_json(capfd, given["linked"])
    assert linked["critical_path"] == folder["critical_path"]
    assert linked["temporal_breakdown"] == folder["temporal_breakdown"]


def test_what_was_made_from_traces_is_found_in_folders_too(
    given: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("linked", "graph"):
        (tmp_path / f"of {name}" / "below").mkdir(parents=True)
        shutil.copy(given[name], tmp_path / f"of {name}" / "below")
        shutil.copy(given["text"], tmp_path / f"of {name}")
        assert as_json(capfd, tmp_path / f"of {name}") == as_json(capfd, given[name])
    shutil.copy(given["linked"], tmp_path / "of graph")
    assert as_json(capfd, tmp_path / "of graph") == as_json(capfd, given["linked"])


def test_numbers_in_names_are_in_order_by_value(given: dict[str, Path]) -> None:
    for name in ("graph.10.et", "graph.9.et"):
        shutil.copy(given["graph"], given["nothing"] / name)
    assert [source.path.name for source in find_sources([given["nothing"]]).ranks] == ["graph.9.et", "graph.10.et"]


def test_a_graph_alone_tells_what_its_nodes_tell_and_says_what_they_do_not(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
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
    assert "an execution graph alone: launch calls and host ops are not known" in said.err


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
    for given in (tmp_path, tmp_path / "run.db"):
        found = as_json(capfd, given)
        assert [row["busy"] for row in found["temporal_breakdown"]] == [5.5]
        assert [(row["api"], row["delay"]) for row in found["launch_statistics"]] == [("hipLaunchKernel", 0.4)]
        assert {row["class"] for row in found["kernel_breakdown"]} == {"computation", "memory"}
    assert run("-q", tmp_path, "--perfetto", tmp_path / "run.json") == 1
    assert "expected a Kineto device trace" in capfd.readouterr().err


@pytest.mark.parametrize("folder", ["traces", "run9ab/traces"])
def test_files_of_a_run_are_named_in_one_order_wherever_they_are(data: Path, tmp_path: Path, folder: str) -> None:
    there = shutil.copytree(data / "training", tmp_path / folder)
    sources = find_sources([there / f"{kind}_rank{rank}.json.gz" for rank in (1, 0) for kind in ("host", "device")])
    assert sources.title == "device_rank0.json.gz, device_rank1.json.gz, host_rank0.json.gz and 1 more"
    assert [source.known_rank for source in sources.ranks] == [0, 1]


def test_ranks_are_read_side_by_side_each_with_its_host_trace(data: Path) -> None:
    sources = find_sources(sorted((data / "training").iterdir()))
    assert [(one.path.name, one.host and one.host.name) for one in sources.ranks] == [
        ("device_rank0.json.gz", "host_rank0.json.gz"),
        ("device_rank1.json.gz", "host_rank1.json.gz"),
    ]
    assert [rank.rank for rank in read_ranks(sources.ranks, ReadOptions(graphs=False))] == [0, 1]


def test_a_host_trace_without_its_device_trace_is_said(
    given: dict[str, Path], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stranger = data / "attention" / "host_rank0.json.gz"
    assert run("--only", "temporal_breakdown", "--csv", given["out"], given["copy"], stranger) == 0
    assert "host_rank0.json.gz: has no device trace; not used" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (["missing"], "cannot be read"),
        (["empty"], "is empty"),
        (["text"], "is a text file, not a trace or a graph"),
        (["nothing"], "holds no device trace"),
        (["host"], "has no device trace"),
        (["device", "copy"], "rank 0: 2 device traces of one process ("),
        (["device", "copy"], ", or compare two runs with --diff"),
        (["graph", "device"], "is of rank 0 like"),
    ],
)
def test_unusable_data_is_one_line_and_leaves_the_old_page(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str], inputs: list[str], complaint: str
) -> None:
    given["out"].write_text("precious")
    assert run("--output", given["out"], *(given[name] for name in inputs)) == 1
    said = capfd.readouterr()
    assert said.out == "" and complaint in said.err
    assert said.err.startswith("trace-report: error: ") and said.err.count("\n") == 1
    assert given["out"].read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["d", "--diff", "a", "b"],
        ["--diff", "a"],
        ["--diff", "a", "b", "--only", "counters"],
        ["--diff", "a", "b", "--scale", "x=1"],
        ["d", "--only", "everything"],
        ["d", "--top", "0"],
        ["d", "--slow-call", "soon"],
        ["d", "--kernel-wait", "-1"],
        ["--diff", "a", "b", "--top", "3"],
        ["d", "--scale", "gemm"],
        ["d", "--scale", "class:disk=1"],
        ["d", "--json", "--output", "-"],
        ["d", "--perfetto", "-"],
        ["--diff", "a", "b", "--perfetto", "x.json"],
    ],
)
def test_wrong_usage_ends_with_2(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(*arguments) == 2
    assert "error" in capfd.readouterr().err


def test_stdin_is_refused_in_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("-") == 2
    assert "give files or a folder, not stdin" in capfd.readouterr().err
