"""Encoded attributes to JSON text, all attributes of a block at once.

An attribute begins with its name and the tag of its value. Graphs have few such beginnings; each is numbered, and what it becomes is
worked out once. Values are rendered in columns by their type. What is of no common kind is converted one by one by `json_form`.
"""

from collections.abc import Iterator

import numpy as np
import orjson

from .columns import Bool, Int64
from .decimal_text import decimal_lists, decimals
from .execution_graph_pb2 import AttributeProto, Int64List
from .integer_kinds import HIGHEST, LOWEST
from .json_form import ATTRIBUTE
from .json_strings import EscapedTexts
from .spans import Bytes, Part, Spans, repeated
from .text_numbers import TextNumbers
from .varints import UInt64, read_varints
from .wire import DELIMITED, VARINT, WireError
from .wire_cursor import Cursor, Lists, Ranges, is_shortest

NAME_TAG = AttributeProto.NAME_FIELD_NUMBER << 3 | DELIMITED
TRUTH, STRING = AttributeProto.BOOL_VAL_FIELD_NUMBER, AttributeProto.STRING_VAL_FIELD_NUMBER
NAMES = {field.number: field.name.encode() for field in AttributeProto.DESCRIPTOR.fields}
TRUTH_TEXTS = Spans.of([b"false}", b"true}"])
INTEGERS = [number for number in NAMES if LOWEST[number] < HIGHEST[number]]
OPENINGS = {
    **{number << 3 | VARINT: b"" for number in INTEGERS if NAMES[number].endswith(b"_val")},
    **{number << 3 | DELIMITED: b'{"values":[' for number in INTEGERS if NAMES[number].endswith(b"_list")},
    TRUTH << 3 | VARINT: b"",
    STRING << 3 | DELIMITED: b'"',
}
"""What stands before a value that is rendered in columns, by its tag."""
OTHER = 0
BEGINNINGS_REMEMBERED = 1 << 14


class _Beginnings:
    """Numbers the beginnings of attributes."""

    def __init__(self) -> None:
        self.numbers = TextNumbers(self._learn)
        self.texts: list[bytes] = []
        """What each becomes in JSON."""
        self.tags: list[int] = []
        """The tag of the value; OTHER for one that is not rendered in columns."""

    def _learn(self, beginning: bytes) -> None:
        name, tag = beginning[2 : 2 + beginning[1]], beginning[2 + beginning[1] :]
        value = tag[0] if len(tag) == 1 else tag[0] & 0x7F | tag[1] << 7
        try:
            text = b'{"name":%s,"%s":%s' % (orjson.dumps(name.decode()), NAMES[value >> 3], OPENINGS[value])
        except (KeyError, UnicodeDecodeError):
            text, value = b"", OTHER
        self.texts.append(text)
        self.tags.append(value)


class AttributeRenderer:
    """Renders the attributes of block after block; remembers the beginnings that come again, up to a bound."""

    def __init__(self) -> None:
        self._beginnings = _Beginnings()

    def parts(self, texts: EscapedTexts, attributes: Ranges, sure: Bool) -> Iterator[Part]:
        """The attributes with the commas between; clears `sure` of nodes of which one is not what is encoded."""
        if len(self._beginnings.texts) > BEGINNINGS_REMEMBERED:
            self._beginnings = _Beginnings()
        data = texts.messages.data
        beginnings = _beginnings(data, attributes)
        number = self._beginnings.numbers.look_up(beginnings.spans(data))
        tag = np.array([*self._beginnings.tags, OTHER])[number]
        values = Ranges(beginnings.row, beginnings.end, attributes.end[beginnings.row])
        parts = [*_number_parts(data, values, tag), *_string_parts(texts, values, tag), *_list_parts(data, values, tag)]
        common = np.zeros(len(attributes.row), np.bool_)
        for rows, _ in parts:
            common[rows] = True
        follows = np.append(False, attributes.row[1:] == attributes.row[:-1])[: len(common)]
        chosen = common[beginnings.row]
        yield beginnings.row[chosen], self._leads(number[chosen], follows[beginnings.row[chosen]])
        yield from parts
        others = np.flatnonzero(~common)
        yield others, _single_texts(texts, attributes.where(others), follows[others], sure)

    def _leads(self, number: Int64, follows: Bool) -> Spans:
        """What stands before the values."""
        leads = self._beginnings.texts
        return Spans.of([*leads, *(b"," + lead for lead in leads)]).take(number + len(leads) * follows)


