"""Decodes node messages into columns. Fields and attributes may be in any order, integers of any type.

Works on a block of messages at a time. If a field or attribute is there twice, the last one counts, as in the protobuf
library.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from ..columns import ABSENT, Bool, BytesColumn, Categorical, Int64, NodeIds, Ragged, Spans, first_not_utf8
from .attributes import ATTRIBUTES
from .execution_graph_pb2 import AttributeProto, GlobalMetadata, Int64List, IOInfo, Node
from .integer_kinds import INTEGER_KINDS, INTEGER_LISTS, INTEGER_VALUES, IntegerKind
from .known_attributes import known_attributes
from .node_problems import node_problem
from .nodes import Column, NodeColumns, NodeProblem, NodeType, TensorText
from .wire import DELIMITED, VARINT, Fields, Messages, WireError, read_packed, walk, walk_pairs
from .wire_types import wire_types

TENSOR_PARTS = (IOInfo.VALUES_FIELD_NUMBER, IOInfo.SHAPES_FIELD_NUMBER, IOInfo.TYPES_FIELD_NUMBER)
FIRST_VALUE, LAST_VALUE = AttributeProto.DOUBLE_VAL_FIELD_NUMBER, AttributeProto.BYTES_LIST_FIELD_NUMBER
LIST_VALUES = Int64List.VALUES_FIELD_NUMBER
STRING_VALUE = AttributeProto.STRING_VAL_FIELD_NUMBER

ATTRIBUTE_WIRES = wire_types(AttributeProto)


def _shape_of(kind: str) -> str:
    return kind if kind == "string_val" else kind[-4:]


def _mask_of(numbers: Iterable[int]) -> Bool:
    return np.isin(np.arange(LAST_VALUE + 1), [*numbers])


USABLE = {"string_val": _mask_of([STRING_VALUE]), "_val": _mask_of(INTEGER_VALUES), "list": _mask_of(INTEGER_LISTS)}
"""By the field number of an attribute's value, whether it is a string, an integer of any type, or a list of these."""


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
    """Returns the columns of a block of Node messages. Raises WireError where a message is no Node.

    `tables` number the strings of each column over all blocks of a file.
    """
    count = len(nodes.starts)
    fields = walk(nodes.data, nodes.starts, nodes.ends)
    is_attribute = (fields.number == Node.ATTR_FIELD_NUMBER) & (fields.wire == DELIMITED)
    node_fields, attributes = fields.where(~is_attribute), fields.where(is_attribute)
    ids = NodeIds(_integers(node_fields, Node.ID_FIELD_NUMBER, count))
    columns, problems = _attributes(nodes, attributes, tables, ids)
    return NodeColumns(
        id=ids,
        name=_names(nodes, node_fields, tables["node name"]),
        type=_types(nodes, node_fields),
        data_deps=_identifiers(nodes, node_fields, Node.DATA_DEPS_FIELD_NUMBER),
        ctrl_deps=_identifiers(nodes, node_fields, Node.CTRL_DEPS_FIELD_NUMBER),
        start_time_micros=_integers(node_fields, Node.START_TIME_MICROS_FIELD_NUMBER, count),
        duration_micros=_integers(node_fields, Node.DURATION_MICROS_FIELD_NUMBER, count),
        attributes=columns,
        tensors=_tensors(nodes, node_fields) if tensors else None,
        problems=problems,
    )


def _integers(fields: Fields, number: int, count: int) -> Int64:
    recorded = fields.of(number, VARINT)
    column = np.zeros(count, np.int64)
    column[recorded.message] = recorded.value.view(np.int64)
    return column


def _types(nodes: Messages, fields: Fields) -> npt.NDArray[np.uint8]:
    types = _integers(fields, Node.TYPE_FIELD_NUMBER, len(nodes.starts))
    if (wrong := np.flatnonzero((types < 0) | (types > max(NodeType)))).size:
        raise WireError(f"a node of unknown type {types[wrong[0]]}", int(nodes.starts[wrong[0]]))
    return types.astype(np.uint8)


def _names(nodes: Messages, fields: Fields, table: StringTable) -> Categorical:
    names = _strings(nodes, fields.of(Node.NAME_FIELD_NUMBER, DELIMITED), table)
    if (has_no_name := names.codes < 0).any():
        names.codes[has_no_name] = table[b""]
    return names


def _strings(nodes: Messages, fields: Fields, table: StringTable) -> Categorical:
    """Returns a column from a string in some nodes."""
    strings = nodes.contents(fields)
    codes = np.full(len(nodes.starts), -1, np.int32)
    try:
        codes[fields.message] = np.fromiter(map(table.__getitem__, strings), np.int32, len(strings))
    except UnicodeDecodeError as error:
        raise WireError("a text that is not UTF-8", int(fields.start[strings.index(error.object)])) from error
    return Categorical(codes, table.strings)


def _utf8_contents(nodes: Messages, fields: Fields) -> list[bytes]:
    strings = nodes.contents(fields)
    if (wrong := first_not_utf8(Spans.of(strings))) is not None:
        raise WireError("a text that is not UTF-8", int(fields.start[wrong]))
    return strings


def _spread(strings: list[bytes], rows: Int64, count: int) -> list[bytes]:
    """Returns `count` strings, empty but for those at `rows`."""
    spread = [b""] * count
    for row, text in zip(rows.tolist(), strings, strict=True):
        spread[row] = text
    return spread


def _identifiers(nodes: Messages, fields: Fields, number: int) -> Ragged:
    return _repeated(nodes, fields.where(fields.number == number), INTEGER_KINDS["uint64"])


