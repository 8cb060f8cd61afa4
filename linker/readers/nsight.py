"""Transcodes what `nsys export --type sqlite` makes of a report of Nsight Systems to the rows of a Kineto trace. Of
several processes that launched, each is labelled as a rank. Missing columns are unknown, as versions differ.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec

from ...schema import device_formats as formats
from ...schema.device_formats import CUPTI, NVTX, THREADS, process_of
from ...schema.linked import FOREVER
from ...schema.reasons import Counts, Reason
from .database import Database
from .kineto_rows import Row, complete, labels, on_lanes, text_of
from .nccl_payloads import Payloads

KERNELS, COPIES, SETS, GRAPHS = WORK = tuple(CUPTI + kind for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
CALLS, SYNCS, EVENTS = (CUPTI + kind for kind in ("RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT"))
USED = {*WORK, CALLS, SYNCS, EVENTS, NVTX}
NAMED = ((KERNELS, "demangledName"), (KERNELS, "shortName"), (CALLS, "nameId"), (NVTX, "textId"))
"""The columns that refer to texts."""
TIMES = {"start", "timestamp"}
"""The columns by which a table is one of events."""
SHARED = ("start", "end", "globalTid", "globalPid")
"""The columns of all tables, beside those of arguments, as far as they have them."""
OF_MEMORY = formats.MEMORY_KINDS[1:]
"""By Nsight's number, which has none for an unknown kind."""
RANGES, START_END, MARKS = (59, 60, 70, 71), (60, 71), (34, 65)
"""The types of NVTX events; each has two numbers, as Nsight reads them from text files as well."""
API_VERSION = re.compile(r"_v\d{4,}$")
"""What Nsight appends to names of runtime calls: the version of CUDA that brought them in this form."""
OF_PYTORCH = re.compile(
    r"(.*?)(?:, seq = (?P<sequence>\d{1,18}))?(?:, op_id = (?P<id>\d{1,18}))?"
    r"(?:, sizes = (?P<shapes>\[[\d\[\], ]*\]))?(?:, input_op_ids = .*)?",
    re.DOTALL,
)
"""The text of a range that PyTorch's emit_nvtx makes of an op."""


def is_nsight(database: Database) -> bool:
    """Returns whether this is an export of Nsight Systems."""
    return any(table == NVTX or table.startswith(CUPTI) for table in database.tables)


def _launching_processes(database: Database) -> list[int]:
    """Returns the processes whose work ran on devices, ascending; without any, those with calls or ranges."""
    for tables, column in ((WORK, "globalPid"), ((CALLS, NVTX), "globalTid")):
        present = (table for table in tables if column in database.columns(table))
        if processes := {process_of(number) for table in present for number in database.different(column, table)}:
            return sorted(processes)
    return []


