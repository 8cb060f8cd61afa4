"""Transcodes what `nsys export --type sqlite` makes of a report of Nsight Systems to the rows of a Kineto trace.

Versions of Nsight differ in their columns; one that is not there is unknown. Of a database in which several processes
launched, each is labelled as a rank, in ascending order. Rows of tables that have no place here are counted.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from ...schema.columns import ThreadIntervals, nesting_lanes
from ...schema.linked import FOREVER
from ...schema.reasons import Counts, Reason
from .database import Database
from .kineto_rows import COPY_KINDS, MEMORY_KINDS, SYNC_KINDS, Place, Row, complete, labels, text_of

CUPTI, NVTX = "CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS"
KERNELS, COPIES, SETS, GRAPHS = WORK = tuple(CUPTI + kind for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
CALLS, SYNCS, EVENTS = (CUPTI + kind for kind in ("RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT"))
USED = {*WORK, CALLS, SYNCS, EVENTS, NVTX}
NAMED = ((KERNELS, "demangledName"), (KERNELS, "shortName"), (CALLS, "nameId"), (NVTX, "textId"))
"""The columns that refer to texts."""
TIMES = {"start", "timestamp"}
"""The columns by which a table is one of events."""
DEVICE = ("deviceId", "contextId", "streamId", "correlationId", "globalPid")
OF_MEMORY = MEMORY_KINDS[1:]
"""By Nsight's number, which has none for an unknown kind."""
RANGES, START_END, MARKS = (59, 60, 70, 71), (60, 71), (34, 65)
"""The types of NVTX events; each has two numbers, as Nsight reads them from text files as well."""
THREADS = 1 << 24
"""Threads have smaller numbers; from here on they are lanes of ranges that need not nest on their thread."""
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


def launching_processes(database: Database) -> list[int]:
    """Returns the processes whose work ran on devices, ascending; without any, those with calls or ranges."""
    for tables, column in ((WORK, "globalPid"), ((CALLS, NVTX), "globalTid")):
        present = (table for table in tables if column in database.columns(table))
        if processes := {_process(number) for table in present for number in database.different(column, table)}:
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
    """Yields a database as the text of a Kineto trace.

    Raises DataError for a damaged one, or one without CUDA or NVTX rows.
    """
    rows, if_empty = _Rows(database), "holds no row of CUDA or NVTX; record with nsys profile --trace=cuda,nvtx"
    every_row = chain(labels(rows.processes), rows.calls(), rows.ranges(), rows.work(), rows.waits())
    yield from text_of(
        lambda: _top_level(database), every_row, lambda: _not_read(database), f"{database.path}: {if_empty}"
    )


def _top_level(database: Database) -> Row:
    columns = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount")
    keys = ("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms")
    devices = [dict(zip(keys, row, strict=True)) for row in database.select("TARGET_INFO_GPU", *columns)]
    version = dict(database.select("META_DATA_EXPORT", "name", "value")).get("EXPORT_PRODUCT_VERSION", "")
    named = {"schemaVersion": 1, "nvidia_nsight_systems_version": str(version)}
    return named | {"baseTimeNanoseconds": _base_time(database), "deviceProperties": devices}


def _not_read(database: Database) -> Row:
    """Returns how many rows of events are not transcoded, by what they are."""
    others = (table for table in sorted(database.tables - USED) if TIMES & database.columns(table))
    queries = {f"table {table}"[:40]: (table, "TRUE") for table in others}
    if "eventType" in database.columns(NVTX):
        queries["NVTX marks"] = NVTX, f"eventType IN {MARKS}"
    if "copyKind" in database.columns(COPIES):
        queries["migrations of unified memory"] = COPIES, f"copyKind >= {len(COPY_KINDS)}"
    counts = Counts()
    for name, (table, where) in queries.items():
        [(count,)] = database.read(f'SELECT count(*) FROM "{table}" WHERE {where}')
        counts[Reason.NOT_READ.of(name)] = count
    return {"notRead": counts.without_zeros().in_words()}


def _process(number: int | None) -> int:
    """Returns the process of a serialised global id, which holds that of the thread in its last bits."""
    return (number or 0) // THREADS % THREADS


def _row(category: str, name: str, place: Place, times: tuple[int | None, int | None], args: Row) -> Row:
    """Returns a row; one that has no end has no duration."""
    return complete(
        category, name, place, times[0] or 0, times[1], {key: value for key, value in args.items() if value is not None}
    )


def _label(labels: tuple[str, ...], number: int | None) -> str:
    return labels[number] if number is not None and 0 <= number < len(labels) else "Unknown"


