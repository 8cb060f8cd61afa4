"""Exports of Nsight Systems as device traces: a generated one gives the graph of Kineto's trace, each kind of row is
read by the columns that are there. Databases may be compressed.
"""

import gzip
import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, read_device_trace, read_host_trace
from execgraph.linker.readers.database import _unpacked
from execgraph.schema.errors import DataError
from execgraph.schema.linked import LinkedTrace
from execgraph.schema.reasons import Reason
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.recognise import InputKind, recognise
from support.databases import LITE, RPD_3, Op, sql, write_database
from support.device_formats import SCHEMAS, write_nsight_export

from benchmarks.programs import build_job

NAMES = ("gemm<128>", "gemm", "cudaLaunchKernel_v7000", "cuLaunchKernelEx", "registered", "cudaGetX_v2_v11030")
STRINGS = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value); INSERT INTO StringIds VALUES " + ", ".join(
    f"({number}, '{name}')" for number, name in enumerate(NAMES)
)
CUPTI, PLACE = "CUPTI_ACTIVITY_KIND_", "start, end, deviceId, contextId, streamId, correlationId, globalPid"
LOST = "fw_tid"
"""What the format has no place for: the thread of an op's forward pass."""


def of_process(process: int, thread: int = 0) -> int:
    """A serialised global id, with the number of a virtual machine."""
    return 1 << 48 | process << 24 | thread


def table(name: str, columns: str, *rows: tuple[object, ...]) -> str:
    plain = [
        ["NULL" if each is None else f"x'{each.hex()}'" if isinstance(each, bytes) else repr(each) for each in row]
        for row in rows
    ]
    values = ", ".join(f"({', '.join(row)})" for row in plain)
    return f";CREATE TABLE {name} ({columns}); INSERT INTO {name} VALUES {values}"


