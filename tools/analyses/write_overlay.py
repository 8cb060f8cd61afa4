"""Adds events to a device trace, for Perfetto. The original is copied as a stream, with the new events first."""

import zlib
from collections.abc import Iterable
from typing import IO, BinaryIO

from ...schema.errors import DataError
from ...schema.io import open_input, open_output
from ...schema.json_repair import opening_of, with_plain_letters
from ...schema.json_stream import LONGEST_HEAD

PIECE = 1 << 20


def write_overlay(original: str, output: str, events: Iterable[bytes]) -> None:
    """Copies the trace with `events` (JSON objects) added, in constant memory; the output is complete or not written.

    Raises DataError if the original has no array of events or its compression is damaged.
    """
    with open_input(original, protected=True) as source, open_output(output) as target:
        try:
            _copy(original, source, target, events)
        except (EOFError, zlib.error) as error:
            raise DataError(f"{original}: damaged compressed file ({error}); decompress or copy it again") from error


def _copy(original: str, source: BinaryIO, target: IO[bytes], events: Iterable[bytes]) -> None:
    text, opening = b"", None
    while opening is None:
        piece = source.read(PIECE)
        if not piece or len(text) > LONGEST_HEAD:
            raise DataError(f"{original}: holds no traceEvents; expected a Kineto device trace")
        text = with_plain_letters(text + piece)
        opening = opening_of(text, "traceEvents", ended=len(piece) < PIECE)
    target.write(text[:opening])
    remaining = text[opening:].lstrip()
    while not remaining and (piece := source.read(PIECE)):
        remaining = piece.lstrip()
    separator = b"\n"
    for event in events:
        target.write(separator + event)
        separator = b",\n"
    target.write(b"" if separator == b"\n" or remaining.startswith(b"]") else separator)
    target.write(remaining)
    while piece := source.read(PIECE):
        target.write(piece)
