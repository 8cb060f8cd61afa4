"""Blocks of encoded nodes to the JSON text that `json_form` defines, all nodes of a block at once.

Only what is surely encoded as it would be again, and of a common kind, is rendered in columns; the rest goes through `json_form`,
attribute by attribute or node by node, which also finds what is wrong.
"""

from collections.abc import Iterator

import numpy as np
import orjson

from .canonical import Layout, shortest_sizes, surely_canonical
from .columns import Bool, Int64
from .decimal_text import decimal_lists, decimals
from .execution_graph_pb2 import AttributeProto, Int64List, IOInfo, Node, NodeType
from .graph import ATTRIBUTES
from .graph_decoder import TextTable
from .integer_kinds import HIGHEST, LOWEST
from .json_form import ATTRIBUTE, NODE
from .known_attributes import known_attributes
from .spans import Spans, join_parts
from .varints import UInt64, varint_lengths
from .wire import DELIMITED, VARINT, Fields, Messages, Pairs, WireError, read_packed, walk, walk_pairs

Part = tuple[Int64, Spans]
"""Texts, and the rows of a block's text that they are appended to."""

SEPARATOR = b",\n"
NODE_LAYOUT, ATTRIBUTE_LAYOUT = Layout.of(Node), Layout.of(AttributeProto)
TENSOR_LAYOUT, LIST_LAYOUT = Layout.of(IOInfo), Layout.of(Int64List)
TYPE_TEXTS = Spans.of([b',"type":%s,"ctrl_deps":[' % orjson.dumps(name) for name in NodeType.DESCRIPTOR.values_by_name])
TRUTH_TEXTS = Spans.of([b"false}", b"true}"])
TRUTH, STRING = AttributeProto.BOOL_VAL_FIELD_NUMBER, AttributeProto.STRING_VAL_FIELD_NUMBER
DOC_STRING = AttributeProto.DOC_STRING_FIELD_NUMBER
LEADS = [b""] * len(ATTRIBUTE_LAYOUT.wire)
"""What stands between an attribute's name and its value, by the number of the value."""
KNOWN_NAMES = [orjson.dumps(attribute.name) for attribute in ATTRIBUTES]
for _field in AttributeProto.DESCRIPTOR.fields:
    LEADS[_field.number] = b'"%s":%s' % (_field.name.encode(), b'{"values":[' if _field.name.endswith("_list") else b"")


def render_nodes(nodes: Messages) -> bytes:
    """The JSON texts of nodes, a line each, with a comma between. Raises WireError for one that would not come back the same."""
    try:
        texts, sure = _rendered(nodes)
    except (WireError, UnicodeDecodeError):
        # what is wrong, and where, is found by looking at single nodes
        texts, sure = Spans.of([]), np.zeros(len(nodes.starts), np.bool_)
    others = np.flatnonzero(~sure)
    if len(others):
        rows = np.flatnonzero(sure)
        single = Spans.of([_render(nodes, row) + SEPARATOR for row in others.tolist()])
        texts = join_parts([(rows, texts.take(rows)), (others, single)], len(sure))
    return texts.source[: -len(SEPARATOR)].tobytes()


def _render(nodes: Messages, row: int) -> bytes:
    start, end = int(nodes.starts[row]), int(nodes.ends[row])
    try:
        return NODE.decode(nodes.raw[start:end])
    except WireError as error:
        raise WireError(error.what, start + error.at) from error


def _rendered(nodes: Messages) -> tuple[Spans, Bool]:
    """The text of each node, with the separator, and whether it is sure to be right.

    The rows that the text is put together from are, for each node, one up to its attributes, one for each of them, and one to close.
    """
    count = len(nodes.starts)
    fields = walk(nodes.data, nodes.starts, nodes.ends).in_message_order()
    sure = surely_canonical(fields, nodes.starts, nodes.ends, NODE_LAYOUT)
    is_attribute = (fields.number == Node.ATTR_FIELD_NUMBER) & (fields.wire == DELIMITED)
    own, attributes = fields.where(~is_attribute), fields.where(is_attribute)
    place = 2 * np.arange(count) + np.searchsorted(attributes.message, np.arange(count))
    closing = np.append(place[1:], 2 * count + len(attributes.message))[:count] - 1
    parts = [
        *_node_parts(nodes, own, place, sure),
        *_attribute_parts(nodes, attributes, np.arange(len(attributes.message)) + 2 * attributes.message + 1, sure),
        (closing, _repeated(b"]}" + SEPARATOR, count)),
    ]
    rows = join_parts(parts, 2 * count + len(attributes.message))
    return Spans(
        rows.source, rows.starts[place], rows.starts[closing] + rows.lengths[closing] - rows.starts[place]
    ), sure


