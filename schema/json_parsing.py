"""Blocks of JSON nodes, in the form that `json_form` defines, to framed messages, all nodes of a block at once.

Attribute texts that differ only in their integers share what stands before these; each such beginning is parsed once, and so is each
text of an attribute of another kind. What does not fit goes through `json_form` node by node, which also finds what is wrong.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from .columns import Int64, Ragged, Strings
from .execution_graph_pb2 import AttributeProto, Int64List, NodeType
from .graph import ExecutionGraph, TensorText
from .graph_encoder import ATTRIBUTE_TAG, node_encoders, packed
from .integer_kinds import HIGHEST, LOWEST
from .json_form import ATTRIBUTE, NODE, UNSIGNED64, FormError
from .spans import Spans, join, join_parts
from .varints import prefixed_varints, varint
from .wire import DELIMITED, delimited, tag

NODE_TYPES = dict(NodeType.items())
VALUES_TAG = tag(Int64List.VALUES_FIELD_NUMBER, DELIMITED)
WHITESPACE = b" \t\r\n"


class _Tensors(msgspec.Struct, forbid_unknown_fields=True):
    values: str = ""
    shapes: str = ""
    types: str = ""


class _Node(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A node whose attributes are still JSON text."""

    id: UNSIGNED64 = 0
    name: str = ""
    type: str = "INVALID_NODE"
    ctrl_deps: list[UNSIGNED64] = []
    data_deps: list[UNSIGNED64] = []
    start_time_micros: UNSIGNED64 = 0
    duration_micros: UNSIGNED64 = 0
    inputs: _Tensors | UnsetType = UNSET
    outputs: _Tensors | UnsetType = UNSET
    attr: list[msgspec.Raw] = []


TEXTS_REMEMBERED = 1 << 17
NO_TENSORS = _Tensors()
DECODER = msgspec.json.Decoder(list[_Node])


class _NotCommonError(Exception):
    """The block holds something that is converted node by node only."""


class NodeTextEncoder:
    """Encodes nodes block by block; remembers the attribute texts that come again, up to a bound."""

    def __init__(self) -> None:
        self._beginnings = _Beginnings()
        self._messages = _Messages()

    def encode(self, texts: Sequence[msgspec.Raw]) -> bytes:
        """The framed messages of nodes given as JSON texts. Raises FormError with the row of the first that is no node."""
        if len(self._beginnings) + len(self._messages) > TEXTS_REMEMBERED:
            self._beginnings, self._messages = _Beginnings(), _Messages()
        try:
            return self._encoded(DECODER.decode(b"[" + b",".join(texts) + b"]"))
        except (_NotCommonError, FormError, msgspec.DecodeError, KeyError, ValueError, OverflowError, RecursionError):
            # what is wrong, if anything, and where, is found by looking at single nodes
            return b"".join(_single(text, row) for row, text in enumerate(texts))

    def _encoded(self, nodes: list[_Node]) -> bytes:
        """The framed messages of nodes. Raises one of several errors where not all of them are of the common kind."""
        encoders = node_encoders(_columns(nodes))
        everywhere = np.ones(len(nodes), np.bool_)
        fields = [spans for encode in encoders for spans in encode(slice(0, len(nodes)))]
        fields.append(_attributes([node.attr for node in nodes], self._beginnings, self._messages))
        return join(delimited(b"", fields, everywhere), len(nodes)).source.tobytes()


def _single(text: msgspec.Raw, row: int) -> bytes:
    try:
        message = NODE.encode(bytes(text))
    except FormError as error:
        raise FormError(str(error), row) from error
    return varint(len(message)) + message


def _columns(nodes: list[_Node]) -> ExecutionGraph:
    """The nodes without their attributes."""

    def unsigned(values: list[int]) -> Int64:
        return np.array(values, np.uint64).view(np.int64)

    def ragged(rows: list[list[int]]) -> Ragged:
        limits = np.cumsum([0, *map(len, rows)])
        return Ragged(limits, unsigned([*chain.from_iterable(rows)]))

    return ExecutionGraph(
        id=unsigned([node.id for node in nodes]),
        name=Strings(np.arange(len(nodes), dtype=np.int32), [node.name for node in nodes]),
        type=np.array([NODE_TYPES[node.type] for node in nodes], np.uint8),
        data_deps=ragged([node.data_deps for node in nodes]),
        ctrl_deps=ragged([node.ctrl_deps for node in nodes]),
        start_time_micros=unsigned([node.start_time_micros for node in nodes]),
        duration_micros=unsigned([node.duration_micros for node in nodes]),
        attributes={},
        tensors=_tensors(nodes),
    )


def _tensors(nodes: list[_Node]) -> TensorText | None:
    rows = [
        row for row, node in enumerate(nodes) if isinstance(node.inputs, _Tensors) or isinstance(node.outputs, _Tensors)
    ]
    if not rows:
        return None
    columns: list[list[bytes]] = []
    for side in ([nodes[row].inputs for row in rows], [nodes[row].outputs for row in rows]):
        if NO_TENSORS in side:
            raise _NotCommonError("the columns do not hold inputs or outputs that are there but empty")
        given = [NO_TENSORS if isinstance(tensors, UnsetType) else tensors for tensors in side]
        columns += [
            [t.values.encode() for t in given],
            [t.shapes.encode() for t in given],
            [t.types.encode() for t in given],
        ]
    return TensorText(np.array(rows), *columns)


