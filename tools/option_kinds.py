"""Kinds of options: how the command line reads their values, and what refuses others from Python."""

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..schema.arguments import flags, number as a_number, other_ending, texts, two_ends, whole_number, whole_numbers
from ..schema.device_peaks import Peak

T = TypeVar("T")
TABLES_OF_DIFF = "trace_diff"
"""How the names of tables of --diff begin."""


class Kind(NamedTuple):
    """The values that an option may have: how its text is read, and what refuses another value from Python."""

    read: Callable[[str], Any] | None
    check: Callable[[Any, str], Any]
    is_list: bool = False


class Option(NamedTuple):
    """An option: its spellings, its help, the `calls` that have it, and its name there where the spelling differs.

    Python has `--no-host` as host=False. `unset` stands for no value where calls have the `default`.
    """

    spellings: str
    kind: Kind
    calls: str
    metavar: str | tuple[str, ...]
    help: str
    name: str = ""
    default: Any = None
    choices: Callable[[], Iterable[Any]] | Iterable[Any] = ()
    settings: Mapping[str, Any] = {}

    @property
    def key(self) -> str:
        """What Python calls it."""
        return self.name or self.spellings.split()[0].removeprefix("--").removeprefix("no-").replace("-", "_")

    def add_to(self, group: argparse._ActionsContainer) -> None:
        """Adds it to a command."""
        words, settings = self.spellings.split(), {"dest": self.key, "help": self.help, **self.settings}
        if self.kind is FLAG:
            is_negative = words[0].startswith("--no-")
            action = "store_false" if is_negative else "store_true"
            group.add_argument(*words, **{"action": action, **settings})
            return
        if choices := [*(self.choices() if callable(self.choices) else self.choices)]:
            settings |= {"choices": choices, "help": self.help.replace("{choices}", ", ".join(map(str, choices)))}
        if self.kind.is_list:
            settings = {"action": "append", "default": []} | settings
        elif self.default is not None:
            settings = {"default": self.default} | settings
        group.add_argument(*words, **{"type": self.kind.read, "metavar": self.metavar or None, **settings})


class Group(NamedTuple):
    """Options under one title of the help."""

    title: str
    options: Sequence[Option]
    intro: str | None = None


def _wrong(text: str, what: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} {what}")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else -1


def _number(read: Callable[[str], T], is_right: Callable[[T], bool], wrong: str) -> Callable[[str], T]:
    """Returns what reads a number; of another one it says what is `wrong`."""

    def value_of(text: str) -> T:
        if not is_right(value := read(text)):
            raise argparse.ArgumentTypeError(wrong.format(text))
        return value

    return value_of


_positive = _number(_float, lambda value: 0 < value < math.inf, "{} is not a number above 0")
_count = _number(_whole, lambda value: value > 0, "{} is not a whole number above 0")
_rows = _number(_whole, lambda value: 0 < value < 1_000_000, "{!r} is not a number from 1 on")
_hops = _number(_whole, lambda value: value >= 0, "{!r} is not a number of dependencies, 0 or more")
_duration = _number(_float, lambda value: 0 <= value < math.inf, "{!r} is not a duration in µs, such as 30 or 2.5")
_slice = _number(_float, lambda value: 0 <= value <= 1e6, "{!r} is not a duration in µs from 0 to 1000000, such as 2.5")


def _steps(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", text)
    first, end = (int(number) for number in match.groups(int(match.group(1)) + 1)) if match else (0, 0)
    if first >= end:
        raise _wrong(text, "is not A or A:B with A below B, such as 3 or 3:5")
    return first, end


def _clock(text: str) -> tuple[float, float]:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?):(\d{1,15}(?:\.\d+)?)", text)
    if not match:
        raise _wrong(text, "is not T0:T1: write two times in µs in plain digits, such as 0:1500")
    first, end = float(match.group(1)), float(match.group(2))
    if first >= end:
        raise _wrong(text, "is not T0:T1 with T0 below T1: write the earlier time first")
    return first, end