def _repeated(text: bytes, count: int) -> Spans:
    return Spans(np.frombuffer(text, np.uint8), np.zeros(count, np.int64), np.full(count, len(text)))


def _node_parts(nodes: Messages, own: Fields, place: Int64, sure: Bool) -> Iterator[Part]:
    """What stands before a node's attributes; clears `sure` where it is not what the encoded node says."""
    count = len(place)
    types = _column(own, Node.TYPE_FIELD_NUMBER, count)
    sure &= types < len(TYPE_TEXTS.starts)
    yield place, _repeated(b'{"id":', count)
    yield place, decimals(_column(own, Node.ID_FIELD_NUMBER, count), b',"name":')
    yield place, _quoted(nodes, own.of(Node.NAME_FIELD_NUMBER, DELIMITED), b"", count)
    yield place, TYPE_TEXTS.take(np.where(sure, types, 0).astype(np.int64))
    yield place, _dependencies(nodes, own.of(Node.CTRL_DEPS_FIELD_NUMBER, DELIMITED), sure)
    yield place, _repeated(b'],"data_deps":[', count)
    yield place, _dependencies(nodes, own.of(Node.DATA_DEPS_FIELD_NUMBER, DELIMITED), sure)
    yield place, _repeated(b'],"start_time_micros":', count)
    yield place, decimals(_column(own, Node.START_TIME_MICROS_FIELD_NUMBER, count), b',"duration_micros":')
    yield place, decimals(_column(own, Node.DURATION_MICROS_FIELD_NUMBER, count), b"")
    for number, name in ((Node.INPUTS_FIELD_NUMBER, b"inputs"), (Node.OUTPUTS_FIELD_NUMBER, b"outputs")):
        tensors = own.of(number, DELIMITED).last_given(count)
        yield place[tensors.message], _tensor_texts(nodes, tensors, name, sure)
    yield place, _repeated(b',"attr":[', count)


def _column(own: Fields, number: int, count: int) -> UInt64:
    given = own.of(number, VARINT)
    column = np.zeros(count, np.uint64)
    column[given.message] = given.value
    return column


def _quoted(messages: Messages, fields: Fields, suffix: bytes, count: int) -> Spans:
    """A string field as JSON text, empty where a message does not have it."""
    table = TextTable()
    codes = np.full(count, table[b""])
    texts = messages.contents(fields)
    codes[fields.message] = np.fromiter(map(table.__getitem__, texts), np.int64, len(texts))
    return Spans.of([orjson.dumps(text) + suffix for text in table.texts]).take(codes)


def _dependencies(nodes: Messages, packed: Fields, sure: Bool) -> Spans:
    field, bits, _ = read_packed(nodes.data, packed.start, packed.end, VARINT)
    sure[packed.message[~_packed_shortest(packed, field, bits)]] = False
    return decimal_lists(bits, packed.message[field], len(sure))


def _packed_shortest(packed: Fields, field: Int64, bits: UInt64) -> Bool:
    """Whether the numbers of each packed field take no more bytes than they need."""
    needed = np.bincount(field, weights=varint_lengths(bits), minlength=len(packed.start))
    return np.equal(needed, packed.value)


def _tensor_texts(nodes: Messages, tensors: Fields, name: bytes, sure: Bool) -> Spans:
    inner = walk(nodes.data, tensors.start, tensors.end).in_message_order()
    canonical = surely_canonical(inner, tensors.start, tensors.end, TENSOR_LAYOUT)
    sure[tensors.message[~canonical]] = False
    columns = []
    for part in (IOInfo.VALUES_FIELD_NUMBER, IOInfo.SHAPES_FIELD_NUMBER, IOInfo.TYPES_FIELD_NUMBER):
        given = inner.of(part, DELIMITED)
        column = [b'""'] * len(tensors.start)
        for row, text in zip(given.message.tolist(), nodes.contents(given), strict=True):
            column[row] = orjson.dumps(text.decode())
        columns.append(column)
    return Spans.of(
        [b',"%s":{"values":%s,"shapes":%s,"types":%s}' % (name, *texts) for texts in zip(*columns, strict=True)]
    )


