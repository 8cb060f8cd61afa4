"""Why rows of a trace are counted: they were lost, are odd, were guessed, or a wait was resolved in some way.

Nothing depends on the words, which are replaced by reasons when a file is read. Commands import this before they know
what to do, so that msgspec is loaded where it is used.
"""

import re
from collections import UserDict
from collections.abc import Collection, Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

Record = TypeVar("Record")
LARGEST_JOB = 1 << 18
"""Ranks; a larger number is damage."""
MEMBERS_EACH = 1 << 12
"""Members that a trace may name for each communication, beside LARGEST_JOB for all together."""


class Reason(Enum):
    """Why something is counted, in words; `{}` is what it is about: `Reason.UNKNOWN_CATEGORY.of("foo")`."""

    # what a file holds and no reader can use (of the kind of rows)
    UNREADABLE_ROWS = "{} that cannot be read"
    CUT_OFF_ROWS = "{} cut off by the end of the file"
    # what was read after a repair (of the kind of rows)
    STRAY_BACKSLASHES = "{} with backslashes that escape nothing"
    WRONG_ENCODING = "{} with bytes that are not UTF-8"
    CONTROL_CHARACTERS = "{} with control characters in a text"
    MISPLACED_COMMAS = "{} with misplaced commas"
    NO_JSON_NUMBERS = "{} with numbers that JSON does not have"
    UNESCAPED_QUOTES = "{} with unescaped quotes"
    # device traces
    UNKNOWN_CATEGORY = "unknown category {}"  # of the category
    NOT_READ = "rows not read: {}"  # of what they are, in a format that is no JSON
    REPEATED_STEPS = "step marks whose number occurred before on their thread, numbered on"
    STREAMS_OF_CONTEXTS = "activities on streams of several contexts with one number, given numbers of their own"
    BEGIN_OR_END_ALONE = "begins of device events without an end, or ends without a begin"
    NO_CATEGORY = "rows without a category of process {}"  # of its name or number
    UNUSABLE_TIME = "device events without a usable time"
    RECORDED_TWICE = "device events recorded twice"
    NO_DURATION = "device events without a duration, or with a negative one, taken as 0"
    STILL_RUNNING = "ops still running when recording ended"
    UNREADABLE_LISTS = "lists of ranks or split sizes that cannot be read"
    ARGUMENTS_NO_LISTS = "values, shapes, types or strides of arguments that are no lists"
    TENSORS_TOO_LARGE = "tensors whose numbers are too large"
    FLOWS_OF_NO_ACTIVITY = "dependencies within launched graphs whose activities were not found"
    # rocpd databases
    API_ROWS_WITHOUT_END = "API rows without an end"
    ZERO_LENGTH_OPS = "ops of zero length"
    DEVICE_ROWS_OF_WAITING = "device rows that record waiting"
    UNKNOWN_OP_TYPE = "unknown opType {}"  # of the type, if it has a name
    LINKS_OF_ABSENT_OPS = "launch links of ops that are not there"
    LINKS_OF_OTHER_KERNELS = "launch links of ops by calls that name another kernel"
    FURTHER_LAUNCH_LINKS = "launch links of ops that have one already"
    DISPATCH_NUMBERS_AS_QUEUES = "queue ids that number dispatches (their ops are on one stream)"
    ROCTX_MARKS = "roctx marks, which last no time"
    OPS_OF_NO_PROCESS = "ops of none of several processes"
    # host traces
    NODES_WITHOUT_ID = "host nodes without an id of their own, given one"
    NODES_IN_CIRCLES = "host nodes whose parents go round in a circle, made outermost"
    NODES_WITHOUT_ARGUMENT_LISTS = "host nodes whose inputs or outputs are no lists"
    # ops, calls and activities
    HOST_OPS_WITHOUT_TIMES = "host ops that the device trace does not hold, so they have no times"
    DEVICE_ONLY_OPS = "ops that only the device trace holds"
    MISNAMED_OPS = "ops of the same record function id with another name"
    STEPS_APART = "steps in which the two traces hold other ops, matched as far as they go"
    OPS_IN_CIRCLES = "ops whose parents go round in a circle, made outermost"
    CLIPPED_OPS = "ops cut to the end of the op around them"
    ODD_OPS = "ops that were lost, or whose times or threads are wrong"
    CONTRADICTIONS = "contradictions between clocks, units, launches or ranks (trace-diagnose names them)"
    UNEVEN_STEPS = "recordings of which no step is a whole iteration"
    TOO_LONG = "{} that last into what came after them on their thread or stream"  # of the kind of rows
    OUT_OF_TURN = "activities that begin before their stream can run them"
    CALLS_OF_ZERO_LENGTH = "calls, none of which lasts any time"
    ACTIVITIES_WITHOUT_CALL = "activities without a launch call"
    LAUNCHES_NOT_RECORDED = "activities whose launch call was lost"
    ACTIVITIES_OUTSIDE_OPS = "activities launched outside any op"
    LAUNCHES_WITHOUT_ACTIVITY = "launch calls without an activity"
    LAUNCHES_THAT_SHARE = "launch calls of one kernel with several activities"
    OPS_WITHOUT_CALLS = "ops whose calls were lost"
    SHORT_GRAPHS = "activities that launches of CUDA graphs lack"
    ENDED_BEFORE_LAUNCH = "activities that ended before their launch call began, taken to have none"
    NODES_REMOVED = "nodes that are not in the graph"
    # the part of a trace that was linked
    HOST_OPS_OUTSIDE = "host ops outside the linked part"
    OPS_OUTSIDE = "ops outside the linked part"
    CALLS_OUTSIDE = "calls outside the linked part"
    ACTIVITIES_OUTSIDE = "activities outside the linked part"
    SYNC_RECORDS_OUTSIDE = "synchronisation records outside the linked part"
    SYNC_RECORDS_WITHOUT_CALL = "synchronisation records without a call"
    SHORTENED_OPS = "ops cut at the borders of the window"
    CROSSING_DEVICE_WAITS = "device waits across the borders of the window"
    CROSSING_HOST_WAITS = "host waits across the borders of the window"
    CROSSING_COMMUNICATION = "communication that had begun before the window"
    CROSSING_HANDOFFS = "hand-offs across the borders of the window"
    # communication
    UNREADABLE_GROUPS = "descriptions of process groups that cannot be read"
    MANY_MEMBERS = (
        f"communications and process groups of too many members (a trace may name {LARGEST_JOB}, and {MEMBERS_EACH} "
        "for each communication; theirs are taken as unknown)"
    )
    DEFAULT_GROUP = "communications of the host taken as of the default group"
    UNKNOWN_REQUEST = "communications of the host whose request is unknown"
    TRANSFER_WITHOUT_WAIT = "communications of the host for which no wait was found"
    # waits that were resolved
    STREAM_WAITS = "waits of streams for other streams, by {}"  # of how they are known
    HOST_WAITS = "waits of the host for the device, by {}"  # of how they are known
    ENDED_RIGHT_BEFORE_RETURN = "waits for the work that ended right before they returned"
    BLOCKING_COPIES = "blocking copies"
    FULL_QUEUE = "launches delayed by a full queue"
    OBSERVER_CALLS = "calls of observer threads"
    PENDING_QUERIES = "event queries that found the event pending"
    WITHIN_GRAPHS = "dependencies within launched graphs"
    # waits whose source was inferred
    RECORD_RIGHT_BEFORE = "event waits resolved to the event record right before"
    UNUSED_RECORD = "event waits resolved to an unused event record"
    RESOLVED_EVENT = "waits for an event that another wait has resolved"
    STREAM_BEFORE_COLLECTIVE = "waits before a collective resolved to the stream in use"
    STREAM_IN_USE = "synchronisations resolved to the stream in use"
    END_OF_WORK = "waits resolved to the work whose end they met"
    # waits that block nothing, or could not be resolved
    WAITS_FOR_NOTHING = "host waits for which nothing recorded was pending"
    BLOCKS_NOTHING = "stream waits that blocked nothing"
    OBSERVER_QUERIES = "event queries of observer threads"
    BEYOND_BUSIEST_STREAMS = "waits that may be for another stream than the {} with most activities"
    BEYOND_LAST_RECORDS = "waits that may be for an event record before the last {}"
    NO_WORK_FOLLOWED = "stream waits for which no work followed"
    STREAM_WAIT_WITHOUT_EVENT = "stream waits whose event was not found"
    EVENT_SYNC_WITHOUT_EVENT = "event synchronisations whose event was not found"
    QUERY_WITHOUT_EVENT = "event queries whose event was not found"
    QUEUE_WAIT_WITHOUT_RECORD = "waits of device queues for nothing recorded"
    EVENT_WAIT_AGAINST_CLOCK = "event waits that contradict the clock"
    GRAPH_AGAINST_CLOCK = "dependencies within launched graphs that contradict the clock"
    HOST_WAIT_AGAINST_CLOCK = "host waits that contradict the clock"
    HOST_WAIT_AGAINST_LAUNCHES = "host waits that contradict the order of launches"
    # graphs
    LATE_BEYOND_SEARCH = "late activities whose cause may lie before the {} activities that were looked at"
    UNKNOWN_DTYPES = "communications of unknown dtype, taken as one byte an element"
    DEPENDENCIES_IN_CIRCLES = "dependencies that go round in circles, as times contradict the order of calls"
    # the inspection of files
    ACTIVITIES_OF_ZERO_LENGTH = "activities that last no time, or less than kernels can"
    OPS_OUTSIDE_HOST_WINDOW = "ops outside the host trace's window"
    OPS_NOT_IN_DEVICE_TRACE = "host ops that the device trace does not hold"
    OPS_OF_TWO_NAMES = "ops of one record-function id but two names"
    SYNC_RECORDS = "synchronisation records"
    EVENT_RECORDS = "event records"
    # files by another writer
    OTHER = "{}"  # of what that writer says

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
MENDED = frozenset(
    {
        Reason.STRAY_BACKSLASHES, Reason.WRONG_ENCODING, Reason.CONTROL_CHARACTERS, Reason.MISPLACED_COMMAS,
        Reason.NO_JSON_NUMBERS, Reason.UNESCAPED_QUOTES,
    }
)  # fmt: skip
"""What is wrong with rows that can be mended, and were where it is counted."""
LEFT_OUT = frozenset(
    {
        Reason.HOST_OPS_OUTSIDE, Reason.OPS_OUTSIDE, Reason.CALLS_OUTSIDE, Reason.ACTIVITIES_OUTSIDE,
        Reason.SYNC_RECORDS_OUTSIDE, Reason.OPS_OUTSIDE_HOST_WINDOW,
    }
)  # fmt: skip
"""What is counted of rows outside the part that is linked, such as steps that warm up: nothing is wrong with them."""
WORDS: dict[Reason, str] = {reason: reason.value for reason in Reason}
"""What each reason is called; `{}` is what it is about."""