def _base_time(database: Database) -> int:
    """Returns the time since the epoch, in ns, at which the times of the database are 0; 0 where it is unknown."""
    of_capture = iter(database.select("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "systemClockNs"))
    epoch, clock = next(of_capture, (None, None))
    start = next(iter(database.select("ANALYSIS_DETAILS", "startTime")), (clock,))[0]
    base = (epoch or 0) - (start or 0)
    return base if epoch and 0 <= base < FOREVER else 0


def transcode_nsight(database: Database) -> Iterator[bytes]:
    """Yields a database as the text of a Kineto trace; DataError for a damaged one, or without CUDA and NVTX rows."""
    rows = _Rows(database)
    if_empty = f"{database.path}: holds no row of CUDA or NVTX; record with nsys profile --trace=cuda,nvtx"
    every_row = chain(labels(rows.processes), rows.calls(), rows.ranges(), rows.work(), rows.waits())
    yield from text_of(lambda: _top_level(database), every_row, lambda: _not_read(database, rows.payloads), if_empty)


def _top_level(database: Database) -> Row:
    devices = [
        dict(zip(formats.OF_DEVICES.values(), row, strict=True))
        for row in database.select("TARGET_INFO_GPU", *formats.OF_DEVICES)
    ]
    version = dict(database.select("META_DATA_EXPORT", "name", "value")).get("EXPORT_PRODUCT_VERSION", "")
    named = {"schemaVersion": 1, "nvidia_nsight_systems_version": str(version)}
    return named | {"baseTimeNanoseconds": _base_time(database), "deviceProperties": devices}


def _not_read(database: Database, payloads: Payloads) -> Row:
    """Returns how many rows of events are not transcoded, by what they are, and notes on payloads."""
    others = (table for table in sorted(database.tables - USED) if TIMES & database.columns(table))
    queries = {f"table {table}"[:40]: (table, "TRUE") for table in others}
    if "eventType" in database.columns(NVTX):
        queries["NVTX marks"] = NVTX, f"eventType IN {MARKS}"
    if "copyKind" in database.columns(COPIES):
        queries["migrations of unified memory"] = COPIES, f"copyKind >= {len(formats.COPY_KINDS)}"
    counts = Counts()
    for name, (table, where) in queries.items():
        [(count,)] = database.read(f'SELECT count(*) FROM "{table}" WHERE {where}')
        counts[Reason.NOT_READ.of(name)] = count
    counts[Reason.NOT_READ.of("payloads of NCCL")] = payloads.unread
    return {"notRead": counts.without_zeros().in_words(), "notesOfReader": [*payloads.notes()]}


def _label(labels: tuple[str, ...], number: int | None) -> str:
    return labels[number] if number is not None and 0 <= number < len(labels) else "Unknown"


class _Rows:
    """The rows of a database, kind by kind; an event is a row of one of its tables, by column."""

    def __init__(self, database: Database) -> None:
        self._database, self.payloads = database, Payloads(database, _launching_processes(database))
        self.processes = self.payloads.processes
        self._names = database.texts("StringIds", "value", *NAMED)

    def _events(self, table: str, *further: str, where: str = "TRUE") -> Iterator[Row]:
        columns = (*SHARED, *formats.COLUMNS, *further)
        return (dict(zip(columns, row, strict=True)) for row in self._database.select(table, *columns, where=where))

    def _name(self, *numbers: int | None) -> str:
        return next((self._names[number] for number in numbers if self._names.get(number)), "unknown")

    def _row(self, category: str, name: str, event: Row, **more: Any) -> Row:
        """Returns the row of an event on its thread or device; one that has no end has no duration."""
        process, thread = event["globalTid"] or event["globalPid"], event["globalTid"]
        place = process_of(process), (thread or 0) % THREADS
        if thread is None and event["deviceId"] is not None:
            of_process = len(self.processes) > 1 and process is not None
            place = place[0] if of_process else event["deviceId"], event["streamId"] or 0
        args = {name: event[column] for column, name in formats.COLUMNS.items()} | more
        args = {key: value for key, value in args.items() if value is not None}
        return complete(category, name, place, event["start"] or 0, event["end"], args)

    def calls(self) -> Iterator[Row]:
        """Yields the calls of CUDA's runtime and driver."""
        for event in self._events(CALLS, "nameId"):
            name = API_VERSION.sub("", self._name(event["nameId"]))
            yield self._row("cuda_runtime" if name.startswith("cuda") else "cuda_driver", name, event)

    def ranges(self) -> Iterator[Row]:
        """Yields NVTX ranges: those that PyTorch makes of ops as such, those that need not nest on lanes that do."""
        apart = []
        for event in self._events(NVTX, "eventType", "text", "textId", "binaryData", where=f"eventType IN {RANGES}"):
            process, start, end = process_of(event["globalTid"]), event["start"] or 0, event["end"]
            name = str(event["text"] or self._name(event["textId"]))
            if event["eventType"] in START_END and 0 <= start <= (-1 if end is None else end) < FOREVER:
                apart.append((process, start, end, name))
            else:
                yield self._range(name, event)
        yield from on_lanes(apart, THREADS)

    def _range(self, text: str, event: Row) -> Row:
        """Returns a range as an annotation, or as the op of which PyTorch made it."""
        of_op = OF_PYTORCH.fullmatch(text)
        if of_op is None or not (of_op["sequence"] or of_op["id"]):
            return self._row("user_annotation", text, event, **self.payloads.args(text, event["binaryData"]))
        numbers = {"Sequence number": of_op["sequence"], "Record function id": of_op["id"]}
        args: Row = {name: int(number) for name, number in numbers.items() if number}
        with suppress(msgspec.DecodeError, TypeError):
            args["Input Dims"] = msgspec.json.decode(of_op["shapes"])
        return self._row("cpu_op", of_op[1], event, **args)

    def work(self) -> Iterator[Row]:
        """Yields kernels, copies and sets, and graphs that were recorded as a whole as one kernel each."""
        for event in self._events(KERNELS, "demangledName", "shortName"):
            yield self._row("kernel", self._name(event["demangledName"], event["shortName"]), event)
        for event in self._events(COPIES, "copyKind", "srcKind", "dstKind"):
            kind = event["copyKind"]
            kinds = " -> ".join(_label(OF_MEMORY, event[end]) for end in ("srcKind", "dstKind"))
            if kind is None or kind < len(formats.COPY_KINDS):
                yield self._row("gpu_memcpy", f"Memcpy {_label(formats.COPY_KINDS, kind)} ({kinds})", event)
        for event in self._events(SETS, "memKind"):
            yield self._row("gpu_memset", f"Memset ({_label(OF_MEMORY, event['memKind'])})", event)
        for event in self._events(GRAPHS, "graphId"):
            yield self._row("kernel", f"CUDA graph {event['graphId']}", event)

    def waits(self) -> Iterator[Row]:
        """Yields records of events, and of what waited; for which record is known where both were recorded."""
        records = dict[tuple[Any, Any], tuple[Any, Any]]()
        # neither names its device
        columns, different = ("globalPid", "contextId", "deviceId"), "TRUE GROUP BY 1, 2, 3"
        of_contexts = (row for table in WORK for row in self._database.select(table, *columns, where=different))
        device_of = {(process, context): device for process, context, device in of_contexts}
        for event in chain(
            self._events(EVENTS, "timestamp", "eventId", "eventSyncId"),
            self._events(SYNCS, "eventId", "eventSyncId", "syncType"),
        ):
            process, sync = event["globalPid"], event["eventSyncId"]
            event["deviceId"] = device_of.get((process, event["contextId"]), event["deviceId"])
            if "timestamp" in event:
                event["start"] = event["end"] = event["timestamp"]
                records[process, sync] = event["correlationId"], event["streamId"]
                yield self._row("cuda_event", "CUDA event", event, event_id=event["eventId"])
                continue
            name, args = _label(formats.SYNC_KINDS, event["syncType"]), dict[str, Any]()
            if name in formats.SYNC_KINDS[1:3]:
                record, stream = records.get((process, sync), (-1, -1))
                args = {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": record}
                args |= {"wait_on_cuda_event_id": event["eventId"]}
            yield self._row("cuda_sync", name, event, cuda_sync_kind=name, **args)
