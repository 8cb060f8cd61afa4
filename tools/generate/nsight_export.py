"""Writes a generated device trace as Nsight Systems exports its reports: an SQLite database.

Ops are NVTX ranges as of PyTorch's emit_nvtx, with ranges of NCCL in those of collectives. A host trace holds dtypes,
names of groups, and arguments beyond shapes.
"""

import json
import re
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...schema import device_formats as formats
from ...schema.columns import Interner
from ...schema.device_formats import CUPTI, NVTX, THREADS
from ...schema.dtypes import bytes_per_element
from ...schema.io import open_output

PUSH_POP = 59
KINDS = re.compile(r"(\w+) (?:(\w+) )?\((\w+)(?: -> (\w+))?\)")
"""The name of a copy, or of setting memory."""
Row = dict[str, Any]
DOMAIN, CALL_NS = 1, 10
"""That of NCCL's ranges, and how long they last."""
FIELDS = ((18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (5, "Peer rank", 16))
"""The type, name and place of each field of the payload of a message; the first ones are those of a collective."""
OF_NEW = (FIELDS[0], (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16))
SCHEMAS = {"<QQ": (16_777_220, FIELDS[:2]), "<QQi4x": (16_777_226, FIELDS), "<Qiii4x": (16_777_218, OF_NEW)}
"""The schema and fields of payloads by their layout."""
CALLS = {"allreduce": "AllReduce", "_allgather_base": "AllGather", "_reduce_scatter_base": "ReduceScatter"}


def write_nsight_export(path: str, head: Row, rows: Iterator[str]) -> None:
    """Writes the database of a trace, whose head and rows are those of Kineto's. Raises DataError if it cannot."""
    with TemporaryDirectory(prefix="execgraph-") as folder, open_output(path) as out:
        file = Path(folder, "export")
        with closing(sqlite3.connect(file)) as connection, connection:
            for table, row in _rows_of_tables(head, rows):
                connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(row)})")
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", [*row.values()])
        with file.open("rb") as database:
            shutil.copyfileobj(database, out)


