"""Converts graph files to JSON and back, byte for byte, in pieces: memory does not grow with the file.

The JSON is `{"metadata": {...}, "nodes": [...]}` with one node per line; any other layout of the same JSON is read,
too.
"""

import io
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, NamedTuple, TypeVar, cast

import msgspec
import numpy as np

from ..errors import DataError
from ..io import open_input, open_output
from ..json_repair import opening_of, with_plain_letters
from ..json_stream import BYTE_ORDER_MARK, ArrayReader
from ..progress import OnProgress, unseen
from .decoder import MessageChecks
from .et_file import FrameBlock, frames_of, read_bytes, read_frames
from .json_form import METADATA, NODE, Form, FormError
from .nodes import NodeColumns
from .wire import WireError, varint, varint_lengths

T = TypeVar("T")

HEAD_SIZE = 1 << 20


class Converted(NamedTuple):
    """The number of nodes and of bytes (before compression) written, and sentences about oddities of the graph."""

    nodes: int
    bytes: int
    notes: list[str]


def graph_to_json(source: str, target: str, progress: OnProgress) -> Converted:
    """Writes a graph file as JSON. O(bytes).

    Raises DataError with the byte at which the file stops being a graph, or is encoded in a way that would not come
    back from JSON: unknown fields, numbers that take more bytes than they need, fields in an odd order, text that is
    not UTF-8.
    """
    checks = MessageChecks()
    with open_input(source) as stream, open_output(target) as out:
        nodes, size = _write_json(read_frames(stream, source), source, out, checks, progress)
    return Converted(nodes, size, checks.notes(source))


def write_json(graph: NodeColumns, path: str) -> None:
    """Writes the graph as JSON with one node per line, whole or not at all. O(bytes).

    Raises DataError when the graph holds what the format cannot, or the file cannot be written.
    """
    with open_output(path) as out:
        blocks = (block for frames in frames_of(graph) for block in read_frames(io.BytesIO(frames), path))
        _write_json(blocks, path, out)


def _write_json(
    blocks: Iterable[FrameBlock],
    source: str,
    out: IO[bytes],
    checks: MessageChecks | None = None,
    progress: OnProgress = unseen,
) -> tuple[int, int]:
    """Writes messages, of which the first one is the metadata; returns the numbers of nodes and of bytes."""
    nodes = size = 0
    for block in blocks:
        try:
            _check_lengths(block)
            for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True):
                if not size:
                    size += out.write(b'{"metadata":%s,"nodes":[' % _text_of(METADATA, block, start, end))
                    continue
                if checks is not None:
                    checks.add(block.data[start:end])
                size += out.write((b",\n" if nodes else b"\n") + _text_of(NODE, block, start, end))
                nodes += 1
        except WireError as error:
            position = block.offset + error.at
            raise DataError(f"{source}: cannot be converted: {error.what} at byte {position}") from error
        progress(len(block.data))
    if not size:
        raise DataError(f"{source}: is empty; was the graph written to its end?")
    return nodes, size + out.write(b"\n]}\n")


def _text_of(form: Form[Any], block: FrameBlock, start: int, end: int) -> bytes:
    """Returns the JSON text of a message. Raises WireError with a position in the block."""
    try:
        return form.decode(block.data[start:end])
    except WireError as error:
        raise WireError(error.what, start + error.at) from error


