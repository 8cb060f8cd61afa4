"""The columns of an execution graph as protobuf messages, and back, byte for byte as the protobuf library has them.

Both ways take a block of nodes at a time, without a Python step per node. Of a field that is there twice the last one
counts. What contradicts the schema is reported, as it may change results, and not corrected.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from ..columns import ABSENT, Bytes, BytesColumn, Categorical, Int64, NodeIds, Ragged
from ..errors import DataError
from . import wire
from .execution_graph_pb2 import AttributeProto, GlobalMetadata, Int64List, IOInfo, Node
from .nodes import ATTRIBUTES, Column, NodeColumns, NodeType, TensorText
from .spans import Part, Spans, first_not_utf8, join, spans_of, total_lengths
from .wire import DELIMITED, VARINT, Fields, Messages, WireError, tag, walk

FORMAT_VERSION = "0.1"
INT32 = np.iinfo(np.int32)
VALUES = {field.name: field.number for field in AttributeProto.DESCRIPTOR.fields_by_name.values()}
FIRST_VALUE, LAST_VALUE = VALUES["double_val"], VALUES["bytes_list"]
LIST_VALUES = Int64List.VALUES_FIELD_NUMBER
ATTRIBUTE_TAG = tag(Node.ATTR_FIELD_NUMBER, DELIMITED)
FIELDS = [field for field in Node.DESCRIPTOR.fields if field.message_type is None and field.type != field.TYPE_BYTES]
"""Those of nodes that are a column each, of the same name."""
TENSOR_SIDES = (Node.INPUTS_FIELD_NUMBER, Node.OUTPUTS_FIELD_NUMBER)
TENSOR_PARTS = [(side, part.number) for side in TENSOR_SIDES for part in IOInfo.DESCRIPTOR.fields]
"""The columns of `TensorText` behind its rows, in their order."""
ATTRIBUTE_WIRES = wire.wire_types(AttributeProto)
INTEGERS = ("int32", "int64", "uint32", "uint64", "bool")
"""Types whose values are written alike, so that one may stand for another."""
USABLE = {
    kind: np.isin(
        np.arange(LAST_VALUE + 1),
        [VALUES[f"{name}_{kind.partition('_')[2]}"] for name in (INTEGERS if kind != "string_val" else ("string",))],
    )
    for _, kind, _ in ATTRIBUTES
}
"""By an attribute's kind, whether a value of each number is of it."""
FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""Masks for the first 0 to 8 bytes of a word."""

RowEncoder = Callable[[slice], list[Part]]


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
    encoders = []
    for field in FIELDS:
        column = getattr(graph, field.name)
        is_integer = isinstance(column, np.ndarray)
        encoders.append(_encoder(column, [tag(field.number, VARINT if is_integer else DELIMITED)]))
    if graph.tensors is not None:
        encoders += [_tensor_encoder(graph.tensors, side) for side in TENSOR_SIDES]
    for name, kind, _ in ATTRIBUTES:
        if (attribute := graph.attributes.get(name)) is None:
            continue
        start = _prefixed(tag(AttributeProto.NAME_FIELD_NUMBER, DELIMITED), name.encode())
        if kind.startswith("int32") and not isinstance(attribute, Categorical):
            values = attribute.values if isinstance(attribute, Ragged) else attribute[attribute != ABSENT]
            if len(values) and not INT32.min <= values.min() <= values.max() <= INT32.max:
                limits = f"{values.min()} … {values.max()}"
                raise DataError(f"the graph cannot be written: {name} {limits} goes beyond 32 bits")
        within = [tag(LIST_VALUES, DELIMITED)] if isinstance(attribute, Ragged) else []
        value = tag(VALUES[kind], VARINT if isinstance(attribute, np.ndarray) else DELIMITED)
        encoders.append(_encoder(attribute, [*within, start + value, ATTRIBUTE_TAG], ABSENT))
    if graph.storage:
        storing, prefix = np.array([*graph.storage]), tag(Node.STORAGE_FIELD_NUMBER, DELIMITED)
        messages = Spans.of([_prefixed(prefix, message) for message in graph.storage.values()])

        def encode_storage(rows: slice) -> list[Part]:
            of_block = slice(*np.searchsorted(storing, (rows.start, rows.stop)))
            return [(storing[of_block] - rows.start, messages.take(of_block))]

        encoders.append(encode_storage)
    return encoders


def encode_nodes(encoders: Sequence[RowEncoder], rows: slice) -> Bytes:
    """Returns the framed Node messages of a range of rows. O(bytes)."""
    count = rows.stop - rows.start
    fields = [part for encode in encoders for part in encode(rows)]
    # a message without any field has a length, too
    frames = wire.prefixed_varints(b"", total_lengths(fields, count).view(np.uint64))
    return join([(slice(None), frames), *fields], count).source


def _encoder(column: Column, prefixes: list[bytes], missing: int = 0) -> RowEncoder:
    """Returns the encoder of a column whose integers that are `missing` are no field.

    What it encodes is behind the prefixes, the innermost first, each of which is followed by the length of what is
    within it; but for the innermost of an integer.
    """
    if isinstance(column, Ragged):
        return lambda rows: _packed(column, prefixes, rows)
    if isinstance(column, Categorical):
        texts = [text.encode() for text in column.table]
        for prefix in prefixes:
            # an empty text is no field of a node, but may be the value of an attribute
            texts = [_prefixed(prefix, text) if text or len(prefixes) > 1 else b"" for text in texts]
        codes, table = column.codes, Spans.of(texts)

        def encode_texts(rows: slice) -> list[Part]:
            present = wire.rows_where(codes[rows] >= 0)
            return [(present, table.take(codes[rows][present]))]

        return encode_texts
    # of an attribute the length, which is below 128, stands behind the outer tag
    outer = b"".join(prefixes[1:])
    prefix, length_at = (outer + b"\0" + prefixes[0], len(outer)) if outer else (prefixes[0], None)
    numbers = column.astype(np.int64, copy=False)

    def encode_integers(rows: slice) -> list[Part]:
        present = wire.rows_where(numbers[rows] != missing)
        return [(present, wire.prefixed_varints(prefix, numbers[rows][present].view(np.uint64), length_at))]

    return encode_integers


def _packed(column: Ragged, prefixes: Sequence[bytes], rows: slice) -> list[Part]:
    """Encodes the values of each row that has any, as varints without gaps."""
    starts = column.starts[rows.start : rows.stop + 1]
    values = column.values[starts[0] : starts[-1]].view(np.uint64)
    encoded = join([(slice(None), wire.prefixed_varints(b"", values))], len(values))
    bounds = np.append(encoded.starts, len(encoded.source))[starts - starts[0]]
    present = wire.rows_where(starts[1:] > starts[:-1])
    content: list[Part] = [(present, Spans(encoded.source, bounds[:-1], np.diff(bounds)).take(present))]
    for prefix in prefixes:
        content = wire.delimited(prefix, content, rows.stop - rows.start)
    return content


def _tensor_encoder(tensors: TensorText, side: int) -> RowEncoder:
    columns = [getattr(tensors, name) for name in TensorText.__slots__[1:]]

    def encode(rows: slice) -> list[Part]:
        first, last = np.searchsorted(tensors.rows, (rows.start, rows.stop))
        nodes, count = tensors.rows[first:last] - rows.start, rows.stop - rows.start
        content: list[Part] = []
        for (of_side, part), column in zip(TENSOR_PARTS, columns, strict=True):
            if of_side == side:
                spans = spans_of(column, slice(first, last))
                if (wrong := first_not_utf8(spans)) is not None:
                    text = column[first + wrong][:40]
                    raise DataError(f"the graph cannot be written: a tensor text is not UTF-8: {text!r}")
                content += wire.delimited(tag(part, DELIMITED), [(nodes, spans)], count)
        return wire.delimited(tag(side, DELIMITED), content, count)

    return encode


def _prefixed(prefix: bytes, content: bytes) -> bytes:
    return prefix + wire.varint(len(content)) + content


class StringTable(dict[bytes, int]):
    """Numbers strings in the order of their first look-up. Raises UnicodeDecodeError for one that is not UTF-8."""

    def __init__(self) -> None:
        super().__init__()
        self.strings: list[str] = []

    def __missing__(self, text: bytes) -> int:
        self.strings.append(text.decode())
        return self.setdefault(text, len(self))


def decode_metadata(metadata: Messages) -> dict[str, str | int]:
    """Returns the string and integer attributes of a GlobalMetadata message. Raises WireError for another message."""
    start, end = int(metadata.starts[0]), int(metadata.ends[0])
    fields = walk(metadata.data, metadata.starts, metadata.ends)
    if start < end and not ((fields.number <= GlobalMetadata.ATTR_FIELD_NUMBER) & (fields.wire == DELIMITED)).any():
        raise WireError("no metadata where a graph begins with it", start)
    try:
        attributes = GlobalMetadata.FromString(metadata.raw[start:end]).attr
    except DecodeError as error:
        raise WireError(f"metadata that cannot be decoded ({error})", start) from error
    values = {a.name: getattr(a, kind) for a in attributes if (kind := a.WhichOneof("value"))}
    return {name: value for name, value in values.items() if isinstance(value, (str, int))}


def decode_nodes(nodes: Messages, tables: dict[str, StringTable], tensors: bool) -> NodeColumns:
    """Returns the columns of a block of Node messages; `tables` number each column's strings over a whole file."""
    fields = walk(nodes.data, nodes.starts, nodes.ends)
    is_attribute = (fields.number == Node.ATTR_FIELD_NUMBER) & (fields.wire == DELIMITED)
    node_fields, attributes = fields.where(~is_attribute), fields.where(is_attribute)
    columns: dict[str, Any] = {}
    for field in FIELDS:
        if field.default_value == []:
            columns[field.name] = _lists(nodes, node_fields.where(node_fields.number == field.number))
        elif field.type == field.TYPE_STRING:
            table = tables[f"node {field.name}"]
            texts = _strings(nodes, node_fields.of(field.number, DELIMITED), table)
            if (has_none := texts.codes < 0).any():
                texts.codes[has_none] = table[b""]
            columns[field.name] = texts
        else:
            recorded = node_fields.of(field.number, VARINT)
            columns[field.name] = np.zeros(len(nodes.starts), np.int64)
            columns[field.name][recorded.message] = recorded.value.view(np.int64)
    types = columns["type"]
    if (wrong := np.flatnonzero((types < 0) | (types > max(NodeType)))).size:
        raise WireError(f"a node of unknown type {types[wrong[0]]}", int(nodes.starts[wrong[0]]))
    columns["type"] = types.astype(np.uint8)
    known, problems = _attributes(nodes, attributes, tables, columns["id"])
    stored = node_fields.of(Node.STORAGE_FIELD_NUMBER, DELIMITED).last_given(len(nodes.starts))
    storage = dict(sorted(zip(stored.message.tolist(), nodes.contents(stored), strict=True)))
    texts_of_tensors = _tensors(nodes, node_fields) if tensors else None
    return NodeColumns(**columns, attributes=known, tensors=texts_of_tensors, storage=storage, problems=problems)


