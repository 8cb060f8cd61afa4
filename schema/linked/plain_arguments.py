"""Normalises recorded arguments of ops: blanks, escapes and the order of keys.

Patterns look into these texts, caches compare them, and outputs hold copies of them: written in one way they depend on
what the file says alone. It is done where they are read, a piece of the file at a time: what PyTorch writes is looked
through for blanks and backslashes, and stays as it is.
"""

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from .host import EMPTY_LIST, NO_TENSORS

BLANK, COLON, COMMA, LIST = map(ord, " :,[")
PADDING = b"~" * 8
OPENS, CLOSES = np.zeros((2, 256), np.bool_)
OPENS[[*b"[{,: "]], CLOSES[[*b"]},: "]] = True, True
MEMBERS = np.frombuffer(b'"values""shapes""types":"strides', np.uint64)
"""How the members begin that PyTorch writes a blank before, as far as one number holds it."""
WITHOUT_TENSORS = len('{"values": [], "shapes": [], "types": []}')
ESCAPES = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+|\\.")


class _Lists(msgspec.Struct):
    """Strides are empty where a version has none."""

    values: msgspec.Raw = EMPTY_LIST
    shapes: msgspec.Raw = EMPTY_LIST
    types: msgspec.Raw = EMPTY_LIST
    strides: msgspec.Raw = msgspec.Raw()


LISTS = msgspec.json.Decoder(list[_Lists])


def plain_arguments(arguments: Sequence[bytes]) -> Sequence[bytes]:
    r"""Returns the arguments of many ops, each an object with the members of `TensorLists`: equal ones as equal texts.

    >>> plain_arguments([rb'{"types": ["\u0049nt"], "values": [ 7 ]}', b'{"shapes": []}'])
    [b'{"values": [7], "shapes": [], "types": ["Int"]}', b'{"values":[],"shapes":[],"types":[]}']
    """
    unique_arguments = [*{*arguments}]
    block = b",".join(unique_arguments)
    if not _has_odd_blanks(block):
        if b"\\" not in block and min(map(len, unique_arguments), default=len(NO_TENSORS)) > WITHOUT_TENSORS:
            return arguments
        unique_arguments = [
            text for text in unique_arguments if b"\\" in text or (len(text) <= WITHOUT_TENSORS and text != NO_TENSORS)
        ]
    if not unique_arguments:
        return arguments
    plain = dict(zip(unique_arguments, _plain(unique_arguments), strict=True))
    return [*map(plain.get, arguments, arguments)]


def plain_escapes(text: bytes) -> bytes:
    r"""Returns the same JSON with those escapes alone that must be.

    >>> plain_escapes(rb'["\u0022\u003a\/\n\ud83d\ude00"]').decode()
    '["\\":/\\n\U0001f600"]'
    """
    return ESCAPES.sub(_plain_escape, text) if b"\\" in text else text


def _plain_escape(match: "re.Match[bytes]") -> bytes:
    text = match.group()
    if text == rb"\/":
        return b"/"
    return msgspec.json.encode(msgspec.json.decode(b'"%b"' % text))[1:-1] if text.startswith(rb"\u") else text


def _has_odd_blanks(block: bytes) -> bool:
    """Returns whether there are blanks other than PyTorch's: behind a member's key and before the next one."""
    padded = block + PADDING
    text = np.frombuffer(padded, np.uint8)
    blank = np.flatnonzero(text <= BLANK)
    before, behind = text[blank - 1], text[blank + 1]
    key_before = before == COLON
    odd = (OPENS[before] | CLOSES[behind]) & ~(key_before & (behind == LIST))
    after_comma = np.flatnonzero(before == COMMA)
    eight_bytes = np.ndarray(len(block) + 1, np.uint64, padded, strides=(1,))
    begin = eight_bytes[blank[after_comma] + 1]
    odd[after_comma] = np.all([begin != member for member in MEMBERS], axis=0)
    return bool(odd.any()) or bool((text[blank] < BLANK).any())


def _plain(arguments: list[bytes]) -> list[bytes]:
    try:
        compact = msgspec.json.format(b"[%b]" % b",".join(map(plain_escapes, arguments)), indent=-1)
        return [*map(_text, LISTS.decode(compact))]
    except RecursionError:
        return arguments


def _text(lists: _Lists) -> bytes:
    three = b'{"values": %b, "shapes": %b, "types": %b' % (lists.values, lists.shapes, lists.types)
    if strides := bytes(lists.strides):
        return b'%b, "strides": %b}' % (three, strides)
    return NO_TENSORS if len(three) < WITHOUT_TENSORS else three + b"}"