def _check_lengths(block: FrameBlock) -> None:
    begin = np.concatenate((np.zeros(1, np.int64), block.ends[:-1]))
    shortest = varint_lengths((block.ends - block.starts).view(np.uint64))
    if (longer := np.flatnonzero(block.starts - begin != shortest)).size:
        raise WireError("a message length that takes more bytes than it needs", int(begin[longer[0]]))


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a whole graph file, or of its beginning without nodes."""

    nodes: list[msgspec.Raw]
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Remainder(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a graph file's JSON from the last block of nodes on. A second list of nodes is an unknown field."""

    last_nodes: list[msgspec.Raw]
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def json_to_graph(source: str, target: str, progress: OnProgress) -> Converted:
    """Writes the graph file that a JSON file represents. O(bytes).

    Nodes that come before the metadata are stored in a temporary file. Raises DataError with the node at which the file
    stops being a graph's JSON.
    """
    with open_input(source) as stream, open_output(target) as out:
        head, nodes_in = _split_before_nodes(stream, source)
        with TemporaryFile() if head.metadata is msgspec.UNSET else nullcontext(out) as nodes_out:
            size = 0 if head.metadata is msgspec.UNSET else out.write(_metadata_frame(head.metadata, source))
            checks = MessageChecks()
            count, node_bytes, remainder = _write_nodes(nodes_in, source, nodes_out, progress, checks)
            if head.metadata is msgspec.UNSET:
                size = out.write(_metadata_frame(remainder.metadata, source))
                nodes_out.seek(0)
                shutil.copyfileobj(nodes_out, out)
            elif remainder.metadata is not msgspec.UNSET:
                raise DataError(f"{source}: has metadata twice; remove one")
    return Converted(count, size + node_bytes, checks.notes(source))


def _split_before_nodes(stream: BinaryIO, source: str) -> tuple[_Document, BinaryIO]:
    """Returns the document without its nodes and what follows them, and a stream that begins with the list of nodes."""
    buffer = b""
    while more := read_bytes(stream, source, max(HEAD_SIZE, len(buffer))):
        buffer = with_plain_letters((buffer + more).removeprefix(BYTE_ORDER_MARK))
        if opening := opening_of(buffer, "nodes", ended=False):
            document = _decode(buffer[:opening] + b"]}", _Document, source)
            nodes_in = _WithHead(buffer[opening - 1 :], stream, source)
            return document, cast(BinaryIO, io.BufferedReader(nodes_in, HEAD_SIZE))
    return _decode(buffer, _Document, source), io.BytesIO(b"[]}")


class _WithHead(io.RawIOBase):
    """A stream of the bytes that were read ahead and then the rest of another stream."""

    def __init__(self, head: bytes, stream: BinaryIO, source: str) -> None:
        self._head = head
        self._stream = stream
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or read_bytes(self._stream, self._source, len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _write_nodes(
    nodes_in: BinaryIO, source: str, out: IO[bytes], progress: OnProgress, checks: MessageChecks
) -> tuple[int, int, _Remainder]:
    """Writes all nodes as frames; returns their number, their bytes and the JSON after them."""
    count = size = 0

    def write(nodes: Iterable[msgspec.Raw]) -> None:
        nonlocal count, size
        for node in nodes:
            message = _encode(NODE, node, f"{source}: nodes[{count}]")
            checks.add(message)
            size += out.write(_frame(message))
            count += 1

    reader: ArrayReader[msgspec.Raw] = ArrayReader(nodes_in, source, "nodes", msgspec.Raw, progress)
    for _, nodes in reader:
        write(nodes)
    remainder = _decode(b'{"last_nodes":' + reader.document, _Remainder, source)
    write(remainder.last_nodes)
    return count, size, remainder


def _metadata_frame(text: msgspec.Raw | msgspec.UnsetType, source: str) -> bytes:
    if isinstance(text, msgspec.UnsetType):
        raise DataError(f"{source}: has no metadata, which a graph begins with; add it as metadata: {{}}")
    return _frame(_encode(METADATA, text, f"{source}: metadata"))


def _encode(form: Form[Any], text: msgspec.Raw, where: str) -> bytes:
    try:
        return form.encode(text)
    except FormError as error:
        raise DataError(f"{where}: {error}") from error


def _frame(message: bytes) -> bytes:
    return varint(len(message)) + message


def _decode(text: bytes, kind: type[T], source: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{source}: is not the JSON of a graph: {error}") from error
