"""Encodes the columns of an execution graph as framed protobuf messages, byte for byte as the protobuf library does.

Each field becomes columns of encoded spans, which are then joined side by side, without a Python step per node.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..columns import (
    ABSENT,
    Bytes,
    BytesColumn,
    Categorical,
    Int64,
    Part,
    Ragged,
    Spans,
    first_not_utf8,
    join,
    join_parts,
    total_lengths,
)
from ..errors import DataError
from .execution_graph_pb2 import AttributeProto, GlobalMetadata, Int64List, IOInfo, Node
from .nodes import ATTRIBUTES, Attribute, Column, NodeColumns
from .wire import DELIMITED, VARINT, delimited, prefixed_varints, rows_where, tag, varint

FORMAT_VERSION = "0.1"
INT32 = np.iinfo(np.int32)
LIST_VALUES = Int64List.VALUES_FIELD_NUMBER
ATTRIBUTE_TAG = tag(Node.ATTR_FIELD_NUMBER, DELIMITED)

RowEncoder = Callable[[slice], list[Part]]
"""Encodes one field of the nodes in a range of rows."""


def encode_metadata(metadata: dict[str, str | int]) -> bytes:
    """Returns the framed GlobalMetadata: strings as string_val, integers as int64_val, in their order."""
    message = GlobalMetadata(version=FORMAT_VERSION)
    for name, value in metadata.items():
        if isinstance(value, str):
            # file names may contain bytes that are not text
            message.attr.add(name=name, string_val=value.encode("utf-8", "backslashreplace").decode())
        else:
            message.attr.add(name=name, int64_val=int(value))
    return _prefixed(b"", message.SerializeToString(deterministic=True))


def node_encoders(graph: NodeColumns) -> list[RowEncoder]:
    """Returns the encoders of all fields that the nodes have, in the order of a message."""
    if unknown := graph.attributes.keys() - {attribute.name for attribute in ATTRIBUTES}:
        raise DataError(f"the graph cannot be written: no such attributes in the format: {', '.join(sorted(unknown))}")
    encoders = [
        _integer_field(tag(Node.ID_FIELD_NUMBER, VARINT), graph.id, 0),
        _text_field(lambda text: _prefixed(tag(Node.NAME_FIELD_NUMBER, DELIMITED), text) if text else b"", graph.name),
        _integer_field(tag(Node.TYPE_FIELD_NUMBER, VARINT), graph.type.astype(np.int64), 0),
        _packed_field(Node.CTRL_DEPS_FIELD_NUMBER, graph.ctrl_deps),
        _packed_field(Node.DATA_DEPS_FIELD_NUMBER, graph.data_deps),
        _integer_field(tag(Node.START_TIME_MICROS_FIELD_NUMBER, VARINT), graph.start_time_micros, 0),
        _integer_field(tag(Node.DURATION_MICROS_FIELD_NUMBER, VARINT), graph.duration_micros, 0),
    ]
    if (t := graph.tensors) is not None:
        inputs, outputs = (
            [t.input_values, t.input_shapes, t.input_types],
            [t.output_values, t.output_shapes, t.output_types],
        )
        encoders.append(_tensor_field(Node.INPUTS_FIELD_NUMBER, t.rows, inputs))
        encoders.append(_tensor_field(Node.OUTPUTS_FIELD_NUMBER, t.rows, outputs))
    return encoders + [_attribute(a, graph.attributes[a.name]) for a in ATTRIBUTES if a.name in graph.attributes]


def encode_nodes(encoders: Sequence[RowEncoder], rows: slice) -> Bytes:
    """Returns the framed Node messages of a range of rows. O(bytes)."""
    count = rows.stop - rows.start
    fields = [part for encode in encoders for part in encode(rows)]
    # a message without any field has a length, too
    frames = prefixed_varints(b"", total_lengths(fields, count).view(np.uint64))
    return join_parts([(slice(None), frames), *fields], count).source


def _integer_field(prefix: bytes, column: Int64, missing: int, length_at: int | None = None) -> RowEncoder:
    """Returns the encoder of a column whose rows that are `missing` have no such field."""

    def encode(rows: slice) -> list[Part]:
        values = column[rows]
        present = rows_where(values != missing)
        return [(present, prefixed_varints(prefix, values[present].view(np.uint64), length_at))]

    return encode


def _text_field(encode_text: Callable[[bytes], bytes], column: Categorical) -> RowEncoder:
    table = Spans.of([encode_text(text.encode()) for text in column.table])

    def encode(rows: slice) -> list[Part]:
        codes = column.codes[rows]
        present = rows_where(codes >= 0)
        return [(present, table.take(codes[present]))]

    return encode


def _packed_field(number: int, column: Ragged) -> RowEncoder:
    def encode(rows: slice) -> list[Part]:
        return delimited(tag(number, DELIMITED), [packed(column, rows)], rows.stop - rows.start)

    return encode


def packed(column: Ragged, rows: slice) -> Part:
    """Returns the values of each row that has any, as varints without gaps."""
    starts = column.starts[rows.start : rows.stop + 1]
    values = column.values[starts[0] : starts[-1]].view(np.uint64)
    encoded = join([prefixed_varints(b"", values)], len(values))
    bounds = np.append(encoded.starts, len(encoded.source))[starts - starts[0]]
    present = rows_where(starts[1:] > starts[:-1])
    return present, Spans(encoded.source, bounds[:-1], np.diff(bounds)).take(present)


def _tensor_field(number: int, tensor_rows: Int64, columns: Sequence[BytesColumn]) -> RowEncoder:
    parts = (IOInfo.VALUES_FIELD_NUMBER, IOInfo.SHAPES_FIELD_NUMBER, IOInfo.TYPES_FIELD_NUMBER)

    def encode(rows: slice) -> list[Part]:
        first, last = np.searchsorted(tensor_rows, (rows.start, rows.stop))
        nodes, count = tensor_rows[first:last] - rows.start, rows.stop - rows.start
        content: list[Part] = []
        for part, column in zip(parts, columns, strict=True):
            spans = column.spans(slice(first, last))
            if (wrong := first_not_utf8(spans)) is not None:
                raise DataError(
                    f"the graph cannot be written: a tensor text is not UTF-8: {column[first + wrong][:40]!r}"
                )
            content += delimited(tag(part, DELIMITED), [(nodes, spans)], count)
        return delimited(tag(number, DELIMITED), content, count)

    return encode


def _attribute(attribute: Attribute, column: Column) -> RowEncoder:
    number = AttributeProto.DESCRIPTOR.fields_by_name[attribute.value].number
    name = _prefixed(tag(AttributeProto.NAME_FIELD_NUMBER, DELIMITED), attribute.name.encode())
    if isinstance(column, Categorical):
        value_tag = tag(number, DELIMITED)
        return _text_field(lambda text: _prefixed(ATTRIBUTE_TAG, name + _prefixed(value_tag, text)), column)
    if attribute.value.startswith("int32"):
        _check_int32(attribute.name, column)
    if isinstance(column, Ragged):
        return _list_attribute(name + tag(number, DELIMITED), column)
    prefix = ATTRIBUTE_TAG + b"\0" + name + tag(number, VARINT)
    return _integer_field(prefix, column, ABSENT, length_at=len(ATTRIBUTE_TAG))


def _prefixed(prefix: bytes, content: bytes) -> bytes:
    return prefix + varint(len(content)) + content


def _check_int32(name: str, column: Int64 | Ragged) -> None:
    values = column.values if isinstance(column, Ragged) else column[column != ABSENT]
    if len(values) and not INT32.min <= values.min() <= values.max() <= INT32.max:
        raise DataError(f"the graph cannot be written: {name} {values.min()} … {values.max()} goes beyond 32 bits")


def _list_attribute(prefix: bytes, column: Ragged) -> RowEncoder:
    def encode(rows: slice) -> list[Part]:
        content, count = [packed(column, rows)], rows.stop - rows.start
        for before in (tag(LIST_VALUES, DELIMITED), prefix, ATTRIBUTE_TAG):
            content = delimited(before, content, count)
        return content

    return encode
