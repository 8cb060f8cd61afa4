"""Reads and writes graph files (.et): protobuf messages, each behind its length as a varint, in blocks of nodes."""

import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ..columns import BytesColumn, Categorical, Ragged
from ..errors import DataError, Remedy
from ..io import open_input, open_output
from .codec import FIELDS, StringTable, decode_metadata, decode_nodes, encode_metadata, encode_nodes, node_encoders
from .nodes import ATTRIBUTES, Attribute, Column, NodeColumns, TensorText, problem_notes
from .wire import Messages, WireError

READ_SIZE = 1 << 20
LARGEST_MESSAGE = (1 << 31) - 1
"""Protobuf's own limit; a longer length is damage."""
MOST_EMPTY = 1000
"""The most empty messages in a block. A graph has at most one; a file of zeros has many."""
LONGEST_LENGTH = 10
"""The most bytes of a varint, which need not be the shortest form of its value."""
ROWS_AT_ONCE, BLOCKS_AT_ONCE = 1 << 13, 1 << 5


def no_graph(beginning: bytes) -> str:
    """Returns the message for a file that is not a graph."""
    if beginning.lstrip()[:1] in (b"{", b"["):
        return f"is JSON; make it a graph, a linked trace by {Remedy.CONVERT}, a graph's own JSON by {Remedy.JSONIZE}"
    return "is not an execution graph, or damaged"


def read_frames(stream: BinaryIO, path: str) -> Iterator[Messages]:
    """Yields the whole messages of a stream in blocks of a few megabytes. Raises DataError with the byte of damage.

    Memory is that of the longest message, which is read only as far as the stream has bytes.
    """
    data, offset = b"", 0
    # for a message longer than what was read so far, reads double in size
    while more := read_bytes(stream, path, max(READ_SIZE, len(data))):
        data += more
        try:
            starts, ends = _whole_messages(data)
        except WireError as error:
            where = f"{error.what} at byte {offset + error.at}"
            raise DataError(f"{path}: {no_graph(data)}: {where} is impossible") from error
        if starts:
            block = Messages.of(data, starts, ends, offset)
            if (empty := np.flatnonzero(block.starts == block.ends)).size > MOST_EMPTY:
                what = f"{empty.size} messages are empty, the first at byte {offset + starts[empty[0]]}"
                raise DataError(f"{path}: is no execution graph: {what}")
            yield block
            data, offset = data[ends[-1] :], offset + ends[-1]
    if data:
        raise DataError(f"{path}: is cut off: the message at byte {offset} goes beyond the end; write or copy it again")


def read_bytes(stream: BinaryIO, path: str, size: int) -> bytes:
    """Returns up to `size` bytes. Raises DataError for a file that cannot be read, or whose compression is damaged."""
    try:
        return stream.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); copy or record it again") from error


def _whole_messages(data: bytes) -> tuple[list[int], list[int]]:
    """Returns where the complete messages of `data` begin and end. Raises WireError for an impossible length."""
    starts: list[int] = []
    ends: list[int] = []
    at, size = 0, len(data)
    while at < size:
        start, length = at + 1, data[at]
        if length > 0x7F:
            length, shift = length & 0x7F, 7
            while start < size and data[start] > 0x7F and start < at + LONGEST_LENGTH:
                length |= (data[start] & 0x7F) << shift
                start, shift = start + 1, shift + 7
            if start == size and start < at + LONGEST_LENGTH:
                break  # the length is incomplete
            length |= data[start] << shift if start < at + LONGEST_LENGTH else LARGEST_MESSAGE + 1
            if length > LARGEST_MESSAGE:
                raise WireError("the length", at)
            start += 1
        at = start + length
        if at <= size:
            starts.append(start)
            ends.append(at)
    return starts, ends


def write_columns(graph: NodeColumns, path: str) -> None:
    """Writes the graph as a .et file, whole or not at all. Raises DataError when the format cannot hold it."""
    with open_output(path) as out:
        for frames in frames_of(graph):
            out.write(frames)


def frames_of(graph: NodeColumns) -> Iterator[bytes | memoryview]:
    """Yields the bytes of a .et file in blocks. Raises DataError before that when the graph holds what none can."""
    encoders = node_encoders(graph)
    yield encode_metadata(graph.metadata)
    for start in range(0, len(graph), ROWS_AT_ONCE):
        yield encode_nodes(encoders, slice(start, min(start + ROWS_AT_ONCE, len(graph)))).data


