"""The values, shapes and types of ops' arguments as columns of texts, which are stretches of those that they were."""

from collections import Counter

import msgspec
import numpy as np

from ..columns import LABEL, BytesColumn, DigitRuns, Int64, Interner, labelled
from .arguments import MANY_DIGITS, MEMBERS, NO_LIST, usable_arguments
from .host import TensorLists

AT_ONCE = 1 << 12
NAMES = MEMBERS[:3]
ENDS = 2 * len(NAMES)
NOTATIONS = ((", ", ": "), (",", ":"))
"""What stands between members, and behind their names."""


def member_texts(arguments: BytesColumn, skipped: Counter[str]) -> list[BytesColumn]:
    """Returns the values, shapes and types of ops' arguments; counts in `skipped` the unusable ones, by reason."""
    shapes, positions = Interner[bytes](), np.empty((0, ENDS, 2), np.int64)
    bounds = np.zeros((len(arguments), ENDS), np.int32)
    for first in range(0, len(arguments), AT_ONCE):
        runs = DigitRuns.of_texts(arguments[first : first + AT_ONCE], shapes)
        new = [_end_positions(shape) for shape in [*shapes][len(positions) :]]
        positions = np.concatenate((positions, np.array(new, np.int64).reshape(-1, ENDS, 2)))
        bounds[first : first + AT_ONCE] = _bounds(runs, positions)
    odd = np.flatnonzero(bounds[:, 0] < 0)
    columns = [
        BytesColumn(arguments.parts, arguments.part, arguments.start + begin, end - begin)
        for begin, end in bounds.T.reshape(len(NAMES), 2, len(arguments))
    ]
    if not len(odd):
        return columns
    order = np.arange(len(arguments))
    order[odd] = len(arguments) + np.arange(len(odd))
    usable = zip(columns, _decoded(arguments.at(odd), skipped), strict=True)
    return [BytesColumn.joined((column, BytesColumn.of(texts))).take(order) for column, texts in usable]


def _bounds(runs: DigitRuns, positions: Int64) -> Int64:
    """Returns where in its text each member of a row begins and ends, -1 in rows that have to be decoded."""
    run, offset = positions[runs.shape].transpose(2, 0, 1)
    index = np.minimum(runs.first[:, None] + np.maximum(run, 0), max(len(runs.starts) - 1, 0))
    behind = (runs.starts + runs.lengths)[index] if len(runs.starts) else index
    bounds: Int64 = np.where(run < 0, 0, behind - runs.begin[:, None]) + offset
    many = np.flatnonzero(runs.lengths >= len(MANY_DIGITS))
    bounds[np.searchsorted(runs.first, many, side="right") - 1] = -1
    bounds[(positions[:, 0, 1] < 0)[runs.shape]] = -1
    return bounds


def _end_positions(shape: bytes) -> list[tuple[int, int]]:
    """Returns for each end of a member the run of digits before it, -1 for none, and how far behind that it is."""
    text = labelled(shape)
    try:
        lists = msgspec.json.decode(text, type=TensorLists)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [(-1, -1)] * ENDS
    labels = np.array([match.end() for match in LABEL.finditer(text)], np.int64)
    for comma, colon in NOTATIONS:
        begin, ends = b"{", list[int]()
        for name in NAMES:
            begin += f'"{name}"{colon}'.encode()
            ends += [len(begin), len(begin) + len(bytes(getattr(lists, name)))]
            begin += bytes(getattr(lists, name)) + comma.encode()
        if text.startswith(begin.removesuffix(comma.encode())) and not NO_LIST.search(shape):
            runs = (np.searchsorted(labels, ends, side="right") - 1).tolist()
            return [(run, end - int(labels[run]) if run >= 0 else end) for run, end in zip(runs, ends, strict=True)]
    return [(-1, -1)] * ENDS


def _decoded(arguments: list[bytes], skipped: Counter[str]) -> list[list[bytes]]:
    lists = msgspec.json.decode(b"[" + b",".join(usable_arguments(arguments, skipped)) + b"]", type=list[TensorLists])
    return [[bytes(getattr(each, name)) for each in lists] for name in NAMES]
