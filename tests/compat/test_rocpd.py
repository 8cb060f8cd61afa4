"""rocpd databases as device traces: every op, API row, link and roctx range, in each dialect; others are refused."""

import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, read_device_trace
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind
from execgraph.schema.reasons import Reason
from execgraph.tools.job.inspection import device_versions
from support.databases import DIALECTS, EPOCH, LITE, RPD_2, RPD_3, Api, Op, Range, rows, sql, write_database
from support.runs import convert_linked

OP_COLUMNS = ("id", "gpuId", "queueId", "completionSignal", "start", "end", "description_id", "opType_id")
API_COLUMNS = ("id", "pid", "tid", "start", "end", "apiName_id", "args_id")
STRING_COLUMNS = ("id", "string")


def step(path: Path, which: str) -> Path:
    """Two kernels and a copy on two queues, launched by three calls inside two nested ranges."""
    ops = [
        Op("gemm.kd", EPOCH + 100, EPOCH + 400, caller=1),
        Op("", EPOCH + 450, EPOCH + 500, queue=2, type="CopyDeviceToHost", caller=2),
        Op("ncclDevKernel_Generic", EPOCH + 600, EPOCH + 900, queue=2, caller=3),
    ]
    api = [
        Api("hipLaunchKernel", EPOCH + 50, EPOCH + 60),
        Api("hipMemcpyAsync", EPOCH + 70, EPOCH + 80),
        Api("hipExtLaunchKernel", EPOCH + 90, EPOCH + 95),
        Api("hipDeviceSynchronize", EPOCH + 96, EPOCH + 910),
    ]
    ranges = [Range("step", EPOCH, EPOCH + 1000), Range("forward", EPOCH + 40, EPOCH + 500)]
    return write_database(path, which, ops, api, ranges)


IN_EVERY_DIALECT = pytest.mark.parametrize("which", DIALECTS)


def read(folder: Path, which: str, ops: list[Op], *more: list[Any]) -> DeviceTrace:
    """The trace of a database with these ops, API rows and ranges."""
    return read_device_trace(str(write_database(folder / "t.db", which, ops, *more)))


@IN_EVERY_DIALECT
def test_every_op_keeps_its_device_queue_times_and_launch_link(tmp_path: Path, which: str) -> None:
    trace = read_device_trace(str(step(tmp_path / "trace.db", which)))
    assert rows(trace) == [
        ("gemm.kd", "kernel", 0, 1, 100, 400, 1),
        ("CopyDeviceToHost", "gpu_memcpy", 0, 2, 450, 500, 2),
        ("ncclDevKernel_Generic", "kernel", 0, 2, 600, 900, 3),
    ]
    assert not trace.skipped


@IN_EVERY_DIALECT
def test_api_rows_are_calls_and_roctx_ranges_are_annotations(tmp_path: Path, which: str) -> None:
    trace = read_device_trace(str(step(tmp_path / "trace.db", which)))
    calls, marks = trace.calls, trace.ops
    assert [calls.name[row] for row in range(4)][-1] == "hipDeviceSynchronize"
    assert calls.correlation.tolist() == [1, 2, 3, 4]
    assert (set(calls.process.tolist()), set(calls.thread.tolist())) == ({500}, {501})
    found = [(marks.name[row], marks.start[row] - EPOCH, marks.end[row] - EPOCH) for row in range(2)]
    assert found == [("step", 0, 1000), ("forward", 40, 500)]
    assert marks.annotation.all() and set(marks.process.tolist()) == {500}
    assert device_versions(str(tmp_path / "trace.db")) == {"written by": which}


@IN_EVERY_DIALECT
def test_the_graph_chains_streams_and_follows_the_links(tmp_path: Path, which: str) -> None:
    linked = link(None, read_device_trace(str(step(tmp_path / "trace.db", which))))
    assert (linked.report.linked, linked.info.pid) == (3, 500)
    nodes = convert_linked(linked, EPOCH)
    assert nodes.follows("ncclDevKernel_Generic")["CopyDeviceToHost"] & DependencyKind.STREAM_ORDER
    assert "gemm.kd" not in nodes.follows("CopyDeviceToHost")
    assert nodes.caller("gemm.kd") is not None
    assert nodes.replay_error() == 0


