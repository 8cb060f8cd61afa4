"""Typed records of the device trace (Kineto, Chrome trace JSON), and what a merged one says of each rank in it.

Numbers may be text in some versions and of some vendors: see `numbers.integer`.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from .arguments import RecordedArguments, TensorLists
from .host import WINDOW

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
LARGEST_ID = 1 << 53
"""What readers that hold numbers as doubles can tell apart; larger ids are no profiler's and stay as they are."""
Number = Any
Raw = msgspec.Raw
NOTHING = Raw()
MEMORY_CATEGORIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
"""Of rows that are copies and sets."""
STEP_WITHOUT_PROFILER = "execgraph_step_without_profiler_us"
DATA_WAIT_WITHOUT_PROFILER = "execgraph_data_wait_without_profiler_us"
"""The keys of how long a step takes without a profiler, in µs, and how much of it the loop waits for its loader."""
STEPS_WITHOUT_PROFILER = "execgraph_steps_without_profiler_us"
RECORDING_COST = "execgraph_recording_cost_us"
"""The keys of how these steps differ, of which each is the work of one and the mean wait for data, with how many cores
there are, for how long a step keeps them busy by its `own` process and by `others`, and how many threads run an op; and
of what recording costs: how much longer an op takes that is recorded with the device trace alone, and on a GPU a call
of the runtime, beyond its op.
"""
MEASURED = {
    STEPS_WITHOUT_PROFILER: {
        "count": "steps_measured", "median": "step_without_profiler_ns", "p10": "step_p10_ns", "p90": "step_p90_ns",
        "cores": "cores", "threads": "threads", "own": "own_cpu_ns", "others": "others_cpu_ns",
    },
    RECORDING_COST: {"op": "recorded_op_ns", "call": "recorded_call_ns"},
}  # fmt: skip
"""What these hold, by the name that it has in linked traces and graphs; an older trace has the mean for the median."""
RECORDED_ALONE = "recorded_alone"
"""The name there of whether the times are of a device trace that was recorded without a host trace."""

COORDINATE = re.compile(r"(?<![a-z])([tdpe]p)[-_]?(\d{1,5})(?!\d)", re.IGNORECASE)
PROCESS_OF_RANK = re.compile(r"(\[(?:[TDPE]P\d+-?)+\]) ?(.*)")
"""A process in a trace that SGLang merged, "[TP01-DP00] 41064": coordinates and the rank's own process."""


def coordinates(text: str) -> dict[str, int]:
    """Returns the numbers of a rank in its tensor-, data-, pipeline- and expert-parallel groups, as a text names them.

    >>> coordinates("dp1_pp0_tp3_dcp0_rank3.pt.trace.json.gz"), coordinates("[TP01-EP00]"), coordinates("step0.json")
    ({'dp': 1, 'pp': 0, 'tp': 3}, {'tp': 1, 'ep': 0}, {})
    """
    return {name.lower(): int(number) for name, number in COORDINATE.findall(text)}


def ranks_by_coordinates(texts: Iterable[str]) -> dict[str, int]:
    """Returns the rank that each text tells by its coordinates, as SGLang and vLLM count: those in a tensor-parallel
    group, then stages, then replicas where stage and place in the group are not all different. Empty where no
    coordinates tell all texts apart.

    >>> ranks_by_coordinates(["TP-1-DP-0", "TP-0-DP-1", "TP-0-DP-0"]), ranks_by_coordinates(["TP-7", "TP-4"])
    ({'TP-0-DP-0': 0, 'TP-1-DP-0': 1, 'TP-0-DP-1': 2}, {'TP-4': 4, 'TP-7': 7})
    """
    known = {text: coordinates(text) for text in texts}
    for order in ("tp",), ("pp", "tp"), ("dp", "pp", "tp", "ep"):
        place = {text: [of.get(name, 0) for name in order] for text, of in known.items()}
        in_order = sorted(known, key=place.__getitem__)
        if all("tp" in of for of in known.values()) and len({*map(tuple, place.values())}) == len(known):
            return {text: place[text][0] if order == ("tp",) else rank for rank, text in enumerate(in_order)}
    return {}


def graph_node(graph: Any, node: Any) -> Any:
    """Returns the number of a node among all graphs; PyTorch's CUPTI backend counts nodes in each graph alone."""
    counts_in_graph = (graph > 0) & (graph < 1 << 31) & (node >= 0) & (node < 1 << 32)
    return node + counts_in_graph * ((graph * counts_in_graph) << 32)


class MergedRank(msgspec.Struct):
    """One rank of the list `mergedRanks` at the top level of a merged trace.

    `processes` and `threads` map those of the merged trace to the rank's own, whose times are `time_shift_ns` and whose
    correlation and flow ids (from 1 to LARGEST_ID) `id_offset` smaller. `metadata` is the rest of its top level.
    """

    rank: Int64
    file: str = ""
    time_shift_ns: Int64 = 0
    id_offset: Int64 = 0
    processes: dict[Int64, Int64] = {}
    threads: dict[Int64, Int64] = {}
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    label: str = ""


