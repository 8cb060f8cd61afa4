"""What a graph file holds, in words: where each attribute stands, and what fields, kinds and keys mean.

docs/formats.py makes docs/graph.md of these tables; tests compare them with the code and with graphs.
"""

from enum import Enum
from typing import NamedTuple

from execgraph.schema.graph import (
    CONCURRENCY_LIMIT,
    DATA_WAIT_WITHOUT_PROFILER_NS,
    DEVICE_NAME,
    LOSSES,
    RANKS_OF_GROUP,
    STEP_START,
    STEP_WITHOUT_PROFILER_NS,
    STEPS,
    Delay,
    DependencyKind,
    NodeType,
)
from execgraph.schema.reasons import in_words


class Where(Enum):
    """The nodes that may have an attribute."""

    NODES = "every node"
    DEPENDENT = "nodes with `data_deps`"
    HOST = "host nodes"
    SLICES = "slices of ops"
    WORK = "slices of ops, activities"
    CALLED = "slices of ops, calls, waits, activities"
    ACTIVITIES = "activities"
    ACTIVITIES_AND_WAITS = "activities, waits"
    COMPUTATION = "computation of the device"
    DELAYS = "delays"
    EXCESS = "the nodes `beyond the fitted network` of graphs for ASTRA-sim"
    OFFSET = "the node `start offset` of graphs for ASTRA-sim"
    DEVICE_ONLY = "activities and communication of graphs without host"
    COMMUNICATION = "communication"
    COLLECTIVES = "collectives"
    ROOTED = "messages, collectives with a root"
    MESSAGES = "messages"
    COALESCED = "activities that carry several messages"


class Meaning(NamedTuple):
    """The nodes that may have an attribute, and what it says."""

    where: Where
    text: str


