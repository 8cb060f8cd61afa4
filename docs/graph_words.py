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

    NODES = "Every node"
    DEPENDENT = "Nodes with `data_deps`"
    ACTIVITIES_AND_WAITS = "Activities, waits"
    ACTIVITIES = "Activities"
    COMPUTATION = "Computing activities"
    DELAYS = "Delays"
    HOST = "Host nodes"
    SLICES = "Slices of ops"
    WORK = "Slices of ops, activities"
    CALLED = "Slices, waits, activities"
    COMMUNICATION = "Communication"
    COLLECTIVES = "Collectives"
    ROOTED = "Messages, collectives with a root"
    MESSAGES = "Messages"
    COALESCED = "Kernels with several messages"
    DEVICE_ONLY = "Graphs without host"
    OFFSET = "`start offset` (for ASTRA-sim; `duration_ns` is 0)"
    EXCESS = "`beyond the fitted network` (the same)"


class Meaning(NamedTuple):
    """The nodes that may have an attribute, and what it says."""

    where: Where
    text: str


# fmt: off
MEANINGS = {
    "is_cpu_op": Meaning(Where.NODES,
        "true for work of the host, for ASTRA-sim unless it is communication"),
    "start_time_ns": Meaning(Where.NODES,
        "measured start; of activities on the device's clock; of waits the end of what was awaited, plus `gap_ns`"),
    "duration_ns": Meaning(Where.NODES,
        "measured length, without `gap_ns` and `overlap_ns`; of waits [the usual time](#waits)"),
    "gap_ns": Meaning(Where.ACTIVITIES_AND_WAITS,
        "measured time from the end of the last dependency to the start"),
    "latency_ns": Meaning(Where.ACTIVITIES,
        "least time from the end of the launch [to the start](#when-does-a-node-start)"),
    "chain_gap_ns": Meaning(Where.ACTIVITIES_AND_WAITS,
        "least time from the end of any other dependency to the start"),
    "delay": Meaning(Where.DELAYS,
        "[the cause](#delays)"),
    "overlap_ns": Meaning(Where.ACTIVITIES,
        "cut off the end, because the next activity of the stream had begun"),
    "host_delay_ns": Meaning(Where.DEVICE_ONLY,
        "host time that the node had to wait for"),
    "start_offset_ns": Meaning(Where.OFFSET,
        "how much later than the first rank this one began to record"),
    "excess_ns": Meaning(Where.EXCESS,
        "how much longer than in that network the collective before took"),
    "op_id": Meaning(Where.WORK,
        "the op's id in the host trace, of an activity that of the launching op; absent if it has none"),
    "slice": Meaning(Where.SLICES,
        "number of the slice in its op, from 0"),
    "tid": Meaning(Where.HOST,
        "the operating system's number of the thread; smallest for threads that were not recorded"),
    "rf_id": Meaning(Where.SLICES,
        "record-function id; 0 for none"),
    "fw_parent": Meaning(Where.SLICES,
        "id of the op that the forward thread ran when this backward op began; 0 for none"),
    "seq_id": Meaning(Where.SLICES,
        "autograd's sequence number, which a forward op and its backward op share; -1 for none"),
    "scope": Meaning(Where.SLICES,
        "0 function, 1 backward function, 7 annotation of a user"),
    "fw_tid": Meaning(Where.SLICES,
        "forward thread of a backward op, as the host trace numbers it; 0 for none"),
    "op_schema": Meaning(Where.SLICES,
        "the op's signature"),
    "module": Meaning(Where.CALLED,
        "path of its nn.Module, as `Net_0/Linear_2`, backward that of the forward op; with `--modules`"),
    "python_function": Meaning(Where.CALLED,
        "innermost Python function around it, as `train.py(12): step`; likewise"),
    "device": Meaning(Where.ACTIVITIES,
        "number of the device"),
    "stream": Meaning(Where.ACTIVITIES,
        "number of the stream or queue"),
    "correlation": Meaning(Where.ACTIVITIES,
        "the profiler's number of the launch call"),
    "cat": Meaning(Where.ACTIVITIES,
        "recorded category, as `kernel` or `gpu_memcpy`"),
    "num_ops": Meaning(Where.COMPUTATION,
        "[floating-point operations](kernel-work.md), for ASTRA-sim at least 1; absent if unknown"),
    "tensor_size": Meaning(Where.COMPUTATION,
        "[bytes](kernel-work.md) read and written, likewise"),
    "element_size": Meaning(Where.COMPUTATION,
        "bytes of an element of the op's largest tensor"),
    "comm_type": Meaning(Where.COLLECTIVES,
        "[which collective](#collectives)"),
    "comm_size": Meaning(Where.COMMUNICATION,
        "bytes that the rank puts into a collective, or that a message carries"),
    "comm_split": Meaning(Where.COLLECTIVES,
        "bytes to each member of an all-to-all, in the order of `pg_ranks`"),
    "comm_seq": Meaning(Where.COMMUNICATION,
        "recorded sequence number in the process group"),
    "pg_name": Meaning(Where.COMMUNICATION,
        "the process group's recorded name, or its key in `comm_groups.json`, there empty for all ranks"),
    "pg_recorded": Meaning(Where.COMMUNICATION,
        "the process group's recorded name"),
    "pg_desc": Meaning(Where.COMMUNICATION,
        "its recorded description"),
    "pg_ranks": Meaning(Where.COMMUNICATION,
        "global ranks of its members, in its order; absent if unknown, or in `ranks_of_group_`"),
    "comm_src": Meaning(Where.ROOTED,
        "global rank that sends, or root; -1 if unknown"),
    "comm_dst": Meaning(Where.ROOTED,
        "global rank that receives, or root; -1 if unknown"),
    "comm_tag": Meaning(Where.MESSAGES,
        "the same at both ends, another for every message between two ranks"),
    "coalesced_src": Meaning(Where.COALESCED,
        "`comm_src` of each message, sends first; `comm_src` has the last one's"),
    "coalesced_dst": Meaning(Where.COALESCED,
        "`comm_dst` of each"),
    "coalesced_tag": Meaning(Where.COALESCED,
        "`comm_tag` of each"),
    "coalesced_size": Meaning(Where.COALESCED,
        "`comm_size` of each"),
    "data_dep_kinds": Meaning(Where.DEPENDENT,
        "[why](#why-a-dependency-is-there) each of `data_deps` is there: a sum of bits"),
}
# fmt: on


