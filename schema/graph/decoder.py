"""Decodes node messages into columns, and counts nodes that contradict the schema.

Fields and attributes may be in any order, integers of any type; if one is there twice, the last one counts, as in the
protobuf library. Works on a block of messages at a time. Contradictions are reported, as they may change results, and
not corrected.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from ..columns import (
    ABSENT,
    Bool,
    Bytes,
    BytesColumn,
    Categorical,
    Int64,
    IntegerBuilder,
    NodeIds,
    Ragged,
    Spans,
    first_not_utf8,
    rows_of,
)
from .execution_graph_pb2 import AttributeProto, GlobalMetadata, Int64List, IOInfo, Node
from .nodes import ATTRIBUTES, Column, NodeColumns, NodeProblem, NodeType, TensorText
from .wire import (
    DELIMITED,
    INTEGER_KINDS,
    INTEGER_LISTS,
    INTEGER_VALUES,
    PADDING,
    VARINT,
    Fields,
    IntegerKind,
    Messages,
    UInt64,
    WireError,
    read_packed,
    walk,
    walk_pairs,
    wire_types,
    words,
)

NEGATIVE = "durations below 0; a node cannot end before it starts, write the graph again"
NO_TYPE = "collectives of a comm_type that is none; they are taken as of an unknown type, write the graph again"
DANGLING = "ctrl_deps on nodes that the graph lacks; they are ignored, write the graph again"
BYTES_AT_ONCE = 1 << 19

TENSOR_PARTS = (IOInfo.VALUES_FIELD_NUMBER, IOInfo.SHAPES_FIELD_NUMBER, IOInfo.TYPES_FIELD_NUMBER)
FIRST_VALUE, LAST_VALUE = AttributeProto.DOUBLE_VAL_FIELD_NUMBER, AttributeProto.BYTES_LIST_FIELD_NUMBER
LIST_VALUES = Int64List.VALUES_FIELD_NUMBER
STRING_VALUE = AttributeProto.STRING_VAL_FIELD_NUMBER

ATTRIBUTE_WIRES = wire_types(AttributeProto)
FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""Masks for the first 0 to 8 bytes of a word."""


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


class NameKeys(NamedTuple):
    """Names of up to 16 bytes as two words and a length, which identify them, and a hash of the words for look-up."""

    first: UInt64
    second: UInt64
    length: Int64
    mix: UInt64

    def where(self, rows: Int64) -> "NameKeys":
        """Returns the keys of these rows."""
        return NameKeys(self.first[rows], self.second[rows], self.length[rows], self.mix[rows])


def _name_keys(data: Bytes, start: Int64, length: Int64) -> NameKeys:
    first = words(data)[start] & FIRST_BYTES[np.minimum(length, 8)]
    second = words(data)[start + 8] & FIRST_BYTES[np.clip(length - 8, 0, 8)]
    return NameKeys(first, second, length, first ^ second * np.uint64(0x9E3779B97F4A7C15))


_known_names = Spans.of([attribute.name.encode() for attribute in ATTRIBUTES])
_known_keys = _name_keys(np.append(_known_names.source, np.zeros(PADDING, np.uint8)), *_known_names[1:])
KNOWN_POSITIONS = np.argsort(_known_keys.mix)
KNOWN_KEYS = _known_keys.where(KNOWN_POSITIONS)


def known_attributes(data: Bytes, names: Fields) -> Int64:
    """Returns the position of each name in ATTRIBUTES, len(ATTRIBUTES) for a name that is not there."""
    keys = _name_keys(data, names.start, names.value.view(np.int64))
    position = np.minimum(np.searchsorted(KNOWN_KEYS.mix, keys.mix), len(ATTRIBUTES) - 1)
    candidate = KNOWN_KEYS.where(position)
    same = (candidate.first == keys.first) & (candidate.second == keys.second) & (candidate.length == keys.length)
    return np.where(same, KNOWN_POSITIONS[position], len(ATTRIBUTES))


class NodeProblems:
    """Collects the problems of nodes block by block, in a few bytes per node."""

    def __init__(self) -> None:
        self._problems: dict[str, NodeProblem] = {}
        self._ids, self._called, self._callers = (IntegerBuilder() for _ in range(3))

    def add(self, nodes: NodeColumns) -> None:
        """Takes the next block."""
        for what, problem in nodes.problems.items():
            self._note(what, problem)
        self._note(NEGATIVE, node_problem(nodes.id, (nodes.duration_ns < 0) | (nodes.duration_micros < 0)))
        recorded = nodes.integers("comm_type", -1)
        self._note(NO_TYPE, node_problem(nodes.id, (recorded >= 0) & (nodes.collective_types() != recorded)))
        self._ids.add(nodes.id)
        self._called.add(nodes.id[nodes.ctrl_deps.rows()])
        self._callers.add(nodes.ctrl_deps.values)

    def notes(self, path: str) -> list[str]:
        """Returns a sentence for each kind of problem, after all blocks were added."""
        self._note(
            DANGLING,
            node_problem(NodeIds(self._called.column()), rows_of(self._ids.column(), self._callers.column()) < 0),
        )
        return [
            f"{path}: {problem.affected} {what.replace(';', f' (the first: node {problem.first_node});', 1)}"
            for what, problem in self._problems.items()
        ]

    def _note(self, what: str, problem: NodeProblem) -> None:
        if problem.affected:
            total = self._problems.get(what, NodeProblem(0, problem.first_node))
            self._problems[what] = NodeProblem(total.affected + problem.affected, total.first_node)


def node_problem(nodes: NodeIds, is_so: Bool) -> NodeProblem:
    """Returns the number of nodes that have a problem, and the first of them."""
    rows = np.flatnonzero(is_so)
    return NodeProblem(len(rows), int(nodes[rows[0]]) if len(rows) else -1)


class MessageChecks:
    """The problems of the Node messages added so far, in a few bytes of memory per message."""

    def __init__(self) -> None:
        self._problems = NodeProblems()
        self._waiting: list[bytes] = []
        self._size = 0

    def add(self, message: bytes) -> None:
        """Takes the next message."""
        self._waiting.append(message)
        self._size += len(message)
        if self._size >= BYTES_AT_ONCE:
            self._check()

    def notes(self, path: str) -> list[str]:
        """Returns a sentence for each kind of problem."""
        self._check()
        return self._problems.notes(path)

    def _check(self) -> None:
        messages, self._waiting, self._size = self._waiting, [], 0
        ends = np.cumsum([0, *map(len, messages)])
        try:
            nodes = decode_nodes(
                Messages.of(b"".join(messages), ends[:-1], ends[1:]), defaultdict(StringTable), tensors=False
            )
        except WireError:
            # readers of the nodes report the byte
            return
        self._problems.add(nodes)
