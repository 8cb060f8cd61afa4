"""The nodes of an execution graph as columns of numpy, by field and attribute; docs/graph.md says what they mean."""

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import columns
from ..arguments import GENERIC
from ..columns import ABSENT, Bool, BytesColumn, Categorical, Int64, NodeIds, NodeNumbers, Ns, Ragged, Rows, SummaryRepr
from ..machine import ANY_MACHINE
from ..reasons import AnyReason, Reason

STEP_START = "step_start_ns_"
"""Metadata of this name and a step's number is when the profiler marked the start of the step."""
CONCURRENCY_LIMIT = "concurrency_limit_of_device_"
"""Metadata of this name and a device's number is the most activities that ran there at once, though more were ready."""
DEVICE_NAME = "device_name_"
"""Metadata of this name and a device's number is what the profiler called the device."""
LOSSES: dict[str, AnyReason] = {
    "lost_launches": Reason.LAUNCHES_NOT_RECORDED, "launches_without_activity": Reason.LAUNCHES_WITHOUT_ACTIVITY,
    "ops_without_calls": Reason.OPS_WITHOUT_CALLS, "rows_too_long": Reason.TOO_LONG.of("rows"),
    "activities_without_length": Reason.ACTIVITIES_OF_ZERO_LENGTH, "odd_ops": Reason.ODD_OPS,
    "activities_of_short_graphs": Reason.SHORT_GRAPHS, "activities_out_of_turn": Reason.OUT_OF_TURN,
    "calls_without_length": Reason.CALLS_OF_ZERO_LENGTH, "contradictions": Reason.CONTRADICTIONS,
    "cut_off_rows": Reason.CUT_OFF_ROWS.of("rows"),
}  # fmt: skip
"""Metadata that counts what the recording lacks, or has wrong, by the reason that linking gave."""
STEPS, STEP_WITHOUT_PROFILER_NS = "steps", "step_without_profiler_ns"
DATA_WAIT_WITHOUT_PROFILER_NS = "data_wait_without_profiler_ns"
"""Metadata with the number of steps, how long one takes without a profiler, and how long it waits for data then."""
MEASURED_BESIDE = (
    STEP_WITHOUT_PROFILER_NS, DATA_WAIT_WITHOUT_PROFILER_NS, "recorded_alone", "recorded_op_ns", "recorded_call_ns",
    "steps_measured", "step_p10_ns", "step_p90_ns", "cores", "threads", "own_cpu_ns", "others_cpu_ns",
)  # fmt: skip
"""Metadata that is of the recorded run alone, as `capture` measured it."""
CHANGED_BY = "changed_by"
"""Metadata that lists the changes of a run that was never measured, as of `--scale`."""
UNPROFILED = "unprofiled"
"""Metadata that is 1 in a graph of the run without a profiler, which is modelled."""
RANKS_OF_GROUP = "ranks_of_group_"
"""Metadata of this name and a process group's `pg_name` lists its ranks once for all nodes that have no `pg_ranks`."""
Column = Int64 | Categorical | Ragged
"""int64 (bool as 0/1), Categorical or Ragged. A node without the attribute has ABSENT, code -1 or an empty row."""
LARGEST_NUMBER = 1 << 62
NEGATIVE = "durations below 0; a node cannot end before it starts, write the graph again"
TWO_LENGTHS = "nodes whose duration_micros is not the sum of duration_ns, gap_ns and host_delay_ns; trace-replay takes these, so edit all"
NO_TYPE = "collectives of a comm_type that is none; they are taken as of an unknown type, write the graph again"
NO_KINDS = "nodes whose dependencies have no kind; what nodes waited for is not known, build the graph again"
OUT_OF_TURN = "activities begin before the one before them on their stream has ended; streams or times are wrong, build the graph again"
NO_HOST_TIME = "host nodes, which is all, last 0 ns; the host's time is not in the graph, build it again"
DANGLING = "ctrl_deps on nodes that the graph lacks; they are ignored, write the graph again"


class NodeType(IntEnum):
    """What a node is to a simulator; the numbers are the schema's. Host nodes and delays are COMP.

    >>> import execgraph as eg
    >>> eg.NodeType(7).name
    'COMM_COLL'
    """

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7
    STORAGE = 8
    BATCH = 9
    CHECKPOINT = 10


class CollectiveType(IntEnum):
    """The attribute `comm_type` of a COMM_COLL node; the numbers are the schema's.

    >>> import execgraph as eg
    >>> eg.CollectiveType(6).name
    'ALL_TO_ALL'
    """

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class DependencyKind(IntFlag):
    """Why an edge exists; an edge may have several reasons, INFERRED and CALL_ORDER only beside another.

    >>> import execgraph as eg
    >>> eg.DependencyKind.LAUNCH in eg.DependencyKind(6)
    True
    >>> eg.DependencyKind(6).label
    'launch, stream order'
    """

    PROGRAM_ORDER = 1
    LAUNCH = 2
    STREAM_ORDER = 4
    EVENT_WAIT = 8
    HOST_SYNC = 16
    TENSOR_FLOW = 32
    HANDOFF = 64
    COLLECTIVE = 128
    INFERRED = 256
    CALL_ORDER = 512
    LAUNCHED_GRAPH = 1024

    @property
    def label(self) -> str:
        """All reasons in words; "" for none."""
        names = ", ".join(str(reason.name) for reason in DependencyKind if self & reason)
        return names.lower().replace("_", " ").replace("handoff", "hand-off")


