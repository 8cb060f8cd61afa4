"""What is counted, in words: under which title summaries have it, and what it is where its name does not say it all.

The lists in tools/commands/README.md are made of these, in this order: what most people meet comes first.
"""

from execgraph.schema.reasons import Reason as R

Meanings = dict[tuple[R, ...], str]

# fmt: off
COUNTED: dict[str, Meanings] = {
    "dropped": {
        (R.HOST_OPS_WITHOUT_TIMES,): "they are in no graph",
        (R.CROSSING_DEVICE_WAITS, R.CROSSING_HOST_WAITS, R.CROSSING_HANDOFFS): "what was blocked starts as "
        "measured",
        (R.EVENT_WAIT_AGAINST_CLOCK, R.HOST_WAIT_AGAINST_CLOCK, R.GRAPH_AGAINST_CLOCK): "what was waited for ended "
        "too late",
        (R.UNKNOWN_REQUEST,): "transfers of gloo that no op asked for",
        (R.UNUSABLE_TIME,): "no number, 0, or more than a year",
        (R.CROSSING_COMMUNICATION, R.STREAM_WAIT_WITHOUT_EVENT, R.EVENT_SYNC_WITHOUT_EVENT, R.QUERY_WITHOUT_EVENT,
         R.UNREADABLE_ROWS, R.CUT_OFF_ROWS,
         R.SYNC_RECORDS_WITHOUT_CALL, R.NO_WORK_FOLLOWED, R.HOST_WAIT_AGAINST_LAUNCHES, R.BEGIN_OR_END_ALONE,
         R.API_ROWS_WITHOUT_END, R.TRANSFER_WITHOUT_WAIT, R.LATE_BEYOND_SEARCH, R.ZERO_LENGTH_OPS, R.DEVICE_ROWS_OF_WAITING,
         R.UNKNOWN_CATEGORY, R.UNKNOWN_OP_TYPE, R.NOT_READ, R.NO_CATEGORY, R.DEPENDENCIES_IN_CIRCLES, R.RECORDED_TWICE,
         R.QUEUE_WAIT_WITHOUT_RECORD, R.LINKS_OF_ABSENT_OPS, R.FURTHER_LAUNCH_LINKS, R.ROCTX_MARKS, R.LINKS_OF_OTHER_KERNELS,
         R.OPS_OF_NO_PROCESS): "",
    },
    "left out": {
        (R.HOST_OPS_OUTSIDE, R.OPS_OUTSIDE, R.CALLS_OUTSIDE, R.ACTIVITIES_OUTSIDE, R.SYNC_RECORDS_OUTSIDE): "outside the time "
        "that both files cover, the recorded steps or the part that you asked for",
    },
    "oddities": {
        (R.DEVICE_ONLY_OPS,): "they have no tensors",
        (R.ACTIVITIES_WITHOUT_CALL,): "a node `unrecorded host` lets them start when they did",
        (R.BLOCKS_NOTHING,): "what was waited for was over, or on the same stream",
        (R.OBSERVER_QUERIES,): "those of a watchdog; they are no waits",
        (R.STEPS_APART, R.SHORT_GRAPHS, R.LAUNCHES_NOT_RECORDED, R.LAUNCHES_WITHOUT_ACTIVITY, R.OPS_WITHOUT_CALLS, R.LAUNCHES_THAT_SHARE,
         R.ODD_OPS, R.TOO_LONG, R.OUT_OF_TURN, R.CALLS_OF_ZERO_LENGTH, R.CONTRADICTIONS, R.UNEVEN_STEPS,
         R.ACTIVITIES_OUTSIDE_OPS, R.REPEATED_STEPS, R.STILL_RUNNING, R.BEYOND_LAST_RECORDS, R.BEYOND_BUSIEST_STREAMS,
         R.CLIPPED_OPS, R.SHORTENED_OPS, R.WAITS_FOR_NOTHING, R.NO_DURATION, R.NODES_WITHOUT_ID,
         R.NODES_WITHOUT_ARGUMENT_LISTS, R.NODES_IN_CIRCLES, R.MANY_MEMBERS, R.DISPATCH_NUMBERS_AS_QUEUES, R.ENDED_BEFORE_LAUNCH,
         R.OPS_IN_CIRCLES, R.MISNAMED_OPS, R.FLOWS_OF_NO_ACTIVITY, R.STREAMS_OF_CONTEXTS, R.NODES_REMOVED,
         R.ARGUMENTS_NO_LISTS, R.TENSORS_TOO_LARGE, R.UNREADABLE_GROUPS, R.UNREADABLE_LISTS): "",
    },
    "guessed": {
        (R.STREAM_BEFORE_COLLECTIVE, R.STREAM_IN_USE): "the one on which the thread was launching",
        (R.DEFAULT_GROUP,): "gloo records no groups, and the job has several",
        (R.RECORD_RIGHT_BEFORE, R.UNUSED_RECORD, R.RESOLVED_EVENT, R.END_OF_WORK, R.ENDED_RIGHT_BEFORE_RETURN): "",
    },
    "waits": {
        (R.PENDING_QUERIES,): "they did not wait",
        (R.OBSERVER_CALLS,): "those of a watchdog",
        (R.STREAM_WAITS, R.HOST_WAITS, R.BLOCKING_COPIES, R.FULL_QUEUE, R.WITHIN_GRAPHS): "",
    },
}
# fmt: on
