"""A merged trace gives each rank's own trace back: it links to the same graph."""

from pathlib import Path

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, read_device_trace, read_host_trace, read_rocpd
from execgraph.schema.errors import DataError
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import merge_for_viewing
from execgraph.tools.trace_files import RankFile
from support.databases import DIALECTS
from support.reports import Jobs, process_database, ranks_in


def graph_of(device: DeviceTrace, host: Path | None, rank: int | None, folder: Path) -> bytes:
    graph = convert(link(read_host_trace(str(host)) if host else None, device, rank))
    graph.metadata["source_device"] = ""
    graph.write(str(folder / "graph.et"))
    return (folder / "graph.et").read_bytes()


@pytest.mark.parametrize(("job", "sync_records"), [("ddp", True), ("moe", False), ("pipeline", True), ("dlrm", False)])
def test_a_rank_taken_out_links_to_the_same_graph(tmp_path: Path, job: str, sync_records: bool) -> None:
    run = simulate(build_job(job, ranks=4, steps=1, layers=2))
    files = write_traces(run, tmp_path, sync_records=sync_records)
    output = tmp_path / "merged.json.gz"
    merge_for_viewing([RankFile(rank, own.device) for rank, own in enumerate(files)], str(output))
    for rank, own in enumerate(files):
        before = graph_of(read_device_trace(str(own.device)), own.host, None, tmp_path)
        assert graph_of(read_device_trace(str(output)), own.host, rank, tmp_path) == before


def test_a_merged_trace_is_no_input_without_a_rank(jobs: Jobs, tmp_path: Path) -> None:
    output = tmp_path / "merged.json"
    merge_for_viewing(ranks_in(jobs(2)), str(output))
    with pytest.raises(DataError, match=r"several ranks merged into one trace, ranks 0, 1 .* rank=N of execgraph.link"):
        link(None, read_device_trace(str(output)))
    with pytest.raises(DataError, match="rank 7 is not in this merged trace"):
        link(None, read_device_trace(str(output)), 7)


def test_real_ranks_taken_out_link_to_the_same_graphs(real_traces: Path, tmp_path: Path) -> None:
    folder = real_traces / "dlrm_8gpu"
    output = tmp_path / "merged.json.gz"
    merge_for_viewing(ranks_in(folder), str(output))
    for rank, path in ranks_in(folder):
        host = folder / f"host_rank{rank}.json.gz"
        assert graph_of(read_device_trace(str(output)), host, rank, tmp_path) == graph_of(
            read_device_trace(str(path)), host, None, tmp_path
        )


def test_a_process_taken_out_of_a_viewing_trace_links_as_its_database_did(tmp_path: Path) -> None:
    for pid, which in zip((700, 710, 720), DIALECTS, strict=True):
        process_database(tmp_path, which, pid)
    ranks = ranks_in(tmp_path)
    merge_for_viewing(ranks, str(tmp_path / "merged.json"))
    for rank, path in ranks:
        before = graph_of(read_rocpd(str(path)), None, rank, tmp_path)
        assert graph_of(read_device_trace(str(tmp_path / "merged.json")), None, rank, tmp_path) == before
