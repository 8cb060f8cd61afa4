"""Reads nodes of a linked file in columns: of those that differ in digits alone one is decoded.

That takes nodes in lines, as they are written, with numbers and texts that need no second look. Other pieces of a file
are read node by node.
"""

import re
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..columns import ABSENT, FIRST_LABEL, LABEL, MOST_DIGITS, Categorical, DigitRuns, Int64, Interner, labelled
from ..traces import listed_attributes, plain_arguments
from .layout import ATTRIBUTE_NAMES, INTEGER_ATTRIBUTES, INTEGER_MEMBERS, OP_SCHEMA, TIMES, ExactNode, Node
from .nodes import PYTHON_COLUMNS, NodePiece, Times, parent_of

NAMES = ("name", OP_SCHEMA, "cat", *PYTHON_COLUMNS)
TEXTS = (*NAMES, "inputs", "outputs")
TIME = re.compile(r"(-?)(\d+)(?:\.(\d+))?")
MISSING = {**INTEGER_MEMBERS, **{attribute.name: attribute.missing for attribute in INTEGER_ATTRIBUTES}}
MOST_MICROSECONDS, FRACTION = 15, 3
"""Digits of a time before and behind the point that are read as they are."""
ATTRIBUTES = [attribute.name for attribute in INTEGER_ATTRIBUTES]
MOST_REFUSED = 8
"""How many pieces one after the other are looked at in vain."""


class Odd(Exception):
    """A shape of nodes that has to be read node by node."""


class _Number(NamedTuple):
    """A number of a shape: its run, -1 for none, and its sign."""

    run: int = -1
    sign: int = 1


class _Text(NamedTuple):
    """A text of a shape: from `before` bytes in front of the run `first` to `after` behind the run `last`; the same in all
    rows where there is no such run (-1).
    """

    same: bytes = b""
    first: int = -1
    before: int = 0
    last: int = -1
    after: int = 0


class _Shape(NamedTuple):
    """What nodes of one shape have in common, and where they have the rest."""

    node: ExactNode
    numbers: list[_Number]
    texts: list[_Text]
    waits: list[_Number]
    has_further: bool


