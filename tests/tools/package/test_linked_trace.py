"""A linked trace has tables of what was recorded, and becomes a graph by a method.

Traces are diagnosed, merged and made up by one call each.
"""

import io
from pathlib import Path

import pytest
from execgraph import DataError, Options, build, convert, diagnose, generate, link, merge, read_linked
from support.builder.timeline import TraceBuilder

FOLDER = Path("tests/data/training")


def two_kernels_and_a_copy(folder: Path) -> tuple[Path, Path]:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("gemm", duration=100)
        t.launch("add", duration=20)
        t.memcpy("HtoD", duration=5)
    host, device = t.write(folder)
    return Path(host), Path(device)


def test_kernels_are_a_table_that_names_who_launched_them(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    kernels = link(*two_kernels_and_a_copy(tmp_path)).kernels.to_polars()
    assert kernels.select("name", "duration_ns", "op").rows() == [
        ("gemm", 100_000, "aten::mm"),
        ("add", 20_000, "aten::mm"),
    ]
    assert kernels["start_ns"].dtype == polars.Int64 and kernels["call"].to_list() == ["cudaLaunchKernel"] * 2


def test_recorded_rows_are_tables_with_units_in_their_names(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    trace = link(*two_kernels_and_a_copy(tmp_path))
    assert {"start_ns", "end_ns", "exclusive_ns"} <= {*trace.ops.to_polars().columns}
    assert trace.activities.to_polars()["end_ns"].to_list() == trace.activities.end.tolist()


def test_a_folder_or_open_files_link_as_the_files(tmp_path: Path) -> None:
    host, device = two_kernels_and_a_copy(tmp_path)
    streams = io.BytesIO(host.read_bytes()), io.BytesIO(device.read_bytes())
    assert len(link(tmp_path).kernels) == len(link(*streams).kernels) == 2


def test_of_a_folder_with_several_ranks_one_is_chosen_and_the_answer_says_how() -> None:
    assert link(FOLDER, rank=1).info.rank == 1
    with pytest.raises(DataError, match="holds the traces of ranks 0, 1: choose one with rank=N") as raised:
        link(FOLDER)
    assert "--" not in str(raised.value)


def test_a_trace_becomes_a_graph_and_a_file(tmp_path: Path) -> None:
    trace = link(*two_kernels_and_a_copy(tmp_path))
    trace.write(tmp_path / "linked.json")
    for graph in (trace.to_graph(host=False), convert(tmp_path / "linked.json", Options(host=False))):
        assert [node.name for node in graph if node.attributes.get("cat") == "kernel"] == ["gemm", "add"]
    assert len(read_linked(tmp_path / "linked.json").kernels) == 2


def test_options_that_are_none_are_named(tmp_path: Path) -> None:
    trace = link(*two_kernels_and_a_copy(tmp_path))
    with pytest.raises(TypeError, match=r'takes Options, such as Options\(target="astra-sim"\), not str'):
        convert(trace, "astra-sim")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="target is 'astra'"):
        trace.to_graph("astra")  # type: ignore[arg-type]


TRAINING = Path("tests/data/training")


def test_a_trace_without_its_host_trace_is_found_wrong_or_odd() -> None:
    [finding, *_] = diagnose([TRAINING / "device_rank0.json.gz"]).findings
    assert finding.where and finding.advice


def test_ranks_are_merged_by_the_name_of_the_output(tmp_path: Path) -> None:
    assert [rank.rank for rank in merge(TRAINING, tmp_path / "merged.db").ranks] == [0, 1]
    with pytest.raises(ValueError, match=r"end it in \.db, \.json, \.json\.gz"):
        merge(TRAINING, tmp_path / "merged.txt")
    with pytest.raises(DataError, match="no such file or folder"):
        merge(tmp_path / "nowhere", tmp_path / "merged.json")


def test_a_job_that_was_made_up_is_built_as_a_recorded_one(tmp_path: Path) -> None:
    files = generate("ddp", tmp_path, ranks=2, steps=1, layers=2, machine_seed=3, compress=True)
    assert [host.name for host, _ in files] == ["host_rank0.json.gz", "host_rank1.json.gz"]
    assert abs(build(tmp_path).replay().error_pct or 0) < 1
    with pytest.raises(ValueError, match="no such job"):
        generate("nonsense", tmp_path)
