"""What goes to a terminal: names come from files, files from strangers, and terminals obey what they are sent."""

import codecs
import io
import re
from typing import IO, Any, cast

ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but line ends and tabs, characters that turn the direction of writing, halves of characters."""
BOLD, NORMAL = "\x1b[1m", "\x1b[0m"
OBEYED = re.compile(f"(?!{re.escape(BOLD)}|{re.escape(NORMAL)}){ACTING.pattern}")
"""The same but for bold letters, which do no harm."""


def plain_on_terminals(stream: IO[bytes]) -> IO[bytes]:
    """Returns the stream; a terminal gets JSON escapes for control characters and for what is no text."""
    return cast(IO[bytes], _Plain(stream)) if stream.isatty() else stream


class _Plain(io.RawIOBase):
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._decode = stream, codecs.getincrementaldecoder("utf-8")("backslashreplace").decode

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        text = OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", self._decode(bytes(content)))
        self._stream.write(text.encode())
        return len(content)