def _times(text: str) -> tuple[float, float]:
    try:
        first, last = (float(t) if t else end for t, end in zip(text.split(":"), (0, math.inf), strict=True))
    except ValueError:
        first, last = 1, 0
    if not first <= last:
        raise _wrong(text, "is not FROM:TO in µs")
    return first, last


def _ranks_here(text: str) -> tuple[int, ...]:
    from ..converter.ranks import ranks_of

    if not re.fullmatch(r"\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*", text):
        raise _wrong(text, "are not ranks, such as 0-3,8")
    return ranks_of(text)


def _ranks_of_job(text: str) -> tuple[int, ...]:
    from ..converter.ranks import given_ranks
    from ..schema.comm_groups import LARGEST_JOB

    if (ranks := given_ranks(text, LARGEST_JOB)) is None:
        raise argparse.ArgumentTypeError(f"{text} is not a list of ranks such as 4-7 or 0,2")
    return ranks


def _said(read: Callable[[str], T]) -> Callable[[str], T]:
    """Returns the reader, whose ValueErrors are wrong usage in their own words."""

    def read_or_refuse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_or_refuse


@_said
def _scale(spec: str) -> Any:
    from .replay import parse_scale

    return parse_scale(spec)


@_said
def _roofline(text: str) -> Any:
    from ..converter.targets import roofline_of

    return roofline_of(text)


def _peak(text: str) -> tuple[str, float]:
    name, _, value_text = text.partition("=")
    value = _float(value_text)
    if name not in Peak._fields or not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(Peak._fields)}, = and a number above 0")
    return name, value


def analysis_names() -> list[str]:
    """Returns the analyses that `--only` names; loaded when a command asks."""
    from .analyses import ANALYSES

    return [analysis.name for analysis in ANALYSES]


def _analysis(text: str) -> str:
    """Returns the name; says of what is no analysis, but a file or a table of --diff, where that belongs."""
    if text.startswith(TABLES_OF_DIFF):
        raise argparse.ArgumentTypeError(f"{text} is a table of --diff: leave --only out, and --json or --csv has it")
    if os.path.exists(text) and text not in analysis_names():  # noqa: PTH110, long names
        raise argparse.ArgumentTypeError(f"{text} is a file or folder, not an analysis: put it before --only")
    return text


def ends_as(*endings: str) -> "Kind":
    """Returns the kind of the name of a file to write, which does not end like some other kind of file."""

    def check(path: str) -> str:
        if problem := other_ending(path, *endings):
            raise argparse.ArgumentTypeError(problem)
        return path

    return Kind(check, _any)


def _any(value: object, call: str) -> None:
    """Is checked by what takes it."""


def _at_least_one(value: object, call: str) -> int:
    return whole_number(value, call, least=1)


def _is_flag(value: object, call: str) -> None:
    name, _, argument = call.partition("(")
    flags(name, **{argument.removesuffix("=…)"): value})


def _window_us(value: object, call: str) -> None:
    two_ends(value, call, "start and end in µs, as (0, 1500)")


FLAG = Kind(None, _is_flag)
TEXT, FILE, PATH, ROOFLINE, ONLY = (Kind(read, _any) for read in (str, str, Path, _roofline, _analysis))
TEXTS = Kind(str, texts, is_list=True)
FILES, PATHS, SCALES, PEAKS = (Kind(read, _any, is_list=True) for read in (str, Path, _scale, _peak))
WHOLE, HOPS, ROWS = (Kind(read, whole_number) for read in (int, _hops, _rows))
COUNT = Kind(_count, _at_least_one)
POSITIVE, DURATION = Kind(_positive, a_number), Kind(_duration, a_number)
MEGABYTES = Kind(int, a_number)
NS_OF_US = Kind(lambda text: round(1000 * _slice(text)), whole_number)
NUMBERS = Kind(int, whole_numbers, is_list=True)
RANKS, RANKS_OF_JOB = Kind(_ranks_here, whole_numbers), Kind(_ranks_of_job, whole_numbers)
STEPS, CLOCK = Kind(_steps, _any), Kind(_clock, _any)
TIMES = Kind(_times, _window_us)
