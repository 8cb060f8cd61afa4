"""What is counted, in words: under which title summaries have it, and what it is where its name does not say it all.

The lists in docs/summary-lines.md are made of these, in this order: what most people meet comes first.
"""

from execgraph.schema.reasons import Reason as R

Meanings = dict[tuple[R, ...], str]

# fmt: off
COUNTED: dict[str, Meanings] = {
    "dropped": {
        (R.HOST_OPS_WITHOUT_TIMES,): "they are in no graph",
        (R.CROSSING_DEVICE_WAITS, R.CROSSING_HOST_WAITS, R.CROSSING_HANDOFFS): "one end is outside the part; what was blocked "
        "starts as measured",
        (R.CROSSING_COMMUNICATION,): "host time here; it belongs to the part in which it was asked for",
        (R.STREAM_WAIT_WITHOUT_EVENT, R.EVENT_SYNC_WITHOUT_EVENT, R.QUERY_WITHOUT_EVENT): "nothing says what was waited for",
        (R.EVENT_WAIT_AGAINST_CLOCK, R.HOST_WAIT_AGAINST_CLOCK, R.GRAPH_AGAINST_CLOCK): "what was waited for ended after the "
        "waiting side went on",
        (R.UNKNOWN_REQUEST,): "transfers of gloo that no op asked for; their time stays in the graph",
        (R.UNREADABLE_ROWS, R.CUT_OFF_ROWS): "of a [damaged](damage.md) file",
        (R.UNUSABLE_TIME,): "no number, longer than a year or as far from the others, or 0",
        (R.SYNC_RECORDS_WITHOUT_CALL, R.NO_WORK_FOLLOWED, R.HOST_WAIT_AGAINST_LAUNCHES, R.BEGIN_OR_END_ALONE,
         R.API_ROWS_WITHOUT_END, R.TRANSFER_WITHOUT_WAIT, R.LATE_BEYOND_SEARCH, R.ZERO_LENGTH_OPS, R.DEVICE_ROWS_OF_WAITING,
         R.UNKNOWN_CATEGORY, R.UNKNOWN_OP_TYPE, R.NOT_READ, R.NO_CATEGORY, R.DEPENDENCIES_IN_CIRCLES, R.RECORDED_TWICE,
         R.QUEUE_WAIT_WITHOUT_RECORD, R.LINKS_OF_ABSENT_OPS, R.FURTHER_LAUNCH_LINKS, R.ROCTX_MARKS, R.LINKS_OF_OTHER_KERNELS,
         R.OPS_OF_NO_PROCESS): "",
    },
    "left out": {
        (R.HOST_OPS_OUTSIDE, R.OPS_OUTSIDE, R.CALLS_OUTSIDE, R.ACTIVITIES_OUTSIDE, R.SYNC_RECORDS_OUTSIDE): "outside the time "
        "that both files cover, the recorded steps (as steps that warm up), or the part that you asked for; `report.json` has them "
        "under `dropped`",
    },
    "oddities": {
        (R.DEVICE_ONLY_OPS,): "so they have no tensors",
        (R.ACTIVITIES_WITHOUT_CALL,): "`unrecorded host` releases them when they started",
        (R.LAUNCHES_NOT_RECORDED,): "what they waited for is not known",
        (R.LAUNCHES_WITHOUT_ACTIVITY,): "their work was not recorded, so the report gives no verdict",
        (R.OPS_WITHOUT_CALLS,): "the profiler dropped calls and what they launched; a note says when",
        (R.ODD_OPS, R.TOO_LONG, R.OUT_OF_TURN, R.CALLS_OF_ZERO_LENGTH, R.CONTRADICTIONS): "a note says what is wrong, and the "
        "report gives no verdict",
        (R.UNEVEN_STEPS,): "a note says why; nothing is said of a step",
        (R.STEPS_APART,): "ops of only one trace lack times or tensors",
        (R.BLOCKS_NOTHING,): "what was waited for was over, or on the same stream",
        (R.OBSERVER_QUERIES,): "of a watchdog, and no waits",
        (R.ACTIVITIES_OUTSIDE_OPS,): "the host node has the name of the call",
        (R.SHORT_GRAPHS,): "the same graph ran more in another step",
        (R.REPEATED_STEPS,): "a second recording of the loop counts from 0 again",
        (R.LAUNCHES_THAT_SHARE,): "correlations are wrong, or kernels recorded twice",
        (R.STILL_RUNNING, R.BEYOND_LAST_RECORDS, R.BEYOND_BUSIEST_STREAMS, R.CLIPPED_OPS,
         R.SHORTENED_OPS, R.WAITS_FOR_NOTHING, R.NO_DURATION, R.NODES_WITHOUT_ID,
         R.NODES_WITHOUT_ARGUMENT_LISTS, R.NODES_IN_CIRCLES, R.MANY_MEMBERS, R.DISPATCH_NUMBERS_AS_QUEUES, R.ENDED_BEFORE_LAUNCH,
         R.OPS_IN_CIRCLES, R.MISNAMED_OPS, R.FLOWS_OF_NO_ACTIVITY, R.STREAMS_OF_CONTEXTS, R.NODES_REMOVED,
         R.ARGUMENTS_NO_LISTS, R.TENSORS_TOO_LARGE, R.UNREADABLE_GROUPS, R.UNREADABLE_LISTS): "",
    },
    "guessed": {
        (R.RECORD_RIGHT_BEFORE, R.RESOLVED_EVENT): "",
        (R.UNUSED_RECORD,): "an earlier record, for which nobody had waited",
        (R.STREAM_BEFORE_COLLECTIVE, R.STREAM_IN_USE): "the one on which the thread was launching",
        (R.END_OF_WORK,): "the waiting side went on right after it, in every step",
        (R.ENDED_RIGHT_BEFORE_RETURN,): "the call lasted on after all that it was known to wait for",
        (R.DEFAULT_GROUP,): "gloo records no groups, and the job has several",
    },
    "waits": {
        (R.STREAM_WAITS, R.HOST_WAITS, R.BLOCKING_COPIES, R.FULL_QUEUE, R.WITHIN_GRAPHS): "",
        (R.PENDING_QUERIES,): "no waits",
        (R.OBSERVER_CALLS,): "of a watchdog; in the graph each follows what had ended last",
    },
}
# fmt: on
