"""The linked trace in memory and as a file, and what the profiler writes: the records of Kineto and host traces."""

from . import host, kineto
from .arguments import RecordedArguments, RecordedTensor, declared_arguments, plain_arguments, usable_arguments
from .host import GROUP_INIT, NO_TENSORS, WINDOW, listed_attributes
from .kineto import (
    DATA_WAIT_WITHOUT_PROFILER, LARGEST_ID, MEMORY_CATEGORIES, RECORDING_COST, STEP_WITHOUT_PROFILER,
    STEPS_WITHOUT_PROFILER, Args, DeviceFile, MergedRank,
)  # fmt: skip
from .layout import ATTRIBUTES, OP_SCHEMA, LinkedFile, attribute_columns, parent_ids
from .linked_trace import (
    AUTOGRAD, INCOMPLETE_STEP, NOT_THERE, STEP_MARK, USER_SCOPE, Activities, Calls, Communication, DeviceWaits,
    HostWaits, LinkedTrace, LinkReport, Ops, ProcessGroup, Provenance, ThreadHandoffs, TraceInfo, are_step_marks,
    columns_at, distinct_steps, guessed, on_host_clock, op_parents, op_tree, select_rows, step_count, step_starts, without_guesses,
)  # fmt: skip
from .numbers import (
    FOREVER, LONGEST_RECORDING, NEVER, ExactTimes, InexactTime, are_of_doubles, exact_microseconds, exact_times, identities,
    identity, integer, integer_list, integers, json_value, lacks_padding, literal, name_of, nanoseconds, whole_ns,
    with_padding,
)  # fmt: skip
from .reader import read_linked
from .streams import (
    SYNC_RECORDS, SyncCall, last_ended, previous_on_stream, stream_sorted, streams_of, sync_calls, took_over,
    waits_without_record,
)  # fmt: skip
from .tensors import HOST, Arguments, Tensors
from .writer import write_linked
