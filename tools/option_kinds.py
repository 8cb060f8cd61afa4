"""Kinds of options: what reads texts, whose ValueError or DataError the command line prints, and checks of values."""

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..schema import arguments
from ..schema.arguments import whole_number, whole_numbers
from ..schema.device_peaks import Peak
from ..schema.io import bytes_of
from ..schema.reasons import LARGEST_JOB

T = TypeVar("T")
TABLES_OF_DIFF = "trace_diff"
"""How the names of tables of --diff begin."""


class Kind(NamedTuple):
    """The values that an option may have: how its text is read, and what refuses others from Python, if any."""

    read: Callable[[str], Any] | None
    check: Callable[[Any, str], Any] = lambda value, call: value
    is_list: bool = False


def _is_flag(value: object, call: str) -> None:
    if type(value).__name__ not in arguments.FLAGS:
        raise arguments.wrong_argument(call, "True or False", value)


FLAG = Kind(None, _is_flag)


class Option(NamedTuple):
    """An option: its spellings, its help, the `calls` that have it, and its name there: `--no-host` is host=False."""

    spellings: str
    help: str
    kind: Kind = FLAG
    metavar: str | tuple[str, ...] = ""
    calls: str = ""
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
        settings: dict[str, Any] = {"dest": self.key, "help": self.help}
        choices = [*(self.choices() if callable(self.choices) else self.choices)]
        if self.kind is FLAG:
            settings["action"] = "store_false" if self.spellings.startswith("--no-") else "store_true"
        else:
            settings |= {"type": self.kind.read, "metavar": self.metavar or None}
        if choices:
            settings |= {"choices": choices, "help": self.help.replace("{choices}", ", ".join(map(str, choices)))}
        if self.kind.is_list:
            settings |= {"action": "append", "default": []}
        elif self.default is not None:
            settings["default"] = self.default
        group.add_argument(*self.spellings.split(), **settings | dict(self.settings))


class Group(NamedTuple):
    """Options under one title of the help; `calls` are those of all that name none."""

    title: str
    options: Sequence[Option]
    intro: str | None = None
    calls: str = ""


def _number(read: Callable[[str], T], is_right: Callable[[T], bool], wrong: str) -> Callable[[str], T]:
    """Returns what reads a number; of another one it says what is `wrong`."""

    def value_of(text: str) -> T:
        with suppress(ValueError):
            if is_right(value := read(text)):
                return value
        raise ValueError(wrong.format(text))

    return value_of


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else -1


