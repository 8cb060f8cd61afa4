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
        "measured start, of activities on the device's clock; of waits the end of what was awaited, plus `gap_ns`"),
    "duration_ns": Meaning(Where.NODES,
        "measured length without `gap_ns` and `overlap_ns`; of waits the median of calls of its name that had nothing to wait for"),
    "gap_ns": Meaning(Where.ACTIVITIES_AND_WAITS,
        "measured time from the end of the last dependency to the start"),
    "latency_ns": Meaning(Where.ACTIVITIES,
        "least time from the end of the launch [to the start](../../docs/graph.md#when-does-a-node-start)"),
    "chain_gap_ns": Meaning(Where.ACTIVITIES_AND_WAITS,
        "least time from the end of any other dependency to the start"),
    "delay": Meaning(Where.DELAYS,
        "[the cause](#delays)"),
    "overlap_ns": Meaning(Where.ACTIVITIES,
        "cut off the end, because the next activity had begun"),
    "host_delay_ns": Meaning(Where.DEVICE_ONLY,
        "host time that the node had to wait for"),
    "start_offset_ns": Meaning(Where.OFFSET,
        "how much later than the first rank this one began to record"),
    "excess_ns": Meaning(Where.EXCESS,
        "how much longer than there the collective before it took"),
    "op_id": Meaning(Where.WORK,
        "id in the host trace, of the op or of the launching op"),
    "slice": Meaning(Where.SLICES,
        "number in its op, from 0"),
    "tid": Meaning(Where.HOST,
        "the operating system's number of the thread"),
    "rf_id": Meaning(Where.SLICES,
        "as in the host trace; 0 for none"),
    "fw_parent": Meaning(Where.SLICES,
        "as in the host trace; 0 for none"),
    "seq_id": Meaning(Where.SLICES,
        "number that a forward op and its backward op share; -1 for none"),
    "scope": Meaning(Where.SLICES,
        "0 function, 1 backward function, 7 annotation"),
    "fw_tid": Meaning(Where.SLICES,
        "as in the host trace"),
    "op_schema": Meaning(Where.SLICES,
        "as in the host trace"),
    "module": Meaning(Where.CALLED,
        "path of its nn.Module, such as `Net_0/Linear_2`; with `--modules`"),
    "python_function": Meaning(Where.CALLED,
        "innermost Python function, such as `train.py(12): step`; with `--modules`"),
    "device": Meaning(Where.ACTIVITIES,
        ""),
    "stream": Meaning(Where.ACTIVITIES,
        ""),
    "correlation": Meaning(Where.ACTIVITIES,
        "the profiler's number of the launch call"),
    "cat": Meaning(Where.ACTIVITIES,
        "recorded category, such as `kernel` or `gpu_memcpy`"),
    "num_ops": Meaning(Where.COMPUTATION,
        "[floating-point operations](../../docs/kernel-work.md); absent if unknown"),
    "tensor_size": Meaning(Where.COMPUTATION,
        "[bytes](../../docs/kernel-work.md) read and written; absent if unknown"),
    "element_size": Meaning(Where.COMPUTATION,
        "bytes of an element of the op's largest tensor"),
    "comm_type": Meaning(Where.COLLECTIVES,
        "[which collective](#collectives)"),
    "comm_size": Meaning(Where.COMMUNICATION,
        "bytes of the message, or that the rank puts into the collective"),
    "comm_split": Meaning(Where.COLLECTIVES,
        "bytes to each member of an all-to-all"),
    "comm_seq": Meaning(Where.COMMUNICATION,
        "recorded number in the process group"),
    "pg_name": Meaning(Where.COMMUNICATION,
        "the process group's recorded name, or its key in `comm_groups.json`"),
    "pg_recorded": Meaning(Where.COMMUNICATION,
        "as recorded"),
    "pg_desc": Meaning(Where.COMMUNICATION,
        "as recorded"),
    "pg_ranks": Meaning(Where.COMMUNICATION,
        "global ranks of its members in order, unless `ranks_of_group_` has them"),
    "comm_src": Meaning(Where.ROOTED,
        "global ranks of sender and receiver, or the root; -1 if unknown"),
    "comm_dst": Meaning(Where.ROOTED,
        "global ranks of sender and receiver, or the root; -1 if unknown"),
    "comm_tag": Meaning(Where.MESSAGES,
        "the same at both ends"),
    "coalesced_src": Meaning(Where.COALESCED,
        "of each message, sends first"),
    "coalesced_dst": Meaning(Where.COALESCED,
        "of each message, sends first"),
    "coalesced_tag": Meaning(Where.COALESCED,
        "of each message, sends first"),
    "coalesced_size": Meaning(Where.COALESCED,
        "of each message, sends first"),
    "data_dep_kinds": Meaning(Where.DEPENDENT,
        "[why](../../docs/graph.md#why-a-dependency-is-there) each of `data_deps` is there"),
}
# fmt: on


