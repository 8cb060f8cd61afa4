"""Why rows of a trace are counted: they were lost, are odd, were guessed, or a wait was resolved in some way.

`Counts` (counts.py) are kept by these reasons, never by sentences: `reason_words` says them where they are printed.
"""

from enum import Enum, auto
from typing import NamedTuple

LARGEST_JOB = 1 << 18
"""Ranks; a larger number is damage."""
MEMBERS_EACH = 1 << 12
"""Members that a trace may name for each communication, beside LARGEST_JOB for all together."""


class Reason(Enum):
    """Why something is counted. Reasons marked with (of …) come with a subject: `Reason.UNKNOWN_CATEGORY.of("foo")`."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name.lower()

    # what a file holds and no reader can use (of the kind of rows)
    UNREADABLE_ROWS = auto()
    CUT_OFF_ROWS = auto()
    # what was read after a repair (of the kind of rows)
    STRAY_BACKSLASHES = auto()
    WRONG_ENCODING = auto()
    CONTROL_CHARACTERS = auto()
    MISPLACED_COMMAS = auto()
    NO_JSON_NUMBERS = auto()
    UNESCAPED_QUOTES = auto()
    # device traces
    UNKNOWN_CATEGORY = auto()  # of the category
    BEGIN_AND_END_ROWS = auto()
    UNUSABLE_TIME = auto()
    RECORDED_TWICE = auto()
    NO_DURATION = auto()
    STILL_RUNNING = auto()
    UNREADABLE_LISTS = auto()
    ARGUMENTS_NO_LISTS = auto()
    TENSORS_TOO_LARGE = auto()
    # rocpd databases
    API_ROWS_WITHOUT_END = auto()
    ZERO_LENGTH_OPS = auto()
    DEVICE_ROWS_OF_WAITING = auto()
    UNKNOWN_OP_TYPE = auto()  # of the type, if it has a name
    LINKS_OF_ABSENT_OPS = auto()
    FURTHER_LAUNCH_LINKS = auto()
    DISPATCH_NUMBERS_AS_QUEUES = auto()
    ROCTX_MARKS = auto()
    OPS_OF_NO_PROCESS = auto()
    # host traces
    NODES_WITHOUT_ID = auto()
    NODES_IN_CIRCLES = auto()
    NODES_WITHOUT_ARGUMENT_LISTS = auto()
    # ops, calls and activities
    HOST_OPS_WITHOUT_TIMES = auto()
    DEVICE_ONLY_OPS = auto()
    MISNAMED_OPS = auto()
    OPS_IN_CIRCLES = auto()
    CLIPPED_OPS = auto()
    ACTIVITIES_WITHOUT_CALL = auto()
    ACTIVITIES_OUTSIDE_OPS = auto()
    ENDED_BEFORE_LAUNCH = auto()
    # the part of a trace that was linked
    HOST_OPS_OUTSIDE = auto()
    OPS_OUTSIDE = auto()
    CALLS_OUTSIDE = auto()
    ACTIVITIES_OUTSIDE = auto()
    SYNC_RECORDS_OUTSIDE = auto()
    SYNC_RECORDS_WITHOUT_CALL = auto()
    SHORTENED_OPS = auto()
    CROSSING_DEVICE_WAITS = auto()
    CROSSING_HOST_WAITS = auto()
    CROSSING_HANDOFFS = auto()
    # communication
    UNREADABLE_GROUPS = auto()
    MANY_MEMBERS = auto()
    DEFAULT_GROUP = auto()
    UNKNOWN_REQUEST = auto()
    TRANSFER_WITHOUT_WAIT = auto()
    # waits that were resolved
    STREAM_WAITS = auto()  # of how they are known
    HOST_WAITS = auto()  # of how they are known
    ENDED_RIGHT_BEFORE_RETURN = auto()
    BLOCKING_COPIES = auto()
    FULL_QUEUE = auto()
    OBSERVER_CALLS = auto()
    PENDING_QUERIES = auto()
    # waits whose source was inferred
    RECORD_RIGHT_BEFORE = auto()
    UNUSED_RECORD = auto()
    RESOLVED_EVENT = auto()
    STREAM_BEFORE_COLLECTIVE = auto()
    STREAM_IN_USE = auto()
    END_OF_WORK = auto()
    # waits that block nothing, or could not be resolved
    WAITS_FOR_NOTHING = auto()
    BLOCKS_NOTHING = auto()
    OBSERVER_QUERIES = auto()
    BEYOND_BUSIEST_STREAMS = auto()  # of how many streams were tried
    BEYOND_LAST_RECORDS = auto()  # of how many event records were tried
    NO_WORK_FOLLOWED = auto()
    STREAM_WAIT_WITHOUT_EVENT = auto()
    EVENT_SYNC_WITHOUT_EVENT = auto()
    QUERY_WITHOUT_EVENT = auto()
    QUEUE_WAIT_WITHOUT_RECORD = auto()
    EVENT_WAIT_AGAINST_CLOCK = auto()
    HOST_WAIT_AGAINST_CLOCK = auto()
    HOST_WAIT_AGAINST_LAUNCHES = auto()
    # graphs
    LATE_BEYOND_SEARCH = auto()  # of how many activities were looked at
    DEPENDENCIES_IN_CIRCLES = auto()
    # the inspection of files
    ACTIVITIES_OF_ZERO_LENGTH = auto()
    GRAPH_LAUNCHES_WITHOUT_ACTIVITIES = auto()
    LAUNCHES_WITHOUT_ACTIVITY = auto()
    OPS_OUTSIDE_HOST_WINDOW = auto()
    OPS_NOT_IN_DEVICE_TRACE = auto()
    OPS_OF_TWO_NAMES = auto()
    SYNC_RECORDS = auto()
    EVENT_RECORDS = auto()
    # files by another writer
    OTHER = auto()  # of what that writer says

    def __repr__(self) -> str:
        return str(self)

    @property
    def reason(self) -> "Reason":
        """The reason itself, as `ReasonOf` has it."""
        return self

    def of(self, subject: object) -> "ReasonOf":
        """Returns this reason with what it is about."""
        return ReasonOf(self, str(subject))


class ReasonOf(NamedTuple):
    """A reason, and what it is about: what a file, or a limit of this program, says."""

    reason: Reason
    subject: str


AnyReason = Reason | ReasonOf