class Args(msgspec.Struct, gc=False, omit_defaults=True):
    """The arguments that linking reads, of every category."""

    correlation: Number = None
    device: Number = None
    stream: Number = None
    context: Number = None
    queue: Number = None
    bytes: Number = None
    size: Number = None
    bandwidth: Number = msgspec.field(name="memory bandwidth (GB/s)", default=None)
    external_id: Number = msgspec.field(name="External id", default=None)
    record_function_id: Number = msgspec.field(name="Record function id", default=None)
    ev_idx: Number = msgspec.field(name="Ev Idx", default=None)
    sequence: Number = msgspec.field(name="Sequence number", default=None)
    forward_thread: Number = msgspec.field(name="Fwd thread id", default=None)
    graph: Number = msgspec.field(name="graph id", default=None)
    graph_node: Number = msgspec.field(name="graph node id", default=None)
    original_stream: Number = None
    copy_kind: Any = msgspec.field(name="copy kind", default=None)
    copy_source: Any = msgspec.field(name="src kind", default=None)
    copy_target: Any = msgspec.field(name="dst kind", default=None)
    set_kind: Any = msgspec.field(name="memory kind", default=None)
    sync_kind: Any = msgspec.field(name="cuda_sync_kind", default=None)
    wait_stream: Number = msgspec.field(name="wait_on_stream", default=None)
    wait_record: Number = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)
    wait_event: Number = msgspec.field(name="wait_on_cuda_event_id", default=None)
    event: Number = msgspec.field(name="event_id", default=None)
    queue_sequence: Number = msgspec.field(name="seq_num", default=None)
    finished: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    dtype: Any = None
    in_elements: Number = msgspec.field(name="In msg nelems", default=None)
    out_elements: Number = msgspec.field(name="Out msg nelems", default=None)
    in_split: Any = msgspec.field(name="In split size", default=None)
    out_split: Any = msgspec.field(name="Out split size", default=None)
    group_size: Number = msgspec.field(name="Group size", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_description: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    first_rank: Number = msgspec.field(name="Global rank start", default=None)
    rank_stride: Number = msgspec.field(name="Global rank stride", default=None)
    comm_sequence: Number = msgspec.field(name="Seq", default=None)
    group_rank: Number = msgspec.field(name="Rank", default=None)
    source_rank: Number = msgspec.field(name="Src Rank", default=None)
    target_rank: Number = msgspec.field(name="Dst Rank", default=None)
    input_dims: Raw = msgspec.field(name="Input Dims", default=NOTHING)
    input_types: Raw = msgspec.field(name="Input type", default=NOTHING)
    concrete_inputs: Raw = msgspec.field(name="Concrete Inputs", default=NOTHING)
    name: Any = None
    labels: Any = None
    task_type: Any = msgspec.field(name="Task Type", default=None)
    description: Any = msgspec.field(name="desc", default=None)

    @property
    def arguments(self) -> RecordedArguments:
        """The op's own arguments, of which only numbers have values, as texts."""
        return RecordedArguments.of(TensorLists(self.concrete_inputs, self.input_dims, self.input_types))


class Event(msgspec.Struct, gc=False):
    """One row of traceEvents."""

    ph: str = ""
    cat: str | None = None
    name: str | None = ""
    pid: Number = None
    tid: Number = None
    id: Number = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: Args | None = None


class ExactEvent(Event, gc=True):
    """The same with times as text, for files whose fractions a double cannot hold."""

    ts: Raw = NOTHING  # type: ignore[assignment]
    dur: Raw = NOTHING  # type: ignore[assignment]


class DistributedInfo(msgspec.Struct):
    """Where in its job the process stands, as the file's header says; None where it does not."""

    rank: Number = None
    world_size: Number = None
    pg_config: Any = None


class DeviceFile(msgspec.Struct):
    """The top level; a reader in pieces leaves no events in it."""

    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)
    distributed: DistributedInfo | None = msgspec.field(name="distributedInfo", default=None)
    base_time: Number = msgspec.field(name="baseTimeNanoseconds", default=None)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    step_without_profiler: Any = msgspec.field(name=STEP_WITHOUT_PROFILER, default=None)
    data_wait_without_profiler: Any = msgspec.field(name=DATA_WAIT_WITHOUT_PROFILER, default=None)
    steps_without_profiler: Any = msgspec.field(name=STEPS_WITHOUT_PROFILER, default=None)
    recording_cost: Any = msgspec.field(name=RECORDING_COST, default=None)
    window: Any = msgspec.field(name=WINDOW, default="")
    merged: list[MergedRank] = msgspec.field(name="mergedRanks", default_factory=list)
    not_read: Any = msgspec.field(name="notRead", default=None)
    notes: Any = msgspec.field(name="notesOfReader", default=None)
