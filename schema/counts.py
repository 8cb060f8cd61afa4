"""Counts by reason, and how records that hold them are written into files and read again: in words.

Commands import this before they know what to do, so that msgspec is loaded where it is used.
"""

from collections import UserDict
from collections.abc import Mapping
from typing import Any, TypeVar

from .reasons import AnyReason, Reason, in_words, reason_called

Record = TypeVar("Record")


class Counts(UserDict[AnyReason, int]):
    """How often something occurred, by reason and in the order of the first occurrence; 0 for what did not.

    >>> counts = Counts({Reason.BLOCKING_COPIES: 2})
    >>> counts[Reason.STILL_RUNNING] += 3
    >>> counts, counts[Reason.NO_DURATION], counts.of(Reason.STILL_RUNNING)
    ({'blocking copies': 2, 'ops still running when recording ended': 3}, 0, 3)
    """

    def __repr__(self) -> str:
        return repr(self.in_words())

    def in_words(self) -> dict[str, int]:
        """Returns the counts by what their reasons are called, to be printed."""
        return {in_words(reason): count for reason, count in self.items()}

    def __missing__(self, reason: AnyReason) -> int:
        return 0

    def of(self, *reasons: Reason) -> int:
        """Returns how often these reasons occurred, whatever they were about."""
        return sum(count for reason, count in self.items() if reason.reason in reasons)

    def add(self, *others: Mapping[AnyReason, int]) -> "Counts":
        """Adds other counts, in place, leaves out what never occurred, and returns itself."""
        for other in others:
            for reason, count in other.items():
                self[reason] += count
        self.data = self.without_zeros().data
        return self

    def without_zeros(self) -> "Counts":
        """Returns the counts of what occurred."""
        return Counts({reason: count for reason, count in self.items() if count})


def to_json(value: Any) -> bytes:
    """Returns the JSON of a value; counts in it are in words."""
    import msgspec

    return msgspec.json.encode(value, enc_hook=_encodable)


def to_builtins(value: Any) -> Any:
    """Returns a record as an object of JSON; counts in it are in words."""
    import msgspec

    return msgspec.to_builtins(value, enc_hook=_encodable)


def from_json(text: bytes, kind: type[Record]) -> Record:
    """Returns the record that a JSON text holds, whose counts are in words. Raises msgspec.DecodeError."""
    import msgspec

    return msgspec.json.decode(text, type=kind, dec_hook=decoded)


def _encodable(value: Any) -> Any:
    if isinstance(value, Counts):
        return value.in_words()
    raise NotImplementedError(f"{type(value).__name__} is no JSON")


def decoded(kind: type[Any], value: Any) -> Any:
    """Returns counts for an object of counts in words, as a hook of msgspec's decoders."""
    import msgspec

    if kind is Counts:
        return Counts({reason_called(words): count for words, count in msgspec.convert(value, dict[str, int]).items()})
    raise NotImplementedError(f"{kind.__name__} is no record of a file")
