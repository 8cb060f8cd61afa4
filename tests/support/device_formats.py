"""Turns a generated device trace of Kineto into one of Perfetto or an export of Nsight Systems, beside a host trace.

Perfetto's holds no ranks, and ids of ops only on ops; Nsight's no dtypes, names of groups or arguments beyond shapes.
"""

import json
import re
import sqlite3
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from execgraph.schema import device_formats as formats, perfetto_trace_pb2 as pb
from execgraph.schema.columns import Interner
from execgraph.schema.device_formats import CUPTI, NVTX, STAGE_NUMBERS, STAGES, THREADS
from execgraph.schema.dtypes import bytes_per_element

HOST = ("cpu_op", "user_annotation", "python_function")
OF_CATEGORY = {category: number for number, category in enumerate(STAGES.values(), 1)}
NAMES = {name: text for text, name in STAGE_NUMBERS.items() if name != "correlation"}
COMPUTE, CLEARED, CLOCKS = 2, 1, (1, 6)


def write_perfetto(kineto: Path) -> Path:
    """As PyTorch's own recorder for CUDA does: all slices of a kind begin before any ends."""
    trace, path = json.loads(kineto.read_bytes(), parse_float=Decimal), kineto.with_suffix(".pftrace")
    with path.open("wb") as file:
        writer = _Perfetto(file, trace.get("baseTimeNanoseconds", 0))
        for row in trace["traceEvents"]:
            if row["ph"] == "X" and row["cat"] != "Trace":
                writer.add(row, row["cat"])
        writer.end()
    kineto.unlink()
    return path


class _Perfetto:
    def __init__(self, file: IO[bytes], base: int) -> None:
        self.file, self.base, self.stages, self.in_host = file, base, 0, False
        self.tracks: dict[tuple[int, int], int] = {}
        self.launched, self.ends = defaultdict[int, list[int]](list), list[tuple[int, int]]()
        clocks = [pb.ClockSnapshot.Clock(clock_id=number, timestamp=base) for number in CLOCKS]
        kinds = [
            pb.InternedStage(iid=iid, name=name.encode(), category=COMPUTE * (iid == 1))
            for iid, name in enumerate(STAGES, 1)
        ]
        data, snapshot = pb.InternedData(stages=kinds), pb.ClockSnapshot(clocks=clocks)
        self._write(base, sequence_flags=CLEARED, clock_snapshot=snapshot, interned_data=data)

    def add(self, row: dict[str, Any], category: str) -> None:
        if category not in HOST and self.in_host:
            self.end()
        self.in_host = category in HOST
        start, duration = self.base + int(row["ts"] * 1000), int(row["dur"] * 1000)
        if category in OF_CATEGORY:
            self._write(start, gpu_render_stage_event=self._stage(row, OF_CATEGORY[category], duration))
        else:
            track = self._track(row["pid"], row["tid"])
            self._write(start, track_event=self._slice(row, category, track))
            self.ends.append((track, start + duration))

    def end(self) -> None:
        for track, ns in self.ends:
            self._write(ns, track_event=pb.TrackEvent(type="END", track_uuid=track))
        self.ends.clear()

    def _slice(self, row: dict[str, Any], category: str, track: int) -> pb.TrackEvent:
        args, event = row["args"], pb.TrackEvent(type="BEGIN", track_uuid=track, name=row["name"].encode())
        if category != "cuda_sync":
            event.categories.append(category.encode())
            if launched := self.launched.pop(args.get("correlation"), ()):
                event.gpu_correlation.event_ids.extend(launched)
        kept = (key for key in args if category in HOST or key != "External id")
        event.annotations.extend(_annotation(args[key], key) for key in kept)
        return event

    def _stage(self, row: dict[str, Any], kind: int, duration: int) -> pb.GpuRenderStageEvent:
        args = {"device": row["pid"], "stream": row["tid"]} | row["args"]
        self.stages += 1
        event = pb.GpuRenderStageEvent(
            event_id=self.stages, duration=duration, gpu_id=row["pid"], queue_iid=row["tid"], context=1,
            stage_iid=kind, name=row["name"].encode(),
        )  # fmt: skip
        for key in args.keys() - {"External id"}:
            text = args[key] if isinstance(args[key], str) else json.dumps(args[key], default=float)
            event.extra_data.add(name=NAMES.get(key, key).encode(), value=text.encode())
        self.launched[args.get("correlation")].append(self.stages)
        return event

    def _track(self, pid: int, tid: int) -> int:
        if (pid, tid) not in self.tracks:
            uuid = self.tracks[pid, tid] = len(self.tracks) + 1
            self._write(0, track_descriptor=pb.TrackDescriptor(uuid=uuid, thread={"pid": pid, "tid": tid}))
        return self.tracks[pid, tid]

    def _write(self, timestamp: int, **fields: Any) -> None:
        self.file.write(pb.Trace(packet=[pb.Packet(timestamp=timestamp, sequence=1, **fields)]).SerializeToString())


def _annotation(value: Any, name: str = "") -> pb.Annotation:
    if isinstance(value, list):
        return pb.Annotation(name=name.encode(), items=map(_annotation, value))
    if isinstance(value, str | None):
        return pb.Annotation(name=name.encode(), string_value=("null" if value is None else value).encode())
    return pb.Annotation(name=name.encode(), **{"bool_value" if isinstance(value, bool) else "int_value": value})


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


def write_nsight_export(kineto: Path) -> Path:
    """As `nsys export --type sqlite`: ops are ranges of emit_nvtx, with ranges of NCCL in those of collectives."""
    head, path = json.loads(kineto.read_bytes(), parse_float=Decimal), kineto.with_suffix(".sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, row in _rows_of_tables(head):
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(row)})")
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", [*row.values()])
    kineto.unlink()
    return path


def _rows_of_tables(head: Row) -> Iterator[tuple[str, Row]]:
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
    for row in head["traceEvents"]:
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
    sequence = f", seq = {args['Sequence number']}" if "Sequence number" in args else ""
    sizes = f", sizes = {json.dumps(args['Input Dims'])}" if args.get("Input Dims") else ""
    return f"{name}{sequence}, op_id = {args['Record function id']}{sizes}"