def in_words(reason: AnyReason) -> str:
    """Returns what a reason is called, such as `unknown category sorcery`."""
    words = WORDS[reason.reason] + (", mended" if reason.reason in MENDED else "")
    return words.replace("{}", reason.subject, 1) if isinstance(reason, ReasonOf) else words.replace("{}", "").strip()


def reason_called(words: str) -> AnyReason:
    """Returns the reason that is called so; OTHER where none is."""
    plain, of_subjects = _reasons(*WORDS.values())
    if words in plain:
        return plain[words]
    matches = ((reason, pattern.fullmatch(words)) for reason, pattern in of_subjects)
    return next(reason.of(match[1]) for reason, match in matches if match)


@cache
def _reasons(*words: str) -> tuple[dict[str, Reason], list[tuple[Reason, "re.Pattern[str]"]]]:
    """Returns the reasons by their words, and the patterns of those that are about something; OTHER is the last."""
    plain: dict[str, Reason] = {in_words(reason): reason for reason in Reason if reason is not Reason.OTHER}
    about = {reason: in_words(reason.of("{}")) for reason, text in WORDS.items() if "{}" in text}
    patterns = {reason: re.escape(text).replace(re.escape("{}"), "(.*)") for reason, text in about.items()}
    return plain, [(reason, re.compile(pattern, re.DOTALL)) for reason, pattern in patterns.items()]


