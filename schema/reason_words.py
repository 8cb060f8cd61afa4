"""The words for reasons, for what is printed or written into files, and the reasons for such words of a file.

Nothing depends on the words: they are made when something is printed or written, and replaced by reasons when a file is
read.
"""

import re
from functools import cache

from .reasons import LARGEST_JOB, MEMBERS_EACH, AnyReason, Reason, ReasonOf

MENDED: dict[Reason, str] = {
    Reason.UNESCAPED_QUOTES: "{} with unescaped quotes",
    Reason.CONTROL_CHARACTERS: "{} with control characters in a text",
    Reason.STRAY_BACKSLASHES: "{} with backslashes that escape nothing",
    Reason.WRONG_ENCODING: "{} with bytes that are not UTF-8",
    Reason.NO_JSON_NUMBERS: "{} with numbers that JSON does not have",
    Reason.MISPLACED_COMMAS: "{} with misplaced commas",
}
"""What is wrong with rows that can be mended."""

WORDS: dict[Reason, str] = {
    Reason.UNREADABLE_ROWS: "{} that cannot be read",
    Reason.CUT_OFF_ROWS: "{} cut off by the end of the file",
    **{reason: f"{words}, mended" for reason, words in MENDED.items()},
    Reason.UNKNOWN_CATEGORY: "unknown category {}",
    Reason.BEGIN_AND_END_ROWS: "device events whose begin and end are rows of their own",
    Reason.UNUSABLE_TIME: "device events without a usable time",
    Reason.RECORDED_TWICE: "device events recorded twice",
    Reason.NO_DURATION: "device events without a duration, or with a negative one, taken as 0",
    Reason.STILL_RUNNING: "ops still running when recording ended",
    Reason.UNREADABLE_LISTS: "lists of ranks or split sizes that cannot be read",
    Reason.ARGUMENTS_NO_LISTS: "values, shapes, types or strides of arguments that are no lists",
    Reason.TENSORS_TOO_LARGE: "tensors whose numbers are too large",
    Reason.API_ROWS_WITHOUT_END: "API rows without an end",
    Reason.ZERO_LENGTH_OPS: "ops of zero length",
    Reason.DEVICE_ROWS_OF_WAITING: "device rows that record waiting",
    Reason.UNKNOWN_OP_TYPE: "unknown opType {}",
    Reason.LINKS_OF_ABSENT_OPS: "launch links of ops that are not there",
    Reason.FURTHER_LAUNCH_LINKS: "launch links of ops that have one already",
    Reason.DISPATCH_NUMBERS_AS_QUEUES: "queue ids that number dispatches (their ops are on one stream)",
    Reason.ROCTX_MARKS: "roctx marks, which last no time",
    Reason.OPS_OF_NO_PROCESS: "ops of none of several processes",
    Reason.NODES_WITHOUT_ID: "host nodes without an id of their own, given one",
    Reason.NODES_IN_CIRCLES: "host nodes whose parents go round in a circle, made outermost",
    Reason.NODES_WITHOUT_ARGUMENT_LISTS: "host nodes whose inputs or outputs are no lists",
    Reason.HOST_OPS_WITHOUT_TIMES: "host ops that the device trace does not hold, so they have no times",
    Reason.DEVICE_ONLY_OPS: "ops that only the device trace holds",
    Reason.MISNAMED_OPS: "ops of the same record function id with another name",
    Reason.OPS_IN_CIRCLES: "ops whose parents go round in a circle, made outermost",
    Reason.CLIPPED_OPS: "ops cut to the end of the op around them",
    Reason.ACTIVITIES_WITHOUT_CALL: "activities without a launch call",
    Reason.ACTIVITIES_OUTSIDE_OPS: "activities launched outside any op",
    Reason.ENDED_BEFORE_LAUNCH: "activities that ended before their launch call began, taken to have none",
    Reason.HOST_OPS_OUTSIDE: "host ops outside the linked part",
    Reason.OPS_OUTSIDE: "ops outside the linked part",
    Reason.CALLS_OUTSIDE: "calls outside the linked part",
    Reason.ACTIVITIES_OUTSIDE: "activities outside the linked part",
    Reason.SYNC_RECORDS_OUTSIDE: "synchronisation records outside the linked part",
    Reason.SYNC_RECORDS_WITHOUT_CALL: "synchronisation records without a call",
    Reason.SHORTENED_OPS: "ops cut at the borders of the window",
    Reason.CROSSING_DEVICE_WAITS: "device waits across the borders of the window",
    Reason.CROSSING_HOST_WAITS: "host waits across the borders of the window",
    Reason.CROSSING_HANDOFFS: "hand-offs across the borders of the window",
    Reason.UNREADABLE_GROUPS: "descriptions of process groups that cannot be read",
    Reason.MANY_MEMBERS: (
        f"communications and process groups of too many members (a trace may name {LARGEST_JOB}, and {MEMBERS_EACH} "
        "for each communication; theirs are taken as unknown)"
    ),
    Reason.DEFAULT_GROUP: "communications of the host taken as of the default group",
    Reason.UNKNOWN_REQUEST: "communications of the host whose request is unknown",
    Reason.TRANSFER_WITHOUT_WAIT: "communications of the host for which no wait was found",
    Reason.STREAM_WAITS: "waits of streams for other streams, by {}",
    Reason.HOST_WAITS: "waits of the host for the device, by {}",
    Reason.ENDED_RIGHT_BEFORE_RETURN: "waits for the work that ended right before they returned",
    Reason.BLOCKING_COPIES: "blocking copies",
    Reason.FULL_QUEUE: "launches delayed by a full queue",
    Reason.OBSERVER_CALLS: "calls of observer threads",
    Reason.PENDING_QUERIES: "event queries that found the event pending",
    Reason.RECORD_RIGHT_BEFORE: "event waits resolved to the event record right before",
    Reason.UNUSED_RECORD: "event waits resolved to an unused event record",
    Reason.RESOLVED_EVENT: "waits for an event that another wait has resolved",
    Reason.STREAM_BEFORE_COLLECTIVE: "waits before a collective resolved to the stream in use",
    Reason.STREAM_IN_USE: "synchronisations resolved to the stream in use",
    Reason.END_OF_WORK: "waits resolved to the work whose end they met",
    Reason.WAITS_FOR_NOTHING: "host waits for which nothing recorded was pending",
    Reason.BLOCKS_NOTHING: "stream waits that blocked nothing",
    Reason.OBSERVER_QUERIES: "event queries of observer threads",
    Reason.BEYOND_BUSIEST_STREAMS: "waits that may be for another stream than the {} with most activities",
    Reason.BEYOND_LAST_RECORDS: "waits that may be for an event record before the last {}",
    Reason.NO_WORK_FOLLOWED: "stream waits for which no work followed",
    Reason.STREAM_WAIT_WITHOUT_EVENT: "stream waits whose event was not found",
    Reason.EVENT_SYNC_WITHOUT_EVENT: "event synchronisations whose event was not found",
    Reason.QUERY_WITHOUT_EVENT: "event queries whose event was not found",
    Reason.QUEUE_WAIT_WITHOUT_RECORD: "waits of device queues for nothing recorded",
    Reason.EVENT_WAIT_AGAINST_CLOCK: "event waits that contradict the clock",
    Reason.HOST_WAIT_AGAINST_CLOCK: "host waits that contradict the clock",
    Reason.HOST_WAIT_AGAINST_LAUNCHES: "host waits that contradict the order of launches",
    Reason.LATE_BEYOND_SEARCH: "late activities whose cause may lie before the {} activities that were looked at",
    Reason.DEPENDENCIES_IN_CIRCLES: "dependencies that go round in circles, as times contradict the order of calls",
    Reason.ACTIVITIES_OF_ZERO_LENGTH: "activities of zero length",
    Reason.GRAPH_LAUNCHES_WITHOUT_ACTIVITIES: "graph launches without recorded activities",
    Reason.LAUNCHES_WITHOUT_ACTIVITY: "launch calls without an activity",
    Reason.OPS_OUTSIDE_HOST_WINDOW: "ops outside the host trace's window",
    Reason.OPS_NOT_IN_DEVICE_TRACE: "host ops that the device trace does not hold",
    Reason.OPS_OF_TWO_NAMES: "ops of one record-function id but two names",
    Reason.SYNC_RECORDS: "synchronisation records",
    Reason.EVENT_RECORDS: "event records",
    Reason.OTHER: "{}",
}
"""What each reason is called; `{}` is what it is about."""