class MetadataKey(NamedTuple):
    """A key of the metadata; one that ends in an underscore goes on with a number."""

    name: str
    value: str
    meaning: str


# fmt: off
METADATA = (
    MetadataKey("tool", "string_val", "what wrote the file, and its version"),
    MetadataKey("schema", "string_val", "`schema` of the host trace; empty without one"),
    MetadataKey("rank", "int64_val", "-1 if unknown; a new number if only some ranks were built for ASTRA-sim"),
    MetadataKey("world_size", "int64_val", "number of ranks, -1 if unknown"),
    MetadataKey("pid", "int64_val", "the process's number, -1 if unknown"),
    MetadataKey("base_time_ns", "int64_val", "to add to start times for the time since 1970; 0 if unknown"),
    MetadataKey("target", "string_val", "`generic` or `astra-sim`"),
    MetadataKey("resolution_ns", "int64_val", "unit of the trace's times: 1000 for whole µs"),
    MetadataKey("clock_offset_ns", "int64_val",
        "to add to activities' starts for the host's clock; the mean, if the device's drifts"),
    MetadataKey("source_host", "string_val", "the host trace's file; empty without one"),
    MetadataKey("source_device", "string_val", "the device trace's file"),
    MetadataKey(STEP_START, "int64_val", "start of the profiler's step of this number, on the host's clock"),
    MetadataKey(STEPS, "int64_val", "number of steps; only with `step_without_profiler_ns`"),
    MetadataKey(STEP_WITHOUT_PROFILER_NS, "int64_val", "an unprofiled step, as `capture` measured it"),
    MetadataKey(DATA_WAIT_WITHOUT_PROFILER_NS, "int64_val",
        "how much of that the loop waits for PyTorch's data loader"),
    MetadataKey(DEVICE_NAME, "string_val", "recorded name of the device of this number"),
    *(MetadataKey(name, "int64_val", f"number of {in_words(reason)}") for name, reason in LOSSES.items()),
    MetadataKey(CONCURRENCY_LIMIT, "int64_val",
        "how many activities a full device ran at once at most, though more were ready"),
    MetadataKey(RANKS_OF_GROUP, "string_val",
        "ranks of the group of this `pg_name`, as `0-3,8` or `0-56:8` (each eighth); in scaled jobs"),
)
# fmt: on

