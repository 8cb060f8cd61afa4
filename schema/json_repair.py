"""Mends JSON text that a decoder refuses, in one pass over its tokens, linear in its length.

It mends what profilers are known to write wrongly: names with quotes, backslashes and control characters in them, bytes
that are no UTF-8, NaN and its like, and commas too many.
"""

import json
import re
from itertools import islice
from typing import Any, NamedTuple

import msgspec

QUOTES = "with unescaped quotes"
CONTROLS = "with control characters in a text"
BACKSLASHES = "with backslashes that escape nothing"
ENCODING = "with bytes that are not UTF-8"
NUMBERS = "with numbers that JSON does not have"
COMMAS = "with misplaced commas or missing values"

KEY_NEXT = rb'\s*(?:,[\s,]*"[^"\\]{1,64}"\s*:|[,\s]*\}\s*(?:[,}\]]|\Z))'
TOKEN = re.compile(
    rb'(?P<lead>:\s*)"(?P<value>(?:[^"\\]+|\\(?:[^"]|"(?!'
    + KEY_NEXT
    + rb')|\Z)|\\(?=")|"(?!'
    + KEY_NEXT
    + rb'))*)(?:"|\Z)'
    rb'|"(?P<text>(?:[^"\\]+|\\(?:.|\Z)|"(?!\s*[:,\]}]))*)(?:"|\Z)'
    rb"|(?P<word>[-+]?[A-Za-z_][\w()]*)"
    rb"|(?P<number>[-+]?\.?\d[\w.+-]*)"
    rb"|(?P<comma>,(?=\s*(?:[,\]}]|\Z))|(?<=[\[{]),)"
    rb"|(?P<void>:(?=\s*[,\]}]))",
    re.DOTALL,
)
"""A text that is a value in an object ends where another key or the object's end follows; others at their next
plausible quote.
"""
IN_TEXT = re.compile(
    rb'(?P<valid>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\["\\/bfnrt])'
    rb'|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(?P<backslash>\\)|(?P<quote>")|(?P<control>[\x00-\x1f])',
)
SWALLOWED = re.compile(rb'"(?:ph|cat|pid|tid|ts|dur|args|id|ctrl_deps|parent|inputs|outputs|attrs|rf_id)"\s*:')
"""Keys of the elements themselves; a text that seems to hold one lost its own end."""
JSON_NUMBER = re.compile(rb"-?(?:0|[1-9]\d{0,300})(?:\.\d+)?(?:[eE][-+]?\d{1,2})?")
WORDS = {b"true": b"true", b"false": b"false", b"null": b"null", b"True": b"true", b"False": b"false"}
"""Others (NaN, Infinity, None, -nan(ind)) are null."""
FIX = {"backslash": b"\\\\", "quote": b'\\"', "half": b"\\ufffd"}
KIND = {"backslash": BACKSLASHES, "half": BACKSLASHES, "quote": QUOTES, "control": CONTROLS}

ANYTHING = msgspec.json.Decoder(list[msgspec.Raw])
END = 1 << 20
POSITIONS_TRIED = 16


class Mended(NamedTuple):
    """A text, and what had to be done to it."""

    text: bytes
    repairs: set[str]


def mend(text: bytes) -> Mended:
    """Returns the text of one JSON value with known faults put right; it need not be JSON even then."""
    repairs: set[str] = set()
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        repairs.add(ENCODING)

    def token(match: "re.Match[bytes]") -> bytes:
        kind, literal = match.lastgroup, match.group()
        if kind in ("value", "text"):
            return (match["lead"] or b"") + b'"' + _sound_text(match[kind], repairs) + b'"'
        if kind == "number":
            return _sound_number(literal, repairs)
        if kind == "word":
            if literal not in WORDS or WORDS[literal] != literal:
                repairs.add(NUMBERS)
            return WORDS.get(literal, b"null")
        repairs.add(COMMAS)
        return b":null" if kind == "void" else b""

    return Mended(TOKEN.sub(token, text), repairs)


def _sound_text(body: bytes, repairs: set[str]) -> bytes:
    """Returns the body of a text with all needed escapes; unchanged if a quote is missing rather than superfluous."""
    if SWALLOWED.search(body):
        return body

    def character(match: "re.Match[bytes]") -> bytes:
        kind = match.lastgroup or ""
        if kind == "valid":
            return match.group()
        repairs.add(KIND[kind])
        return FIX.get(kind) or b"\\u%04x" % match.group()[0]

    return IN_TEXT.sub(character, body)


def _sound_number(text: bytes, repairs: set[str]) -> bytes:
    if JSON_NUMBER.fullmatch(text):
        return text
    repairs.add(NUMBERS)
    try:
        number = float(text)
    except ValueError:
        return b"null"
    return b"null" if number in (float("inf"), float("-inf")) or number != number else repr(number).encode()


def known_keys(text: bytes, keys: tuple[str, ...]) -> dict[str, Any]:
    """Returns the values of the keys, wherever they are in a text that is no JSON as a whole, mended if needed.

    Of a key that stands there several times the first readable value. Of a long text only the ends are looked at.
    """
    decoder, values = json.JSONDecoder(strict=False), {}
    ends = text if len(text) <= 2 * END else text[:END] + b"," + text[-END:]
    document = mend(ends).text.decode("utf-8", "replace")
    for key in keys:
        for match in islice(re.finditer(rf'"{re.escape(key)}"\s*:\s*', document), POSITIONS_TRIED):
            try:
                values[key] = decoder.raw_decode(document, match.end())[0]
                break
            except (ValueError, RecursionError):
                continue
    return values


def refusal(decoder: "msgspec.json.Decoder[Any]", text: bytes) -> Exception | None:
    """Returns why a decoder of lists refuses the text of elements; None if it does not."""
    try:
        if not text.isascii():
            text.decode()
        decoder.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return error
    return None


def is_mendable(text: bytes, refused: Exception) -> bool:
    """Is it the text that is wrong, rather than what it says, and was it written as text at all?"""
    if b"\0" in text:
        return False
    if not isinstance(refused, msgspec.ValidationError) or "out of range" in str(refused):
        return True
    return (
        refusal(ANYTHING, text) is not None
    )  # a decoder may complain of the first object before it comes to the damage
