"""Takes the elements of an array out of damaged JSON text and mends those that do not decode. Linear in the text.

It mends what profilers are known to write wrongly. What the end of the file cuts off, and rows of another kind, are
left out; any other damage is refused. `Damage` records every stretch of text that is no element.

Another element may start where the first key of the first one is: of `[{"a":1},{"a":2` at 1 and 9. The text up to the
next start is an element if it decodes; if it only lacks its end, that start was part of a text in it.
"""

import re
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from .columns import Int64
from .errors import Damage, DataError
from .reasons import Reason

KEY_NEXT = rb'\s*(?:,[\s,]*"[^"\\]{1,64}"\s*:|[,\s]*\}\s*(?:[,}\]]|\Z))'
TOKEN = re.compile(
    rb'(?P<lead>:\s*)"(?P<value>(?:[^"\\]+|\\(?:[^"]|"(?!%b)|\Z)|\\(?=")|"(?!%b))*)(?:"|\Z)'
    rb'|"(?P<text>(?:[^"\\]+|\\(?:.|\Z)|"(?!\s*[:,\]}]))*)(?:"|\Z)'
    rb"|(?P<number>[-+]?(?:nan|inf)[\w()]*|[-+]?\.?\d[\w.+-]*)" % (KEY_NEXT, KEY_NEXT),
    re.DOTALL | re.IGNORECASE,
)
"""A text that is a value ends where another key or the object's end follows; others at their next plausible quote."""
IN_TEXT = re.compile(
    rb'(?P<valid>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\["\\/bfnrt])'
    rb'|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(?P<backslash>\\)|(?P<quote>")|(?P<control>[\x00-\x1f])'
)
SWALLOWED = re.compile(rb'"(?:ph|cat|pid|tid|ts|dur|args|id|ctrl_deps|parent|inputs|outputs|attrs|rf_id)"\s*:')
"""Keys of the elements themselves; a text that seems to hold one lost its own end."""
JSON_NUMBER = re.compile(rb"-?(?:0|[1-9]\d{0,300})(?:\.\d+)?(?:[eE][-+]?\d{1,2})?")
"""Others (NaN, Infinity, -nan(ind), 1e400) are null."""
REPAIRS = {
    "backslash": (Reason.STRAY_BACKSLASHES, b"\\\\"), "half": (Reason.STRAY_BACKSLASHES, b"\\ufffd"),
    "quote": (Reason.UNESCAPED_QUOTES, b'\\"'), "control": (Reason.CONTROL_CHARACTERS, b""),
}  # fmt: skip
"""What is wrong with the parts of a text that IN_TEXT finds, and what takes their place; an escape for none."""

ESCAPED = b"__"
QUOTE, COMMA = ord('"'), ord(",")
DEPTH = np.zeros(256, np.int8)
DEPTH[[*b"[{"]], DEPTH[[*b"]}"]] = 1, -1
AT_ONCE = 1 << 20
OF_NUMBERS = b"0123456789+-.eE"
TRUNCATED = "truncated"
OPENINGS_TRIED = 64
SOUND = msgspec.json.Decoder(msgspec.Raw)
ANYTHING = msgspec.json.Decoder(list[msgspec.Raw])

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
CLOSED = re.compile(rb'\}[\s,]*\](?=\s*(?:,\s*"[^"\\]{1,64}"\s*:|\}\s*\Z|\Z))')


def mend(text: bytes) -> tuple[bytes, set[Reason]]:
    """Returns the text of one JSON value with known faults put right, which need not be JSON even then, and these."""
    repairs: set[Reason] = set()
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        repairs.add(Reason.WRONG_ENCODING)

    def character(match: "re.Match[bytes]") -> bytes:
        if match["valid"]:
            return match[0]
        reason, fixed = REPAIRS[match.lastgroup or ""]
        repairs.add(reason)
        return fixed or b"\\u%04x" % match[0][0]

    def token(match: "re.Match[bytes]") -> bytes:
        if match.lastgroup == "number":
            if JSON_NUMBER.fullmatch(match[0]):
                return match[0]
            repairs.add(Reason.NO_JSON_NUMBERS)
            return b"null"
        body = match[match.lastgroup or 0]
        # a quote may be missing rather than superfluous
        sound = body if SWALLOWED.search(body) else IN_TEXT.sub(character, body)
        return (match["lead"] or b"") + b'"' + sound + b'"'

    return TOKEN.sub(token, text), repairs