class MetadataKey(NamedTuple):
    """A key of the metadata; one that ends in an underscore goes on with a number."""

    name: str
    value: str
    meaning: str


# fmt: off
METADATA = (
    MetadataKey("tool", "string_val", "what wrote the file"),
    MetadataKey("schema", "string_val", "of the host trace"),
    MetadataKey("rank", "int64_val", "-1 if unknown"),
    MetadataKey("world_size", "int64_val", "-1 if unknown"),
    MetadataKey("pid", "int64_val", "-1 if unknown"),
    MetadataKey("base_time_ns", "int64_val", "to add to start times for the time since 1970; 0 if unknown"),
    MetadataKey("target", "string_val", "`generic` or `astra-sim`"),
    MetadataKey("resolution_ns", "int64_val", "unit of the trace's times: 1000 for whole µs"),
    MetadataKey("clock_offset_ns", "int64_val", "to add to activities' starts for the host's clock"),
    MetadataKey("source_host", "string_val", "the traces' files; empty for one that is absent"),
    MetadataKey("source_device", "string_val", "the traces' files; empty for one that is absent"),
    MetadataKey(STEP_START, "int64_val", "start of step N, on the host's clock"),
    MetadataKey(STEPS, "int64_val", ""),
    MetadataKey(STEP_WITHOUT_PROFILER_NS, "int64_val", "as `capture` measured it"),
    MetadataKey(DATA_WAIT_WITHOUT_PROFILER_NS, "int64_val",
        "as `capture` measured it"),
    MetadataKey(DEVICE_NAME, "string_val", "recorded name of device N"),
    *(MetadataKey(name, "int64_val", "how many rows are [lost or odd](../../tools/commands/README.md#under-oddities)") for name in LOSSES),
    MetadataKey(CONCURRENCY_LIMIT, "int64_val", "how many activities a full device ran at once at most"),
    MetadataKey(RANKS_OF_GROUP, "string_val",
        "ranks of the group of `pg_name` N, such as `0-3,8` or `0-56:8` (each eighth)"),
)
# fmt: on

# fmt: off
FIELDS = {
    "id": "from 1, larger than the ids of all dependencies",
    "name": "as recorded, or what execgraph added",
    "type": "[kind of node](#types)",
    "ctrl_deps": "the slice that launched an activity, or that called an op",
    "data_deps": "the nodes that must end before this one starts",
    "start_time_micros": "`start_time_ns` in whole µs",
    "duration_micros": "`duration_ns` + `gap_ns` + `host_delay_ns` in whole µs; for ASTRA-sim"
                       " with other gaps",
    "inputs": "values, shapes and types as JSON texts, on an op's first slice; not with `--io none`",
    "outputs": "values, shapes and types as JSON texts, on an op's first slice; not with `--io none`",
    "attr": "the attributes below",
    "storage": "not written",
}
"""Of a node."""

TYPES = {
    NodeType.INVALID: "",
    NodeType.METADATA: "a process group, which takes no time",
    NodeType.MEM_LOAD: "",
    NodeType.MEM_STORE: "",
    NodeType.COMP: "everything but communication",
    NodeType.COMM_SEND: "communication",
    NodeType.COMM_RECV: "communication",
    NodeType.COMM_COLL: "communication",
    NodeType.STORAGE: "",
    NodeType.BATCH: "",
    NodeType.CHECKPOINT: "",
}
"""Those without a meaning are not written."""

KINDS = {
    DependencyKind.PROGRAM_ORDER: "nodes of a thread follow each other",
    DependencyKind.LAUNCH: "an activity follows the slice that launched it",
    DependencyKind.STREAM_ORDER: "an activity follows the one before it on its stream",
    DependencyKind.EVENT_WAIT: "an activity follows one that its stream had to wait for",
    DependencyKind.HOST_SYNC: "a wait follows what it awaited; in graphs without host, an activity does",
    DependencyKind.TENSOR_FLOW: "a reader of a storage follows its last writer on another stream",
    DependencyKind.HANDOFF: "a thread follows another one that it waited for",
    DependencyKind.COLLECTIVE: "communication follows in the order that all ranks share",
    DependencyKind.INFERRED: "known from timing alone (with another bit)",
    DependencyKind.CALL_ORDER: "known from the order of calls alone (with another bit)",
    DependencyKind.LAUNCHED_GRAPH: "an activity follows another of its CUDA graph",
}

DELAY_CAUSES = {
    Delay.LOST_RECORDS: "the profiler lost what ran in the meantime",
    Delay.CONTENTION: "the device was busy with other work",
    Delay.START_OF_RECORDING: "work from before the recording kept the stream busy",
    Delay.UNEXPLAINED: "nothing in the trace says why",
}
# fmt: on
