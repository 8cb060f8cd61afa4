"""Blocks of JSON nodes, in the form that `json_form` defines, to framed messages, all nodes of a block at once.

Lines as this project writes them are read in columns. Other nodes are written as such lines first, by a typed decoder; what then still
does not fit goes through `json_form` node by node, which also finds what is wrong.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, cast

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from .columns import Bool, Ragged
from .execution_graph_pb2 import IOInfo, Node, NodeType
from .graph_encoder import packed
from .json_attribute_parsing import AttributeParser
from .json_form import NODE, UNSIGNED64, FormError
from .spans import Part, Spans, join_parts
from .varints import UInt64, prefixed_varints, varint
from .wire import DELIMITED, VARINT, delimited, tag

NODE_TYPES: dict[str | int, int] = dict(NodeType.items())
TENSOR_PARTS = (IOInfo.VALUES_FIELD_NUMBER, IOInfo.SHAPES_FIELD_NUMBER, IOInfo.TYPES_FIELD_NUMBER)
UNNAMED = -1
NO_ATTRIBUTES = msgspec.Raw(b"[]")


class _Tensors(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    values: str = ""
    shapes: str = ""
    types: str = ""


class NodeRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A node whose attributes are still JSON text."""

    id: UNSIGNED64 = 0
    name: str = ""
    type: str | int = "INVALID_NODE"
    ctrl_deps: list[UNSIGNED64] = []
    data_deps: list[UNSIGNED64] = []
    start_time_micros: UNSIGNED64 = 0
    duration_micros: UNSIGNED64 = 0
    inputs: _Tensors | UnsetType = UNSET
    outputs: _Tensors | UnsetType = UNSET
    attr: msgspec.Raw = NO_ATTRIBUTES


NODE_RECORD = msgspec.json.Decoder(NodeRecord)
NODES = msgspec.json.Decoder(list[NodeRecord])
GivenNode = NodeRecord | msgspec.Raw
TEXTS = msgspec.json.Decoder(list[msgspec.Raw])


class NodesDecoder:
    """Decodes lists of nodes; a list that has something else in it, to the texts of what it has."""

    def decode(self, text: bytes, /) -> list[GivenNode]:
        try:
            return cast(list[GivenNode], NODES.decode(text))
        except (msgspec.ValidationError, UnicodeDecodeError):
            return cast(list[GivenNode], TEXTS.decode(text))


class NodeEncoder:
    """Encodes nodes block by block; remembers the attribute texts that come again, up to a bound."""

    def __init__(self) -> None:
        self._attributes = AttributeParser()

    def encode(self, given: Sequence[GivenNode]) -> bytes:
        """The framed messages of nodes, decoded or as JSON texts. Raises FormError with the row of the first that is no node."""
        if not given:
            return b""
        try:
            nodes = [node if isinstance(node, NodeRecord) else NODE_RECORD.decode(node) for node in given]
            frames, sure = self._frames(nodes)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
            # what is wrong, and where, is found by looking at single nodes
            return b"".join(_single(_text(node), row) for row, node in enumerate(given))
        others = np.flatnonzero(~sure)
        if len(others):
            rows = np.flatnonzero(sure)
            again = self._encoded_again([nodes[row] for row in others.tolist()])
            pairs = zip(others.tolist(), again, strict=True)
            single = [frame or _single(_text(nodes[row]), row) for row, frame in pairs]
            frames = join_parts([(rows, frames.take(rows)), (others, Spans.of(single))], len(sure))
        return frames.source.tobytes()

    def _encoded_again(self, nodes: Sequence[NodeRecord]) -> list[bytes]:
        """The framed messages of nodes whose attributes may have blanks in their text; empty where that was not it."""
        for node in nodes:
            node.attr = msgspec.Raw(msgspec.json.format(bytes(node.attr), indent=-1))
        frames, sure = self._frames(nodes)
        return [frame if good else b"" for frame, good in zip(frames.tolist(), sure.tolist(), strict=True)]

    def _frames(self, nodes: Sequence[NodeRecord]) -> tuple[Spans, Bool]:
        """The framed message of each node, and whether it is sure to be right.

        The rows that they are put together from are, for each node, one up to its attributes, and one for each of them.
        """
        count = len(nodes)
        columns = _Columns(*zip(*map(msgspec.structs.astuple, nodes), strict=True))
        own, known = _node_parts(columns)
        node, attributes, sound = self._attributes.parts(columns.attr)
        lengths = np.zeros(count, np.int64)
        for rows, part in own:
            lengths[rows] += part.lengths
        for rows, part in attributes:
            lengths += np.bincount(node[rows], part.lengths, count).astype(np.int64)
        place = np.arange(count) + np.searchsorted(node, np.arange(count))
        attribute_place = np.arange(len(node)) + node + 1
        parts = [
            (place, prefixed_varints(b"", lengths.view(np.uint64), np.ones(count, np.bool_))),
            *((place[rows], part) for rows, part in own),
            *((attribute_place[rows], part) for rows, part in attributes),
        ]
        frames = join_parts(parts, count + len(node))
        limits = np.append(frames.starts[place], len(frames.source))
        return Spans(frames.source, limits[:-1], np.diff(limits)), known & sound


