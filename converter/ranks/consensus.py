"""What the ranks of a job agree on, from all their summaries: the order of communication, sizes, missing partners.

The simulator runs one communication at a time per rank, so members that come in different orders deadlock.
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
    """Returns, for each rank, the ids of its communication nodes in the order of `common_positions`."""
    return [
        [entry.node for _, entry in sorted(zip(positions, issued, strict=True))]
        for issued, positions in zip(summaries, common_positions(summaries), strict=True)
    ]


def common_positions(summaries: Summaries) -> list[list[int]]:
    """Returns the position of each entry in an order of communication that all ranks share and that keeps their
    dependencies. A collective has one position on all its members, a send one before that of its receive.

    Communication is ordered by when it ended, as far as dependencies allow. O(n log n) in all entries. Raises DataError
    if the dependencies of different ranks contradict each other.
    """
    # a message has two events, as its send does not wait for the receive; a collective has one
    events: dict[tuple[int, bool], int] = {}
    of_issue = [
        [events.setdefault((entry.matched, entry.type is NodeType.COMM_RECV), len(events)) for entry in issued]
        for issued in summaries
    ]
    ended_ns, dependents = [0] * len(events), [list[int]() for _ in events]
    for issued, rank_events in zip(summaries, of_issue, strict=True):
        for entry, event in zip(issued, rank_events, strict=True):
            ended_ns[event] = max(ended_ns[event], entry.end_ns)
            for before in entry.follows:
                dependents[rank_events[before]].append(event)
    for (matched, is_receive), event in events.items():
        if is_receive and (matched, False) in events:
            dependents[events[matched, False]].append(event)
    positions = _positions(ended_ns, dependents, _words(summaries, of_issue))
    return [[positions[event] for event in rank_events] for rank_events in of_issue]


def _positions(ended_ns: list[int], dependents: list[list[int]], words: dict[int, str]) -> list[int]:
    """Returns the position of each event in a topological order, the earliest ready event first."""
    unmet = [0] * len(ended_ns)
    for events in dependents:
        for event in events:
            unmet[event] += 1
    ready = [(ended_ns[event], event) for event, count in enumerate(unmet) if not count]
    heapq.heapify(ready)
    position, assigned = [-1] * len(ended_ns), 0
    while ready:
        _, event = heapq.heappop(ready)
        position[event] = assigned
        assigned += 1
        for dependent in dependents[event]:
            unmet[dependent] -= 1
            if not unmet[dependent]:
                heapq.heappush(ready, (ended_ns[dependent], dependent))
    if assigned < len(position):
        raise DataError(_contradiction(position, dependents, words))
    return position


def _contradiction(position: list[int], dependents: list[list[int]], words: dict[int, str]) -> str:
    """Returns a message about a circle of events. Each event without a position has a dependency without one, so
    walking back ends in a circle.
    """
    before = {after: event for event, events in enumerate(dependents) if position[event] < 0 for after in events}
    event, walked = next(iter(before.values())), list[int]()
    while event not in walked:
        walked.append(event)
        event = before[event]
    circle = [words[event] for event in reversed(walked[walked.index(event) :])]
    more = f" -> {len(circle) - NAMED} more" if len(circle) > NAMED else ""
    return (
        f"the ranks' communication depends on itself in a circle of {len(circle)}: "
        f"{' -> '.join(circle[:NAMED])}{more}; "
        "check that all traces are of one run"
    )


def _words(summaries: Summaries, of_issue: Sequence[Sequence[int]]) -> dict[int, str]:
    """Returns a description of each event, by the first rank that takes part in it."""
    words: dict[int, str] = {}
    for position, (issued, rank_events) in enumerate(zip(summaries, of_issue, strict=True)):
        for entry, event in zip(issued, rank_events, strict=True):
            kind = entry.type if entry.collective < 0 else CollectiveType(entry.collective)
            words.setdefault(event, f"{kind.name.lower()} (node {entry.node} of the rank at {position})")
    return words


def common_sizes(summaries: Summaries) -> list[dict[int, int]]:
    """Returns, for each rank, the bytes by node id that all members of a collective should have, where recorded ones
    differ.

    Gathered shards keep their sum; otherwise the largest size counts, as the others wait for the busiest member.
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
    """Returns, for each rank, the ids of communication nodes without all counterparts, which would wait for ever."""
    sides: defaultdict[int, set[tuple[int, NodeType]]] = defaultdict(set)
    for rank, issued in enumerate(summaries):
        for entry in issued:
            sides[entry.matched].add((rank, entry.type))
    return [
        [entry.node for entry in issued if len(sides[entry.matched]) < (entry.members or len(summaries))]
        for issued in summaries
    ]