def _beginnings(data: Bytes, attributes: Ranges) -> Ranges:
    """The names and tags of those attributes that have a short name and then something else, by their own rows."""
    start, end = attributes.start, attributes.end
    tag = np.minimum(start + 2 + data[start + 1], end)
    # tags of one or two bytes
    value = tag + 1 + (data[tag] > 0x7F)
    good = (data[start] == NAME_TAG) & (data[start + 1] < 0x80) & (value < end)
    return Ranges(np.arange(len(start)), start, value).where(good)


def _number_parts(data: Bytes, values: Ranges, tag: Int64) -> Iterator[Part]:
    chosen = (tag != OTHER) & (tag & 7 == VARINT)
    row, start, end = values.where(np.flatnonzero(chosen))
    bits, after = read_varints(data, start)
    kind = tag[chosen] >> 3
    good = (after == end) & is_shortest(data, start, after)
    integers = np.flatnonzero(good & _in_range(bits, kind))
    yield row[integers], decimals(bits[integers].view(np.int64), b"}")
    truths = np.flatnonzero(good & (kind == TRUTH) & (bits < 2))
    yield row[truths], TRUTH_TEXTS.take(bits[truths].view(np.int64))


def _in_range(bits: UInt64, number: Int64) -> Bool:
    """Whether the encoded integer is a plain one of the type of the attribute's value."""
    signed = bits.view(np.int64)
    return np.logical_and(LOWEST[number] <= signed, signed <= HIGHEST[number])


def _contents(data: Bytes, values: Ranges) -> Ranges:
    """What delimited values hold: of those that have the shortest length, which ends with the attribute."""
    length, start = read_varints(data, values.start)
    good = is_shortest(data, values.start, start) & (length == (values.end - start).view(np.uint64))
    return values._replace(start=start).where(good)


def _string_parts(texts: EscapedTexts, values: Ranges, tag: Int64) -> Iterator[Part]:
    strings = _contents(texts.messages.data, values.where(tag == STRING << 3 | DELIMITED))
    yield strings.row, texts.contents(strings)
    yield strings.row, repeated(b'"}', len(strings.row))


def _list_parts(data: Bytes, values: Ranges, tag: Int64) -> Iterator[Part]:
    kind = np.zeros(int(values.row.max(initial=0)) + 1, np.int64)
    kind[values.row] = tag >> 3
    lists = _contents(data, values.where((tag & 7 == DELIMITED) & (tag != STRING << 3 | DELIMITED)))
    cursor = Cursor(data, lists.start, lists.end)
    packed = cursor.contents(Int64List.VALUES_FIELD_NUMBER)
    sound = cursor.finish()
    integers = Lists.read(data, packed)
    in_range = _in_range(integers.bits, kind[lists.row[packed.row]][integers.field])
    sound[packed.row] &= integers.sound
    sound[packed.row[integers.field[~in_range]]] = False
    chosen = sound[packed.row][integers.field]
    place = np.cumsum(sound) - 1
    bits, count = integers.bits[chosen].view(np.int64), int(sound.sum())
    yield lists.row[sound], decimal_lists(bits, place[packed.row[integers.field[chosen]]], count)
    yield lists.row[sound], repeated(b"]}}", count)


def _single_texts(texts: EscapedTexts, attributes: Ranges, follows: Bool, sure: Bool) -> Spans:
    """The texts of attributes that are converted one by one; equal ones once."""
    known: dict[bytes, bytes] = {}
    contents = attributes.spans(texts.messages.data).tolist()
    for node, content in zip(attributes.row.tolist(), contents, strict=True):
        if content not in known:
            try:
                known[content] = ATTRIBUTE.decode(content)
            except WireError:
                known[content] = b""
        if not known[content]:
            sure[node] = False
    return Spans.of([b"," * comma + known[content] for comma, content in zip(follows.tolist(), contents, strict=True)])
