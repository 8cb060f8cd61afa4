"""Converts graph files to JSON and back, byte for byte, in pieces: memory does not grow with the file.

The JSON is `{"metadata": {...}, "nodes": [...]}` with one node per line; any other layout of the same JSON is read,
too.
"""

import io
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import chain, islice
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ..errors import DataError
from ..io import open_input, open_output
from ..json_stream import ArrayReader
from ..progress import OnProgress, unseen
from .decoder import MessageChecks
from .et_file import FrameBlock, frames_of, read_frames
from .json_form import METADATA, NODE, Form, FormError
from .nodes import NodeColumns
from .wire import WireError, varint, varint_lengths

T = TypeVar("T")


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
    checks, count, size = MessageChecks(), 0, 0

    def write(nodes: Iterable[msgspec.Raw], nodes_out: IO[bytes]) -> None:
        nonlocal count, size
        for node in nodes:
            message = _encode(NODE, node, f"{source}: nodes[{count}]")
            checks.add(message)
            size += nodes_out.write(_frame(message))
            count += 1

    with open_input(source) as stream, open_output(target) as out:
        reader: ArrayReader[msgspec.Raw] = ArrayReader(stream, source, "nodes", msgspec.Raw, progress)
        pieces = iter(reader)
        # the first piece is read, as what stands before the nodes is known then
        first = [*islice(pieces, 1)]
        head = _decode(reader.head + b"]}" if reader.has_array else reader.document, _Document, source)
        has_metadata = head.metadata is not msgspec.UNSET
        with nullcontext(out) if has_metadata else TemporaryFile() as nodes_out:
            if has_metadata:
                size += out.write(_metadata_frame(head.metadata, source))
            for _, nodes in chain(first, pieces):
                write(nodes, nodes_out)
            remainder = _decode(b'{"last_nodes":[' + reader.document[len(reader.head) :], _Remainder, source)
            write(remainder.last_nodes, nodes_out)
            if not has_metadata:
                size += out.write(_metadata_frame(remainder.metadata, source))
                nodes_out.seek(0)
                shutil.copyfileobj(nodes_out, out)
            elif remainder.metadata is not msgspec.UNSET:
                raise DataError(f"{source}: has metadata twice; remove one")
    return Converted(count, size, checks.notes(source))


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
