"""The exceptions for unusable data and for requests that the data cannot answer, and suggestions of nearest words."""

import difflib
from collections.abc import Iterable

BEGINNING, END = 1000, 300
LISTED = 12


class DataError(Exception):
    """Input that cannot be used; its text is one line: which file, what is wrong, where, and what to do.

    What a file brings into the text may be of any length; the middle of a very long one is left out.

    >>> import execgraph as eg
    >>> eg.read_graph("nowhere.et")
    Traceback (most recent call last):
    execgraph.schema.errors.DataError: nowhere.et: cannot be read (No such file or directory); check the path
    """

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= BEGINNING + END else f"{text[:BEGINNING]} … {text[-END:]}")


class RequestError(DataError):
    """A request that the data cannot meet, such as for a rank that no file holds: wrong usage.

    >>> import execgraph as eg
    >>> eg.link("tests/data/training", rank=7)
    Traceback (most recent call last):
    execgraph.schema.errors.RequestError: tests/data/training: holds the traces of ranks 0, 1, not of rank 7: choose …
    """


def nearest(word: str, choices: Iterable[str], listed: bool = True) -> str:
    """Returns the end of a message on an unknown word: the most similar known word, or else all of them.

    >>> print(f"unknown target 'astrasim'{nearest('astrasim', ['generic', 'astra-sim'])}")
    unknown target 'astrasim': did you mean 'astra-sim'?
    >>> print(f"unknown target 'x'{nearest('x', ['generic', 'astra-sim'])}")
    unknown target 'x': choose from generic, astra-sim
    """
    spelled = {choice.lower(): choice for choice in choices}
    if like := difflib.get_close_matches(word.lower(), spelled, 1):
        return f": did you mean {spelled[like[0]]!r}?"
    if not listed or not spelled:
        return ""
    more = len(spelled) - LISTED
    return f": choose from {', '.join([*spelled.values()][:LISTED])}" + (f" and {more} more" if more > 0 else "")
