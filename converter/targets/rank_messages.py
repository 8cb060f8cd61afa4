"""The messages of a rank in each collective in which it takes part, with tags that are unique between two ranks.

Messages from one rank to another are counted over all collectives. These have the same order on all ranks, so both ends
give a message the same tag.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from ...schema.errors import DataError
from .algorithms import steps_of
from .goal_job import RecordedJob
from .operations import READY, Operation, network_nic

LARGEST_TAG = (1 << 32) - 2
"""A tag has 32 bits, and the last number means any tag."""


class CollectiveMessages(NamedTuple):
    """The rank's messages in one collective. Their `after` are positions in `messages`.

    The collective is over for the rank `excess_ns` after the messages at the positions `last` are. It takes
    `duration_ns` from the last arrival on, as measured.
    """

    messages: list[Operation]
    last: list[int]
    duration_ns: int
    excess_ns: int


def rank_messages(job: RecordedJob, rank: int) -> dict[int, list[CollectiveMessages]]:
    """Returns, by row of its graph, the collectives of the rank at a position of the job, as messages on cpu 0.
    O(messages).

    Raises DataError where there are more messages from one rank to another than tags.
    """
    by_row: defaultdict[int, list[CollectiveMessages]] = defaultdict(list)
    tags = {"send": Counter[int](), "recv": Counter[int]()}
    for row, number in job.nodes[rank]:
        collective = job.collectives[number]
        steps, last = steps_of(collective.algorithm, collective.member(rank))
        messages = []
        for step in steps:
            verb, peer = "send" if step.sends else "recv", collective.members[step.peer]
            tag = tags[verb][peer]
            tags[verb][peer] += 1
            nic = READY if step.says_ready else network_nic(job.links[number])
            messages.append(Operation(verb, step.size, 0, step.after, peer, tag, nic))
        member = collective.members.index(rank)
        durations = collective.duration_ns[member], job.excess_ns[number][member]
        by_row[row].append(CollectiveMessages(messages, last, *durations))
    if any(count > LARGEST_TAG for counts in tags.values() for count in counts.values()):
        raise DataError(
            f"more than {LARGEST_TAG} messages between two ranks, and no tags for them; let the pieces be longer"
        )
    return by_row