def test_what_is_no_work_is_counted(tmp_path: Path) -> None:
    ops = [
        Op("k", EPOCH, EPOCH + 1),
        Op("k", EPOCH, EPOCH),
        Op("", EPOCH, EPOCH + 1, type="Barrier"),
        Op("x", EPOCH, EPOCH + 1, type="Surprise"),
    ]
    api = [Api("hipFree", EPOCH + 5, EPOCH + 1)]
    path = write_database(tmp_path / "t.db", RPD_2, ops, api, [Range("mark", EPOCH, EPOCH)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (1, ?)", [(1,), (1,), (99,)])
    trace = read_device_trace(str(path))
    assert len(rows(trace)) == 1
    assert trace.skipped == {
        Reason.ZERO_LENGTH_OPS: 1,
        Reason.DEVICE_ROWS_OF_WAITING: 1,
        Reason.UNKNOWN_OP_TYPE.of("Surprise"): 1,
        Reason.API_ROWS_WITHOUT_END: 1,
        Reason.ROCTX_MARKS: 1,
        Reason.LINKS_OF_ABSENT_OPS: 1,
        Reason.FURTHER_LAUNCH_LINKS: 1,
    }


def test_a_file_merged_of_processes_that_do_not_tell_their_ops_is_refused(tmp_path: Path) -> None:
    path = write_database(tmp_path / "trace.db", LITE, [Op("a", EPOCH, EPOCH + 5), Op("b", EPOCH, EPOCH + 7)], pid=60)
    sql(path, "INSERT INTO rocpd_metadata (tag, value) VALUES ('pid', '70')")
    with pytest.raises(
        DataError, match=r"2 processes traced, of which no op tells its own; link each rank's own file$"
    ):
        read_device_trace(str(path))


# files that are not trusted


OTHERS = {
    "of ROCm 7 .*rocpd_kernel_dispatch_00000450": "CREATE TABLE rocpd_kernel_dispatch_00000450_565d_765d_bc41_19a2073d19ee (id);"
    "CREATE VIEW rocpd_op AS SELECT 1;",
    "but no export.*no rocpd database.*users": "CREATE TABLE users (id);",
    "rocpd_op is no table": "CREATE TABLE rocpd_string (id); CREATE VIEW rocpd_op AS SELECT 1 AS id;",
    "rocpd_op is no table of it": "CREATE TABLE rocpd_string (id); CREATE VIRTUAL TABLE rocpd_op USING rtree (id, a, b);",
    "holds no device op": "CREATE TABLE rocpd_string (id, string);"
    "CREATE TABLE rocpd_op (id, gpuId, opType_id, description_id);",
    "several ranks merged": "CREATE TABLE rank (id); CREATE TABLE device (id); CREATE TABLE edge (id);",
}


@pytest.mark.parametrize("complaint", OTHERS)
def test_other_databases_are_refused_by_name(tmp_path: Path, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_device_trace(sql(tmp_path / "other.db", OTHERS[complaint]))


def test_a_damaged_database_is_refused_in_one_line(tmp_path: Path) -> None:
    path = step(tmp_path / "t.db", RPD_3)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged database"):
        read_device_trace(str(path))


def test_nothing_is_written_beside_a_file_that_its_writer_left_in_wal_mode(tmp_path: Path) -> None:
    path = step(tmp_path / "t.db", LITE)
    sql(path, "PRAGMA journal_mode = WAL;")
    content = path.read_bytes()
    tmp_path.chmod(0o500)
    try:
        assert len(rows(read_device_trace(str(path)))) == 3
    finally:
        tmp_path.chmod(0o700)
    assert [file.name for file in tmp_path.iterdir()] == ["t.db"] and path.read_bytes() == content


def test_changes_that_a_killed_writer_left_in_its_log_are_read(tmp_path: Path) -> None:
    path = step(tmp_path / "t.db", LITE)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE rocpd_op SET gpuId = 3")
        connection.commit()
        assert {row[2] for row in rows(read_device_trace(str(path)))} == {3}


def killed_amid(path: Path, statements: str) -> None:
    """Another process changes the database and dies without tidying up."""
    script = f"import os, sqlite3; it = sqlite3.connect({str(path)!r}); it.executescript({statements!r}); os._exit(0)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_log_that_lost_its_index_is_read_without_writing_beside_it(tmp_path: Path) -> None:
    path = step(tmp_path / "t.db", LITE)
    killed_amid(path, "PRAGMA journal_mode = WAL; UPDATE rocpd_op SET gpuId = 3;")
    (tmp_path / "t.db-shm").unlink()
    content = path.read_bytes()
    assert {row[2] for row in rows(read_device_trace(str(path)))} == {3}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.db", "t.db-wal"] and path.read_bytes() == content


def test_a_database_amid_a_change_is_refused(tmp_path: Path) -> None:
    path = write_database(tmp_path / "t.db", LITE, [Op("k", EPOCH, EPOCH + 1)] * 2000)
    killed_amid(path, "PRAGMA cache_size = 1; BEGIN; UPDATE rocpd_op SET gpuId = 3, description_id = 9;")
    with pytest.raises(DataError, match=r"t.db: amid a change \(.*its writer is at work, or was killed"):
        read_device_trace(str(path))


def test_values_of_any_type_anywhere_do_no_harm(tmp_path: Path) -> None:
    for table, columns in (("op", OP_COLUMNS), ("string", STRING_COLUMNS), ("api", API_COLUMNS)):
        for column in columns:
            path = step(tmp_path / f"{table}_{column}.db", LITE)
            values = ", ".join(f"({value})" for value in ("NULL", "'x'", "1e300", "-9223372036854775808", "x'ff00'"))
            sql(path, f"CREATE TABLE odd AS SELECT * FROM rocpd_{table}; DROP TABLE rocpd_{table};")
            kept = ", ".join(name if name != column else f"column1 AS {name}" for name in columns)
            sql(path, f"CREATE TABLE rocpd_{table} AS SELECT {kept} FROM odd, (VALUES {values});")
            with suppress(DataError):
                read_device_trace(str(path))