def _strings(nodes: Messages, fields: Fields, table: StringTable) -> Categorical:
    """Returns a column from a string in some nodes."""
    strings = nodes.contents(fields)
    codes = np.full(len(nodes.starts), -1, np.int32)
    try:
        codes[fields.message] = np.fromiter(map(table.__getitem__, strings), np.int32, len(strings))
    except UnicodeDecodeError as error:
        raise WireError("a text that is not UTF-8", int(fields.start[strings.index(error.object)])) from error
    return Categorical(codes, table.strings)


def _lists(nodes: Messages, fields: Fields) -> Ragged:
    """Returns a row of integers for each node from a repeated field, packed or not."""
    single, packed = fields.where(fields.wire == VARINT), fields.where(fields.wire == DELIMITED)
    packed = packed.where(np.argsort(packed.start))
    field, bits, position = wire.read_packed(nodes.data, packed.start, packed.end)
    node = packed.message[field]
    if len(single.message):
        order = np.argsort(np.concatenate((position, single.start)))
        node = np.concatenate((node, single.message))[order]
        bits = np.concatenate((bits, single.value))[order]
    return Ragged.grouped(node, bits.view(np.int64), len(nodes.starts))


def _tensors(nodes: Messages, fields: Fields) -> TensorText | None:
    sides = {number: fields.of(number, DELIMITED) for number in TENSOR_SIDES}
    rows = np.unique(np.concatenate([side.message for side in sides.values()]))
    if not len(rows):
        return None
    inner = {number: walk(nodes.data, side.start, side.end) for number, side in sides.items()}
    columns = []
    for number, part in TENSOR_PARTS:
        parts = inner[number].of(part, DELIMITED)
        row = np.searchsorted(rows, sides[number].message[parts.message])
        parts = parts._replace(message=row).last_given(len(rows))
        texts = nodes.contents(parts)
        if (wrong := first_not_utf8(Spans.of(texts))) is not None:
            raise WireError("a text that is not UTF-8", int(parts.start[wrong]))
        by_row = [b""] * len(rows)
        for at, text in zip(parts.message.tolist(), texts, strict=True):
            by_row[at] = text
        columns.append(BytesColumn.of(by_row))
    return TensorText(rows, *columns)


