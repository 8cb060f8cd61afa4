"""Takes the elements of an array out of damaged JSON text and mends those that do not decode.

Where another element may start is guessed by the first key of the first element: of `[{"a":1},{"a":2` the starts are at
1 and 9. The text up to the next start is an element if it decodes; if it only lacks its end, that start was part of a
text in it, and the one after is tried.

Nothing is lost in silence: the `Damage` records every stretch of text that is no element. Linear in the text.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import msgspec

from .damage import CUT_OFF, UNREADABLE, Damage
from .errors import DataError
from .json_repair import COMMAS, is_mendable, mend, refusal
from .json_structure import TRUNCATED, structure_of

JOINS = 4
"""Starts of elements looked for inside one element, where a text in it may look like another's start."""
MENDABLE = 1 << 20
MOST_LOST = 100_000
"""Elements above which a file whose larger part cannot be read is not read to its end."""
LARGE = 1 << 21
"""Bytes that the elements that profilers write never have: a stretch of so many holds several."""
ENDS_TRIED = 64
ENDS_MENDED = 4
BLANK = b" \t\r\n,\0"
FIRST_KEY = re.compile(rb'(?:\A|[\[,}\s])\{\s*("\w+")\s*:')
BLANKS = re.compile(rb"\s*")
ANY_START = re.compile(rb"\}[\s,]*(?=\{)")
END = re.compile(rb"\}[\s,]*\]")
VALUE = json.JSONDecoder(strict=False)
CLOSED = re.compile(rb'\}[\s,]*\](?=\s*(?:,\s*"[^"\\]{1,64}"\s*:|\}\s*\Z|\Z))')