Read = Callable[..., DeviceTrace]
KERNEL = table(CUPTI + "KERNEL", PLACE + ", demangledName", (5_001, 6_000, 1, 2, 7, 9, of_process(50), 0))


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The trace of a database of these tables."""
    return lambda *tables: read_device_trace(sql(tmp_path / "x.sqlite", STRINGS + "".join(tables)))


@pytest.mark.parametrize("job", ["ddp", "towers", "event_sync"])
def test_a_generated_export_gives_the_graph_of_kinetos_trace(tmp_path: Path, job: str) -> None:
    run, nodes = simulate(build_job(job, steps=2, layers=2, seed=1)), list[list[object]]()
    for name in ("kineto", "nsys"):
        host, device = write_traces(run, tmp_path / name)[0]
        if name == "nsys":  # Kineto's traces have no such ranges
            device = write_nsight_export(device)
            sql(device, "DELETE FROM NVTX_EVENTS WHERE domainId = 1")
        convert(link(read_host_trace(str(host)), read_device_trace(str(device)))).write(tmp_path / f"{name}.json")
        nodes.append(json.loads((tmp_path / f"{name}.json").read_bytes())["nodes"])
        for node in nodes[-1]:
            node["attr"] = [attribute for attribute in node["attr"] if attribute["name"] != LOST]
    assert nodes[0] == nodes[1] and len(nodes[0]) > 200


def communications(trace: LinkedTrace, path: Path) -> list[list[dict[str, Any]]]:
    """What the graph says of each communication but for the name of its group."""
    convert(trace).write(path)
    said = re.compile(r"(comm|coalesced)_(type|size|src|dst|split)|pg_ranks").fullmatch
    nodes = json.loads(path.read_bytes())["nodes"]
    return [[each for each in node["attr"] if said(each["name"])] for node in nodes if "COMM" in node["type"]]


TABLES = {
    "StringIds": "id", "NVTX_EVENTS": "globalTid", "NVTX_PAYLOAD_SCHEMA_ENTRIES": "",
    CUPTI + "KERNEL": "globalPid demangledName", CUPTI + "RUNTIME": "globalTid nameId",
}  # fmt: skip


@pytest.mark.parametrize("job", ["uneven", "pipeline_dp", "sharded"])
def test_payloads_of_nccl_say_what_kineto_says_but_for_dtypes(tmp_path: Path, job: str) -> None:
    run = simulate(build_job(job, steps=1, layers=2, seed=1))
    kineto, other = (write_traces(run, tmp_path / name) for name in ("kineto", "nsys"))
    first, *further = (write_nsight_export(device) for _, device in other)
    for rank, device in enumerate(further, 1):
        # one export has the processes of all ranks, whose numbers descend
        script = f"ATTACH '{device}' AS other;"
        for name, columns in TABLES.items():
            by = ((each, -rank * (100 << 24) if each.startswith("global") else 1000 * rank) for each in columns.split())
            script += "".join(f"UPDATE other.{name} SET {each} = {each} + {number};" for each, number in by)
            script += f"INSERT INTO {name} SELECT * FROM other.{name};"
        sql(first, script)
    trace = read_device_trace(str(first))
    assert not trace.notes
    for rank, (_, device) in enumerate(kineto):
        usual = communications(link(None, str(device)), tmp_path / "kineto.json")
        assert communications(link(None, trace, rank), tmp_path / "nsys.json") == usual != []


def payload(form: str, *values: int) -> bytes:
    return struct.pack("<4Q", 1, SCHEMAS[form][0], struct.calcsize(form), 32) + struct.pack(form, *values)


def calls(*rows: tuple[int, str, bytes | None]) -> str:
    """Ranges of NCCL: the process, the name and the payload of each."""
    fields = [(1, schema, at, *field) for schema, fields in SCHEMAS.values() for at, field in enumerate(fields)]
    ranges = [(at, at, 59, of_process(each, 1), f"nccl{name}", blob) for at, (each, name, blob) in enumerate(rows, 1)]
    schemas = table("NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId, schemaId, idx, type, name, offset", *fields)
    return schemas + table("NVTX_EVENTS", "start, end, eventType, globalTid, text, binaryData", *ranges)


WHOLE, UNKNOWN = payload("<QQ", 7, 64), bytes(64)


@pytest.mark.parametrize(
    ("names", "payloads", "lacking", "note"),
    [
        ("AllReduce Send Recv Send", (WHOLE, WHOLE[:47], UNKNOWN, None), 2, "3 of 4 .* absent, cut or of an unknown schema"),
        ("AllReduce GroupEnd", (None, None), 0, "1 of 1 .* were not exported; .* --include-blobs=true"),
        ("ReduceScatter AllGather", (WHOLE, WHOLE), 0, "1 of 2 .* no sizes, as no recorded call says how many"),
    ],
)  # fmt: skip
def test_calls_that_do_not_say_enough_are_counted(read, names, payloads, lacking, note):
    trace = read(KERNEL, calls(*((50, *row) for row in zip(names.split(), payloads, strict=True))))
    assert len(trace.notes) == 1 and re.search(note, trace.notes[0])
    assert trace.skipped[Reason.NOT_READ.of("payloads of NCCL")] == lacking


def test_work_has_kinetos_names_and_belongs_to_its_calls(read: Read) -> None:
    place = 1, 2, 7, 11, of_process(50)
    trace = read(
        table(CUPTI + "KERNEL", PLACE + ", shortName, graphNodeId", (5_001, 6_000, 1, 2, 7, 9, of_process(50), 1, 77)),
        table(
            CUPTI + "MEMCPY", PLACE + ", bytes, copyKind, srcKind, dstKind",
            (7_000, 8_000, *place, 64, 1, 0, 2), (8_000, 8_500, *place, 64, 11, 4, 4),
        ),
        table(CUPTI + "MEMSET", PLACE, (9_000, 9_100, *place)),
        table(CUPTI + "GRAPH_TRACE", PLACE + ", graphId", (9_200, 9_300, *place, 3)),
        table(
            CUPTI + "RUNTIME", "start, end, globalTid, correlationId, nameId",
            *((10, 20, of_process(50, 51), number, name) for number, name in ((9, 2), (11, 3), (12, 5))),
        ),
        table("TARGET_INFO_GPU", "id, name, smCount", (1, "H100", 132)),
        table("TARGET_INFO_SESSION_START_TIME", "utcEpochNs, systemClockNs", (10**18 + 400, 400)),
        table("OSRT_API", "start, end", (1, 2), (3, 4)),
    )  # fmt: skip
    work, calls = trace.activities, trace.calls
    names = ["gemm", "Memcpy HtoD (Pageable -> Device)", "Memset (Unknown)", "CUDA graph 3"]
    assert [work.name[row] for row in range(4)] == names and len(work.start) == 4
    assert (work.start[0], work.end[0], work.size[1], work.graph_node[0]) == (5_001, 6_000, 64, 77)
    assert [calls.name[row] for row in range(3)] == ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGetX_v2"]
    assert {*calls.process.tolist()} == {50} and {*calls.thread.tolist()} == {51}
    assert trace.base_time_ns == 10**18 and trace.device_names[1].startswith("H100")
    not_read = {"table OSRT_API": 2, "migrations of unified memory": 1}
    assert trace.skipped == {Reason.NOT_READ.of(what): count for what, count in not_read.items()}
    assert link(None, trace).report.linked == 4


def test_ranges_are_annotations_and_those_of_pytorch_are_ops(read: Read) -> None:
    columns = "start, end, eventType, globalTid, text, textId"
    texts = "aten::add, seq = 5, op_id = 12, sizes = [[2, 3], []]", "aten::t, op_id = 13, sizes = [[1,]", "a, b"
    pushed = [(start, 90, 59, of_process(50, 51), text, None) for start, text in enumerate(texts, 10)]
    apart = [(start, end, 60, of_process(50, 51), "across", None) for start, end in ((0, 60), (30, 95))]
    mark = (1, None, 34, of_process(50, 51), "mark", None)
    trace = read(
        table("NVTX_EVENTS", columns, *pushed, *apart, mark, (14, None, 59, of_process(50, 51), None, 4)), KERNEL
    )
    ops = {trace.ops.name[row]: row for row in range(len(trace.ops.start))}
    assert [*ops] == ["aten::add", "aten::t", "a, b", "registered", "across"]
    assert trace.ops.annotation.tolist() == [False, False, True, True, True, True]
    assert trace.ops.rf_id[:3].tolist() == [12, 13, 0] and trace.ops.sequence[:3].tolist() == [5, -1, -1]
    assert trace.ops.shapes[0] == "[[2,3],[]]" and trace.ops.thread.tolist()[4:] == [1 << 24, (1 << 24) + 1]
    assert trace.skipped[Reason.NOT_READ.of("NVTX marks")] == 1


def test_waits_are_for_the_recorded_event_and_on_the_device_of_their_context(read: Read) -> None:
    sync = PLACE + ", syncType, eventId, eventSyncId"
    trace = read(
        KERNEL,
        table(CUPTI + "SYNCHRONIZATION", sync, (1, 2, 0, 2, 20, 30, of_process(50), 2, 6, 8)),
        table(
            CUPTI + "CUDA_EVENT",
            "timestamp, " + PLACE[12:] + ", eventId, eventSyncId",
            (1, 0, 2, 7, 29, of_process(50), 6, 8),
        ),
    )
    syncs = trace.syncs
    assert [*syncs.device, *syncs.stream, *syncs.wait_stream, *syncs.record_correlation] == [1, 20, 7, 29]
    assert syncs.kind[0] == "Stream Wait Event"
    assert trace.event_records.correlation.tolist() == [29] and not trace.oddities


def test_several_launching_processes_are_ranks_in_ascending_order(read: Read, tmp_path: Path) -> None:
    rows = [(5, 9, 0, 1, 7, 3, of_process(process), name) for process, name in ((70, 0), (60, 1))]
    calls = [(1, 2, of_process(process, process), 3, 2) for process in (70, 60)]
    trace = read(
        table(CUPTI + "KERNEL", PLACE + ", shortName", *rows),
        table(CUPTI + "RUNTIME", "start, end, globalTid, correlationId, nameId", *calls),
    )
    assert recognise(tmp_path / "x.sqlite").kind is InputKind.MERGED
    with pytest.raises(DataError, match="ranks 0, 1"):
        link(None, trace)
    of_ranks = [link(None, trace, rank) for rank in (0, 1)]
    assert [linked.activities.name[0] for linked in of_ranks] == ["gemm", "gemm<128>"]
    assert [linked.report.linked for linked in of_ranks] == [1, 1]


def test_a_compressed_database_is_read_and_a_cut_one_refused(tmp_path: Path) -> None:
    for dialect in (LITE, RPD_3):
        plain = write_database(tmp_path / f"{dialect}.rpd", dialect, [Op("k", 5, 9)])
        packed = tmp_path / f"{dialect}.rpd.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        assert read_device_trace(str(packed)).activities.name[0] == "k"
        unpacked = _unpacked.cache_info().misses
        assert recognise(packed).kind is InputKind.DEVICE
        assert _unpacked.cache_info().misses == unpacked
        packed.write_bytes(packed.read_bytes()[:-40])
        with pytest.raises(DataError, match="damaged database"):
            read_device_trace(str(packed))


def test_what_is_no_export_is_answered_with_what_to_do(tmp_path: Path, read: Read) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"\x00\xffreport")
    with pytest.raises(DataError, match=r"export it.*nsys export --type sqlite"):
        read_device_trace(str(report))
    with pytest.raises(DataError, match="no row of CUDA or NVTX; record with nsys profile"):
        read(f";CREATE TABLE {CUPTI}KERNEL (start)")
    command = [sys.executable, "-c", "import execgraph as eg; eg.read_device_trace('-')"]
    with (tmp_path / "x.sqlite").open("rb") as stream:
        ended = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=False)
    assert ended.stderr.rstrip().endswith("-: holds no row of CUDA or NVTX; record with nsys profile --trace=cuda,nvtx")


def test_values_of_any_type_do_no_harm(tmp_path: Path, read: Read) -> None:
    odd = ", ".join(f"({value})" for value in ("NULL", "'x'", "1e300", "-9223372036854775808", "x'ff00'", "1 << 62"))
    for column in (*PLACE.split(", "), "demangledName"):
        kept = ", ".join(
            name if name != column else f"column1 AS {name}" for name in (*PLACE.split(", "), "demangledName")
        )
        swap = f";CREATE TABLE odd AS SELECT {kept} FROM {CUPTI}KERNEL, (VALUES {odd}); DROP TABLE {CUPTI}KERNEL;"
        trace = read(KERNEL, f"{swap} ALTER TABLE odd RENAME TO {CUPTI}KERNEL")
        assert len(trace.activities.start) + sum(trace.skipped.values()) == 6
        (tmp_path / "x.sqlite").unlink()


def test_a_changed_run_on_two_gpus(real_traces: Path) -> None:
    trace = read_device_trace(str(real_traces / "wild/nsys_before_after/before.sqlite.gz"))
    linked = link(None, trace, 1)
    assert (len(linked.ops.start), len(linked.calls.start), len(linked.activities.start)) == (9_675, 3_778, 2_663)
    assert linked.report.linked == 2_648
