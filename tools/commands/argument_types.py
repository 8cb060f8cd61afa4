"""Numbers that several commands take: what is none is wrong usage, said in a line."""

import argparse
import math


def number(text: str) -> float:
    """Returns the number, NaN for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def positive(text: str) -> float:
    """Returns a number above 0."""
    if not 0 < (value := number(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def count(text: str) -> int:
    """Returns a number of things, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)