def _text(node: GivenNode) -> bytes:
    return bytes(node) if isinstance(node, msgspec.Raw) else msgspec.json.encode(node)


def _single(text: bytes, row: int) -> bytes:
    try:
        message = NODE.encode(text)
    except FormError as error:
        raise FormError(str(error), row) from error
    return varint(len(message)) + message


class _Columns(NamedTuple):
    """The fields of nodes, a tuple of each."""

    id: Sequence[int]
    name: Sequence[str]
    type: Sequence[str | int]
    ctrl_deps: Sequence[list[int]]
    data_deps: Sequence[list[int]]
    start_time_micros: Sequence[int]
    duration_micros: Sequence[int]
    inputs: Sequence[_Tensors | UnsetType]
    outputs: Sequence[_Tensors | UnsetType]
    attr: Sequence[msgspec.Raw]


def _node_parts(nodes: _Columns) -> tuple[list[Part], Bool]:
    """The fields that stand before the attributes, and which nodes are of a type with a name."""
    types = np.array([NODE_TYPES.get(name, UNNAMED) for name in nodes.type], np.int64)
    parts = [
        _integers(Node.ID_FIELD_NUMBER, nodes.id),
        *_texts(Node.NAME_FIELD_NUMBER, _encoded(nodes.name)),
        _integers(Node.TYPE_FIELD_NUMBER, types.view(np.uint64)),
        *_texts(Node.CTRL_DEPS_FIELD_NUMBER, _packed(nodes.ctrl_deps)),
        *_texts(Node.DATA_DEPS_FIELD_NUMBER, _packed(nodes.data_deps)),
        _integers(Node.START_TIME_MICROS_FIELD_NUMBER, nodes.start_time_micros),
        _integers(Node.DURATION_MICROS_FIELD_NUMBER, nodes.duration_micros),
        *_tensors(Node.INPUTS_FIELD_NUMBER, nodes.inputs),
        *_tensors(Node.OUTPUTS_FIELD_NUMBER, nodes.outputs),
    ]
    return parts, types != UNNAMED


def _integers(number: int, column: Sequence[int] | UInt64) -> Part:
    values = np.array(column, np.uint64)
    return np.arange(len(values)), prefixed_varints(tag(number, VARINT), values, values != 0)


def _encoded(texts: Sequence[str]) -> Spans:
    together = "".join(texts)
    if not together.isascii():
        return Spans.of([text.encode() for text in texts])
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return Spans(np.frombuffer(together.encode(), np.uint8), np.cumsum(lengths) - lengths, lengths)


def _packed(lists: Sequence[list[int]]) -> Spans:
    limits = np.cumsum([0, *map(len, lists)])
    values = np.array([*chain.from_iterable(lists)], np.uint64)
    return packed(Ragged(limits, values.view(np.int64)), slice(0, len(lists)))


def _texts(number: int, texts: Spans) -> list[Part]:
    rows = np.arange(len(texts.lengths))
    return [(rows, spans) for spans in delimited(tag(number, DELIMITED), [texts], texts.lengths > 0)]


def _tensors(number: int, column: Sequence[_Tensors | UnsetType]) -> list[Part]:
    """Inputs or outputs of the nodes that have them."""
    rows = [row for row, tensors in enumerate(column) if tensors is not UNSET]
    given = cast(list[_Tensors], [column[row] for row in rows])
    columns = ([t.values for t in given], [t.shapes for t in given], [t.types for t in given])
    pairs = zip(TENSOR_PARTS, columns, strict=True)
    content = [spans for part, texts in pairs for _, spans in _texts(part, _encoded(texts))]
    places, everywhere = np.array(rows, np.int64), np.ones(len(rows), np.bool_)
    return [(places, spans) for spans in delimited(tag(number, DELIMITED), content, everywhere)]