class _Rows:
    """The rows of a database, kind by kind."""

    def __init__(self, database: Database) -> None:
        self._database, self.processes = database, launching_processes(database)
        self._names = database.texts("StringIds", "value", *NAMED)
        # records of waiting do not name their device
        columns, different = ("globalPid", "contextId", "deviceId"), "TRUE GROUP BY 1, 2, 3"
        of_contexts = (row for table in WORK for row in database.select(table, *columns, where=different))
        self._device_of = {(process, context): device for process, context, device in of_contexts}

    def _name(self, *numbers: int | None) -> str:
        return next((str(self._names[number]) for number in numbers if self._names.get(number)), "unknown")

    def calls(self) -> Iterator[Row]:
        """Yields the calls of CUDA's runtime and driver."""
        columns = "start", "end", "globalTid", "correlationId", "nameId"
        for *times, thread, number, name_id in self._database.select(CALLS, *columns):
            name = API_VERSION.sub("", self._name(name_id))
            category = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
            place = _process(thread), (thread or 0) % THREADS
            yield _row(category, name, place, (times[0], times[1]), {"correlation": number})

    def ranges(self) -> Iterator[Row]:
        """Yields NVTX ranges: those that PyTorch makes of ops as such, those that need not nest on lanes that do."""
        columns, where = ("start", "end", "globalTid", "eventType", "text", "textId"), f"eventType IN {RANGES}"
        apart = defaultdict[int, list[tuple[int, int, str]]](list)
        for start, end, thread, kind, text, text_id in self._database.select(NVTX, *columns, where=where):
            process, name = _process(thread), str(text or self._name(text_id))
            if kind in START_END and 0 <= (start or 0) <= (-1 if end is None else end) < FOREVER:
                apart[process].append((start or 0, -end, name))
            else:
                yield _range(name, (process, (thread or 0) % THREADS), (start, end))
        for process, ranges in apart.items():
            ranges.sort()
            start, end = (np.array([row[at] for row in ranges]) for at in (0, 1))
            lanes = nesting_lanes(ThreadIntervals(np.zeros_like(start), start, -end))
            for (begin, negated, name), lane in zip(ranges, lanes.tolist(), strict=True):
                yield _range(name, (process, THREADS + lane), (begin, -negated))

    def work(self) -> Iterator[Row]:
        """Yields kernels, copies and sets, and graphs that were recorded as a whole as one kernel each."""
        for row, (name, short) in self._activities("kernel", KERNELS, "demangledName", "shortName"):
            yield row | {"name": self._name(name, short)}
        for row, (kind, source, target) in self._activities("gpu_memcpy", COPIES, "copyKind", "srcKind", "dstKind"):
            kinds = f"{_label(OF_MEMORY, source)} -> {_label(OF_MEMORY, target)}"
            if kind is None or kind < len(COPY_KINDS):
                yield row | {"name": f"Memcpy {_label(COPY_KINDS, kind)} ({kinds})"}
        for row, (kind,) in self._activities("gpu_memset", SETS, "memKind"):
            yield row | {"name": f"Memset ({_label(OF_MEMORY, kind)})"}
        for row, (graph,) in self._activities("kernel", GRAPHS, "graphId"):
            yield row | {"name": f"CUDA graph {graph}"}

    def _activities(self, category: str, table: str, *columns: str) -> Iterator[tuple[Row, list[Any]]]:
        columns = "start", "end", "graphNodeId", "bytes", *DEVICE, *columns
        for start, end, node, size, *more in self._database.select(table, *columns):
            args, at = {"graph node id": node or None, "bytes": size}, tuple(more[: len(DEVICE)])
            yield self._placed(category, "", (start, end), at, args), more[len(DEVICE) :]

    def _placed(self, category: str, name: str, times: tuple[Any, Any], at: tuple[Any, ...], args: Row) -> Row:
        """Returns a row of a device, shown as Kineto does, or under its process among several."""
        device, context, stream, number, process = at
        of_process = len(self.processes) > 1 and process is not None
        args |= {"device": device, "context": context, "stream": stream, "correlation": number}
        return _row(category, name, (_process(process) if of_process else device or 0, stream or 0), times, args)

    def waits(self) -> Iterator[Row]:
        """Yields records of events, and of what waited; for which record is known where both were recorded."""
        records = dict[tuple[Any, Any], tuple[Any, Any]]()
        for time, *at, event, sync in self._database.select(EVENTS, "timestamp", *DEVICE, "eventId", "eventSyncId"):
            records[at[4], sync] = at[3], at[2]
            yield self._placed("cuda_event", "CUDA event", (time, time), self._known_device(at), {"event_id": event})
        columns = "start", "end", *DEVICE, "eventId", "eventSyncId", "syncType"
        for start, end, *at, event, sync, kind in self._database.select(SYNCS, *columns):
            name, (record, stream) = _label(SYNC_KINDS, kind), records.get((at[4], sync), (-1, -1))
            args: Row = {"cuda_sync_kind": name}
            if kind in (1, 2):
                args |= {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": record}
                args |= {"wait_on_cuda_event_id": event}
            yield self._placed("cuda_sync", name, (start, end), self._known_device(at), args)

    def _known_device(self, at: list[Any]) -> tuple[Any, ...]:
        return self._device_of.get((at[4], at[1]), at[0]), *at[1:]


def _range(text: str, place: Place, times: tuple[int | None, int | None]) -> Row:
    """Returns a range as an annotation, or as the op of which PyTorch made it."""
    of_op = OF_PYTORCH.fullmatch(text)
    if of_op is None or not (of_op["sequence"] or of_op["id"]):
        return _row("user_annotation", text, place, times, {})
    numbers = {"Sequence number": of_op["sequence"], "Record function id": of_op["id"]}
    args: Row = {name: int(number) for name, number in numbers.items() if number}
    with suppress(msgspec.DecodeError, TypeError):
        args["Input Dims"] = msgspec.json.decode(of_op["shapes"])
    return _row("cpu_op", of_op[1], place, times, args)