# fmt: off
MEANINGS = {
    "is_cpu_op": Meaning(Where.NODES,
        "true for work of the host, false for activities and delays; for ASTRA-sim false for communication on the host,"
        " too"),
    "start_time_ns": Meaning(Where.NODES,
        "measured start; of activities on the device's clock, see `clock_offset_ns`; of waits the end of what was"
        " awaited, plus `gap_ns`"),
    "duration_ns": Meaning(Where.NODES,
        "measured length, without the gap before it and without `overlap_ns`; of waits the usual time of such a call"),
    "gap_ns": Meaning(Where.ACTIVITIES_AND_WAITS,
        "in the measured run, from the end of the last dependency to the start; nothing works in that time; of waits"
        " see [how long a wait takes](#waits)"),
    "latency_ns": Meaning(Where.ACTIVITIES,
        "least time from the end of the launch to the start, see [when an activity"
        " starts](#when-does-a-node-start); absent if it equals `gap_ns`"),
    "chain_gap_ns": Meaning(Where.ACTIVITIES_AND_WAITS,
        "least time from the end of any other dependency to the start; absent if it equals `gap_ns`; of waits from the"
        " end of the host node before"),
    "delay": Meaning(Where.DELAYS,
        "the cause, by the table of delays below; only delays have it"),
    "overlap_ns": Meaning(Where.ACTIVITIES,
        "what was cut off the end, as the next activity of the stream had begun; with `duration_ns` the recorded"
        " length"),
    "host_delay_ns": Meaning(Where.DEVICE_ONLY,
        "host time that the node had to wait for; passes before the gap and the start"),
    "start_offset_ns": Meaning(Where.OFFSET,
        "how much later than the first rank of the job this one began to record, on the clock of all; `duration_micros` is the same in"
        " whole µs, and `duration_ns` 0, as the measured run of the rank itself begins after it"),
    "excess_ns": Meaning(Where.EXCESS,
        "how much longer than in the fitted network the collective before it took; `duration_micros` is the same in whole µs, and"
        " `duration_ns` 0, as `duration_ns` of the collective is all that it took"),
    "op_id": Meaning(Where.WORK,
        "the op's id in the host trace, of an activity that of the op that launched it; absent for ops that only the"
        " device trace holds"),
    "slice": Meaning(Where.SLICES,
        "which slice of its op this is, from 0"),
    "tid": Meaning(Where.HOST,
        "the thread as the operating system numbers it; threads that were not recorded have numbers below all others"),
    "rf_id": Meaning(Where.SLICES,
        "record-function id, which counts the ops of a process; 0 for none"),
    "fw_parent": Meaning(Where.SLICES,
        "id of the op that was running in the forward thread when this op of the backward pass began; 0 for none"),
    "seq_id": Meaning(Where.SLICES,
        "autograd's sequence number, the same for a forward op and the backward op that differentiates it; -1 for"
        " none"),
    "scope": Meaning(Where.SLICES,
        "PyTorch's record scope: 0 function, 1 backward function, 7 annotation of a user"),
    "fw_tid": Meaning(Where.SLICES,
        "the forward thread, as the host trace numbers threads, of an op of the backward pass; 0 for none"),
    "op_schema": Meaning(Where.SLICES,
        "the op's signature, as `aten::mm(Tensor self, Tensor mat2) -> Tensor`"),
    "module": Meaning(Where.CALLED,
        "path of the nn.Module that it was done for, with the numbers that the profiler gives, as"
        " `Net_0/Sequential_0/Linear_2`; backward that of the forward op; with `--modules`"),
    "python_function": Meaning(Where.CALLED,
        "innermost Python function around it, as `train.py(12): step`; backward that around the forward op; with"
        " `--modules`"),
    "device": Meaning(Where.ACTIVITIES,
        "number of the device"),
    "stream": Meaning(Where.ACTIVITIES,
        "number of the stream (or queue) on the device"),
    "correlation": Meaning(Where.ACTIVITIES,
        "what the profiler numbers launch calls by: an activity has the number of its call"),
    "cat": Meaning(Where.ACTIVITIES,
        "category as recorded: `kernel`, `gpu_memcpy`, `gpu_memset` and what other vendors write"),
    "num_ops": Meaning(Where.COMPUTATION,
        "floating-point operations, by the [table of ops](kernel-work.md); absent where not known"),
    "tensor_size": Meaning(Where.COMPUTATION,
        "read and written, by the same table; absent where not known"),
    "element_size": Meaning(Where.COMPUTATION,
        "of an element of the op's largest tensor, which shows the number format"),
    "comm_type": Meaning(Where.COLLECTIVES,
        "which collective, by the table of collectives below"),
    "comm_size": Meaning(Where.COMMUNICATION,
        "what the rank puts into a collective, or what a message carries; of a node with several messages, the last one's"),
    "comm_split": Meaning(Where.COLLECTIVES,
        "what of `comm_size` goes to each member of an all-to-all, in the order of `pg_ranks`; where it was recorded"),
    "comm_seq": Meaning(Where.COMMUNICATION,
        "sequence number in the process group, as recorded"),
    "pg_name": Meaning(Where.COMMUNICATION,
        "the process group: its recorded name, or its key in the file of communicator groups where one is written or"
        " given; there empty for all ranks"),
    "pg_recorded": Meaning(Where.COMMUNICATION,
        "the process group's recorded name, whatever `pg_name` is"),
    "pg_desc": Meaning(Where.COMMUNICATION,
        "what the process group is for, as its maker described it; absent where not recorded"),
    "pg_ranks": Meaning(Where.COMMUNICATION,
        "global ranks of the group's members, in its order; absent where not known, or where the metadata has them, see"
        " `ranks_of_group_`"),
    "comm_src": Meaning(Where.ROOTED,
        "global rank that sends, or the root that a collective goes out from; -1 where not recorded"),
    "comm_dst": Meaning(Where.ROOTED,
        "global rank that receives, or the root that a collective ends at; -1 where not recorded"),
    "comm_tag": Meaning(Where.MESSAGES,
        "the same at both ends of a message, and another one for every message from one rank to another"),
    "coalesced_src": Meaning(Where.COALESCED,
        "`comm_src` of each message, the sends first; this and the next three are parallel"),
    "coalesced_dst": Meaning(Where.COALESCED,
        "`comm_dst` of each message"),
    "coalesced_tag": Meaning(Where.COALESCED,
        "`comm_tag` of each message"),
    "coalesced_size": Meaning(Where.COALESCED,
        "`comm_size` of each message"),
    "data_dep_kinds": Meaning(Where.DEPENDENT,
        "why each of `data_deps` is there, parallel to it: a sum of bits from the table of kinds below"),
}
# fmt: on


class MetadataKey(NamedTuple):
    """A key of the metadata; one that ends in an underscore goes on with a number."""

    name: str
    value: str
    unit: str
    meaning: str


# fmt: off
METADATA = (
    MetadataKey("tool", "string_val", "", "what wrote the file, and its version"),
    MetadataKey("schema", "string_val", "", "the field `schema` of the host trace, such as `1.1.1-chakra.0.0.4`; empty"
                                            " without a host trace"),
    MetadataKey("rank", "int64_val", "", "the process's rank, -1 where not recorded; where only some ranks of a job"
                                         " were built for ASTRA-sim, which numbers them anew, the new number"),
    MetadataKey("world_size", "int64_val", "", "how many ranks the job has, -1 where not recorded"),
    MetadataKey("pid", "int64_val", "", "the process's number, -1 where not recorded"),
    MetadataKey("base_time_ns", "int64_val", "ns", "to be added to start times for the time since 1970; 0 where none"
                                                   " was recorded"),
    MetadataKey("target", "string_val", "", "who the graph is for: `generic` or `astra-sim`"),
    MetadataKey("resolution_ns", "int64_val", "ns", "the unit in which the trace counts time: 1000 for traces in whole"
                                                    " µs"),
    MetadataKey("clock_offset_ns", "int64_val", "ns",
        "to be added to activities' start times for the host's clock; of a device clock that drifts the mean"),
    MetadataKey("source_host", "string_val", "", "name of the host trace's file; empty without one"),
    MetadataKey("source_device", "string_val", "", "name of the device trace's file"),
    MetadataKey(STEP_START, "int64_val", "ns", "when the profiler's step of this number began, on the host's clock; of runs with"
                                               " marked steps"),
    MetadataKey(STEPS, "int64_val", "", "how many steps the graph holds; only with the next one"),
    MetadataKey(STEP_WITHOUT_PROFILER_NS, "int64_val", "ns",
        "how long a step takes without a profiler, as `capture` measured it; absent where it was not measured"),
    MetadataKey(DATA_WAIT_WITHOUT_PROFILER_NS, "int64_val", "ns",
        "how long the loop waits for PyTorch's data loader in such a step; absent where it does not"),
    MetadataKey(DEVICE_NAME, "string_val", "", "the recorded name of the device of this number, of devices that ran"
                                               " anything"),
    *(MetadataKey(name, "int64_val", "", f"the number of {in_words(reason)}; absent for none") for name, reason in LOSSES.items()),
    MetadataKey(CONCURRENCY_LIMIT, "int64_val", "activities",
        "how many the device of this number ran at once at most, though more were ready; only of devices that were"
        " full"),
    MetadataKey(RANKS_OF_GROUP, "string_val", "",
        "global ranks of the process group of this `pg_name`, as `0-3,8` or `0-56:8` (each eighth); in graphs of scaled"
        " jobs"),
)
# fmt: on

