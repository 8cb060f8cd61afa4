"""What must hold of a reader whatever the file: it reads, or refuses in one line, and reports what it does not use.

The readers are those of host and device traces, linked traces, graphs in both forms, communicator groups and rocpd
databases.
"""

import gzip
import json
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
from execgraph.schema.comm_groups import read_groups, write_groups
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.graph.json_files import graph_to_json, json_to_graph
from execgraph.schema.linked import LinkedTrace, read_linked, write_linked
from execgraph.schema.reasons import Reason
from execgraph.tools.replay import replay
from support.databases import LITE, Api, Op, Range, write_database

DATA = Path(__file__).parent.parent / "data"
SAMPLES = {"device": DATA / "training" / "device_rank0.json.gz", "host": DATA / "training" / "host_rank0.json.gz"}
KEYS = {"device": "traceEvents", "host": "nodes", "linked": "nodes", "json": "nodes"}


@cache
def sample(kind: str) -> bytes:
    """A sound file: two real traces, and what is made of them; small ones of the rest."""
    if kind in SAMPLES:
        return gzip.decompress(SAMPLES[kind].read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample"
        MAKERS[kind](path)
        return path.read_bytes()


def _make_linked(path: Path) -> None:
    write_linked(link(*undamaged()), str(path))


def _make_graph(path: Path) -> None:
    convert(link(*undamaged())).write(str(path))


def _make_json(path: Path) -> None:
    path.with_suffix(".et").write_bytes(sample("graph"))
    graph_to_json(str(path.with_suffix(".et")), str(path), _silent)


def _make_groups(path: Path) -> None:
    path.write_text('{"1": [0, 1, 2, 3], "2": [0, 2], "3": [1, 3]}')


def _make_database(path: Path) -> None:
    """Small pages, so that few bytes hold all tables."""
    ops = [Op("gemm", 100, 400, caller=1), Op("copy", 450, 500, queue=2, type="CopyDeviceToHost", caller=2)]
    api = [Api("hipLaunchKernel", 50, 60), Api("hipMemcpyAsync", 70, 80), Api("hipDeviceSynchronize", 90, 510)]
    write_database(path, LITE, ops, api, [Range("step", 0, 1000)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")


MAKERS: dict[str, Callable[[Path], None]] = {
    "linked": _make_linked, "graph": _make_graph, "json": _make_json, "groups": _make_groups,
    "database": _make_database,
}  # fmt: skip


def _silent(_: int) -> None:
    """Nobody watches the progress."""


@cache
def undamaged() -> tuple[HostTrace, DeviceTrace]:
    return read_host_trace(str(SAMPLES["host"])), read_device_trace(str(SAMPLES["device"]))


def check_device(content: bytes) -> None:
    """Every row is in a table, ignored or counted; text that is not JSON is reported; what is read links."""
    trace = _read(partial(read_device_trace, arguments=True), content)
    if trace is None:
        return
    assert trace.read == accounted(trace), "rows that are neither used nor counted"
    _check_words("device", _unpacked(content), trace.read, trace.skipped, trace.notes)
    _linked(undamaged()[0], trace)
    _check_converting(_linked(None, trace))


def check_host(content: bytes) -> None:
    """Every node is read or counted, ids are unique; text that is not JSON is reported; what is read links."""
    trace = _read(read_host_trace, content)
    if trace is None:
        return
    assert len(set(trace.id.tolist())) == len(trace) and trace.id.min() >= 0
    assert len(trace.inputs) == len(trace.outputs) == len(trace.parent) == len(trace.name)
    for text in (*trace.inputs, *trace.outputs):
        json.loads(text)
    _check_words("host", _unpacked(content), len(trace), trace.skipped, trace.notes)
    _linked(trace, undamaged()[1])


def check_linked(content: bytes) -> None:
    """A linked file is read and converted, or refused."""
    _check_converting(_read(read_linked, content))


def check_graph(content: bytes) -> None:
    """A graph is read and replayed, or refused; one that becomes JSON comes back byte for byte."""
    graph = _read(ExecutionGraph.read, content)
    if graph is not None:
        _refused_or(replay, graph)
    text = _converted(graph_to_json, content)
    if text is not None:
        assert _converted(json_to_graph, text) == _unpacked(content)


def check_json(content: bytes) -> None:
    """JSON that becomes a graph is what that graph becomes, but for its layout."""
    graph = _converted(json_to_graph, content)
    if graph is not None:
        text = _converted(graph_to_json, graph)
        assert text is not None and _converted(json_to_graph, text) == graph


def check_groups(content: bytes) -> None:
    """Groups that are read are the same when they are written and read again."""
    groups = _read(read_groups, content)
    if groups is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "groups.json")
            write_groups(path, groups)
            assert read_groups(path) == groups


def check_database(content: bytes) -> None:
    """A database is read and linked, or refused."""
    trace = _read(read_device_trace, content)
    if trace is not None:
        _check_converting(_linked(None, trace))


CHECKS: dict[str, Callable[[bytes], None]] = {
    check.__name__.removeprefix("check_"): check
    for check in (check_device, check_host, check_linked, check_graph, check_json, check_groups, check_database)
}


def accounted(device: DeviceTrace) -> int:
    """The rows that are in a table, were counted as skipped, or carry no work; rows of unknown kind do not count."""
    tables = (device.ops, device.calls, device.activities, device.syncs, device.queue_events)
    unread = device.skipped.of(Reason.UNREADABLE_ROWS, Reason.CUT_OFF_ROWS)
    used = sum(len(table.start) for table in tables) + len(device.event_records.correlation)
    return used + sum(device.skipped.values()) - unread + device.ignored


def _read(read: Any, content: bytes) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(content)
        file.flush()
        return _refused_or(read, file.name)


def _converted(convert: Any, content: bytes) -> bytes | None:
    """The file that a converter makes of one with that content, None where it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        source.write_bytes(content)
        return target.read_bytes() if _refused_or(convert, str(source), str(target), _silent) is not None else None


def _refused_or(work: Any, *arguments: Any) -> Any:
    """What the work gives; None for data that it refuses in a line."""
    try:
        return work(*arguments)
    except DataError as error:
        assert 0 < len(str(error)) < 2000
        return None


def _unpacked(content: bytes) -> bytes:
    """What is in a gzip file, of a damaged one nothing."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return b""


def _check_words(kind: str, content: bytes, read: int, skipped: dict[str, int], notes: list[str]) -> None:
    said = bool(notes) or any(skipped.values())
    rows = _rows(content, KEYS[kind])
    if rows is None:
        assert said, "read what is no JSON, and did not say so"
    elif read != rows:
        assert said, f"{rows - read} of {rows} rows were lost in silence"


def _rows(content: bytes, key: str) -> int | None:
    """How many elements a strict reader of JSON finds under the key, None where it finds no JSON."""
    try:
        document = json.loads(content.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    rows = document if isinstance(document, list) else document.get(key)
    return len(rows) if isinstance(rows, list) else None


def _refuse(_: str) -> NoReturn:
    raise ValueError


def _linked(host: HostTrace | None, device: DeviceTrace) -> LinkedTrace | None:
    linked: LinkedTrace | None = _refused_or(partial(link, allow_mismatch=True), host, device)
    return linked


def _check_converting(linked: LinkedTrace | None) -> None:
    if linked is not None:
        _refused_or(convert, linked)