# fmt: off
FIELDS = {
    "id": "from 1, in the order of the measured starts, for ASTRA-sim of the ends; dependencies have smaller ids",
    "name": "as recorded; nodes that execgraph adds say what they are",
    "type": "[kind of node](#types)",
    "ctrl_deps": "the slice that launched an activity, or that called an op; redundant: `data_deps` has the same order",
    "data_deps": "the nodes that must end before this one starts",
    "start_time_micros": "`start_time_ns` in whole µs",
    "duration_micros": "`duration_ns` + `gap_ns` + `host_delay_ns` in µs, rounded so that the total of each thread and"
                       " stream is right; for ASTRA-sim [with other gaps](astra-sim-details.md#gaps-and-what-if)",
    "inputs": "the op's arguments, on its first slice: values, shapes and types as JSON texts; not with `--io none` or"
              " without host",
    "outputs": "the same of its results",
    "attr": "the attributes below",
    "storage": "not written; kept from Chakra's graphs",
}
"""Of a node."""

TYPES = {
    NodeType.INVALID: "",
    NodeType.METADATA: "a process group; in generic graphs only",
    NodeType.MEM_LOAD: "",
    NodeType.MEM_STORE: "",
    NodeType.COMP: "everything but communication: host nodes, activities, delays",
    NodeType.COMM_SEND: "a message that the rank sends",
    NodeType.COMM_RECV: "a message that the rank receives",
    NodeType.COMM_COLL: "the rank's part in a collective",
    NodeType.STORAGE: "",
    NodeType.BATCH: "",
    NodeType.CHECKPOINT: "",
}
"""Those without a meaning are not written."""

KINDS = {
    DependencyKind.PROGRAM_ORDER: "nodes of a thread follow each other",
    DependencyKind.LAUNCH: "an activity follows the slice that launched it",
    DependencyKind.STREAM_ORDER: "an activity follows the one before it on its stream",
    DependencyKind.EVENT_WAIT: "an activity follows one that its stream, or its graph, had to wait for",
    DependencyKind.HOST_SYNC: "a wait follows what it awaited; without host, activities follow what the host awaited",
    DependencyKind.TENSOR_FLOW: "a reader of a storage follows its last writer on another stream",
    DependencyKind.HANDOFF: "a thread follows another one that it waited for",
    DependencyKind.COLLECTIVE: "communication in the order that all ranks share",
    DependencyKind.INFERRED: "with another bit: known from timing alone",
    DependencyKind.CALL_ORDER: "with another bit: known from the order of calls alone; not for ASTRA-sim",
    DependencyKind.LAUNCHED_GRAPH: "recorded between activities of one CUDA graph",
}

DELAY_CAUSES = {
    Delay.LOST_RECORDS: "the profiler lost what ran in the meantime",
    Delay.CONTENTION: "the device was busy with other work",
    Delay.START_OF_RECORDING: "work from before the recording, or the part, kept the stream busy (node `carry-in`)",
    Delay.UNEXPLAINED: "nothing in the trace says why",
}
# fmt: on
