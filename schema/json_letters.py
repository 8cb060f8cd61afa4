"""JSON text in which letters are written as themselves, so that keys can be looked for in its bytes."""

import re

LETTER = rb"u00(3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA]|20)"
ESCAPED_LETTER = re.compile(rb"\\" + LETTER)
ESCAPE = re.compile(rb"\\(?:" + LETTER + rb"|.)", re.DOTALL)


def with_plain_letters(text: bytes) -> bytes:
    r"""Returns the same JSON without escapes of letters, digits, blanks and underscores; begins outside an escape.

    >>> with_plain_letters(rb'{"\u0069d":"\\u0069\u001b"}')
    b'{"id":"\\\\u0069\\u001b"}'
    """
    return ESCAPE.sub(_letter, text) if ESCAPED_LETTER.search(text) else text


def _letter(match: "re.Match[bytes]") -> bytes:
    return bytes.fromhex(match[1].decode()) if match[1] else match[0]
