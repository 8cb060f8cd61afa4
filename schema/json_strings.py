"""The texts inside encoded messages as JSON strings, all at once."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from .columns import Int64
from .spans import Bytes, Spans
from .wire import Messages
from .wire_cursor import Ranges

QUOTE, BACKSLASH, SPACE, DELETE = b'"\\ \x7f'


class EscapedTexts(NamedTuple):
    """Messages of which every byte is escaped as if it stood in a JSON string: what any text in them becomes is a slice of that."""

    messages: Messages
    source: Bytes
    added: npt.NDArray[np.int32]
    """How many backslashes were added before each byte."""
    odd: Int64 | None
    """Where the bytes stand for which that is not enough, or that might be no UTF-8; None if there are none in the texts."""

    @staticmethod
    def of(messages: Messages, plain: bool) -> "EscapedTexts":
        """With `plain` the texts are taken to be printable ASCII."""
        raw, data = messages.raw, messages.data
        source = np.frombuffer(raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"'), np.uint8)
        added = np.zeros(len(data) + 1, np.int32)
        np.cumsum((data == QUOTE) | (data == BACKSLASH), out=added[1:])
        return EscapedTexts(
            messages, source, added, None if plain else np.flatnonzero((data < SPACE) | (data > DELETE))
        )

    def contents(self, fields: Ranges) -> Spans:
        """Each of these texts as JSON, without the quotes around it. Raises UnicodeDecodeError for one that is not UTF-8."""
        starts, ends = fields.start, fields.end
        first = starts + self.added[starts]
        texts = Spans(self.source, first, ends + self.added[ends] - first)
        return texts if self.odd is None else self._with_odd_ones(texts, fields, self.odd)

    def _with_odd_ones(self, texts: Spans, fields: Ranges, odd: Int64) -> Spans:
        rows = np.flatnonzero(np.searchsorted(odd, fields.start) < np.searchsorted(odd, fields.end))
        single = Spans.of(
            [orjson.dumps(text.decode())[1:-1] for text in fields.where(rows).spans(self.messages.data).tolist()]
        )
        texts.starts[rows], texts.lengths[rows] = len(texts.source) + single.starts, single.lengths
        return texts._replace(source=np.concatenate((texts.source, single.source)))


def is_plain(text: Bytes, lines: int) -> bool:
    """Whether a text of so many lines has printable ASCII only."""
    return int(text.max(initial=0)) <= DELETE and int(np.count_nonzero(text < SPACE)) == lines
