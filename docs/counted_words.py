"""What is counted, in words: under which title summaries have it, and what it is where its name does not say it all.

The list in docs/summary-lines.md is made of these.
"""

from execgraph.schema.reasons import Reason as R

Meanings = dict[tuple[R, ...], str]

# fmt: off
COUNTED: dict[str, Meanings] = {
    "waits": {
        (R.STREAM_WAITS, R.HOST_WAITS, R.BLOCKING_COPIES, R.FULL_QUEUE): "",
        (R.WITHIN_GRAPHS,): "as the trace records them",
        (R.PENDING_QUERIES,): "no waits",
        (R.OBSERVER_CALLS,): "of a watchdog, which launches nothing; in the graph each follows what had ended last",
    },
    "guessed": {
        (R.RECORD_RIGHT_BEFORE, R.RESOLVED_EVENT): "",
        (R.UNUSED_RECORD,): "an earlier record, for which nobody had waited",
        (R.STREAM_BEFORE_COLLECTIVE,): "the one on which its thread was launching",
        (R.STREAM_IN_USE,): "likewise, where the call names no stream",
        (R.END_OF_WORK,): "the waiting side went on right after it, in every step",
        (R.ENDED_RIGHT_BEFORE_RETURN,): "the call lasted on after all that it was known to wait for",
        (R.DEFAULT_GROUP,): "gloo records no groups, and the job has several",
    },
    "dropped": {
        (R.HOST_OPS_WITHOUT_TIMES,): "they are in the linked file, and in no graph",
        (R.HOST_OPS_OUTSIDE, R.OPS_OUTSIDE, R.CALLS_OUTSIDE, R.ACTIVITIES_OUTSIDE, R.SYNC_RECORDS_OUTSIDE): "outside the part "
        "that you asked for, the time that both files cover, or the recorded steps (as steps that warm up)",
        (R.CROSSING_DEVICE_WAITS, R.CROSSING_HOST_WAITS, R.CROSSING_HANDOFFS): "one end is outside the part; what was blocked "
        "starts as measured",
        (R.CROSSING_COMMUNICATION,): "host time here; it belongs to the part in which it was asked for",
        (R.STREAM_WAIT_WITHOUT_EVENT, R.EVENT_SYNC_WITHOUT_EVENT, R.QUERY_WITHOUT_EVENT): "neither a record nor the order of "
        "calls says what was waited for",
        (R.EVENT_WAIT_AGAINST_CLOCK, R.HOST_WAIT_AGAINST_CLOCK, R.GRAPH_AGAINST_CLOCK): "what was waited for ended after the "
        "waiting side went on",
        (R.QUEUE_WAIT_WITHOUT_RECORD,): "MTIA's rows of waiting of which one side was not recorded",
        (R.RECORDED_TWICE,): "equal, or of one id at almost one time; one is kept",
        (R.NO_CATEGORY,): "neither its name nor flows tell whether it is a device or a runtime",
        (R.UNUSABLE_TIME,): "no number, more than a year long or from the middle of the trace, or at 0 long before others",
        (R.UNKNOWN_CATEGORY, R.UNKNOWN_OP_TYPE, R.NOT_READ): "rows that have no place in a graph, by kind",
        (R.UNREADABLE_ROWS, R.CUT_OFF_ROWS): "of a [damaged](damage.md) file",
        (R.ZERO_LENGTH_OPS, R.DEVICE_ROWS_OF_WAITING, R.LINKS_OF_ABSENT_OPS, R.FURTHER_LAUNCH_LINKS, R.ROCTX_MARKS,
         R.LINKS_OF_OTHER_KERNELS, R.OPS_OF_NO_PROCESS): "rows of a rocpd database that are no work, or not complete",
        (R.UNKNOWN_REQUEST,): "transfers of gloo that no op asked for; their time stays in the graph",
        (R.DEPENDENCIES_IN_CIRCLES,): "each circle is broken at the edge that is known least surely",
        (R.SYNC_RECORDS_WITHOUT_CALL, R.NO_WORK_FOLLOWED, R.HOST_WAIT_AGAINST_LAUNCHES, R.BEGIN_OR_END_ALONE,
         R.API_ROWS_WITHOUT_END, R.TRANSFER_WITHOUT_WAIT, R.LATE_BEYOND_SEARCH): "",
    },
    "oddities": {
        (R.DEVICE_ONLY_OPS,): "so they have no tensors",
        (R.ACTIVITIES_WITHOUT_CALL,): "in the graph `unrecorded host` releases them when they started",
        (R.LAUNCHES_NOT_RECORDED,): "launched while the trace was recorded; what they waited for is not known",
        (R.LAUNCHES_WITHOUT_ACTIVITY,): "their work was not recorded, so no verdict is given",
        (R.OPS_WITHOUT_CALLS,): "the profiler dropped calls and what they launched; a note says when",
        (R.SHORT_GRAPHS,): "the same graph ran more in another step",
        (R.LAUNCHES_THAT_SHARE,): "correlations are wrong, or kernels recorded twice",
        (R.ENDED_BEFORE_LAUNCH,): "one of the two times is wrong",
        (R.ACTIVITIES_OUTSIDE_OPS,): "the host node has the name of the call",
        (R.UNEVEN_STEPS,): "a note says why; nothing is said of a step",
        (R.ODD_OPS, R.TOO_LONG, R.OUT_OF_TURN, R.CALLS_OF_ZERO_LENGTH, R.CONTRADICTIONS): "a note says what is wrong, and the report "
        "draws no verdict",
        (R.OPS_IN_CIRCLES,): "the two traces contradict each other about who called whom",
        (R.MISNAMED_OPS,): "not matched",
        (R.STEPS_APART,): "ops of only one trace lack times or tensors",
        (R.BLOCKS_NOTHING,): "what was waited for was over, or on the same stream",
        (R.OBSERVER_QUERIES,): "of a watchdog, and no waits",
        (R.REPEATED_STEPS,): "a second recording of the loop counts from 0 again",
        (R.FLOWS_OF_NO_ACTIVITY,): "a flow's end is at that of no activity, or of several",
        (R.STREAMS_OF_CONTEXTS,): "those of later CUDA contexts begin at 1000",
        (R.NODES_REMOVED,): "no node has some ids between the first and the last",
        (R.ARGUMENTS_NO_LISTS, R.TENSORS_TOO_LARGE): "an empty list takes their place",
        (R.UNREADABLE_GROUPS, R.UNREADABLE_LISTS): "neither JSON nor Python's notation; they count as not recorded",
        (R.STILL_RUNNING, R.BEYOND_LAST_RECORDS, R.BEYOND_BUSIEST_STREAMS, R.CLIPPED_OPS,
         R.SHORTENED_OPS, R.WAITS_FOR_NOTHING, R.NO_DURATION, R.NODES_WITHOUT_ID,
         R.NODES_WITHOUT_ARGUMENT_LISTS, R.NODES_IN_CIRCLES, R.MANY_MEMBERS, R.DISPATCH_NUMBERS_AS_QUEUES): "",
    },
}
# fmt: on