def _rows_of_tables(head: Row, rows: Iterator[str]) -> Iterator[tuple[str, Row]]:
    """Yields for each row of the database its table and its values by column."""
    yield "META_DATA_EXPORT", {"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.1.90"}
    yield "TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": head.get("baseTimeNanoseconds", 0)}
    for device in head["deviceProperties"]:
        yield "TARGET_INFO_GPU", {column: device.get(name) for column, name in formats.OF_DEVICES.items()}
    for schema, fields in SCHEMAS.values():
        for index, field in enumerate(fields):
            of_field = dict(zip(("type", "name", "offset"), field, strict=True))
            yield "NVTX_PAYLOAD_SCHEMA_ENTRIES", {"domainId": DOMAIN, "schemaId": schema, "idx": index} | of_field
    texts, process = Interner[str](), 0
    rank, communicators = head.get("distributedInfo", {}).get("rank", 0), set[int]()
    call_start, records = dict[int, int](), dict[int, Row]()
    for text in rows:
        row = json.loads(text, parse_float=Decimal)
        if row["ph"] != "X":
            continue
        category, name, args = row["cat"], row["name"], row["args"]
        start = int(row["ts"] * 1000)
        span = {"start": start, "end": start + int(row["dur"] * 1000)}
        if category in ("cpu_op", "user_annotation", "cuda_runtime"):
            process = row["pid"] * THREADS
        on_thread = span | {"globalTid": process | row["tid"] if isinstance(row["tid"], int) else 0}
        of_device = {column: args.get(argument) for column, argument in formats.COLUMNS.items()} | {
            "globalPid": process
        }
        if category in ("cpu_op", "user_annotation"):
            of_range = {"eventType": PUSH_POP, "domainId": 0, "binaryData": None, "text": _text_of_range(name, args)}
            yield NVTX, on_thread | of_range
            for number, (call, layout, *values) in enumerate(_calls(name, args, rank, communicators)):
                begin = {"start": start + CALL_NS * number, "end": start + CALL_NS * (number + 1)}
                payload, schema = struct.pack(layout, *values), SCHEMAS[layout][0]
                payload = struct.pack("<4Q", DOMAIN, schema, len(payload), 32) + payload
                of_call = {"domainId": DOMAIN, "binaryData": payload, "text": f"nccl{call}"}
                yield NVTX, on_thread | of_range | begin | of_call
        elif category == "cuda_runtime":
            call_start[args["correlation"]] = start
            yield (
                f"{CUPTI}RUNTIME",
                on_thread | {"correlationId": args["correlation"], "nameId": texts[f"{name}_v3020"]},
            )
        elif category == "kernel":
            yield f"{CUPTI}KERNEL", span | of_device | {"demangledName": texts[name], "shortName": texts[name]}
        elif category in ("gpu_memcpy", "gpu_memset") and (kinds := KINDS.fullmatch(name)):
            copy, *memory = kinds.groups()[1:]
            numbers = [formats.MEMORY_KINDS.index(kind) - 1 for kind in memory if kind]
            of_copy = (
                {"copyKind": formats.COPY_KINDS.index(copy), "srcKind": numbers[0], "dstKind": numbers[-1]}
                if copy
                else {}
            )
            yield CUPTI + kinds[1].upper(), span | of_device | (of_copy or {"memKind": numbers[0]})
        elif category == "cuda_sync":
            record, event = (args.get(f"wait_on_cuda_event_{key}", -1) for key in ("record_corr_id", "id"))
            of_event = {"eventId": event, "eventSyncId": max(record, 0)}
            if record >= 0:
                # the record of an event stands after all calls, as it needs the time of its own
                recorded = {"streamId": args["wait_on_stream"], "correlationId": record}
                records[record] = of_device | recorded | of_event
            yield f"{CUPTI}SYNCHRONIZATION", span | of_device | of_event | {"syncType": formats.SYNC_KINDS.index(name)}
    for number, row in records.items():
        yield f"{CUPTI}CUDA_EVENT", {"timestamp": call_start[number]} | row
    for number, text in enumerate(texts):
        yield "StringIds", {"id": number, "value": text}


def _calls(name: str, args: Row, rank: int, communicators: set[int]) -> Iterator[tuple[Any, ...]]:
    """Yields NCCL's calls for a record, the layout of their payloads and the values; a group's first one makes it."""
    if name != "record_param_comms" or "Process Group Name" not in args:
        return
    message, peer, new = SCHEMAS
    size, first, stride = (args[key] for key in ("Group size", "Global rank start", "Global rank stride"))
    communicator = zlib.crc32(f"{args['Process Group Name']} {size} {first} {stride}".encode())
    if communicator not in communicators:
        communicators.add(communicator)
        yield "CommInitRank", new, communicator, size, (rank - first) // stride, 0
    collective, item = args["Collective name"], bytes_per_element(args["dtype"])
    sent, received = (item * args[f"{side} msg nelems"] for side in ("In", "Out"))
    splits = [args[f"{side} split size"] for side in ("In", "Out")]
    if collective in CALLS:
        yield CALLS[collective], message, communicator, min(sent, received)
    elif collective in ("send", "recv"):
        yield collective.title(), peer, communicator, sent, args["Rank"]
    elif "..." in splits[0]:
        # Kineto's rows leave out further sizes
        yield "AlltoAll", message, communicator, sent // size
    else:
        for number, parts in enumerate(zip(*map(json.loads, splits), strict=True)):
            for call, count in zip(("Send", "Recv"), parts, strict=True):
                yield call, peer, communicator, item * count, number


def _text_of_range(name: str, args: Row) -> str:
    """Returns an op with its numbers and shapes, as PyTorch writes it."""
    sequence = f", seq = {args['Sequence number']}" if "Sequence number" in args else ""
    sizes = f", sizes = {json.dumps(args['Input Dims'])}" if args.get("Input Dims") else ""
    return f"{name}{sequence}, op_id = {args['Record function id']}{sizes}"