def in_words(reason: AnyReason) -> str:
    """Returns what a reason is called.

    >>> in_words(Reason.UNKNOWN_CATEGORY.of("sorcery")), in_words(Reason.UNKNOWN_OP_TYPE)
    ('unknown category sorcery', 'unknown opType')
    """
    words = WORDS[reason.reason]
    return words.replace("{}", reason.subject, 1) if isinstance(reason, ReasonOf) else words.replace("{}", "").strip()


def reason_called(words: str) -> AnyReason:
    """Returns the reason that is called so; OTHER where none is.

    >>> reason_called("unknown category sorcery"), reason_called("gremlins")
    (ReasonOf(reason=Reason.UNKNOWN_CATEGORY, subject='sorcery'), ReasonOf(reason=Reason.OTHER, subject='gremlins'))
    """
    plain, of_subjects = _reasons(*WORDS.values())
    if words in plain:
        return plain[words]
    matches = ((reason, pattern.fullmatch(words)) for reason, pattern in of_subjects)
    return next(reason.of(match[1]) for reason, match in matches if match)


@cache
def _reasons(*words: str) -> tuple[dict[str, Reason], list[tuple[Reason, "re.Pattern[str]"]]]:
    """Returns the reasons by their words, and the patterns of those that are about something; OTHER is the last."""
    plain: dict[str, Reason] = {in_words(reason): reason for reason in WORDS if reason is not Reason.OTHER}
    of_subjects = [
        (reason, re.compile(re.escape(text).replace(re.escape("{}"), "(.*)"), re.DOTALL))
        for reason, text in WORDS.items()
        if "{}" in text
    ]
    return plain, of_subjects