def _attributes(
    nodes: Messages, attributes: Fields, tables: dict[str, StringTable], ids: NodeIds
) -> tuple[dict[str, Column], dict[str, Int64]]:
    """Returns a column for each known attribute of any node, and the nodes with repeated or ill-typed attributes."""
    # most are a name and a value; of the others all fields are walked
    names, values = wire.walk_pairs(nodes.data, attributes.start, attributes.end)
    is_other = np.ones(len(attributes.message), np.bool_)
    is_other[names.message] = False
    rows = np.flatnonzero(is_other)
    inner = walk(nodes.data, attributes.start[rows], attributes.end[rows])
    inner = inner._replace(message=rows[inner.message])
    names = Fields.concatenated([names, inner.of(AttributeProto.NAME_FIELD_NUMBER, DELIMITED)])
    values = Fields.concatenated([values, inner])
    number = np.where(values.number <= LAST_VALUE, values.number, 0)
    values = values.where((number >= FIRST_VALUE) & (values.wire == ATTRIBUTE_WIRES[number]))

    attribute_number = np.full(len(attributes.message), len(ATTRIBUTES), np.uint8)
    attribute_number[names.message] = _known_attributes(nodes.data, names)
    attribute = attribute_number[values.message]
    order = np.argsort(attribute, kind="stable")
    bounds = np.searchsorted(attribute[order], np.arange(len(ATTRIBUTES) + 1)).tolist()
    values = values._replace(message=attributes.message[values.message]).where(order)
    columns: dict[str, Column] = {}
    problems: dict[str, Int64] = {}
    for (name, kind, _), first, last in zip(ATTRIBUTES, bounds[:-1], bounds[1:], strict=True):
        if first == last:
            continue
        all_values = values.where(slice(first, last))
        last_values = all_values.last_given(len(ids))
        usable = USABLE[kind][last_values.number]
        columns[name] = _attribute(nodes, last_values.where(usable), kind, tables[name])
        if len(last_values.message) < len(all_values.message):
            again = np.bincount(all_values.message, minlength=len(ids)) > 1
            problems[f"nodes with {name} more than once; the last one counts, write the graph again"] = ids[again]
        if not usable.all():
            wrong = np.unique(last_values.message[~usable])
            problems[f"{name} that are no {kind}; they count as missing, write the graph again"] = ids[wrong]
    return columns, problems