class Delay(IntEnum):
    """Why an activity started later than its dependencies, and what is usual on its machine, explain.

    >>> import execgraph as eg
    >>> eg.Delay(2).label
    'contention'
    """

    LOST_RECORDS = 1
    CONTENTION = 2
    START_OF_RECORDING = 3
    UNEXPLAINED = 4

    @property
    def label(self) -> str:
        """In words."""
        return self.name.lower().replace("_", " ")


class Attribute(NamedTuple):
    """A node attribute and the proto value whose exact type simulators read; docs/graph_words.py has its meaning."""

    name: str
    value: str
    unit: str = ""


ATTRIBUTES = (
    Attribute("is_cpu_op", "bool_val"), Attribute("start_time_ns", "int64_val", "ns"),
    Attribute("duration_ns", "int64_val", "ns"), Attribute("gap_ns", "int64_val", "ns"),
    Attribute("latency_ns", "int64_val", "ns"), Attribute("chain_gap_ns", "int64_val", "ns"),
    Attribute("delay", "int32_val"), Attribute("overlap_ns", "int64_val", "ns"),
    Attribute("host_delay_ns", "int64_val", "ns"), Attribute("start_offset_ns", "int64_val", "ns"),
    Attribute("excess_ns", "int64_val", "ns"), Attribute("op_id", "int64_val"), Attribute("slice", "int32_val"),
    Attribute("tid", "int64_val"), Attribute("rf_id", "int64_val"), Attribute("fw_parent", "int64_val"),
    Attribute("seq_id", "int64_val"), Attribute("scope", "int64_val"), Attribute("fw_tid", "int64_val"),
    Attribute("op_schema", "string_val"), Attribute("module", "string_val"), Attribute("python_function", "string_val"),
    Attribute("device", "int64_val"), Attribute("stream", "int64_val"), Attribute("correlation", "int64_val"),
    Attribute("cat", "string_val"), Attribute("num_ops", "int64_val", "operations"),
    Attribute("tensor_size", "uint64_val", "bytes"), Attribute("element_size", "int32_val", "bytes"),
    Attribute("comm_type", "int64_val"),
    Attribute("comm_size", "int64_val", "bytes"), Attribute("comm_split", "int64_list", "bytes"),
    Attribute("comm_seq", "int64_val"), Attribute("pg_name", "string_val"), Attribute("pg_recorded", "string_val"),
    Attribute("pg_desc", "string_val"), Attribute("pg_ranks", "int64_list"), Attribute("comm_src", "int32_val"),
    Attribute("comm_dst", "int32_val"), Attribute("comm_tag", "int32_val"), Attribute("coalesced_src", "int32_list"),
    Attribute("coalesced_dst", "int32_list"), Attribute("coalesced_tag", "int32_list"),
    Attribute("coalesced_size", "int64_list", "bytes"), Attribute("data_dep_kinds", "int32_list"),
)  # fmt: skip


@dataclass(slots=True, repr=False)
class TensorText(SummaryRepr):
    """The IOInfo of nodes that have one: the six JSON texts of node `rows[k]` (ascending) are at position k."""

    rows: Rows
    input_values: BytesColumn
    input_shapes: BytesColumn
    input_types: BytesColumn
    output_values: BytesColumn
    output_shapes: BytesColumn
    output_types: BytesColumn


