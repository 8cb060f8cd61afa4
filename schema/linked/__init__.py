"""The linked trace: host ops, launch calls, device activities and who waits for whom, in memory and as a file.

What the profiler writes: the records of Kineto and host traces, their times and numbers.
"""

from . import host as host, kineto as kineto
from .arguments import (
    RecordedTensor as RecordedTensor,
    argument_lists as argument_lists,
    argument_members as argument_members,
    argument_position as argument_position,
    listed as listed,
    mutated as mutated,
    only_written as only_written,
    plain_arguments as plain_arguments,
    plain_escapes as plain_escapes,
    recorded_tensors as recorded_tensors,
    usable_arguments as usable_arguments,
    with_tensors as with_tensors,
)
from .communications import Communications as Communications
from .host import GROUP_INIT as GROUP_INIT, NO_TENSORS as NO_TENSORS, listed_attributes as listed_attributes
from .kineto import (
    DATA_WAIT_WITHOUT_PROFILER as DATA_WAIT_WITHOUT_PROFILER,
    LARGEST_ID as LARGEST_ID,
    MEMORY_CATEGORIES as MEMORY_CATEGORIES,
    STEP_WITHOUT_PROFILER as STEP_WITHOUT_PROFILER,
    Args as Args,
    DeviceFile as DeviceFile,
    MergedRank as MergedRank,
)
from .layout import LinkedFile as LinkedFile
from .linked_trace import (
    STEP_MARK as STEP_MARK,
    Activities as Activities,
    Calls as Calls,
    Communication as Communication,
    DeviceWaits as DeviceWaits,
    HostWaits as HostWaits,
    LinkedTrace as LinkedTrace,
    LinkReport as LinkReport,
    Ops as Ops,
    ProcessGroup as ProcessGroup,
    Provenance as Provenance,
    ThreadHandoffs as ThreadHandoffs,
    TraceInfo as TraceInfo,
    are_step_marks as are_step_marks,
    columns_at as columns_at,
    guessed as guessed,
    on_host_clock as on_host_clock,
    op_parents as op_parents,
    op_tree as op_tree,
    select_rows as select_rows,
    step_count as step_count,
    step_starts as step_starts,
    without_guesses as without_guesses,
)
from .numbers import (
    FOREVER as FOREVER,
    LONGEST_RECORDING as LONGEST_RECORDING,
    NEVER as NEVER,
    ExactTimes as ExactTimes,
    InexactTime as InexactTime,
    exact_microseconds as exact_microseconds,
    exact_times as exact_times,
    identities as identities,
    identity as identity,
    integer as integer,
    integer_list as integer_list,
    integers as integers,
    json_value as json_value,
    lacks_padding as lacks_padding,
    literal as literal,
    name_of as name_of,
    nanoseconds as nanoseconds,
    with_padding as with_padding,
)
from .reader import read_linked as read_linked
from .streams import (
    SYNC_RECORDS as SYNC_RECORDS,
    SyncCall as SyncCall,
    last_ended as last_ended,
    previous_on_stream as previous_on_stream,
    stream_sorted as stream_sorted,
    streams_of as streams_of,
    sync_calls as sync_calls,
    took_over as took_over,
    waits_without_record as waits_without_record,
)
from .tensors import (
    HOST as HOST,
    NOWHERE as NOWHERE,
    Arguments as Arguments,
    Tensors as Tensors,
    member_texts as member_texts,
    read_arguments as read_arguments,
)
from .writer import write_linked as write_linked
