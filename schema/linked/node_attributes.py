"""The attributes that nodes of host and linked traces list, a column for each name that is known."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from .host import Attr


class ListedAttributes(NamedTuple):
    """Known attributes of each node by name, None where it lists none; `further` has other attributes by row."""

    columns: dict[str, list[Any]]
    further: dict[int, dict[str, Any]]


def listed_attributes(nodes: Sequence[list[Attr]], expected: tuple[str, ...]) -> ListedAttributes:
    """Returns the attributes of some nodes; further ones whose value is an empty text count as not there.

    Most nodes list what the first one does, the known attributes first and nothing further: those are taken all at
    once.
    """
    names = [attr.name for attr in nodes[0]] if nodes else []
    size = len(names)
    listed = [*chain.from_iterable(attrs for attrs in nodes if len(attrs) == size)]
    values = [attr.value for attr in listed]
    alike = (
        tuple(names[: len(expected)]) == expected
        and all(values[index::size].count("") * size == len(listed) for index in range(len(expected), size))
        and [attr.name for attr in listed] == names * (len(listed) // size)
    )
    columns = {name: values[index::size] if alike else [] for index, name in enumerate(expected)}
    further: dict[int, dict[str, Any]] = {}
    for row, attrs in enumerate(nodes):
        if not alike or len(attrs) != size:
            by_name = {attr.name: attr.value for attr in attrs}
            for name, column in columns.items():
                column.insert(row, by_name.pop(name, None))
            if additional := {name: value for name, value in by_name.items() if value != ""}:
                further[row] = additional
    return ListedAttributes(columns, further)
