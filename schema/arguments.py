"""What callers from Python give as arguments, checked, and the answer to what is of the wrong kind.

`call` is what the caller wrote, such as "link(rank=…)".
"""

import math
import operator
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
# mypy refuses abstract classes and unions where a class is an argument
WHOLE: Any = Integral
NUMBER: Any = Real
FLAG: Any = bool | np.bool_


def wrong_argument(call: str, expected: str, argument: object) -> TypeError:
    """Returns the exception for an argument of the wrong kind, whose text says what the call takes.

    >>> wrong_argument("replay(graph)", "an ExecutionGraph or the path of a .et file", 3)
    TypeError('replay(graph) takes an ExecutionGraph or the path of a .et file, not int')
    """
    return TypeError(f"{call} takes {expected}, not {type(argument).__name__}")


def given(argument: object, kind: type[T], call: str, expected: str) -> T:
    """Returns an argument that is of this kind. Raises TypeError for another."""
    if not isinstance(argument, kind):
        raise wrong_argument(call, expected, argument)
    return argument


def whole_number(argument: object, call: str, least: int | None = None) -> int:
    """Returns a whole number. Raises TypeError for anything else, ValueError for one below the `least`.

    >>> whole_number("0", "link(rank=…)")
    Traceback (most recent call last):
    TypeError: link(rank=…) takes a whole number, not str
    """
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


def number(argument: object, call: str) -> float:
    """Returns a number. Raises TypeError for anything else, such as the text of one."""
    return float(given(argument, NUMBER, call, "a number"))


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
        given(argument, FLAG, f"{call}({name}=…)", "True or False")