def _repeated(nodes: Messages, fields: Fields, kind: IntegerKind) -> Ragged:
    """Returns a row of integers for each node from a repeated field, packed or not."""
    single, packed = fields.where(fields.wire == kind.wire), fields.where(fields.wire == DELIMITED)
    packed = packed.where(np.argsort(packed.start))
    field, bits, position = read_packed(nodes.data, packed.start, packed.end, kind.wire)
    node = packed.message[field]
    if len(single.message):
        order = np.argsort(np.concatenate((position, single.start)))
        node = np.concatenate((node, single.message))[order]
        bits = np.concatenate((bits, single.value))[order]
    return Ragged(_bounds(node, len(nodes.starts)), kind.decode(bits))


def _bounds(rows: Int64, count: int) -> Int64:
    """Returns where each of `count` rows begins among ascending `rows`, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(rows, minlength=count))))


def _tensors(nodes: Messages, fields: Fields) -> TensorText | None:
    sides = [fields.of(number, DELIMITED) for number in (Node.INPUTS_FIELD_NUMBER, Node.OUTPUTS_FIELD_NUMBER)]
    rows = np.unique(np.concatenate([side.message for side in sides]))
    if not len(rows):
        return None
    columns = []
    for side in sides:
        fields_of_side = walk(nodes.data, side.start, side.end)
        fields_of_side = fields_of_side._replace(message=np.searchsorted(rows, side.message[fields_of_side.message]))
        for part in TENSOR_PARTS:
            parts = fields_of_side.of(part, DELIMITED).last_given(len(rows))
            columns.append(BytesColumn.of(_spread(_utf8_contents(nodes, parts), parts.message, len(rows))))
    return TensorText(rows, *columns)


def _attributes(
    nodes: Messages, attributes: Fields, tables: dict[str, StringTable], ids: NodeIds
) -> tuple[dict[str, Column], dict[str, NodeProblem]]:
    """Returns a column for each known attribute that any of the nodes has, and the problems of attributes: repeated, or
    of another type.
    """
    names, values = _names_and_values(nodes, attributes)
    attribute_number = np.full(len(attributes.message), len(ATTRIBUTES), np.uint8)
    attribute_number[names.message] = known_attributes(nodes.data, names)
    attribute = attribute_number[values.message]
    order = np.argsort(attribute, kind="stable")
    bounds = np.searchsorted(attribute[order], np.arange(len(ATTRIBUTES) + 1)).tolist()
    values = values._replace(message=attributes.message[values.message]).where(order)
    columns: dict[str, Column] = {}
    problems: dict[str, NodeProblem] = {}
    for entry, first, last in zip(ATTRIBUTES, bounds[:-1], bounds[1:], strict=True):
        if first < last:
            all_values = values.where(slice(first, last))
            last_values = all_values.last_given(len(nodes.starts))
            columns[entry.name] = _attribute(nodes, last_values, entry.value, tables[entry.name])
            if len(last_values.message) < len(all_values.message):
                again = np.bincount(all_values.message, minlength=len(ids)) > 1
                problems[f"nodes with {entry.name} more than once; the last one counts, write the graph again"] = (
                    node_problem(ids, again)
                )
            usable = USABLE[_shape_of(entry.value)][last_values.number]
            if not usable.all():
                wrong = f"{entry.name} that are no {entry.value}; they count as missing, write the graph again"
                problems[wrong] = node_problem(ids, np.isin(np.arange(len(ids)), last_values.message[~usable]))
    return columns, problems


def _names_and_values(nodes: Messages, attributes: Fields) -> tuple[Fields, Fields]:
    """Returns the name and value fields of attributes."""
    pairs = walk_pairs(nodes.data, attributes.start, attributes.end)
    is_other = np.ones(len(attributes.message), np.bool_)
    is_other[pairs.row] = False
    rows = np.flatnonzero(is_other)
    inner = walk(nodes.data, attributes.start[rows], attributes.end[rows])
    inner = inner._replace(message=rows[inner.message])
    names = Fields.concatenated([pairs.name, inner.of(AttributeProto.NAME_FIELD_NUMBER, DELIMITED)])
    values = Fields.concatenated([pairs.value, inner])
    number = np.where(values.number <= LAST_VALUE, values.number, 0)
    return names, values.where((number >= FIRST_VALUE) & (values.wire == ATTRIBUTE_WIRES[number]))


def _attribute(nodes: Messages, values: Fields, kind: str, table: StringTable) -> Column:
    if kind == "string_val":
        return _strings(nodes, values.where(values.number == STRING_VALUE), table)
    if kind.endswith("_list"):
        return _list_attribute(nodes, values)
    column = np.full(len(nodes.starts), ABSENT)
    for integer, of_kind in _by_kind(INTEGER_VALUES, values):
        column[of_kind.message] = integer.decode(of_kind.value)
    return column


def _list_attribute(nodes: Messages, values: Fields) -> Ragged:
    rows, numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for integer, of_kind in _by_kind(INTEGER_LISTS, values):
        inner = walk(nodes.data, of_kind.start, of_kind.end)
        inner = inner._replace(message=of_kind.message[inner.message]).where(inner.number == LIST_VALUES)
        lists = _repeated(nodes, inner, integer)
        rows.append(lists.rows())
        numbers.append(lists.values)
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return Ragged(_bounds(row, len(nodes.starts)), np.concatenate(numbers)[order])


def _by_kind(kinds: dict[int, IntegerKind], values: Fields) -> list[tuple[IntegerKind, Fields]]:
    """Returns the values of each kind, without those of no kind."""
    counts = np.bincount(values.number, minlength=LAST_VALUE + 1)
    if counts.max(initial=0) == len(values.number):
        return [(kinds[number], values) for number in values.number[:1].tolist() if number in kinds]
    return [(kind, values.where(values.number == number)) for number, kind in kinds.items() if counts[number]]
