"""Collectives that a simulator with one communication at a time may run after others that ended later.

Others depend on ends, so the order of ends is right by itself. But a short collective within a long one would then hold
up the long one from its beginning on, even if nobody needs the short one so soon.
"""

from collections import defaultdict
from collections.abc import Sequence

from .communication_summary import CommunicationEntry

Issued = Sequence[Sequence[CommunicationEntry]]


def with_deferred_ends(issued: Issued) -> list[list[CommunicationEntry]]:
    """Returns the entries of all ranks, on one clock, with later ends of collectives that can wait.

    One that on all its members began within a longer one ends just after these now, if that makes no rank end later. It
    began when its last member came. O(n log n), apart from the collectives that run at once.
    """
    start_ns, latest_ns, members = defaultdict[int, int](int), dict[int, int](), defaultdict[int, int](int)
    for entry in (entry for entries in issued for entry in entries):
        start_ns[entry.matched] = max(start_ns[entry.matched], entry.start_ns)
        latest = entry.end_ns + entry.slack_ns
        latest_ns[entry.matched] = min(latest_ns.get(entry.matched, latest), latest)
        members[entry.matched] += 1
    after_ns = defaultdict[int, list[int]](list)
    for entries in issued:
        for matched, end_ns in _longer_ends(entries, start_ns, latest_ns).items():
            after_ns[matched].append(end_ns)
    deferred = {number: max(ends) + 1 for number, ends in after_ns.items() if len(ends) == members[number]}
    return [
        [entry._replace(end_ns=max(entry.end_ns, deferred.get(entry.matched, 0))) for entry in entries]
        for entries in issued
    ]


def _longer_ends(
    entries: Sequence[CommunicationEntry], start_ns: dict[int, int], latest_ns: dict[int, int]
) -> dict[int, int]:
    """Returns for a rank's collectives that began within longer ones, by number, the last end of these that is early
    enough.
    """
    ends, running = dict[int, int](), list[CommunicationEntry]()
    collectives = [entry for entry in entries if entry.collective >= 0 and not entry.on_host]
    for entry in sorted(collectives, key=lambda entry: (start_ns[entry.matched], -entry.end_ns)):
        running = [other for other in running if other.end_ns > start_ns[entry.matched]]
        longer = [other.end_ns for other in running if entry.end_ns < other.end_ns < latest_ns[entry.matched]]
        if longer:
            ends[entry.matched] = max(longer)
        running.append(entry)
    return ends
