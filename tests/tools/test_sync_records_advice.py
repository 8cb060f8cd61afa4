"""What is said of traces without synchronisation records: where, and how far off answers are without them."""

import re
from pathlib import Path

import pytest
from execgraph.linker.link import link, read_linked
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.linked import LinkedTrace, write_linked
from execgraph.tools.commands import trace_build
from execgraph.tools.commands.trace_link import summary
from execgraph.tools.sync_records_advice import lacks_sync_records
from support.builder.timeline import TraceBuilder
from support.folders import ROOT

NOTE = "note        no synchronisation records: which event each wait was for is inferred; execgraph.diagnose says how to record it"


def played(folder: Path, *, sync_records: bool, waits: bool = True) -> LinkedTrace:
    t = TraceBuilder(sync_records=sync_records)
    with t.op("aten::mm"):
        t.launch("gemm", duration=50)
    if waits:
        t.stream_synchronize(7)
    t.device_synchronize()
    host, device = t.write(folder)
    return link(read_host_trace(str(host)), read_device_trace(str(device)))


def test_trace_link_notes_waits_that_no_record_names(tmp_path: Path) -> None:
    assert NOTE in summary(played(tmp_path, sync_records=False)).splitlines()


@pytest.mark.parametrize("run", [{"sync_records": True}, {"sync_records": False, "waits": False}])
def test_trace_link_notes_nothing_where_there_is_nothing_to_infer(tmp_path: Path, run: dict[str, bool]) -> None:
    assert "synchronisation records" not in summary(played(tmp_path, **run))


def test_trace_build_notes_them_once_for_all_ranks_and_no_strict_build_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank, sync_records=False)
        with t.op("aten::mm"):
            t.launch("gemm", duration=50)
        t.stream_synchronize(7)
        t.write(tmp_path)
    with pytest.raises(SystemExit) as end:
        trace_build.main([str(tmp_path), "-o", str(tmp_path / "graphs"), "--jobs", "1", "--strict"])
    assert end.value.code == 0
    assert capfd.readouterr().err.count("trace-build: note: rank 0, 1: no synchronisation records") == 1


def test_a_linked_file_tells_as_much_as_its_traces(tmp_path: Path) -> None:
    linked = played(tmp_path, sync_records=False)
    write_linked(linked, str(tmp_path / "linked.json"))
    assert lacks_sync_records(read_linked(str(tmp_path / "linked.json"))) and lacks_sync_records(linked)


def test_pages_name_the_worst_of_the_table_of_changed_runs() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?:named jobs|random programs) \| [^|]+ \| ([^|]+) \|.*\| ([\d.]+) \| [\d.]+ \| [\d.]+ % \| [\d.]+ % \|$",
        page,
        re.MULTILINE,
    )
    worst = {traces: max(float(value) for kind, value in rows if kind == traces) for traces, _ in rows}
    for name in ("docs/capture.md", "README.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert f"{worst['sync records']:.1f} %" in text and f"{worst['no sync records']:.1f} %" in text