@dataclass(slots=True, repr=False)
class NodeColumns(SummaryRepr):
    """The n nodes of a graph file, or of a part of one; `data_deps` and `ctrl_deps` contain node *ids*, not rows.

    `attributes` has a column of n rows for each of ATTRIBUTES that any node has. `problems` are the nodes whose
    attributes could not be used as they are, `notes` sentences about the file. `storage` is the message of that name
    by row, in ascending order.
    """

    id: NodeIds
    name: Categorical
    type: npt.NDArray[np.uint8]
    data_deps: Ragged
    ctrl_deps: Ragged
    start_time_micros: Int64
    duration_micros: Int64
    attributes: dict[str, Column]
    metadata: dict[str, str | int] = field(default_factory=dict)
    tensors: TensorText | None = None
    storage: dict[int, bytes] = field(default_factory=dict)
    problems: dict[str, Int64] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.id)

    def integers(self, attribute: str, default: int = ABSENT) -> Int64:
        """Returns the int64 column of an attribute, `default` where a node does not have it."""
        column = self.attributes.get(attribute)
        if not isinstance(column, np.ndarray):
            return np.full(len(self), default, np.int64)
        return np.where(column == ABSENT, default, column)

    def collective_types(self) -> Int64:
        """Returns the CollectiveType of each node, -1 for none and for a number that is no type."""
        recorded = self.integers("comm_type", -1)
        return np.where(np.isin(recorded, [*CollectiveType]), recorded, -1)

    def texts(self, attribute: str) -> Categorical:
        """Returns the string column of an attribute, code -1 where a node does not have it."""
        column = self.attributes.get(attribute)
        return column if isinstance(column, Categorical) else Categorical.nulls(len(self))

    def number(self, name: str, missing: int) -> int:
        """Returns a whole number of the metadata, of up to 62 bits so that two add up, else `missing`."""
        value = self.metadata.get(name)
        return value if isinstance(value, int) and abs(value) < LARGEST_NUMBER else missing

    @property
    def is_activity(self) -> Bool:
        """True for device activities, False for host nodes and delays."""
        return np.equal(self.integers("is_cpu_op", 0), 0) & ~self.is_delay

    @property
    def out_of_turn(self) -> NodeIds:
        """The activities that begin before the one before them on their stream has ended: a build cuts that one.

        Graphs of a changed or scaled run have the starts of the traced one, and none is found there.
        """
        is_built = str(self.metadata.get("tool")).startswith("execgraph") and self.metadata.get("target") == GENERIC
        is_built &= not any(name.startswith((RANKS_OF_GROUP, CHANGED_BY)) for name in self.metadata)
        stream, start = self.integers("stream"), self.start_ns
        is_on_stream = self.is_activity & (stream != ABSENT) & is_built
        end, device = start + self.duration_ns, self.integers("device")
        rows = np.flatnonzero(is_on_stream)
        rows = rows[np.lexsort((end[rows], start[rows], stream[rows], device[rows]))]
        before, after = rows[:-1], rows[1:]
        is_same = (stream[before] == stream[after]) & (device[before] == device[after])
        return NodeIds(self.id[after[is_same & (end[before] - start[after] > ANY_MACHINE.upper)]])

    @property
    def is_delay(self) -> Bool:
        """True for delays: time between the release of an activity and its start that no dependency explains."""
        return np.greater(self.integers("delay", 0), 0)

    @property
    def is_start_offset(self) -> Bool:
        """True for the node that has a simulator start the rank when it began to record."""
        return np.not_equal(self.integers("start_offset_ns"), ABSENT)

    @property
    def start_ns(self) -> Ns:
        """When each node started, on the device trace's own clock; from whole µs where ns were not recorded."""
        start = self.integers("start_time_ns")
        return np.where(start == ABSENT, self.start_time_micros * 1000, start)

    @property
    def host_clock_start_ns(self) -> Ns:
        """When each node started, on the host's clock."""
        return self.start_ns + np.where(self.is_activity, self.number("clock_offset_ns", 0), 0)

    @property
    def duration_ns(self) -> Ns:
        """How long each node took as measured, without its gap; from whole µs where ns were not recorded."""
        duration = self.integers("duration_ns")
        return np.where(duration == ABSENT, self.duration_micros * 1000, duration)

    def rows_of(self, ids: NodeIds) -> NodeNumbers:
        """Returns the rows of nodes by id, -1 for an id that no node has. O((n + k) log n)."""
        return NodeNumbers(columns.rows_of(self.id, ids))


def problem_notes(nodes: NodeColumns, path: str) -> list[str]:
    """Returns a sentence for each kind of problem that nodes of a file have."""
    recorded, called = nodes.integers("comm_type", -1), nodes.id[nodes.ctrl_deps.rows()]
    is_generic, is_host = nodes.metadata.get("target") == GENERIC, nodes.integers("is_cpu_op", 0) > 0
    has_both = (nodes.integers("duration_ns") >= 0) & is_generic
    has_no_kind = (nodes.data_deps.lengths() > 0) & is_generic & ("data_dep_kinds" not in nodes.attributes)
    has_no_time = is_host & is_generic & (nodes.type == NodeType.COMP) & ~(is_host & (nodes.duration_ns != 0)).any()
    # each change of a graph rounds duration_micros again
    parts = (nodes.integers(name, 0) for name in ("duration_ns", "gap_ns", "host_delay_ns"))
    apart_ns = nodes.duration_micros * 1000 - sum(parts)
    problems = nodes.problems | {
        NEGATIVE: nodes.id[(nodes.duration_ns < 0) | (nodes.duration_micros < 0)],
        TWO_LENGTHS: nodes.id[has_both & (np.abs(apart_ns) > 5_000)],
        NO_TYPE: nodes.id[(recorded >= 0) & (nodes.collective_types() != recorded)],
        NO_KINDS: nodes.id[has_no_kind], OUT_OF_TURN: nodes.out_of_turn, NO_HOST_TIME: nodes.id[has_no_time],
        DANGLING: called[nodes.rows_of(NodeIds(nodes.ctrl_deps.values)) < 0],
    }  # fmt: skip
    return [
        f"{path}: {len(affected)} {what.replace(';', f' (the first: node {affected[0]});', 1)}"
        for what, affected in problems.items()
        if len(affected)
    ]
