"""JSON text of attributes to encoded ones, all attributes of a block at once.

What stands before an attribute's integers is numbered, and so is the text of an attribute without integers. Graphs have few of either;
what each becomes is worked out once. What is beyond the range of its type, or no attribute, makes its node unsound.
"""

from collections.abc import Sequence

import numpy as np

from .columns import Bool, Int64, Ragged
from .decimal_text import BLANK, COMMA, digits_before, integer_lists, signed_values
from .execution_graph_pb2 import AttributeProto, Int64List
from .graph_encoder import ATTRIBUTE_TAG, packed
from .integer_kinds import HIGHEST, LOWEST
from .json_form import ATTRIBUTE, FormError
from .spans import Bytes, Part, Spans
from .text_numbers import TextNumbers
from .varints import LONGEST_VARINT, prefixed_varints, varint, varint_lengths, words
from .wire import DELIMITED, PADDING, delimited, tag
from .wire_cursor import Ranges

OPENING = b'{"name":"'
NAME_WORD = np.uint64(int.from_bytes(OPENING[1:], "little"))
VALUE_BEGINS = b'":'
BRACE, CLOSING_BRACE, BRACKET, CLOSING_BRACKET = b"{}[]"
VALUES_TAG = tag(Int64List.VALUES_FIELD_NUMBER, DELIMITED)
TEXTS_REMEMBERED = 1 << 16
NO_VALUE = 0


class _Texts:
    """Numbers what attribute texts say before their last part, given what that is in a sample, and how the sample is encoded."""

    def __init__(self, sample: bytes, encoded_sample: bytes) -> None:
        self.numbers = TextNumbers(self._learn)
        self.messages: list[bytes] = []
        """The encoded attribute, without the sample."""
        self.value: list[int] = []
        """The field number of the value, NO_VALUE where there is none."""
        self.is_attribute: list[bool] = []
        self._sample, self._encoded_sample = sample, encoded_sample

    def _learn(self, text: bytes) -> None:
        message, value = b"", None
        try:
            message = ATTRIBUTE.encode(OPENING + text + self._sample)
            value = AttributeProto.FromString(message).WhichOneof("value")
            self.is_attribute.append(True)
        except FormError:
            self.is_attribute.append(False)
        if self._encoded_sample and not text.endswith(VALUE_BEGINS):
            value = None
        self.messages.append(message.removesuffix(self._encoded_sample))
        self.value.append(AttributeProto.DESCRIPTOR.fields_by_name[value].number if value else NO_VALUE)

    def fields(self, longest: int) -> Spans:
        """The attributes as fields of a node, before values of 0 bytes, then before values of 1 byte, up to the longest."""
        lengths = ((message, len(message) + more) for more in range(longest + 1) for message in self.messages)
        return Spans.of([ATTRIBUTE_TAG + varint(length) + message for message, length in lengths])

    def in_range(self, number: Int64, values: Int64) -> Bool:
        """Whether integers can be the values of the attributes of these numbers."""
        kind = np.array([NO_VALUE, *self.value], np.int64)[number + 1]
        return np.logical_and(LOWEST[kind] <= values, values <= HIGHEST[kind])


