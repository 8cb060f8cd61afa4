"""Finds the ops that a graph's kernels were captured from, in traces of captures, or the program's own marks.

If both traces record graph nodes, these are compared: a node's number holds that of its graph, which changes when the
graph is instantiated, and its position there, which does not. Else whole captures are compared: they must have as many
launches of the same kinds, and of the same names if recorded. In launches outside of captures, such as warm-ups, the
same sequence of names is searched.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from .captures import KERNEL, Capture, Launched

NODE_IN_GRAPH = (1 << 32) - 1
BY_NODE, BY_NAME, BY_ORDER, BY_MARK = "by node", "by name", "by order", "by mark"


class Attribution(NamedTuple):
    """The ops of a graph's launches in their order, and how they are known, "" if they are not.

    In the nearest capture the first `agreeing` launches agree. `others` is the number of captures that fit as well but
    have other ops.
    """

    ops: list[str]
    known_by: str
    agreeing: int = 0
    others: int = 0


def attribution(graph: Sequence[Launched], captures: Sequence[Capture]) -> Attribution:
    """Returns the ops of a graph's launches, in their order. O(launches of the graph and of the captures)."""
    for known_by, fitting in (
        (BY_NODE, _captures_of_nodes(graph, captures)),
        (BY_NAME, _whole(graph, captures, named=True)),
        (BY_NAME, _find_sequence(graph, captures)),
        (BY_ORDER, _whole(graph, captures, named=False)),
    ):
        ops = [[launch.op for launch in launches] for launches in fitting]
        if ops:
            return Attribution(ops[0], known_by, len(graph), sum(other_ops != ops[0] for other_ops in ops[1:]))
    agreeing = max((_agreeing(graph, launch.launches) for launch in captures if launch.whole), default=0)
    return Attribution([""] * len(graph), "", agreeing)


def by_mark(graph: Sequence[Launched], marks: Mapping[int, str]) -> Attribution | None:
    """Returns the marks that the program gave a graph's nodes during capture, "" for none; None if no node has any."""
    ops = [marks.get(launch.node, "") for launch in graph]
    return Attribution(ops, BY_MARK) if any(ops) else None


def _captures_of_nodes(graph: Sequence[Launched], captures: Sequence[Capture]) -> Iterator[list[Launched]]:
    if not graph or any(launch.node < 0 for launch in graph):
        return
    for capture in captures:
        by_node = {launch.node & NODE_IN_GRAPH: launch for launch in capture.launches if launch.node >= 0}
        launches = [by_node.get(launch.node & NODE_IN_GRAPH) for launch in graph]
        recorded = [launch for launch in launches if launch is not None]
        if len(recorded) == len(graph) and all(map(_alike, graph, recorded)):
            yield recorded


def _whole(graph: Sequence[Launched], captures: Sequence[Capture], named: bool) -> Iterator[list[Launched]]:
    for capture in captures:
        launches = capture.launches
        fits = capture.whole and len(launches) == len(graph) and all(map(_alike, graph, launches))
        if fits and named == all(launch.name for launch in launches if launch.kind == KERNEL):
            yield launches


def _find_sequence(graph: Sequence[Launched], captures: Sequence[Capture]) -> Iterator[list[Launched]]:
    """Yields where a graph's sequence of names occurs outside of captures (Knuth-Morris-Pratt search)."""
    names = [launch.name for launch in graph]
    back = _borders(names)
    for capture in captures:
        length = 0
        for position, launch in enumerate(capture.launches if not capture.whole else ()):
            while length and (length == len(names) or launch.name != names[length]):
                length = back[length - 1]
            length += bool(names) and launch.name == names[length]
            if names and length == len(names):
                yield capture.launches[position + 1 - length : position + 1]


def _borders(names: list[str]) -> list[int]:
    """Returns for each prefix of the sequence the length of its longest border: a shorter prefix that it ends with."""
    borders = [0] * len(names)
    length = 0
    for position in range(1, len(names)):
        while length and names[position] != names[length]:
            length = borders[length - 1]
        length += names[position] == names[length]
        borders[position] = length
    return borders


def _agreeing(graph: Sequence[Launched], launches: Sequence[Launched]) -> int:
    return sum(1 for _ in takewhile(bool, map(_alike, graph, launches)))


def _alike(a: Launched, b: Launched) -> bool:
    return a.kind == b.kind and (a.name == b.name or not b.name)
