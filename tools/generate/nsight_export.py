"""Writes a generated device trace as Nsight Systems exports its reports: an SQLite database.

Ops are the NVTX ranges that PyTorch's emit_nvtx makes of them. The format has no place for arguments of ops beyond
shapes, for collectives and for process groups; a host trace holds these.
"""

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...schema.columns import Interner
from ...schema.io import open_output

CUPTI, NVTX, PUSH_POP = "CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", 59
SPAN, AT = "start, end, ", "deviceId, contextId, streamId, correlationId, globalPid, "
TABLES = {
    "StringIds": "id, value", "META_DATA_EXPORT": "name, value", "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "TARGET_INFO_GPU": "id, name, totalMemory, computeMajor, computeMinor, smCount",
    NVTX: f"{SPAN}eventType, globalTid, text", f"{CUPTI}RUNTIME": f"{SPAN}globalTid, correlationId, nameId",
    f"{CUPTI}KERNEL": f"{SPAN}{AT}graphNodeId, demangledName, shortName",
    f"{CUPTI}MEMCPY": f"{SPAN}{AT}graphNodeId, bytes, copyKind, srcKind, dstKind",
    f"{CUPTI}MEMSET": f"{SPAN}{AT}graphNodeId, bytes, memKind",
    f"{CUPTI}SYNCHRONIZATION": f"{SPAN}{AT}syncType, eventId, eventSyncId",
    f"{CUPTI}CUDA_EVENT": f"timestamp, {AT}eventId, eventSyncId",
}  # fmt: skip
"""The columns of each table."""
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
MEMORY_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4}
SYNC_KINDS = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}
KINDS = re.compile(r"(\w+) (?:(\w+) )?\((\w+)(?: -> (\w+))?\)")
"""The name of a copy, or of setting memory."""


def write_nsight_export(path: str, head: dict[str, Any], rows: Iterator[str]) -> None:
    """Writes the database of a trace, whose head and rows are those of Kineto's. Raises DataError if it cannot."""
    with TemporaryDirectory(prefix="execgraph-") as folder, open_output(path) as out:
        file = Path(folder, "export")
        with closing(sqlite3.connect(file)) as connection, connection:
            for table, columns in TABLES.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
            for table, values in _rows_of_tables(head, rows):
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        with file.open("rb") as database:
            shutil.copyfileobj(database, out)


def _rows_of_tables(head: dict[str, Any], rows: Iterator[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields for each row of the database its table and its values."""
    yield "META_DATA_EXPORT", ("EXPORT_PRODUCT_VERSION", "2025.3.1.90")
    yield "TARGET_INFO_SESSION_START_TIME", (head.get("baseTimeNanoseconds", 0),)
    for device in head["deviceProperties"]:
        keys = ("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms")
        yield "TARGET_INFO_GPU", tuple(map(device.get, keys))
    texts, process = Interner[str](), 0
    call_start, records = dict[int, int](), dict[int, tuple[Any, ...]]()
    for text in rows:
        row = json.loads(text, parse_float=Decimal)
        if row["ph"] != "X":
            continue
        category, name, args = row["cat"], row["name"], row["args"]
        start = int(row["ts"] * 1000)
        span = start, start + int(row["dur"] * 1000)
        if category in ("cpu_op", "user_annotation", "cuda_runtime"):
            process = row["pid"] << 24
        thread = process | row["tid"] if isinstance(row["tid"], int) else 0
        place = *span, *map(args.get, ("device", "context", "stream", "correlation")), process
        node = args.get("graph node id")
        if category in ("cpu_op", "user_annotation"):
            yield NVTX, (*span, PUSH_POP, thread, _text_of_range(name, args))
        elif category == "cuda_runtime":
            call_start[args["correlation"]] = start
            yield f"{CUPTI}RUNTIME", (*span, thread, args["correlation"], texts[f"{name}_v3020"])
        elif category == "kernel":
            yield f"{CUPTI}KERNEL", (*place, node, texts[name], texts[name])
        elif category in ("gpu_memcpy", "gpu_memset") and (kinds := KINDS.fullmatch(name)):
            numbers = [COPY_KINDS[kinds[2]]] * bool(kinds[2]) + [
                MEMORY_KINDS[kind] for kind in kinds.groups()[2:] if kind
            ]
            yield CUPTI + kinds[1].upper(), (*place, node, args["bytes"], *numbers)
        elif category == "cuda_sync":
            record, event = (args.get(f"wait_on_cuda_event_{key}", -1) for key in ("record_corr_id", "id"))
            if record >= 0:
                # the record of an event stands after all calls, as it needs the time of its own
                records[record] = *place[2:4], args["wait_on_stream"], record, process, event, record
            yield f"{CUPTI}SYNCHRONIZATION", (*place, SYNC_KINDS[name], event, max(record, 0))
    yield from ((f"{CUPTI}CUDA_EVENT", (call_start[number], *values)) for number, values in records.items())
    yield from (("StringIds", (number, text)) for number, text in enumerate(texts))


def _text_of_range(name: str, args: dict[str, Any]) -> str:
    """Returns an op with its numbers and shapes, as PyTorch writes it."""
    sequence = f", seq = {args['Sequence number']}" if "Sequence number" in args else ""
    sizes = f", sizes = {json.dumps(args['Input Dims'])}" if args.get("Input Dims") else ""
    return f"{name}{sequence}, op_id = {args['Record function id']}{sizes}"