class Counts(UserDict[AnyReason, int]):
    """How often something occurred, by reason and in the order of the first occurrence; 0 for what did not."""

    def __repr__(self) -> str:
        return repr(self.in_words())

    def in_words(self) -> dict[str, int]:
        """Returns the counts by what their reasons are called, to be printed."""
        return {in_words(reason): count for reason, count in self.items()}

    @property
    def text(self) -> str:
        """The counts as one text, "" for none."""
        return " and ".join(f"{reason} ({count:,})" for reason, count in self.in_words().items())

    def __missing__(self, reason: AnyReason) -> int:
        return 0

    def of(self, *reasons: Reason) -> int:
        """Returns how often these reasons occurred, whatever they were about."""
        return sum(count for reason, count in self.items() if reason.reason in reasons)

    def but(self, reasons: Collection[AnyReason]) -> "Counts":
        """Returns the counts of all other reasons."""
        return Counts({reason: count for reason, count in self.items() if reason not in reasons})

    def add(self, *others: Mapping[AnyReason, int]) -> "Counts":
        """Adds other counts, in place, leaves out what never occurred, and returns itself."""
        for other in others:
            for reason, count in other.items():
                self[reason] += count
        self.data = self.without_zeros().data
        return self

    def without_zeros(self) -> "Counts":
        """Returns the counts of what occurred."""
        return Counts({reason: count for reason, count in self.items() if count})


def to_json(value: Any) -> bytes:
    """Returns the JSON of a value; counts in it are in words."""
    import msgspec

    return msgspec.json.encode(value, enc_hook=_encodable)


def to_builtins(value: Any) -> Any:
    """Returns a record as an object of JSON; counts in it are in words."""
    import msgspec

    return msgspec.to_builtins(value, enc_hook=_encodable)


def from_json(text: bytes, kind: type[Record]) -> Record:
    """Returns the record that a JSON text holds, whose counts are in words. Raises msgspec.DecodeError."""
    import msgspec

    return msgspec.json.decode(text, type=kind, dec_hook=decoded)


def _encodable(value: Any) -> Any:
    if isinstance(value, Counts):
        return value.in_words()
    raise NotImplementedError(f"{type(value).__name__} is no JSON")


def decoded(kind: type[Any], value: Any) -> Any:
    """Returns counts for an object of counts in words, as a hook of msgspec's decoders."""
    import msgspec

    if kind is Counts:
        return Counts({reason_called(words): count for words, count in msgspec.convert(value, dict[str, int]).items()})
    raise NotImplementedError(f"{kind.__name__} is no record of a file")