def _attribute(nodes: Messages, values: Fields, kind: str, table: StringTable) -> Column:
    """Returns the column of usable values."""
    if kind == "string_val":
        return _strings(nodes, values, table)
    if not kind.endswith("_list"):
        column = np.full(len(nodes.starts), ABSENT)
        column[values.message] = values.value.view(np.int64)
        return column
    inner = walk(nodes.data, values.start, values.end)
    inner = inner._replace(message=values.message[inner.message])
    return _lists(nodes, inner.where(inner.number == LIST_VALUES))


def _name_keys(data: Bytes, start: Int64, length: Int64) -> wire.UInt64:
    """Returns a hash of each name for look-up, and what identifies names of up to 16 bytes: two words, the length."""
    first = wire.words(data)[start] & FIRST_BYTES[np.minimum(length, 8)]
    second = wire.words(data)[start + 8] & FIRST_BYTES[np.clip(length - 8, 0, 8)]
    return np.stack((first ^ second * np.uint64(0x9E3779B97F4A7C15), first, second, length.view(np.uint64)))


_known_names = Spans.of([attribute.name.encode() for attribute in ATTRIBUTES])
_known_keys = _name_keys(np.append(_known_names.source, np.zeros(wire.PADDING, np.uint8)), *_known_names[1:])
KNOWN_POSITIONS = np.argsort(_known_keys[0])
KNOWN_KEYS = _known_keys[:, KNOWN_POSITIONS]


def _known_attributes(data: Bytes, names: Fields) -> Int64:
    """Returns the position of each name in ATTRIBUTES, len(ATTRIBUTES) for a name that is not there."""
    keys = _name_keys(data, names.start, names.value.view(np.int64))
    position = np.minimum(np.searchsorted(KNOWN_KEYS[0], keys[0]), len(ATTRIBUTES) - 1)
    is_known = np.all([known[position] == key for known, key in zip(KNOWN_KEYS, keys, strict=True)], axis=0)
    return np.where(is_known, KNOWN_POSITIONS[position], len(ATTRIBUTES))