def refusal(decoder: "msgspec.json.Decoder[Any]", text: bytes) -> Exception | None:
    """Returns why a decoder of lists refuses the text of elements; None if it does not."""
    try:
        if not text.isascii():
            text.decode()
        decoder.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return error
    return None


class Structure(NamedTuple):
    """The positions of the commas between elements and of the array's closing bracket (-1: after the text)."""

    commas: Int64
    end: int


def structure_of(text: bytes) -> Structure:
    """Returns the structure of a text in an array that begins between two elements. Linear in the text.

    >>> commas, end = structure_of(b'{"a":"},{"},{"b":[1,2]}]')
    >>> commas.tolist(), end
    ([11], 23)
    """
    plain = np.frombuffer(text.replace(rb"\\", ESCAPED).replace(rb"\"", ESCAPED), np.uint8)
    commas: list[Int64] = [np.empty(0, np.int64)]
    quotes = depth = 0
    for first in range(0, len(plain), AT_ONCE):
        block = plain[first : first + AT_ONCE]
        quoted = quotes + np.cumsum(block == QUOTE, dtype=np.int32)
        outside = quoted & 1 == 0
        depths = depth + np.cumsum(DEPTH[block] * outside, dtype=np.int32)
        closing = np.flatnonzero(depths < 0)[:1]
        is_comma = (block == COMMA) & outside & (depths == 0)
        commas.append(first + np.flatnonzero(is_comma[: closing[0]] if len(closing) else is_comma))
        if len(closing):
            return Structure(np.concatenate(commas), first + int(closing[0]))
        quotes, depth = int(quoted[-1]), int(depths[-1])
    return Structure(np.concatenate(commas), -1)


def opening_of(text: bytes, key: str, ended: bool) -> int | None:
    """Returns where the array under a top-level key, or the text's own array, begins; None if it has not come yet.

    Keys on deeper levels are passed over, unless the text is damaged before it, or has `ended` without it.
    """
    if only := re.match(rb"\s*\[", text):
        return only.end()
    ends = [match.end() for match in re.finditer(rb'"%b"\s*:\s*\[' % key.encode(), text)]
    outermost = next((end for end in ends[:OPENINGS_TRIED] if not _syntax_error(text[:end] + b"]}")), None)
    if outermost is None and 0 < len(ends) <= OPENINGS_TRIED and (ended or not is_sound(text)):
        return ends[0]
    return outermost


def is_sound(text: bytes) -> bool:
    """Returns whether the text is JSON, or the beginning of some in which nothing is wrong so far."""
    return TRUNCATED in (_syntax_error(text.rstrip(OF_NUMBERS)) or TRUNCATED)


def _syntax_error(text: bytes) -> str:
    try:
        SOUND.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error)
    return ""