class _Beginnings(dict[bytes, int]):
    """Numbers what stands before the last colon of attribute texts: -1 where no plain integer or list of them can follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[bytes] = []
        """For each number the attribute message up to its integer, or up to its list."""
        self.is_list: list[bool] = []
        self.value: list[int] = []
        """The field number of the attribute's value."""

    def __missing__(self, text: bytes) -> int:
        for sample, encoded_sample in ((b"0}", b"\0"), (b"[0]}}", b"\x03" + VALUES_TAG + b"\x01\0")):
            try:
                message = ATTRIBUTE.encode(text + b":" + sample)
            except FormError:
                continue
            value = AttributeProto.FromString(message).WhichOneof("value")
            number = AttributeProto.DESCRIPTOR.fields_by_name[value].number if value else 0
            if LOWEST[number] < HIGHEST[number]:
                self.messages.append(message.removesuffix(encoded_sample))
                self.is_list.append(len(encoded_sample) > 1)
                self.value.append(number)
                return self.setdefault(text, len(self.messages) - 1)
        return self.setdefault(text, -1)


class _Messages(dict[bytes, bytes]):
    """Attribute fields by the text that they stand for."""

    def __missing__(self, text: bytes) -> bytes:
        message = ATTRIBUTE.encode(text)
        return self.setdefault(text, ATTRIBUTE_TAG + varint(len(message)) + message)


class _Texts(NamedTuple):
    """Attribute texts, the place of the last colon in each, and the number of what stands before it."""

    texts: list[bytes]
    colon: list[int]
    beginning: Int64

    def after_colon(self, rows: Int64) -> list[bytes]:
        """What stands between the last colon and the bracket that closes the attribute."""
        texts, colon = self.texts, self.colon
        return [texts[row][colon[row] + 1 : -1] for row in rows.tolist()]


def _attributes(rows: list[list[msgspec.Raw]], beginnings: _Beginnings, messages: _Messages) -> Spans:
    """The encoded attributes of each node."""
    texts = [bytes(text) for row in rows for text in row]
    colon = [text.rfind(b":") for text in texts]
    before = [text[:end] for text, end in zip(texts, colon, strict=True)]
    split = _Texts(texts, colon, np.fromiter(map(beginnings.__getitem__, before), np.int64, len(texts)))
    is_list = np.array([*beginnings.is_list, False])[split.beginning]
    is_number = split.beginning >= 0
    others = np.flatnonzero(~is_number)
    parts = [
        *_integer_parts(beginnings, split, np.flatnonzero(is_number & ~is_list)),
        *_list_parts(beginnings, split, np.flatnonzero(is_list)),
        (others, Spans.of([messages[texts[row]] for row in others.tolist()])),
    ]
    encoded = join_parts(parts, len(texts))
    limits = np.append(encoded.starts, len(encoded.source))[np.cumsum([0, *map(len, rows)])]
    return Spans(encoded.source, limits[:-1], np.diff(limits))


def _integer_parts(beginnings: _Beginnings, split: _Texts, rows: Int64) -> list[tuple[Int64, Spans]]:
    beginning = split.beginning[rows]
    numbers = np.array([int(text) for text in split.after_colon(rows)], np.int64)
    _check_range(numbers, np.array(beginnings.value, np.int64)[beginning])
    everywhere = np.ones(len(rows), np.bool_)
    content = [
        Spans.of(beginnings.messages).take(beginning),
        prefixed_varints(b"", numbers.view(np.uint64), everywhere),
    ]
    return [(rows, spans) for spans in delimited(ATTRIBUTE_TAG, content, everywhere)]


def _list_parts(beginnings: _Beginnings, split: _Texts, rows: Int64) -> list[tuple[Int64, Spans]]:
    beginning = split.beginning[rows]
    # without the bracket before the integers, and the two after them
    lists = [text.translate(None, WHITESPACE)[1:-2].split(b",") for text in split.after_colon(rows)]
    limits = np.cumsum([0, *map(len, lists)])
    numbers = np.array([int(text) for texts in lists for text in texts], np.int64)
    _check_range(numbers, np.repeat(np.array(beginnings.value, np.int64)[beginning], np.diff(limits)))
    everywhere = np.ones(len(rows), np.bool_)
    values = delimited(VALUES_TAG, [packed(Ragged(limits, numbers), slice(0, len(rows)))], everywhere)
    content = [Spans.of(beginnings.messages).take(beginning), *delimited(b"", values, everywhere)]
    return [(rows, spans) for spans in delimited(ATTRIBUTE_TAG, content, everywhere)]


def _check_range(numbers: Int64, value: Int64) -> None:
    if not ((LOWEST[value] <= numbers) & (numbers <= HIGHEST[value])).all():
        raise _NotCommonError("an integer that is beyond its type, or in the upper half of uint64")
