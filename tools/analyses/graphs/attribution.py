"""Finds the ops that a graph's kernels were captured from, in traces of captures, or what the program called them.

Nodes of the graph tell where both traces recorded them: a node's number holds that of its graph, which another one has
once the graph is made ready, and its place there, which stays. Else the whole sequence tells: as many launches of the
same kinds, and of the same names where these were recorded. What ran before by itself is searched for the same names in
a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from ..rank import KERNEL, Capture, Launched

PLACE_IN_GRAPH = (1 << 32) - 1
BY_NODE, BY_NAME, BY_ORDER, BY_MARK = "by node", "by name", "by order", "by mark"


class Attribution(NamedTuple):
    """The ops of a graph's launches in their order, and how they were found, "" for not at all: then `agreeing`
    launches in a row agree with the capture that comes nearest. `others` captures fit as well, and tell other ops.
    """

    ops: list[str]
    found: str
    agreeing: int = 0
    others: int = 0


def attribution(graph: Sequence[Launched], captures: Sequence[Capture]) -> Attribution:
    """Returns the ops of a graph's launches, which stand in their order. O(launches of the graph and of the captures)."""
    for found, fitting in (
        (BY_NODE, _by_node(graph, captures)),
        (BY_NAME, _whole(graph, captures, named=True)),
        (BY_NAME, _in_a_row(graph, captures)),
        (BY_ORDER, _whole(graph, captures, named=False)),
    ):
        ops = [[one.op for one in launches] for launches in fitting]
        if ops:
            return Attribution(ops[0], found, len(graph), sum(other != ops[0] for other in ops[1:]))
    agreeing = max((_agreeing(graph, one.launches) for one in captures if one.whole), default=0)
    return Attribution([""] * len(graph), "", agreeing)


def by_mark(graph: Sequence[Launched], marks: Mapping[int, str]) -> Attribution | None:
    """Returns what the program called the graph's nodes while it was captured, "" for those that it did not mark; None
    where it marked none.
    """
    ops = [marks.get(one.node, "") for one in graph]
    return Attribution(ops, BY_MARK) if any(ops) else None


def _by_node(graph: Sequence[Launched], captures: Sequence[Capture]) -> Iterator[list[Launched]]:
    if not graph or any(one.node < 0 for one in graph):
        return
    for capture in captures:
        by_node = {one.node & PLACE_IN_GRAPH: one for one in capture.launches if one.node >= 0}
        launches = [by_node.get(one.node & PLACE_IN_GRAPH) for one in graph]
        known = [one for one in launches if one is not None]
        if len(known) == len(graph) and all(map(_alike, graph, known)):
            yield known


def _whole(graph: Sequence[Launched], captures: Sequence[Capture], named: bool) -> Iterator[list[Launched]]:
    for capture in captures:
        launches = capture.launches
        fits = capture.whole and len(launches) == len(graph) and all(map(_alike, graph, launches))
        if fits and named == all(one.name for one in launches if one.kind == KERNEL):
            yield launches


def _in_a_row(graph: Sequence[Launched], captures: Sequence[Capture]) -> Iterator[list[Launched]]:
    """Yields by the search of Knuth, Morris and Pratt."""
    wanted = [one.name for one in graph]
    back = _borders(wanted)
    for capture in captures:
        length = 0
        for place, launch in enumerate(capture.launches if not capture.whole else ()):
            while length and (length == len(wanted) or launch.name != wanted[length]):
                length = back[length - 1]
            length += bool(wanted) and launch.name == wanted[length]
            if wanted and length == len(wanted):
                yield capture.launches[place + 1 - length : place + 1]


def _borders(names: list[str]) -> list[int]:
    """Returns for each beginning of the sequence the longest shorter one that it ends with."""
    found = [0] * len(names)
    length = 0
    for place in range(1, len(names)):
        while length and names[place] != names[length]:
            length = found[length - 1]
        length += names[place] == names[length]
        found[place] = length
    return found


def _agreeing(graph: Sequence[Launched], launches: Sequence[Launched]) -> int:
    return sum(1 for _ in takewhile(bool, map(_alike, graph, launches)))


def _alike(one: Launched, other: Launched) -> bool:
    return one.kind == other.kind and (one.name == other.name or not other.name)
