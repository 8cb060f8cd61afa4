"""Writes small rocpd databases in the dialects that profilers write, changes them by SQL, and reads their tables."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from execgraph.linker.readers import DeviceTrace

LITE, RPD_2, RPD_3 = "rocm-trace-lite", "RPD, schema 2", "RPD, schema 3"
DIALECTS = (LITE, RPD_2, RPD_3)
COMMON = """
CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT);
CREATE TABLE rocpd_metadata (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);
CREATE TABLE rocpd_api_ops (id INTEGER PRIMARY KEY, api_id INTEGER, op_id INTEGER);
CREATE TABLE rocpd_monitor (id INTEGER PRIMARY KEY, deviceType TEXT, deviceId INTEGER, start INTEGER, end INTEGER);
"""
API = "CREATE TABLE rocpd_api (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start INTEGER, end INTEGER, apiName_id INTEGER,"
OP = (
    "CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId INTEGER, queueId INTEGER, sequenceId INTEGER, {} "
    "start INTEGER, end INTEGER, description_id INTEGER, opType_id INTEGER);"
)
WITH_SIGNAL, WITHOUT = OP.format("completionSignal TEXT,"), OP.format("")
KERNELS = "CREATE TABLE rocpd_kernelapi ({} INTEGER PRIMARY KEY, stream TEXT, kernelName_id INTEGER);"
SCHEMAS = {
    LITE: COMMON + API + " args_id INTEGER);" + WITH_SIGNAL + KERNELS.format("api_id"),
    RPD_2: COMMON + API + " args_id INTEGER);" + WITH_SIGNAL + KERNELS.format("api_ptr_id"),
    RPD_3: COMMON
    + API
    + " category_id INTEGER, domain_id INTEGER, args_id INTEGER);"
    + WITHOUT
    + KERNELS.format("api_ptr_id")
    + "CREATE TABLE rocpd_ustring (id INTEGER PRIMARY KEY, string TEXT);",
}


class Op(NamedTuple):
    """A device op. `caller` is the number, from 1, of the API row that launched it; `hwq` is kept by some dialects."""

    name: str
    start: int
    end: int
    gpu: int = 0
    queue: int = 1
    type: str = "KernelExecution"
    caller: int = 0
    hwq: int | None = None


class Api(NamedTuple):
    name: str
    start: int
    end: int
    pid: int = 500
    tid: int = 501


class Range(NamedTuple):
    """A roctx range; rocm-trace-lite does not record its process and thread."""

    message: str
    start: int
    end: int
    pid: int = 500
    tid: int = 501


def write_database(
    path: Path, dialect: str, ops: Sequence[Op], api: Sequence[Api] = (), ranges: Sequence[Range] = (), pid: int = 500
) -> Path:
    """A database of one process. API rows and ops are numbered from 1; ranges come after them in either table."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA synchronous = OFF;" + SCHEMAS[dialect])
        text = _Texts(connection, "rocpd_string")
        arguments = _Texts(connection, "rocpd_ustring") if dialect == RPD_3 else text
        rows = [(*call[1:], text(call.name), arguments("stream 0")) for call in api]
        if dialect != LITE:
            rows += [
                (mark.start, mark.end, mark.pid, mark.tid, text("UserMarker"), arguments(mark.message))
                for mark in ranges
            ]
        columns = "start, end, pid, tid, apiName_id, args_id"
        connection.executemany(f"INSERT INTO rocpd_api ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        for number, op in enumerate(ops, 1):
            _add_op(connection, dialect, number, op, text)
        if dialect == LITE:
            connection.execute("INSERT INTO rocpd_metadata (tag, value) VALUES ('pid', ?)", (str(pid),))
            for number, mark in enumerate(ranges, len(ops) + 1):
                marker = Op(mark.message, mark.start, mark.end, gpu=-1, queue=0, type="UserMarker")
                _add_op(connection, dialect, number, marker, text)
        connection.commit()
    return path


def _add_op(connection: sqlite3.Connection, dialect: str, number: int, op: Op, text: "_Texts") -> None:
    columns = {"id": number, "gpuId": op.gpu, "queueId": op.queue, "sequenceId": 0, "start": op.start, "end": op.end}
    columns |= {"description_id": text(op.name), "opType_id": text(op.type)}
    if dialect != RPD_3:
        columns["completionSignal"] = "" if op.hwq is None else f"hwq={op.hwq} wg=256,1,1 grid=1024,1,1"
    connection.execute(
        f"INSERT INTO rocpd_op ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", [*columns.values()]
    )
    if op.caller:
        connection.execute("INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (?, ?)", (op.caller, number))


class _Texts:
    """The ids of texts in a table of strings, which they are added to as they come."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self.connection, self.table = connection, table
        self.known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if text not in self.known:
            self.known[text] = len(self.known) + 1
            self.connection.execute(f"INSERT INTO {self.table} VALUES (?, ?)", (self.known[text], text))
        return self.known[text]


EPOCH = 9_000_000_000_001


def rows(trace: DeviceTrace) -> list[tuple[str, str, int, int, int, int, int]]:
    """(name, category, device, stream, start, end, launching API row) of every activity."""
    found = trace.activities
    columns = (found.device, found.stream, found.start - EPOCH, found.end - EPOCH, found.correlation)
    numbers = np.stack(columns, axis=1).tolist() if len(found.start) else []
    return [(found.name[row], found.category[row], *values) for row, values in enumerate(numbers)]


def sql(path: Path, script: str) -> str:
    """Runs a script on a database, which is made if there is none; its path as text."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA synchronous = OFF;" + script)
    return str(path)