def read_columns(path: str, tensors: bool) -> NodeColumns:
    """Reads a .et file (gzip accepted), of this project or another. Raises DataError with the byte of damage.

    Without `tensors` these, which are most of a file, are skipped.
    """
    tables: dict[str, StringTable] = defaultdict(StringTable)
    metadata, parts, latest = None, list[NodeColumns](), list[NodeColumns]()
    with open_input(path) as stream:
        for block in read_frames(stream, path):
            try:
                if metadata is None:
                    metadata, block = decode_metadata(block.rows(slice(1))), block.rows(slice(1, None))
                latest.append(decode_nodes(block, tables, tensors))
            except WireError as error:
                position = block.offset + error.at
                raise DataError(f"{path}: {no_graph(block.raw)}: {error.what} at byte {position}") from error
            if len(latest) == BLOCKS_AT_ONCE:
                parts, latest = [*parts, _concatenate(latest)], []
    if metadata is None:
        raise DataError(f"{path}: is empty; was the graph written to its end?")
    graph = _concatenate([*parts, *latest])
    graph.metadata = metadata
    if not (graph.id[1:] > graph.id[:-1]).all():  # dependencies on an id of several nodes would be ambiguous
        ids, count = np.unique(graph.id, return_counts=True)
        for row in np.flatnonzero(count > 1)[:1].tolist():
            what = f"{count[row]} nodes have the id {ids[row]}"
            raise DataError(f"{path}: {what}; number them again, or is it no graph?")
    _make_kinds_parallel(graph, path)
    graph.notes = problem_notes(graph, path)
    return graph


def _concatenate(parts: list[NodeColumns]) -> NodeColumns:
    """Returns the nodes of all parts, which lose their attributes. Equal columns share a table of texts."""
    present = set().union(*(part.attributes for part in parts))
    problems = dict.fromkeys(what for part in parts for what in part.problems)
    offsets = np.cumsum([0, *map(len, parts[:-1])])
    with_tensors = [(offset, part.tensors) for offset, part in zip(offsets, parts, strict=True) if part.tensors]
    tensors = None
    if with_tensors:
        columns = ([getattr(texts, name) for _, texts in with_tensors] for name in TensorText.__slots__[1:])
        rows = np.concatenate([offset + texts.rows for offset, texts in with_tensors])
        tensors = TensorText(rows, *map(BytesColumn.joined, columns))
    attributes = {}
    for attribute in (attribute for attribute in ATTRIBUTES if attribute.name in present):
        attributes[attribute.name] = _joined([_column(part, attribute) for part in parts])
        for part in parts:
            # so that hardly a column is in memory twice
            part.attributes.pop(attribute.name, None)
    return NodeColumns(
        **{field.name: _joined([getattr(part, field.name) for part in parts]) for field in FIELDS},
        attributes=attributes,
        tensors=tensors,
        storage={int(o) + row: m for o, part in zip(offsets, parts, strict=True) for row, m in part.storage.items()},
        problems={what: _joined([part.problems.get(what, part.id[:0]) for part in parts]) for what in problems},
    )


def _column(part: NodeColumns, attribute: Attribute) -> Column:
    """Returns the column of an attribute, which the part may lack."""
    if attribute.value == "string_val":
        return part.texts(attribute.name)
    if attribute.value.endswith("_list"):
        return part.attributes.get(attribute.name, Ragged(np.zeros(len(part) + 1, np.int64), np.zeros(0, np.int64)))
    return part.integers(attribute.name)


def _joined(columns: list[Any]) -> Any:
    if isinstance(columns[0], Categorical):
        table = max((column.table for column in columns), key=len)
        return Categorical(np.concatenate([column.codes for column in columns]), table)
    if isinstance(columns[0], Ragged):
        lengths = np.concatenate([np.zeros(1, np.int64), *(column.lengths() for column in columns)])
        return Ragged(np.cumsum(lengths), np.concatenate([column.values for column in columns]))
    return np.concatenate(columns)


def _make_kinds_parallel(graph: NodeColumns, path: str) -> None:
    """Gives kind 0 to the dependencies of nodes that have no `data_dep_kinds`."""
    kinds = graph.attributes.get("data_dep_kinds")
    if not isinstance(kinds, Ragged):
        return
    dependencies, kind_counts = graph.data_deps.lengths(), kinds.lengths()
    if (wrong := np.flatnonzero((kind_counts != dependencies) & (kind_counts > 0))).size:
        row = wrong[0]
        raise DataError(
            f"{path}: node {graph.id[row]} has {kind_counts[row]} data_dep_kinds for {dependencies[row]} data_deps;"
            " there must be one for each, write the graph again"
        )
    values = np.zeros(len(graph.data_deps.values), np.int64)
    values[np.repeat(kind_counts > 0, dependencies)] = kinds.values
    graph.attributes["data_dep_kinds"] = Ragged(graph.data_deps.starts, values)
