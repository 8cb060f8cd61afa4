"""Output to terminals and standard output without control characters: names come from files, which may be hostile."""

import logging
import os
import re
import sys
from collections.abc import Iterable

from ..schema.io import ACTING, BOLD, NORMAL, STANDARD_STREAM, open_output

LONGEST_LINE = 1_500
"""Letters of a line. A trace may hold a name that fills screens; of it the beginning and the end are shown."""
ENDING = 200
ACTING_UTF8 = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
"""Those of `ACTING` that JSON leaves as they are."""


def plain(text: str) -> str:
    r"""Returns the text with what acts on a terminal as escapes; line ends and tabs stay.

    >>> print(plain("gemm\x1b[2J\r\u202e"))
    gemm\x1b[2J\r\u202e
    """
    return ACTING.sub(lambda match: ascii(match[0])[1:-1], text)


def in_one_line(text: str) -> str:
    r"""Plain text in which line ends are escapes, too: a name with one cannot begin a line that looks like ours.

    >>> print(in_one_line("gemm\ntrace-build: error: none"))
    gemm\ntrace-build: error: none
    """
    return short_line(plain(text).replace("\n", "\\n"))


def short_line(line: str) -> str:
    """Returns the line without its middle, if it is longer than any that people read.

    >>> len(short_line("x" * 262_144))
    1500
    """
    if len(line) <= LONGEST_LINE:
        return line
    between = f" … {len(line):,} letters in all … "
    return line[: LONGEST_LINE - ENDING - len(between)] + between + line[-ENDING:]


class PlainFormatter(logging.Formatter):
    """Notes, warnings and errors are a line each, summaries have several."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record's text as it may be printed."""
        text = super().format(record)
        if record.exc_info:
            return plain(text)
        lines = [text] if record.levelno >= logging.WARNING else text.split("\n")
        return "\n".join(map(in_one_line, lines))


def print_text(text: str, *, answer_first: bool = False) -> None:
    """Text for people, on standard output. Raises DataError where that takes nothing.

    If the first paragraph is the answer, a terminal shows it in bold, unless NO_COLOR is set (https://no-color.org).
    """
    lines = [short_line(line) for line in plain(text).split("\n")]
    if answer_first and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        end = lines.index("") if "" in lines else len(lines)
        lines[:end] = [f"{BOLD}{line}{NORMAL}" for line in lines[:end]]
    with open_output(STANDARD_STREAM) as stream:
        stream.writelines(f"{line}\n".encode() for line in lines)


def print_json(pieces: Iterable[bytes]) -> None:
    """Prints JSON piece by piece, with control characters escaped. Raises DataError like `print_text`."""
    with open_output(STANDARD_STREAM) as stream:
        stream.writelines(map(plain_json, pieces))


def plain_json(json: bytes) -> bytes:
    """JSON in UTF-8 with escapes, as JSON has them, for what acts on a terminal."""
    return ACTING_UTF8.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), json)