# fmt: off
FIELDS = {
    "id": "from 1 on; a node's dependencies have smaller ids. Ids are in the order of the measured starts, for ASTRA-sim of the"
          " ends",
    "name": "of the op, call or activity as recorded; `host idle`, `unrecorded host`, `host delay`, `start offset`,"
            " `host time after the last activity` and delays are named here",
    "type": "by the table of types below",
    "ctrl_deps": "at most one: the slice that launched an activity, or the calling op's slice before a slice; implied"
                 " by `data_deps`",
    "data_deps": "the nodes that must have ended before this one starts",
    "start_time_micros": "`start_time_ns` in whole µs",
    "duration_micros": "the sum of `duration_ns`, `gap_ns` and `host_delay_ns` in whole µs, rounded so that the total of"
                       " each thread and stream is right to 1 µs; for ASTRA-sim the gap is [another"
                       " one](astra-sim.md#gaps-and-what-if), and time in which something else of its kind ran is not"
                       " counted twice",
    "inputs": "arguments of the op, on its first slice: values, shapes and types, each a JSON text; not with `--io"
              " none` or without host",
    "outputs": "the same of its results",
    "attr": "the attributes below",
    "storage": "not written; what Chakra's schema says of storage, which `trace-jsonize` keeps as it is",
}
"""Of a node."""

TYPES = {
    NodeType.INVALID: "not written",
    NodeType.METADATA: "a process group that the host trace describes; takes no time; in generic graphs alone",
    NodeType.MEM_LOAD: "not written",
    NodeType.MEM_STORE: "not written",
    NodeType.COMP: "all that is no communication: host nodes, kernels, copies and sets, delays",
    NodeType.COMM_SEND: "a message that the rank sends",
    NodeType.COMM_RECV: "a message that the rank receives",
    NodeType.COMM_COLL: "the rank's part in a collective",
    NodeType.STORAGE: "not written; input or output, which a replay takes for work of the host",
    NodeType.BATCH: "not written; a batch that is loaded, replayed like the above",
    NodeType.CHECKPOINT: "not written; a checkpoint, replayed like the above",
}

KINDS = {
    DependencyKind.PROGRAM_ORDER: "a host thread's nodes follow each other; what depends on nothing else follows the start offset",
    DependencyKind.LAUNCH: "an activity follows the host slice that launched it, directly or through a delay",
    DependencyKind.STREAM_ORDER: "an activity follows the one before it on its stream, directly or through a delay",
    DependencyKind.EVENT_WAIT: "an activity follows one on another stream that its own had to wait for, or one of its"
                               " graph",
    DependencyKind.HOST_SYNC: "a wait of the host follows what it awaited; without host an activity follows what the"
                              " host awaited for it, and the node at the end all activities",
    DependencyKind.TENSOR_FLOW: "a reader of a storage follows its last writer on another stream",
    DependencyKind.HANDOFF: "a host thread goes on when another one has reached a point, as the main thread when the"
                            " backward pass is over",
    DependencyKind.COLLECTIVE: "communication in the order that all ranks of a job have in common",
    DependencyKind.INFERRED: "beside another bit: known from times alone",
    DependencyKind.CALL_ORDER: "beside another bit: a wait that is known from the order of calls alone; not in graphs"
                               " for ASTRA-sim",
    DependencyKind.LAUNCHED_GRAPH: "an activity follows another one of the CUDA graph that launched both, as the trace"
                                   " records",
}

DELAY_CAUSES = {
    Delay.LOST_RECORDS: "the profiler lost what ran in the meantime",
    Delay.CONTENTION: "the device was busy with other work",
    Delay.START_OF_RECORDING: "a backlog (node `carry-in`): work from before the recording, or before the part, kept"
                              " the stream busy",
    Delay.UNEXPLAINED: "nothing in the trace says why",
}
# fmt: on