class Elements:
    """Takes elements that begin like the first one out of the text of an array; `decoder` decodes a list of them."""

    def __init__(self, decoder: "msgspec.json.Decoder[Any]", damage: Damage) -> None:
        self.damage = damage
        self._element_count = 0
        self._decoder = decoder
        self._start: re.Pattern[bytes] | None = None

    def take(self, text: bytes, at: int, last: bool, sound: bool = False) -> tuple[list[bytes], int]:
        """Returns the elements of a text at byte `at`, and how much of it is done. Raises DataError beyond mending.

        The last element may go on, so it is taken with `last` only. A `sound` text may be JSON of another kind.
        """
        if sound:
            commas = structure_of(text).commas.tolist()
            starts = [match.end() for after in (0, *(c + 1 for c in commas)) if (match := BLANKS.match(text, after))]
        else:
            starts = self._starts(text)
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
        """Returns where elements may start: where the first element's first key recurs, else after any brace."""
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
            start, refused = starts[index], None
            # a start within a text of the element is passed over
            for following in range(index + 1, min(index + 1 + JOINS, len(starts))):
                refused = refusal(self._decoder, text[start : starts[following]].strip(BLANK))
                if TRUNCATED not in str(refused):
                    break
            if refused is None:
                elements.append(text[start : starts[following]].strip(BLANK))
                self._check_separator(text[start : starts[following]], b",", at + start)
            elif (
                TRUNCATED in str(refused)
                and following == final < index + JOINS
                and (not last or is_sound(b"[" + text[start:]))
            ):
                break  # the element goes on beyond the text, or is cut off
            else:
                following = index + 1
                elements += self._read(text[start : starts[following]].strip(BLANK), at + start)
                lost, count = sum(self.damage.dropped.values()), self._element_count + len(elements)
                if lost > MOST_LOST and lost > count:
                    what = f"{lost} of the first {lost + count} {self.damage.rows} cannot be read"
                    raise DataError(f"{self.damage.path}: {what}; is it the right file?")
            index = following
        self._element_count += len(elements)
        return elements, starts[index]

    def _check_separator(self, text: bytes, expected: bytes, at: int) -> None:
        """What follows an element in the text should be what usually does."""
        if (separator := text[text.rindex(b"}") + 1 :].strip()) != expected:
            self.damage.count(Reason.MISPLACED_COMMAS, at, len(separator))

    def _read(self, body: bytes, at: int) -> list[bytes]:
        """Returns an element, mended if needed; none where it is JSON of another kind, or between joined files."""
        if not body:
            return []
        if (sound := self._decodable(body, at)) is not None:
            return [sound]
        broken = refusal(ANYTHING, body)
        closing = structure_of(body).end if broken else 0
        sound = self._decodable(body[:closing].strip(BLANK), at) if closing > 0 else None
        if broken and sound is None:
            raise DataError(
                f"{self.damage.path}: the {self.damage.rows} from byte {at} on cannot be read ({broken}); "
                "record or copy the file again, or take that part out"
            )
        lost = body[closing:]
        self.damage.count(Reason.UNREADABLE_ROWS, at + closing, len(lost), str(refusal(self._decoder, lost)))
        return [] if sound is None else [sound]

    def _decodable(self, body: bytes, at: int) -> bytes | None:
        """Returns the text itself if it decodes, else mended if that does."""
        refused = refusal(self._decoder, body)
        if refused is None:
            return body
        if len(body) > MENDABLE or b"\0" in body:
            return None
        text, repairs = mend(body)
        if refusal(self._decoder, text):
            return None
        for repair in (reason for reason in Reason if reason in repairs):
            self.damage.count(repair, at, len(body))
        return text

    def _last_element(self, text: bytes, at: int) -> tuple[list[bytes], int]:
        """Returns the last element and where the array's end stands after it; the text's length where it has no end."""
        closing = structure_of(text).end
        ends = [closing] * (closing > 0) + [match.start() + 1 for match in islice(END.finditer(text), ENDS_TRIED)]
        for end in ends:
            body = text[:end].strip(BLANK)
            if refusal(self._decoder, body) is None:
                self._check_separator(text[:end], b"", at)
                return [body], text.find(b"]", end)
        if not (remainder := text.strip(BLANK)):
            return [], len(text)
        if (sound := self._decodable(remainder, at)) is not None:
            return [sound], len(text)
        if not is_sound(b"[" + remainder) and (closed := [*islice(CLOSED.finditer(text), ENDS_MENDED)]):
            for match in closed:
                if (sound := self._decodable(text[: match.start() + 1].strip(BLANK), at)) is not None:
                    return [sound], match.end() - 1
            return self._read(text[: closed[0].start() + 1].strip(BLANK), at), closed[0].end() - 1
        self.damage.count(Reason.CUT_OFF_ROWS, at, len(remainder))
        return [], len(text)
