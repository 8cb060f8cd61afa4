"""What must hold of a reader whatever is in the file: it reads, or refuses in one line, and what it does not use it says.

Shared by the tests and by `fuzz.py`, which a coverage-guided fuzzer drives.
"""

import gzip
import json
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from execgraph.converter import convert
from execgraph.linker.device_trace import DeviceTrace, read_device_trace
from execgraph.linker.host_trace import HostTrace, read_host_trace
from execgraph.linker.link import link
from execgraph.schema.errors import DataError
from execgraph.schema.linked_file import read_linked, write_linked

DATA = Path(__file__).parent.parent / "data"
SAMPLES = {"device": DATA / "training" / "device_rank0.json.gz", "host": DATA / "training" / "host_rank0.json.gz"}
KEYS = {"device": "traceEvents", "host": "nodes", "linked": "nodes"}


@cache
def sample(kind: str) -> bytes:
    """The text of a real file, of a linked trace one made of the two."""
    if kind != "linked":
        return gzip.decompress(SAMPLES[kind].read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "linked.json")
        write_linked(link(*undamaged()), path)
        return Path(path).read_bytes()


@cache
def undamaged() -> tuple[HostTrace, DeviceTrace]:
    return read_host_trace(str(SAMPLES["host"])), read_device_trace(str(SAMPLES["device"]))


def check_device(content: bytes) -> None:
    """Every row is in a table, ignored or counted; text that is no JSON is never read without a word; what is read links."""
    trace = _read(read_device_trace, content)
    if trace is None:
        return
    assert trace.read == accounted(trace), "rows that are neither used nor counted"
    _check_words("device", _unpacked(content), trace.read, trace.skipped, trace.remarks)
    _check_linking(None, trace)
    _check_linking(undamaged()[0], trace)


def check_host(content: bytes) -> None:
    """Every node is read or counted, no two have one id; text that is no JSON is never read without a word; what is read links."""
    trace = _read(read_host_trace, content)
    if trace is None:
        return
    assert len(set(trace.id.tolist())) == len(trace) and trace.id.min() >= 0
    assert len(trace.inputs) == len(trace.outputs) == len(trace.parent) == len(trace.name)
    for text in (*trace.inputs, *trace.outputs):
        json.loads(text)
    _check_words("host", _unpacked(content), len(trace), trace.skipped, trace.remarks)
    _check_linking(trace, undamaged()[1])


def check_linked(content: bytes) -> None:
    """A linked file is read and converted, or refused."""
    linked = _read(read_linked, content)
    if linked is not None:
        try:
            convert(linked)
        except DataError as error:
            _check_line(error)


CHECKS = {"device": check_device, "host": check_host, "linked": check_linked}


def accounted(device: DeviceTrace) -> int:
    """The rows that are in a table, were counted as skipped, or carry no work; rows that were never told apart are not among them."""
    tables = (device.ops, device.calls, device.activities, device.syncs)
    unread = sum(count for what, count in device.skipped.items() if "cannot be read" in what or "cut off" in what)
    used = sum(len(table.start) for table in tables) + len(device.event_records.correlation)
    return used + sum(device.skipped.values()) - unread + device.ignored


def _read(read: Any, content: bytes) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(content)
        file.flush()
        try:
            return read(file.name)
        except DataError as error:
            _check_line(error)
            return None


def _check_line(error: DataError) -> None:
    assert 0 < len(str(error)) < 2000


def _unpacked(content: bytes) -> bytes:
    """What is in a gzip file, of a damaged one nothing."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return b""


def _check_words(kind: str, content: bytes, read: int, skipped: dict[str, int], remarks: list[str]) -> None:
    said = bool(remarks) or any(skipped.values())
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


def _check_linking(host: HostTrace | None, device: DeviceTrace) -> None:
    try:
        link(host, device, allow_mismatch=True)
    except DataError as error:
        _check_line(error)