def _attribute_parts(nodes: Messages, attributes: Fields, place: Int64, sure: Bool) -> Iterator[Part]:
    """The attributes with the commas between; clears `sure` where one is not what is encoded."""
    following = np.flatnonzero(attributes.message[1:] == attributes.message[:-1]) + 1
    yield place[following], _repeated(b",", len(following))
    pairs = _pairs(nodes, attributes)
    common = np.zeros(len(place), np.bool_)
    value_parts = [*_number_parts(pairs), *_string_parts(nodes, pairs), *_list_parts(nodes, pairs)]
    for row, _ in value_parts:
        common[row] = True
    chosen = pairs.where(common[pairs.row])
    yield place[chosen.row], _leads(nodes, chosen)
    yield from ((place[row], texts) for row, texts in value_parts)
    others = np.flatnonzero(~common)
    yield place[others], _single_texts(nodes, attributes.where(others), sure)


def _pairs(nodes: Messages, attributes: Fields) -> Pairs:
    """The attributes that are surely canonical and have a name and a value only."""
    pairs = walk_pairs(nodes.data, attributes.start, attributes.end)
    value = pairs.value
    number = np.where(value.number < len(ATTRIBUTE_LAYOUT.wire), value.number, 0)
    needed = attributes.end[pairs.row] - pairs.name.end
    is_value = (number > DOC_STRING) & (value.wire == ATTRIBUTE_LAYOUT.wire[number])
    return pairs.where(is_value & (shortest_sizes(value) == needed) & (pairs.name.value > 0))


def _in_range(bits: UInt64, number: Int64) -> Bool:
    """Whether the encoded integer is a plain one of the type of the attribute's value."""
    signed = bits.view(np.int64)
    return np.logical_and(LOWEST[number] <= signed, signed <= HIGHEST[number])


def _number_parts(pairs: Pairs) -> Iterator[Part]:
    number, bits = pairs.value.number, pairs.value.value
    integers = np.flatnonzero((pairs.value.wire == VARINT) & _in_range(bits, number))
    yield pairs.row[integers], decimals(bits[integers].view(np.int64), b"}")
    truths = np.flatnonzero((number == TRUTH) & (bits < 2))
    yield pairs.row[truths], TRUTH_TEXTS.take(bits[truths].view(np.int64))


def _string_parts(nodes: Messages, pairs: Pairs) -> Iterator[Part]:
    strings = pairs.where(pairs.value.number == STRING)
    count = len(strings.row)
    yield strings.row, _quoted(nodes, strings.value._replace(message=np.arange(count)), b"}", count)


def _list_parts(nodes: Messages, pairs: Pairs) -> Iterator[Part]:
    candidates = pairs.where(
        (pairs.value.wire == DELIMITED) & (LOWEST[pairs.value.number] < HIGHEST[pairs.value.number])
    )
    starts, ends = candidates.value.start, candidates.value.end
    inner = walk(nodes.data, starts, ends).in_message_order()
    canonical = surely_canonical(inner, starts, ends, LIST_LAYOUT)
    packed = inner.where(canonical[inner.message])
    field, bits, _ = read_packed(nodes.data, packed.start, packed.end, VARINT)
    number = candidates.value.number[packed.message][field]
    out_of_range = np.bincount(field[~_in_range(bits, number)], minlength=len(packed.start)) > 0
    good = _packed_shortest(packed, field, bits) & ~out_of_range
    row = candidates.row[packed.message[good]]
    chosen = good[field]
    lists = decimal_lists(bits[chosen].view(np.int64), (np.cumsum(good) - 1)[field[chosen]], len(row))
    yield row, lists
    yield row, _repeated(b"]}}", len(row))


def _leads(nodes: Messages, pairs: Pairs) -> Spans:
    """What stands before the values."""
    known = known_attributes(nodes.data, pairs.name)
    others = np.flatnonzero(known == len(KNOWN_NAMES))
    table = TextTable()
    texts = nodes.contents(pairs.name.where(others))
    known[others] += np.fromiter(map(table.__getitem__, texts), np.int64, len(texts))
    names = KNOWN_NAMES + [orjson.dumps(text) for text in table.texts]
    code = known * len(LEADS) + pairs.value.number
    present = np.flatnonzero(np.bincount(code))
    places = [divmod(lead, len(LEADS)) for lead in present.tolist()]
    leads = Spans.of([b'{"name":%s,%s' % (names[name], LEADS[number]) for name, number in places])
    return leads.take(np.searchsorted(present, code))


def _single_texts(nodes: Messages, attributes: Fields, sure: Bool) -> Spans:
    """The texts of attributes that are converted one by one; equal ones once."""
    texts: dict[bytes, bytes] = {}
    contents = nodes.contents(attributes)
    for node, content in zip(attributes.message.tolist(), contents, strict=True):
        if content not in texts:
            try:
                texts[content] = ATTRIBUTE.decode(content)
            except WireError:
                texts[content] = b""
        if not texts[content]:
            sure[node] = False
    return Spans.of([texts[content] for content in contents])
