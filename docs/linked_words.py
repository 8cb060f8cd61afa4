"""The linked file in words: unit and meaning of every member of its records. schema/linked/README.md is made of these
tables.
"""

from typing import NamedTuple

import msgspec
from execgraph.schema.linked.layout import CallTable, HandoffTable, HostWaitTable, LinkedFile, Node
from execgraph.schema.linked.linked_trace import Communication, LinkReport, ProcessGroup, TraceInfo
from execgraph.schema.machine import LatencyStats, MachineCalibration

OPS, ACTIVITIES = "ops", "activities"


class Member(NamedTuple):
    """A member of a JSON object; of nodes `of` is the kind that alone has it. `written` is the type of what no reader
    here reads.
    """

    name: str
    unit: str
    meaning: str
    of: str = ""
    written: str = ""


class Record(NamedTuple):
    """A kind of object in the file: what it is called, what it is, how it is read, and its members in their order."""

    title: str
    about: str
    read: type[msgspec.Struct]
    members: tuple[Member, ...]


# fmt: off
RECORDS = (
    Record("File", "The top level.", LinkedFile, (
        Member("schema", "", "that of `nodes`"),
        Member("pid", "", ""),
        Member("time", "", "local time of the recording"),
        Member("start_ts", "ms", "of the host trace, on a clock of its own"),
        Member("finish_ts", "ms", "of the host trace, on a clock of its own"),
        Member("nodes", "", "ops, then activities"),
        Member("calls", "", ""),
        Member("device_waits", "", "activities that waited"),
        Member("host_waits", "", "calls that waited"),
        Member("handoffs", "", "threads that waited"),
        Member("communications", "", ""),
        Member("groups", "", ""),
        Member("trace", "", ""),
        Member("link_report", "", ""),
    )),
    Record("Node", "An op, or an activity if it has `cat`. Members without a value are left out.", Node, (
        Member("id", "", "an op has that of the host trace"),
        Member("name", "", "as recorded"),
        Member("ctrl_deps", "", "id of the op that called or launched this, or else of the op before"),
        Member("inputs", "", "`values`, `shapes`, `types` and `strides`"),
        Member("outputs", "", "`values`, `shapes`, `types` and `strides`"),
        Member("attrs", "", "[attributes](#attributes-of-nodes)"),
        Member("cat", "", "category, such as `kernel`", ACTIVITIES),
        Member("ph", "", "for Chakra's converter", ACTIVITIES, "text"),
        Member("ts", "µs", "start; absent if the device trace lacks the op"),
        Member("inclusive_dur", "µs", "length"),
        Member("exclusive_dur", "µs", "length without called ops"),
        Member("thread", "", "the operating system's number", OPS),
        Member("device", "", "", ACTIVITIES),
        Member("stream", "", "", ACTIVITIES),
        Member("correlation", "", "the profiler's number of the launch call", ACTIVITIES),
        Member("graph_node", "", "node of a launched CUDA graph", ACTIVITIES),
        Member("size", "bytes", "of a copy or set", ACTIVITIES),
        Member("bandwidth", "bytes/s", "of a copy or set", ACTIVITIES),
        Member("call", "", "position of the launch call in `calls`", ACTIVITIES),
        Member("communication", "", "position in `communications`"),
        Member("pg_name", "", "for Chakra's converter", ACTIVITIES, "text"),
        Member("inter_thread_dep", "", "for Chakra's converter",
               OPS, "integer"),
        Member("sync_dep", "", "ids of the awaited activities"),
        Member("recorded_by", "", "`device` if the host trace lacks the op", OPS),
        Member("called_by", "", "id of the op that called or launched this, if `ctrl_deps` is another"),
        Member("module", "", "with `--modules`"),
        Member("python_function", "", "with `--modules`"),
    )),
    Record("Calls", "Columns, with an entry for each call.", CallTable, (
        Member("names", "", "every name once; not a column"),
        Member("name", "", "position in `names`"),
        Member("thread", "", "the operating system's number"),
        Member("start_ns", "ns", ""),
        Member("end_ns", "ns", ""),
        Member("correlation", "", "0 for none"),
        Member("op", "", "id of the op around it, -1 for none"),
        Member("python_names", "", "every name once; not a column"),
        Member("module", "", "position in `python_names`, -1 for none; with `--modules`"),
        Member("python_function", "", "likewise"),
    )),
    Record("Waits", "Columns, of `device_waits` and of `host_waits`.", HostWaitTable, (
        Member("of", "", "id of the activity that waits; in `host_waits` position of the call"),
        Member("source", "", "id of the awaited activity, -1 for none"),
        Member("known_by", "", "[how it is known](#how-it-is-known)"),
        Member("since_ns", "ns",
               "when the host began to wait; null: when the call began; empty in `device_waits`"),
    )),
    Record("Hand-offs", "Columns: one thread waited for another.", HandoffTable, (
        Member("source_thread", "", ""),
        Member("source_ns", "ns", "when the awaited thread was done"),
        Member("target_thread", "", ""),
        Member("target_ns", "ns", "when the waiting thread went on"),
        Member("waiting_since_ns", "ns", "when it began to wait; null: when the thread began"),
        Member("known_by", "", "[how it is known](#how-it-is-known)"),
    )),
    Record("Communication", "Recorded arguments. Members at their default are left out.", Communication, (
        Member("name", "", "of the collective or message"),
        Member("dtype", "", ""),
        Member("in_elements", "elements", "what the rank puts in and gets out"),
        Member("out_elements", "elements", "what the rank puts in and gets out"),
        Member("in_split", "elements", "to and from each member"),
        Member("out_split", "elements", "to and from each member"),
        Member("group", "", "of the process group"),
        Member("description", "", "of the process group"),
        Member("group_size", "", "of the process group"),
        Member("ranks", "", "global ranks of the members, in order"),
        Member("sequence", "", "number in the group"),
        Member("group_rank", "", "of the peer or root, in the group"),
        Member("source", "", "global ranks of sender and receiver, or the root"),
        Member("target", "", "global ranks of sender and receiver, or the root"),
        Member("tag", "", "of a message"),
        Member("coalesced", "", "the communications that one kernel did together"),
    )),
    Record("Process group", "As recorded. Members at their default are left out.", ProcessGroup, (
        Member("name", "", ""),
        Member("description", "", ""),
        Member("ranks", "", "global ranks of the members; empty for all"),
        Member("size", "", ""),
    )),
    Record("Trace", "Where the trace comes from.", TraceInfo, (
        Member("schema", "", "of the host trace"),
        Member("pid", "", ""),
        Member("rank", "", ""),
        Member("world_size", "", ""),
        Member("base_time_ns", "ns", "to add to times for the time since 1970; 0 if unknown"),
        Member("sync_records", "", "in the device trace"),
        Member("unresolved_waits", "", "waits that were guessed, or whose event was not found"),
        Member("source_host", "", "the traces' files"),
        Member("source_device", "", "the traces' files"),
        Member("time", "", "as in the file"),
        Member("start_ts", "ms", "as in the file"),
        Member("finish_ts", "ms", "as in the file"),
        Member("machine", "", ""),
        Member("backlog_until", "ns", "in a part: until when earlier work kept the stream of the activity with this id busy"),
        Member("devices", "", "recorded names by number"),
        Member("step_without_profiler_ns", "ns", "as `capture` measured it"),
        Member("data_wait_without_profiler_ns", "ns", "as `capture` measured it"),
        Member("measured", "ns", "what else `capture` measured"),
    )),
    Record("Machine", "Measured in the trace. Members at their default are left out.", MachineCalibration, (
        Member("resolution_ns", "ns", "unit of the trace's times"),
        Member("clock_offset_ns", "ns", "to add to device times for the host's clock, at `clock_from_ns`"),
        Member("clock_drift_ns", "ns", "how much more at `clock_until_ns`"),
        Member("clock_from_ns", "ns", "the time in which the drift was measured"),
        Member("clock_until_ns", "ns", "the time in which the drift was measured"),
        Member("clock_error_ns", "ns", "how much the clocks may still disagree"),
        Member("launch", "", "from a launch call's end to the start on a free stream, by call"),
        Member("gap", "", "between an activity and the next queued on its stream, by category"),
        Member("sync_return", "", "from the awaited end to the call's return, by call"),
    )),
    Record("Latency statistics", "The key `\"\"` is for all names.", LatencyStats, (
        Member("median", "ns", "without outliers"),
        Member("upper", "ns", "limit of usual times"),
        Member("count", "", "how often it was measured"),
    )),
    Record("Link report", "What became of the rows of both inputs. Objects count by reason.", LinkReport, (
        Member("world_size", "", ""),
        Member("matched_by", "", "`record function id` or `order of names`"),
        Member("host_ops", "", ""),
        Member("device_ops", "", ""),
        Member("matched", "", "ops of both traces"),
        Member("agreement_pct", "%", "share of the smaller side's ops that were matched"),
        Member("calls", "", ""),
        Member("activities", "", ""),
        Member("linked", "", "activities with a launch call"),
        Member("dropped", "", "as in the [summary](../../tools/commands/README.md#what-is-counted)"),
        Member("guessed", "", "as in the [summary](../../tools/commands/README.md#what-is-counted)"),
        Member("oddities", "", "as in the [summary](../../tools/commands/README.md#what-is-counted)"),
        Member("waits", "", "as in the [summary](../../tools/commands/README.md#what-is-counted)"),
        Member("notes", "", ""),
    )),
)
# fmt: on

KNOWN_BY = {
    "record": "a record of the trace names it",
    "call order": "the order of the calls shows it",
    "timing": "only times show it; `trace-convert --no-inferred` leaves it out",
    "graph": "recorded of a launched CUDA graph",
}
