"""Checks what callers from Python give as arguments; `call` is what the caller wrote, such as "link(rank=…)"."""

import io
import math
import operator
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final, Literal, TypeGuard, TypeVar, get_args

from .errors import Remedy, Words

T = TypeVar("T")
# mypy refuses abstract classes and unions where a class is an argument
WHOLE: Any = Integral
NUMBER: Any = Real
FLAGS = ("bool", "bool_")
FilePath = str | os.PathLike[str]
"""The path of a file, as text or as a `pathlib.Path`."""
Paths = FilePath | Sequence[FilePath]
"""A file or folder, or several."""
InputFile = FilePath | IO[bytes]
"""The path of a file, or a file that is open to read bytes."""
Target = Literal["generic", "astra-sim", "goal"]
GENERIC: Final = "generic"
ASTRA_SIM: Final = "astra-sim"
GOAL: Final = "goal"
MOST_MESSAGES = 1_000_000
"""That a rank of a job for GOAL sends: each takes 3.5 kB of memory while the rank is written."""
TARGETS: tuple[Target, ...] = get_args(Target)
WHOLE_JOB = Words("a GOAL file is of a whole job: ", Remedy.BUILD_GOAL, " writes it from the traces of all ranks")
Promotion = Literal["sync", "all"]
InputsOutputs = Literal["full", "none"]
Simulator = Literal["loggopsim", "atlahs"]
"""Who runs a job in GOAL."""
KNOWN_ENDINGS = (
    ".json", ".et", ".html", ".htm", ".csv", ".svg", ".dot", ".graphml", ".pdf", ".png", ".db", ".goal", ".txt",
)  # fmt: skip


def wrong_argument(call: str, expected: str, argument: object) -> TypeError:
    """Returns the exception for an argument of the wrong kind, whose text says what the call takes."""
    return TypeError(f"{call} takes {expected}, not {type(argument).__name__}")


def given(argument: object, kind: type[T], call: str, expected: str) -> T:
    """Returns an argument that is of this kind. Raises TypeError for another."""
    if not isinstance(argument, kind):
        raise wrong_argument(call, expected, argument)
    return argument


def whole_number(argument: object, call: str, least: int | None = None) -> int:
    """Returns a whole number. Raises TypeError for anything else, ValueError for one below the `least`."""
    try:
        number = operator.index(argument)  # type: ignore[arg-type]
    except TypeError:
        raise wrong_argument(call, "a whole number", argument) from None
    if least is not None and number < least:
        raise ValueError(f"{call} takes {least} or more, not {number}")
    return number


def whole_numbers(argument: object, call: str) -> tuple[int, ...]:
    """Returns several whole numbers. Raises TypeError for anything else, such as a single one."""
    return tuple(map(int, _several(argument, WHOLE, call, "whole numbers in a list, such as [0, 1]")))


def texts(argument: object, call: str) -> tuple[str, ...]:
    """Returns several texts. Raises TypeError for anything else, such as a single one, whose letters are texts, too."""
    return _several(argument, str, call, "texts in a list")


def _several(argument: object, kind: type[T], call: str, expected: str) -> tuple[T, ...]:
    if isinstance(argument, str) or not isinstance(argument, Iterable):
        raise wrong_argument(call, expected, argument)
    return tuple(given(item, kind, call, expected) for item in argument)


def number(argument: object, call: str, above: int | None = None) -> float:
    """Returns a number. Raises TypeError for anything else, such as a text, ValueError for one that is not `above`."""
    value = float(given(argument, NUMBER, call, "a number"))
    if above is not None and not above < value < math.inf:
        raise ValueError(f"{call} takes a number above {above}, not {argument}")
    return value


def non_negative(argument: object, call: str) -> float:
    """Returns a number of 0 or more. Raises TypeError for what is not a number, ValueError for another number."""
    value = number(argument, call)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{call} takes a number of 0 or more, not {argument}")
    return value


def two_ends(argument: object, call: str, expected: str, kind: Any = NUMBER) -> None:
    """Raises TypeError for what is not two ends of this kind, ValueError where they are not in this order."""
    ends = [*argument] if isinstance(argument, tuple | list) else []
    if len(ends) != 2 or not all(isinstance(end, kind) for end in ends):
        raise TypeError(f"{call} takes {expected}, not {argument!r}")
    if not ends[0] < ends[1]:
        raise ValueError(f"{call} takes {expected}; {ends[0]} is not before {ends[1]}")


def flags(call: str, **arguments: object) -> None:
    """Raises TypeError for an argument that is neither True nor False."""
    for name, argument in arguments.items():
        # by name, as numpy is not loaded for its flags: a command line does without
        if type(argument).__name__ not in FLAGS:
            raise wrong_argument(f"{call}({name}=…)", "True or False", argument)


def is_path(argument: object) -> TypeGuard[FilePath]:
    """Returns whether a path is meant."""
    return isinstance(argument, str | os.PathLike)


def is_file(argument: object) -> TypeGuard[InputFile]:
    """Returns whether a path or an open file is meant."""
    return is_path(argument) or _is_open(argument)


def _is_open(argument: object) -> TypeGuard[IO[bytes]]:
    # graphs and linked traces have a method `read`, too
    return hasattr(argument, "read") and hasattr(argument, "close")


@contextmanager
def path_of(file: InputFile) -> Iterator[str]:
    """Yields the path of a file, of an open one that of a temporary copy of what is left; TypeError for any other."""
    if isinstance(file, str | os.PathLike):
        yield os.fspath(file)
        return
    if isinstance(file, io.TextIOBase):
        raise TypeError("the file is open as text; open it with mode 'rb'")
    if not _is_open(file):
        raise TypeError(f"a path, or a file that is open to read bytes, is wanted, not {type(file).__name__}")
    with TemporaryDirectory(prefix="execgraph-") as folder:
        # the copy has the name of the file: messages name it, and it may tell the rank
        path = Path(folder, Path(str(getattr(file, "name", ""))).name or "file")
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        yield str(path)


def given_paths(argument: object, call: str) -> list[Path]:
    """Returns the paths that a caller gives, one or several, as `call` says. Raises TypeError for anything else."""
    items = argument if isinstance(argument, list | tuple) else [argument]
    return [given_path(item, call, "a path, or a list of paths") for item in items]


def given_path(argument: object, call: str, expected: str = "a path") -> Path:
    """Returns the path that a caller gives; `call` takes what is `expected`. Raises TypeError for anything else."""
    if not is_path(argument):
        raise wrong_argument(call, expected, argument)
    return Path(argument)


def other_ending(path: str, *endings: str) -> str:
    """Returns what is wrong with a name that ends like some other kind of file; "" for any other name.

    >>> other_ending("graph.txt", ".et", ".json")
    'graph.txt ends in .txt; name a file that ends in .et or .json'
    >>> other_ending("graph.0.et.gz", ".et", ".json"), other_ending("rank0", ".et")
    ('', '')
    """
    name = path.lower().removesuffix(".gz").removesuffix(".zst")
    ending = next((ending for ending in KNOWN_ENDINGS if name.endswith(ending)), "")
    if not ending or ending in endings:
        return ""
    return f"{path} ends in {ending}; name a file that ends in {' or '.join(endings)}"


def check_ending(path: str, *endings: str) -> None:
    """Raises ValueError for a name that ends like some other kind of file."""
    if problem := other_ending(path, *endings):
        raise ValueError(problem)
