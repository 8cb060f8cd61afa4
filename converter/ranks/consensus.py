"""What the ranks of a job agree on, from the summaries of all of them: one order of communication, one size, who has no
partner.

There is one communication at a time per rank in the simulator, so members that come in different orders wait for each
other for ever.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from ...schema.errors import DataError
from ...schema.graph import CollectiveType, NodeType
from .communication_summary import CommunicationEntry

Summaries = Sequence[Sequence[CommunicationEntry]]
"""The communication entries of every rank."""

NAMED = 4
SHARDED = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)


def common_order(summaries: Summaries) -> list[list[int]]:
    """Returns for each rank the ids of its communication nodes in an order that all ranks share and that keeps what
    they depend on.

    By when they ended, for which others wait, as far as dependencies allow. O(n log n) in all entries. Raises DataError
    where the dependencies of different ranks contradict each other.
    """
    # a message has two events, as its send does not wait for the receive; a collective has one
    events: dict[tuple[int, bool], int] = {}
    of_issue = [
        [events.setdefault((entry.matched, entry.type is NodeType.COMM_RECV), len(events)) for entry in issued]
        for issued in summaries
    ]
    ended_ns, dependents = [0] * len(events), [list[int]() for _ in events]
    for issued, own in zip(summaries, of_issue, strict=True):
        for entry, event in zip(issued, own, strict=True):
            ended_ns[event] = max(ended_ns[event], entry.end_ns)
            for before in entry.follows:
                dependents[own[before]].append(event)
    for (matched, is_receive), event in events.items():
        if is_receive and (matched, False) in events:
            dependents[events[matched, False]].append(event)
    place = _places(ended_ns, dependents, _words(summaries, of_issue))
    in_order = [
        sorted((place[event], entry.node) for event, entry in zip(*pair, strict=True))
        for pair in zip(of_issue, summaries, strict=True)
    ]
    return [[node for _, node in issued] for issued in in_order]


def _places(ended_ns: list[int], dependents: list[list[int]], words: dict[int, str]) -> list[int]:
    """Returns the place of each event in a topological order, the earliest of those possible first."""
    unmet = [0] * len(ended_ns)
    for events in dependents:
        for event in events:
            unmet[event] += 1
    ready = [(ended_ns[event], event) for event, count in enumerate(unmet) if not count]
    heapq.heapify(ready)
    place, placed = [-1] * len(ended_ns), 0
    while ready:
        _, event = heapq.heappop(ready)
        place[event] = placed
        placed += 1
        for dependent in dependents[event]:
            unmet[dependent] -= 1
            if not unmet[dependent]:
                heapq.heappush(ready, (ended_ns[dependent], dependent))
    if placed < len(place):
        raise DataError(_contradiction(place, dependents, words))
    return place


def _contradiction(place: list[int], dependents: list[list[int]], words: dict[int, str]) -> str:
    """Returns the circle that keeps events from a place: each has a dependency among them, so walking back ends in one."""
    before = {after: event for event, found in enumerate(dependents) if place[event] < 0 for after in found}
    event, walked = next(iter(before.values())), list[int]()
    while event not in walked:
        walked.append(event)
        event = before[event]
    circle = [words[event] for event in reversed(walked[walked.index(event) :])]
    more = f" -> {len(circle) - NAMED} more" if len(circle) > NAMED else ""
    return (
        f"the ranks' communication depends on itself in a circle of {len(circle)}: {' -> '.join(circle[:NAMED])}{more}; "
        "check that all traces are of one run"
    )


def _words(summaries: Summaries, of_issue: Sequence[Sequence[int]]) -> dict[int, str]:
    """Returns each event by the first rank that takes part in it."""
    words: dict[int, str] = {}
    for place, (issued, own) in enumerate(zip(summaries, of_issue, strict=True)):
        for entry, event in zip(issued, own, strict=True):
            kind = entry.type if entry.collective < 0 else CollectiveType(entry.collective)
            words.setdefault(event, f"{kind.name.lower()} (node {entry.node} of the rank at {place})")
    return words


def common_sizes(summaries: Summaries) -> list[dict[int, int]]:
    """Returns for each rank, by node id, the bytes that all members of a collective should have, where the recorded
    ones differ.

    Shards that are gathered keep their sum, the largest decides else: the busiest member is how long the others wait.
    """
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    for entry in (entry for issued in summaries for entry in issued):
        sizes[entry.matched].append(entry.size)
    return [
        {
            entry.node: common
            for entry in issued
            if (common := _common(sizes[entry.matched], entry.collective in SHARDED)) != entry.size
        }
        for issued in summaries
    ]


def _common(sizes: list[int], sharded: bool) -> int:
    return -(-sum(sizes) // len(sizes)) if sharded else max(sizes)


def unmatched(summaries: Summaries) -> list[list[int]]:
    """Returns for each rank the ids of communication nodes that some counterpart lacks: they would wait for ever."""
    sides: defaultdict[int, set[tuple[int, NodeType]]] = defaultdict(set)
    for rank, issued in enumerate(summaries):
        for entry in issued:
            sides[entry.matched].add((rank, entry.type))
    return [
        [entry.node for entry in issued if len(sides[entry.matched]) < (entry.members or len(summaries))]
        for issued in summaries
    ]
