"""What a rank sends and receives in each meeting that it attends, with a tag for each message that no other one between
the two has.

Messages from one rank to another are counted over all meetings, whose order is one for all ranks, so that both ends
give each the same tag.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from ....schema.errors import DataError
from .algorithms import steps_of
from .job import RecordedJob
from .operations import Operation

LARGEST_TAG = (1 << 32) - 2
"""A tag has 32 bits, and the last number stands for any."""


class MeetingMessages(NamedTuple):
    """The rank's messages in one meeting, which wait for each other by their places here; the part is over when the
    `last` ones are, and takes `lasts_ns` from when all have come, as measured.
    """

    messages: list[Operation]
    last: list[int]
    lasts_ns: int


def rank_messages(job: RecordedJob, place: int) -> dict[int, list[MeetingMessages]]:
    """Returns by row of the rank's graph the meetings that it attends, as messages on cpu 0. O(messages).

    Raises DataError where there are more messages from one rank to another than tags.
    """
    found: defaultdict[int, list[MeetingMessages]] = defaultdict(list)
    tags = {"send": Counter[int](), "recv": Counter[int]()}
    for row, number in job.attended[place]:
        meeting = job.meetings[number]
        steps, last = steps_of(meeting.algorithm, meeting.part_of(place))
        messages = []
        for step in steps:
            verb, peer = "send" if step.sends else "recv", meeting.members[step.peer]
            tag = tags[verb][peer]
            tags[verb][peer] += 1
            messages.append(Operation(verb, step.size, 0, step.after, peer, tag))
        found[row].append(MeetingMessages(messages, last, meeting.lasts_ns[meeting.members.index(place)]))
    if any(count > LARGEST_TAG for counted in tags.values() for count in counted.values()):
        raise DataError(
            f"more than {LARGEST_TAG} messages between two ranks, and no tags for them; let the pieces be longer"
        )
    return found
