"""Blocks of encoded nodes to the JSON text that `json_form` defines, all nodes of a block at once.

Only what is surely encoded as it would be again, and of a common kind, is rendered in columns; the rest goes through `json_form`,
attribute by attribute or node by node, which also finds what is wrong.
"""

from collections.abc import Iterator

import numpy as np
import orjson

from .columns import Bool
from .decimal_text import decimal_lists, decimals
from .execution_graph_pb2 import IOInfo, Node, NodeType
from .json_attributes import AttributeRenderer
from .json_form import NODE
from .json_strings import EscapedTexts, is_plain
from .spans import Part, Spans, join_parts, repeated
from .wire import Messages, WireError
from .wire_cursor import Cursor, Lists, Ranges

SEPARATOR = b",\n"
TYPE_TEXTS = Spans.of(
    [b'","type":%s,"ctrl_deps":[' % orjson.dumps(name) for name in NodeType.DESCRIPTOR.values_by_name]
)
TENSORS = ((Node.INPUTS_FIELD_NUMBER, b"inputs"), (Node.OUTPUTS_FIELD_NUMBER, b"outputs"))
TENSOR_PARTS = [(field.number, field.name.encode()) for field in IOInfo.DESCRIPTOR.fields]


class NodeRenderer:
    """Renders nodes block by block; remembers the attributes that come again."""

    def __init__(self) -> None:
        self._attributes = AttributeRenderer()

    def render(self, nodes: Messages) -> bytes:
        """The JSON texts of nodes, a line each, with a comma between. Raises WireError for one that would not come back the same."""
        try:
            texts, sure = self._rendered(nodes, plain=True)
            if not is_plain(texts.source, len(sure)):
                texts, sure = self._rendered(nodes, plain=False)
        except (WireError, UnicodeDecodeError):
            # what is wrong, and where, is found by looking at single nodes
            texts, sure = Spans.of([]), np.zeros(len(nodes.starts), np.bool_)
        others = np.flatnonzero(~sure)
        if len(others):
            rows = np.flatnonzero(sure)
            single = Spans.of([_render(nodes, row) + SEPARATOR for row in others.tolist()])
            texts = join_parts([(rows, texts.take(rows)), (others, single)], len(sure))
        return texts.source[: -len(SEPARATOR)].tobytes()

    def _rendered(self, nodes: Messages, plain: bool) -> tuple[Spans, Bool]:
        """The text of each node, with the separator, and whether it is sure to be right, with `plain` if all texts are plain.

        The rows that the text is put together from are, for each node, one up to its attributes, one for each of them, and one to close.
        """
        count = len(nodes.starts)
        texts = EscapedTexts.of(nodes, plain)
        cursor = Cursor(nodes.data, nodes.starts, nodes.ends)
        own = [*_node_parts(texts, cursor)]
        attributes = cursor.repeated(Node.ATTR_FIELD_NUMBER)
        sure = cursor.finish()
        place = 2 * np.arange(count) + np.searchsorted(attributes.row, np.arange(count))
        closing = np.append(place[1:], 2 * count + len(attributes.row))[:count] - 1
        attribute_place = np.arange(len(attributes.row)) + 2 * attributes.row + 1
        parts = [
            *((place[rows], part) for rows, part in own),
            *((attribute_place[rows], part) for rows, part in self._attributes.parts(texts, attributes, sure)),
            (closing, repeated(b"]}" + SEPARATOR, count)),
        ]
        rows = join_parts(parts, 2 * count + len(attributes.row))
        lengths = rows.starts[closing] + rows.lengths[closing] - rows.starts[place]
        return Spans(rows.source, rows.starts[place], lengths), sure


def _render(nodes: Messages, row: int) -> bytes:
    start, end = int(nodes.starts[row]), int(nodes.ends[row])
    try:
        return NODE.decode(nodes.raw[start:end])
    except WireError as error:
        raise WireError(error.what, start + error.at) from error


def _node_parts(texts: EscapedTexts, cursor: Cursor) -> Iterator[Part]:
    """What stands before a node's attributes."""
    count = len(cursor.at)
    everywhere = np.arange(count)
    yield everywhere, repeated(b'{"id":', count)
    yield everywhere, decimals(cursor.integers(Node.ID_FIELD_NUMBER), b',"name":"')
    names = cursor.contents(Node.NAME_FIELD_NUMBER)
    yield names.row, texts.contents(names)
    yield everywhere, _types(cursor)
    yield everywhere, _dependencies(cursor, Node.CTRL_DEPS_FIELD_NUMBER)
    yield everywhere, repeated(b'],"data_deps":[', count)
    yield everywhere, _dependencies(cursor, Node.DATA_DEPS_FIELD_NUMBER)
    yield everywhere, repeated(b'],"start_time_micros":', count)
    yield everywhere, decimals(cursor.integers(Node.START_TIME_MICROS_FIELD_NUMBER), b',"duration_micros":')
    yield everywhere, decimals(cursor.integers(Node.DURATION_MICROS_FIELD_NUMBER), b"")
    for number, name in TENSORS:
        tensors = cursor.contents(number, empty=True)
        yield from ((tensors.row[rows], part) for rows, part in _tensor_parts(texts, cursor, tensors, name))
    yield everywhere, repeated(b',"attr":[', count)


def _types(cursor: Cursor) -> Spans:
    types = cursor.integers(Node.TYPE_FIELD_NUMBER)
    named = types < len(TYPE_TEXTS.starts)
    cursor.sound &= named
    return TYPE_TEXTS.take(np.where(named, types, 0).astype(np.int64))


def _dependencies(cursor: Cursor, number: int) -> Spans:
    packed = cursor.contents(number)
    lists = Lists.read(cursor.data, packed)
    cursor.sound[packed.row] &= lists.sound
    return decimal_lists(lists.bits, packed.row[lists.field], len(cursor.at))


def _tensor_parts(texts: EscapedTexts, nodes: Cursor, tensors: Ranges, name: bytes) -> Iterator[Part]:
    """Inputs or outputs, by their own rows."""
    count = len(tensors.row)
    cursor = Cursor(nodes.data, tensors.start, tensors.end)
    before = b',"%s":{"' % name
    for number, key in TENSOR_PARTS:
        given = cursor.contents(number)
        yield np.arange(count), repeated(before + key + b'":"', count)
        yield given.row, texts.contents(given)
        before = b'","'
    yield np.arange(count), repeated(b'"}', count)
    nodes.sound[tensors.row] &= cursor.finish()