def _steps(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", text)
    first, end = (int(number) for number in match.groups(int(match.group(1)) + 1)) if match else (0, 0)
    if first >= end:
        raise ValueError(f"{text!r} is not A or A:B with A below B, such as 3 or 3:5")
    return first, end


def _clock(text: str) -> tuple[float, float]:
    if not re.fullmatch(r"\d{1,15}(\.\d+)?:\d{1,15}(\.\d+)?", text):
        raise ValueError(f"{text!r} is not T0:T1: write two times in µs in plain digits, such as 0:1500")
    first, end = map(float, text.split(":"))
    if first >= end:
        raise ValueError(f"{text!r} is not T0:T1 with T0 below T1: write the earlier time first")
    return first, end


def _times(text: str) -> tuple[float, float]:
    with suppress(ValueError):
        first, last = (float(t) if t else end for t, end in zip(text.split(":"), (0, math.inf), strict=True))
        if first <= last:
            return first, last
    raise ValueError(f"{text!r} is not FROM:TO in µs")


def _ranks(wrong: str) -> Callable[[str], tuple[int, ...]]:
    """Returns what reads a list of ranks; of another text it says what is `wrong`."""

    def ranks_of(text: str) -> tuple[int, ...]:
        from ..converter.ranks import given_ranks

        ranks = given_ranks(text, LARGEST_JOB)
        if not ranks or not all(given_ranks(run, LARGEST_JOB) for run in text.split(",")):
            raise ValueError(wrong.format(text))
        return ranks

    return ranks_of


def _later(module: str, name: str) -> Callable[[str], Any]:
    """Returns a reader of another module, which is loaded when it is needed."""
    return lambda text: getattr(import_module(module, __package__), name)(text)


def _peak(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    with suppress(ValueError):
        if name in Peak._fields and 0 < float(value) < math.inf:
            return name, float(value)
    raise ValueError(f"{text!r}: expected one of {', '.join(Peak._fields)}, = and a number above 0")


def analysis_names() -> list[str]:
    """Returns the analyses that `--only` names; loaded when a command asks."""
    from .analyses import ANALYSES

    return [analysis.name for analysis in ANALYSES]


def _analysis(text: str) -> str:
    """Returns the name; says of what is no analysis, but a file or a table of --diff, where that belongs."""
    if text.startswith(TABLES_OF_DIFF):
        raise ValueError(f"{text} is a table of --diff: leave --only out, and --json or --csv has it")
    if os.path.exists(text) and text not in analysis_names():  # noqa: PTH110, long names
        raise ValueError(f"{text} is a file or folder, not an analysis: put it before --only")
    return text


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Returns what hands on a text of which `check` raises nothing."""

    def read(text: str) -> str:
        check(text)
        return text

    return read


def _address(text: object, call: str = "--scheduler") -> str:
    address = arguments.given(text, str, call, "an address")
    if not address.strip():
        raise ValueError(f"{text!r} is no address, such as tcp://head:8786")
    return address


def ends_as(*endings: str) -> Callable[[str], str]:
    """Returns what reads the name of a file to write, which does not end like some other kind of file."""
    return _checked(lambda path: arguments.check_ending(path, *endings))


TEXT, PATH, ONLY, SIZE = Kind(str), Kind(Path), Kind(_analysis), Kind(_checked(bytes_of))
ADDRESS = Kind(_address, _address)
ROOFLINE = Kind(_checked(_later("..converter.targets", "roofline_of")))
STEPS, CLOCK, JSON_FILE = Kind(_steps), Kind(_clock), Kind(ends_as(".json"))
TIMES = Kind(_times, partial(arguments.two_ends, expected="start and end in µs, as (0, 1500)"))
TEXTS, NUMBERS = Kind(str, arguments.texts, is_list=True), Kind(int, whole_numbers, is_list=True)
PATHS, SCALES, PEAKS = (Kind(read, is_list=True) for read in (Path, _later(".replay", "parse_scale"), _peak))
RANKS = Kind(_ranks("{!r} are not ranks, such as 0-3,8"), whole_numbers)
RANKS_OF_JOB = Kind(_ranks("{} is not a list of ranks such as 4-7 or 0,2"), whole_numbers)
WHOLE, MEGABYTES = Kind(int, whole_number), Kind(int, arguments.number)
_count = _number(_whole, lambda value: value > 0, "{} is not a whole number above 0")
COUNT = Kind(_count, partial(whole_number, least=1))
HOPS = Kind(_number(_whole, lambda value: value >= 0, "{!r} is not a number of dependencies, 0 or more"), whole_number)
ROWS = Kind(_number(_whole, lambda value: 0 < value < 1_000_000, "{!r} is not a number from 1 on"), whole_number)
_positive = _number(float, lambda value: 0 < value < math.inf, "{} is not a number above 0")
POSITIVE = Kind(_positive, partial(arguments.number, above=0))
_duration = _number(float, lambda value: 0 <= value < math.inf, "{!r} is not a duration in µs, such as 30 or 2.5")
DURATION = Kind(_duration, arguments.number)
_slice = _number(float, lambda value: 0 <= value <= 1e6, "{!r} is not a duration in µs from 0 to 1000000, such as 2.5")
NS_OF_US = Kind(lambda text: round(1000 * _slice(text)), whole_number)