class AttributeParser:
    """Encodes the attributes of block after block; remembers the texts that come again, up to a bound."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._integers = _Texts(b"0}", b"\0")
        self._lists = _Texts(b"[0]}}", b"\x03" + VALUES_TAG + b"\x01\0")
        self._others = _Texts(b"}", b"")

    def parts(self, rows: Sequence[bytes]) -> tuple[Int64, list[Part], Bool]:
        """Encodes the attributes of nodes, given as JSON lists: the node of each attribute, the attributes, and which nodes are sound."""
        if max(len(texts.messages) for texts in (self._integers, self._lists, self._others)) > TEXTS_REMEMBERED:
            self._forget()
        data = np.frombuffer(b"".join([BLANK.tobytes(), *rows, bytes(PADDING)]), np.uint8)
        ends = len(BLANK) + np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        attributes, sound = _attributes(data, np.append(len(BLANK), ends[:-1]), ends)
        closing = attributes.end - 1
        parts = [*self._integer_parts(data, attributes, closing), *self._list_parts(data, attributes, closing)]
        done = np.zeros(len(closing), np.bool_)
        for chosen, _ in parts:
            done[chosen] = True
        others = np.flatnonzero(~done)
        number = self._others.numbers.look_up(_texts(data, attributes.start[others], closing[others]))
        good = np.array([*self._others.is_attribute, False])[number] & (data[closing[others]] == CLOSING_BRACE)
        sound[attributes.row[others[~good]]] = False
        parts.append((others, self._others.fields(0).take(number)))
        return attributes.row, parts, sound

    def _integer_parts(self, data: Bytes, attributes: Ranges, closing: Int64) -> list[Part]:
        digits = digits_before(data, closing)
        rows = np.flatnonzero((digits > 0) & (data[closing] == CLOSING_BRACE))
        values, first, good = signed_values(data, closing[rows], digits[rows])
        number = self._integers.numbers.look_up(_texts(data, attributes.start[rows], first))
        good &= self._integers.in_range(number, values)
        rows, number, bits = rows[good], number[good], values[good].view(np.uint64)
        place = varint_lengths(bits) * len(self._integers.messages) + number
        return [
            (rows, self._integers.fields(LONGEST_VARINT).take(place)),
            (rows, prefixed_varints(b"", bits, np.ones(len(rows), np.bool_))),
        ]

    def _list_parts(self, data: Bytes, attributes: Ranges, closing: Int64) -> list[Part]:
        rows = np.flatnonzero((data[closing - 1] == CLOSING_BRACE) & (data[closing - 2] == CLOSING_BRACKET))
        brackets = np.append(np.flatnonzero(data == BRACKET), len(data))
        opening = brackets[np.searchsorted(brackets, attributes.start[rows])]
        end = closing[rows] - 2
        rows, opening, end = (column[opening < end] for column in (rows, opening, end))
        number = self._lists.numbers.look_up(_texts(data, attributes.start[rows], opening))
        values, row, sound = integer_lists(Spans(data, opening + 1, end - opening - 1))
        sound[row[~self._lists.in_range(number[row], values)]] = False
        # a list without values is in no range
        sound &= self._lists.in_range(number, np.ones(len(rows), np.int64))
        chosen = sound[row]
        numbers = packed_rows(np.cumsum(sound)[row[chosen]] - 1, values[chosen], int(sound.sum()))
        everywhere = np.ones(len(numbers.lengths), np.bool_)
        content = delimited(b"", delimited(VALUES_TAG, [numbers], numbers.lengths > 0), everywhere)
        field = delimited(ATTRIBUTE_TAG, [Spans.of(self._lists.messages).take(number[sound]), *content], everywhere)
        return [(rows[sound], spans) for spans in field]


def _attributes(data: Bytes, starts: Int64, ends: Int64) -> tuple[Ranges, Bool]:
    """The attributes in lists of them, by the rows of these, and which lists have just commas between them and brackets around."""
    braces = np.flatnonzero(data == BRACE)
    opening = braces[words(data)[braces + 1] == NAME_WORD]
    limits = np.append(np.searchsorted(opening, starts), len(opening))
    row = np.repeat(np.arange(len(starts)), np.diff(limits))
    filled = np.flatnonzero(np.diff(limits))
    first, last = limits[filled], limits[filled + 1] - 1
    end = np.append(opening[1:], 0)[: len(opening)] - 1
    end[last] = ends[filled] - 1
    good = (data[opening - 1] == COMMA) & (end > opening + len(OPENING))
    good[first] = (opening[first] == starts[filled] + 1) & (end[first] > opening[first] + len(OPENING))
    sound = (
        (data[starts] == BRACKET) & (data[ends - 1] == CLOSING_BRACKET) & ((ends - starts == 2) | (np.diff(limits) > 0))
    )
    sound[row[~good]] = False
    return Ranges(row, opening, end), sound


def _texts(data: Bytes, attributes: Int64, ends: Int64) -> Spans:
    """What stands between the opening of these attributes and a place in each."""
    start = attributes + len(OPENING)
    return Spans(data, start, np.maximum(ends - start, 0))


def packed_rows(row: Int64, values: Int64, count: int) -> Spans:
    """The values of each of `count` rows as varints, from those of all in order."""
    return packed(Ragged(np.searchsorted(row, np.arange(count + 1)), values), slice(0, count))