class AlikeNodes:
    """Reads pieces of the nodes of one file."""

    def __init__(self) -> None:
        self._shapes = Interner[bytes]()
        self._known: list[_Shape] = []
        self._refused = 0
        self._seen = [Interner[str]() for _ in NAMES]
        self._runs, self._signs = np.empty((2, 0, len(MISSING) + 2 * len(TIMES)), np.int64)
        self._texts = np.empty((0, len(TEXTS), 4), np.int64)
        self._is_activity = np.empty(0, np.bool_)

    def piece(self, elements: bytes) -> NodePiece | None:
        """Returns the columns of nodes in JSON that commas separate, None where they have to be read node by node."""
        if self._refused > MOST_REFUSED:
            return None
        piece = self._read(elements.strip() + b",")
        # one piece in a while holds something odd, where all do the file is written in another way
        self._refused = self._refused + 1 if piece is None else 0
        return piece

    def _read(self, lines: bytes) -> NodePiece | None:
        runs = DigitRuns.of(lines, self._shapes)
        if runs.has_padded_numbers():
            return None
        try:
            self._know_shapes()
        except Odd:
            return None
        numbers = self._numbers(runs)
        return None if numbers is None else self._columns(runs, numbers)

    def _know_shapes(self) -> None:
        new = [*self._shapes][len(self._known) :]
        if not new:
            return
        try:
            shapes = [_shape(text) for text in new]
        except Odd:
            for text in new:
                del self._shapes[text]
            raise
        self._known += shapes
        numbers = np.array([shape.numbers for shape in shapes], np.int64)
        self._runs = np.concatenate((self._runs, numbers[:, :, 0]))
        self._signs = np.concatenate((self._signs, numbers[:, :, 1]))
        texts = [[text[1:] for text in shape.texts] for shape in shapes]
        self._texts = np.concatenate((self._texts, np.array(texts, np.int64)))
        self._is_activity = np.array([shape.node.cat is not None for shape in self._known], np.bool_)

    def _numbers(self, runs: DigitRuns) -> Int64 | None:
        """Returns a row of numbers for each node, None where one has too many digits; fractions in thousandths."""
        of_shape = self._runs[runs.shape]
        is_there = of_shape >= 0
        run = (of_shape + runs.first[:, None])[is_there]
        length = runs.lengths[run]
        values = np.zeros(of_shape.shape, np.int64)
        values[is_there] = runs.integers(run)
        digits = np.zeros(of_shape.shape, np.int64)
        digits[is_there] = length
        whole, fraction = (slice(len(MISSING) + part, None, 2) for part in (0, 1))
        if (length > MOST_DIGITS).any() or (digits[:, whole] > MOST_MICROSECONDS).any():
            return None
        if (digits[:, fraction] > FRACTION).any():
            return None
        values[:, fraction] *= 10 ** (FRACTION - digits[:, fraction])
        values *= self._signs[runs.shape]
        missing = np.array([*MISSING.values(), *[ABSENT, 0] * len(TIMES)], np.int64)
        return np.where(is_there, values, missing)

    def _columns(self, runs: DigitRuns, numbers: Int64) -> NodePiece:
        is_activity = self._is_activity[runs.shape]
        times = [
            np.where(whole == ABSENT, ABSENT, whole * 1000 + fraction)
            for whole, fraction in numbers[:, len(MISSING) :].T.reshape(len(TIMES), 2, -1)
        ]
        text, is_op = runs.text.tobytes(), np.flatnonzero(~is_activity)
        return NodePiece(
            is_activity=is_activity,
            integers=dict(zip(MISSING, numbers.T, strict=False)),
            times=Times(*times),
            texts={name: self._names(text, runs, index) for index, name in enumerate(NAMES)},
            inputs=self._arguments(text, runs, is_op, len(NAMES)),
            outputs=self._arguments(text, runs, is_op, len(NAMES) + 1),
            recorded_by_host=np.array([shape.node.recorded_by is None for shape in self._known], np.bool_)[runs.shape],
            further=self._further(text, runs, is_op),
            waits=self._waits(runs),
            unusable=0,
        )

    def _names(self, text: bytes, runs: DigitRuns, index: int) -> Categorical:
        """Returns a column of names, whose numbers are those of the file."""
        seen = self._seen[index]
        same = np.array([seen[shape.texts[index].same.decode()] for shape in self._known], np.int32)
        codes = same[runs.shape]
        rows = np.flatnonzero(self._texts[:, index, 0][runs.shape] >= 0)
        codes[rows] = seen.codes([name.decode() for name in self._varied(text, runs, rows, index)], len(rows))
        return Categorical(codes, list(seen))

    def _arguments(self, text: bytes, runs: DigitRuns, rows: Int64, index: int) -> list[bytes]:
        """Returns the arguments or results of the ops, which are these rows."""
        same = [shape.texts[index].same for shape in self._known]
        column = [same[shape] for shape in runs.shape[rows].tolist()]
        is_varied = np.flatnonzero(self._texts[:, index, 0][runs.shape[rows]] >= 0)
        for op, arguments in zip(is_varied.tolist(), self._varied(text, runs, rows[is_varied], index), strict=True):
            column[op] = arguments
        return column

    def _varied(self, text: bytes, runs: DigitRuns, rows: Int64, index: int) -> list[bytes]:
        first, before, last, after = self._texts[runs.shape[rows], index].T
        begin, end = runs.first[rows] + first, runs.first[rows] + last
        starts, ends = runs.starts[begin] - before, runs.starts[end] + runs.lengths[end] + after
        return [text[start:stop] for start, stop in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _further(self, text: bytes, runs: DigitRuns, rows: Int64) -> dict[int, dict[str, Any]]:
        """Returns the attributes without a column by index among the ops, which are these rows."""
        has_further = np.array([shape.has_further for shape in self._known], np.bool_)[runs.shape[rows]]
        ops = np.flatnonzero(has_further)
        ends = np.append(runs.begin[1:], len(text))[rows[ops]] - len(b",\n")
        spans = zip(runs.begin[rows[ops]].tolist(), ends.tolist(), strict=True)
        attrs = [msgspec.json.decode(text[begin:end], type=Node).attrs for begin, end in spans]
        further = listed_attributes(attrs, ATTRIBUTE_NAMES).further
        return {int(ops[index]): extra for index, extra in further.items()}

    def _waits(self, runs: DigitRuns) -> list[tuple[int, int]]:
        """Returns pairs of an activity's index among the activities of the piece and an id that it waits for."""
        waits: list[tuple[int, int]] = []
        waiting = [number for number, shape in enumerate(self._known) if shape.waits]
        activity = np.cumsum(self._is_activity[runs.shape]) - 1
        for row in np.flatnonzero(np.isin(runs.shape, waiting)).tolist():
            sources = self._known[int(runs.shape[row])].waits
            ids = runs.integers(runs.first[row] + np.array([source.run for source in sources], np.int64))
            waits += [
                (int(activity[row]), source.sign * number) for source, number in zip(sources, ids.tolist(), strict=True)
            ]
        return waits


def _shape(text: bytes) -> _Shape:
    """Raises Odd."""
    if b"\\" in text or not text.endswith(b"},"):
        raise Odd
    try:
        node = msgspec.json.decode(labelled(text[:-1]), type=ExactNode)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Odd from error
    attributes, further = listed_attributes([node.attrs], ATTRIBUTE_NAMES)
    values = [getattr(node, name) for name in INTEGER_MEMBERS if name != "ctrl_deps"]
    values = [values[0], parent_of(node), *values[1:], *(attributes[name][0] for name in ATTRIBUTES)]
    numbers = [_number(value) for value in values]
    numbers += [part for name in TIMES for part in _time(getattr(node, name))]
    inputs, outputs = (_arguments(bytes(arguments)) for arguments in (node.inputs, node.outputs))
    schema = attributes[OP_SCHEMA][0]
    texts = [node.name, schema if type(schema) is str else "", node.cat, node.module, node.python_function]
    return _Shape(
        node,
        numbers,
        [*(_text((each or "").encode()) for each in texts), inputs, outputs],
        [_number(source) for source in node.sync_dep or ()] if node.cat is not None else [],
        bool(further),
    )


def _number(value: Any) -> _Number:
    if value is None:
        return _Number()
    if type(value) is not int:
        raise Odd
    return _Number(abs(value) - FIRST_LABEL, -1 if value < 0 else 1) if abs(value) >= FIRST_LABEL else _Number()


def _time(value: Decimal | None) -> tuple[_Number, _Number]:
    if value is None:
        return _Number(), _Number()
    match = TIME.fullmatch(str(value))
    if match is None:
        raise Odd
    sign = -1 if match[1] else 1
    whole, fraction = (int(digits) - FIRST_LABEL if digits else -1 for digits in match.groups()[1:])
    return _Number(whole, sign), _Number(fraction, sign)


def _text(text: bytes) -> _Text:
    found = [*LABEL.finditer(text)]
    if not found:
        return _Text(text)
    first, last = (int(match.group()) - FIRST_LABEL for match in (found[0], found[-1]))
    return _Text(b"", first, found[0].start(), last, len(text) - found[-1].end())


def _arguments(text: bytes) -> _Text:
    if text[:1] != b"{" or plain_arguments([text])[0] != text:
        raise Odd
    return _text(text)