class Elements:
    """Takes elements that begin like the first one out of the text of an array; `decoder` decodes a list of them."""

    def __init__(self, decoder: "msgspec.json.Decoder[Any]", damage: Damage) -> None:
        self.damage = damage
        self._element_count = 0
        self._decoder = decoder
        self._start: re.Pattern[bytes] | None = None

    def take(self, text: bytes, at: int, last: bool, sound: bool = False) -> tuple[list[bytes], int]:
        """Returns the elements of a text at byte `at`, and how much of it is done; it may be `sound` JSON of another
        kind.

        The last element is left, as it may go on; with `last` it is taken as well, and only what follows the array's
        end is left.
        """
        starts = _element_starts(text) if sound else self._starts(text)
        if not starts and not last:
            return [], 0
        if not starts or text[: starts[0]].strip(BLANK):
            starts = [0, *starts]
        elements, done = self._all_but_last(text, starts, at, last)
        if not last:
            return elements, done
        element, used = self._last_element(text[done:], at + done)
        return elements + element, done + used

    def _starts(self, text: bytes) -> list[int]:
        """Returns where elements may start: where the first element's first key recurs, else after any
        closing brace.
        """
        if self._start is None and (first := FIRST_KEY.search(text)):
            # the brace first: what begins with a byte is searched for several times as fast
            self._start = re.compile(rb"\{(?<![^\s,\[}\0]\{)\s*" + first.group(1) + rb"\s*:")
        starts = [match.start() for match in self._start.finditer(text)] if self._start else []
        if not starts or (len(starts) == 1 and len(text) > LARGE):
            starts = [match.end() for match in ANY_START.finditer(text)]
        return starts

    def _all_but_last(self, text: bytes, starts: list[int], at: int, last: bool) -> tuple[list[bytes], int]:
        """Returns every element but the one that begins at the last of the starts; how far it came."""
        elements: list[bytes] = []
        index, final = 0, len(starts) - 1
        while index < final:
            following, complete = self._next_start(text, starts, index)
            if following:
                element = text[starts[index] : starts[following]]
                elements.append(element.strip(BLANK))
                self._check_separator(element, b",", at + starts[index])
            elif not complete and not last:
                break  # the element may go on beyond the text
            else:
                following = index + 1
                elements += self._recovered(text[starts[index] : starts[following]], at + starts[index])
                self._refuse_noise(len(elements))
            index = following
        self._element_count += len(elements)
        return elements, starts[index]

    def _refuse_noise(self, element_count: int) -> None:
        lost = sum(count.rows for count in self.damage.lost.values())
        if lost > MOST_LOST and lost > self._element_count + element_count:
            what = f"{lost} of the first {lost + self._element_count + element_count} {self.damage.rows} cannot be read"
            raise DataError(f"{self.damage.path}: {what}; is it the right file?")

    def _check_separator(self, text: bytes, expected: bytes, at: int) -> None:
        """What follows an element in the text should be what usually does."""
        if (separator := text[text.rindex(b"}") + 1 :].strip()) != expected:
            self.damage.mend(COMMAS, at, len(separator))

    def _next_start(self, text: bytes, starts: list[int], index: int) -> tuple[int, bool]:
        """Returns the index of the start after this element, 0 if it does not decode, and whether the text sufficed."""
        for after in range(index + 1, index + 1 + JOINS):
            if after >= len(starts):
                return 0, False
            refused = refusal(self._decoder, text[starts[index] : starts[after]].strip(BLANK))
            if refused is None:
                return after, True
            if TRUNCATED not in str(refused):
                break
        return 0, True

    def _recovered(self, text: bytes, at: int) -> list[bytes]:
        """Returns the elements of a stretch that does not decode: itself, mended, or those inside it, or none."""
        body = text.strip(BLANK)
        if not body:
            return []
        if (sound := self._decodable(body, at)) is not None:
            return [sound]
        inside = self._elements_inside(text, at)
        if not inside:
            self.damage.lose(UNREADABLE, at, len(body), str(refusal(self._decoder, body)))
        return inside

    def _elements_inside(self, text: bytes, at: int) -> list[bytes]:
        """Returns the elements in a stretch that has something else beside them; that is lost."""
        bounds = [0, *(match.end() for match in ANY_START.finditer(text)), len(text)]
        characters = text.decode("latin-1")  # one for each byte, so that positions are the same
        elements: list[bytes] = []
        done = 0
        for begin, end in pairwise(bounds):
            end = _end_of_value(characters, begin) or end
            if begin < done or end - begin == len(text):
                continue
            if (sound := self._decodable(text[begin:end].strip(BLANK), at + begin)) is not None:
                self._lose_between(text[done:begin], at + done)
                elements.append(sound)
                done = end
        if elements:
            self._lose_between(text[done:], at + done)
        return elements

    def _lose_between(self, text: bytes, at: int) -> None:
        if body := text.strip(BLANK):
            self.damage.lose(UNREADABLE, at, len(body), str(refusal(self._decoder, body)))

    def _decodable(self, body: bytes, at: int) -> bytes | None:
        """Returns the text itself if it decodes, else mended if that does."""
        refused = refusal(self._decoder, body)
        if refused is None:
            return body
        if len(body) > MENDABLE or not is_mendable(body, refused):
            return None
        text, repairs = mend(body)
        if refusal(self._decoder, text):
            return None
        for what in sorted(repairs):
            self.damage.mend(what, at, len(body))
        return text

    def _last_element(self, text: bytes, at: int) -> tuple[list[bytes], int]:
        """Returns the last element and where the array's end stands after it; the text's length where it has no end."""
        closing = structure_of(text).end
        ends = [closing] * (closing > 0) + [match.start() + 1 for match in islice(END.finditer(text), ENDS_TRIED)]
        for body, end in self._candidates(text, ends):
            if refusal(self._decoder, body) is None:
                self._check_separator(text[:end], b"", at)
                return [body], end
        for body, end in self._candidates(text, [*ends[:ENDS_MENDED], len(text)]):
            if body and (sound := self._decodable(body, at)) is not None:
                return [sound], end
        if closed := CLOSED.search(text):
            return self._recovered(text[: closed.start() + 1], at), closed.end() - 1
        if remainder := text.strip(BLANK):
            self.damage.lose(CUT_OFF, at, len(remainder))
        return [], len(text)

    @staticmethod
    def _candidates(text: bytes, ends: list[int]) -> Iterator[tuple[bytes, int]]:
        """Yields what the last element may be: the text up to each end, and where the bracket after that is."""
        for end in ends:
            yield text[:end].strip(BLANK), text.find(b"]", end) if end < len(text) else end


def _element_starts(text: bytes) -> list[int]:
    """Returns where elements start in a sound text."""
    return [
        match.end() for after in (0, *(structure_of(text).commas + 1).tolist()) if (match := BLANKS.match(text, after))
    ]


def _end_of_value(text: str, begin: int) -> int:
    """Returns where the JSON value that begins there ends; 0 if there is none."""
    try:
        return VALUE.raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return 0
