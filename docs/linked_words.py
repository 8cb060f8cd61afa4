"""The linked file in words: unit and meaning of every member of its records. docs/linked-trace.md is made of these
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
        Member("schema", "", "schema of `nodes`, always the same"),
        Member("pid", "", "the process's number"),
        Member("time", "", "local time of the recording"),
        Member("start_ts", "ms", "when the host trace begins, on a clock of its own"),
        Member("finish_ts", "ms", "when it ends, on that clock"),
        Member("nodes", "", "ops, then activities"),
        Member("calls", "", "runtime and driver calls"),
        Member("device_waits", "", "activities that waited for another stream"),
        Member("host_waits", "", "calls that waited for activities"),
        Member("handoffs", "", "threads that waited for threads"),
        Member("communications", "", "recorded arguments, to which nodes refer"),
        Member("groups", "", "recorded process groups"),
        Member("trace", "", "where the trace comes from"),
        Member("link_report", "", "what became of both inputs"),
    )),
    Record("Node", "An op, or an activity if it has `cat`. Members without a value are left out.", Node, (
        Member("id", "", "different for every node; an op's is that of the host trace"),
        Member("name", "", "as recorded"),
        Member("ctrl_deps", "", "id of the op that called or launched this; if none, of the op before or the thread's"
                                " root"),
        Member("inputs", "", "`values`, `shapes`, `types` and `strides`, as the host trace has them"),
        Member("outputs", "", "the same of the results"),
        Member("attrs", "", "[attributes](#attributes-of-nodes)"),
        Member("cat", "", "category, as `kernel`", ACTIVITIES),
        Member("ph", "", "`X`, for Chakra's converter", ACTIVITIES, "text"),
        Member("ts", "µs", "start; absent if the device trace lacks the op"),
        Member("inclusive_dur", "µs", "length"),
        Member("exclusive_dur", "µs", "length without called ops"),
        Member("thread", "", "the operating system's number", OPS),
        Member("device", "", "number of the device", ACTIVITIES),
        Member("stream", "", "number of the stream", ACTIVITIES),
        Member("correlation", "", "the profiler's number of the launch call", ACTIVITIES),
        Member("graph_node", "", "node of a launched CUDA graph", ACTIVITIES),
        Member("size", "bytes", "of a copy or set", ACTIVITIES),
        Member("bandwidth", "bytes/s", "of a copy or set", ACTIVITIES),
        Member("call", "", "position of the launch call in `calls`", ACTIVITIES),
        Member("communication", "", "position in `communications`"),
        Member("pg_name", "", "number of the process group, for Chakra's converter", ACTIVITIES, "text"),
        Member("inter_thread_dep", "", "id of the op on another thread that this one followed, for Chakra's converter",
               OPS, "integer"),
        Member("sync_dep", "", "ids of the activities that its calls, or its stream, waited for"),
        Member("recorded_by", "", "`device` if the host trace lacks the op, `nobody` for an added root", OPS),
        Member("called_by", "", "id of the op that called or launched, -1 for none, if `ctrl_deps` is another"),
        Member("module", "", "path of its nn.Module, as `Net_0/Linear_2`; with `--modules`"),
        Member("python_function", "", "innermost Python function around it; with `--modules`"),
    )),
    Record("Calls", "Columns, with an entry for each call.", CallTable, (
        Member("names", "", "every name once; not a column"),
        Member("name", "", "position in `names`"),
        Member("thread", "", "the operating system's number"),
        Member("start_ns", "ns", "start"),
        Member("end_ns", "ns", "return"),
        Member("correlation", "", "as recorded, 0 for none"),
        Member("op", "", "id of the innermost op around it, -1 for none"),
        Member("python_names", "", "every module and function once; not a column"),
        Member("module", "", "position in `python_names`, -1 for none; with `--modules`"),
        Member("python_function", "", "likewise"),
    )),
    Record("Waits", "Columns, of `device_waits` and of `host_waits`.", HostWaitTable, (
        Member("of", "", "id of the activity that waits; in `host_waits` position of the call"),
        Member("source", "", "id of the awaited activity; -1 if nothing recorded was awaited"),
        Member("known_by", "", "[how it is known](#how-it-is-known)"),
        Member("since_ns", "ns",
               "when the host began to wait; null: when the call, or its launch, began; empty in `device_waits`"),
    )),
    Record("Hand-offs", "Columns: one thread waited for another.", HandoffTable, (
        Member("source_thread", "", "awaited thread"),
        Member("source_ns", "ns", "until when it worked for the other"),
        Member("target_thread", "", "waiting thread"),
        Member("target_ns", "ns", "when it went on"),
        Member("waiting_since_ns", "ns", "when it began to wait; null: when the thread began"),
        Member("known_by", "", "[how it is known](#how-it-is-known)"),
    )),
    Record("Communication", "Recorded arguments. Members at their default are left out.", Communication, (
        Member("name", "", "of the collective or message"),
        Member("dtype", "", "type of the elements"),
        Member("in_elements", "elements", "what the rank puts in"),
        Member("out_elements", "elements", "what it gets out"),
        Member("in_split", "elements", "to each member"),
        Member("out_split", "elements", "from each member"),
        Member("group", "", "name of the process group"),
        Member("description", "", "of the group"),
        Member("group_size", "", "number of members"),
        Member("ranks", "", "global ranks of the members, in order"),
        Member("sequence", "", "number in the group"),
        Member("group_rank", "", "of the peer or root, in the group"),
        Member("source", "", "global rank that sends, or root"),
        Member("target", "", "global rank that receives, or root"),
        Member("tag", "", "of a message"),
        Member("coalesced", "", "the communications that one kernel did together"),
    )),
    Record("Process group", "As recorded. Members at their default are left out.", ProcessGroup, (
        Member("name", "", "recorded name"),
        Member("description", "", "recorded description"),
        Member("ranks", "", "global ranks of the members; empty for all"),
        Member("size", "", "number of members"),
    )),
    Record("Trace", "Where the trace comes from.", TraceInfo, (
        Member("schema", "", "of the host trace"),
        Member("pid", "", "the process's number"),
        Member("rank", "", "the process's rank"),
        Member("world_size", "", "number of ranks"),
        Member("base_time_ns", "ns", "to add to times for the time since 1970; 0 if unknown"),
        Member("sync_records", "", "synchronisation records in the device trace"),
        Member("unresolved_waits", "", "waits that were guessed, or whose event was not found"),
        Member("source_host", "", "the host trace's file"),
        Member("source_device", "", "the device trace's file"),
        Member("time", "", "as on the top level"),
        Member("start_ts", "ms", "as there"),
        Member("finish_ts", "ms", "as there"),
        Member("machine", "", "measured clocks and latencies"),
        Member("backlog_until", "ns", "of a part: until when work from outside kept the stream of an activity (by id) busy, on"
                                      " the device's clock"),
        Member("devices", "", "recorded names by number"),
        Member("step_without_profiler_ns", "ns", "a step without a profiler, as `capture` measured it"),
        Member("data_wait_without_profiler_ns", "ns", "how much of that the loop waits for PyTorch's data loader"),
        Member("measured", "ns", "what else `capture` measured, by name; only then"),
    )),
    Record("Machine", "Measured in the trace. Members at their default are left out.", MachineCalibration, (
        Member("resolution_ns", "ns", "unit of the trace's times"),
        Member("clock_offset_ns", "ns", "to add to device times for the host's clock, at `clock_from_ns`"),
        Member("clock_drift_ns", "ns", "how much more at `clock_until_ns`"),
        Member("clock_from_ns", "ns", "start of the time in which the drift was measured"),
        Member("clock_until_ns", "ns", "its end"),
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
        Member("world_size", "", "number of ranks"),
        Member("matched_by", "", "`record function id` or `order of names`"),
        Member("host_ops", "", "ops of the host trace"),
        Member("device_ops", "", "ops of the device trace"),
        Member("matched", "", "ops of both"),
        Member("agreement_pct", "%", "share of the smaller side's ops that were matched"),
        Member("calls", "", "number of calls"),
        Member("activities", "", "number of activities"),
        Member("linked", "", "activities with a launch call"),
        Member("dropped", "", "rows that cannot be used, or are outside the linked part"),
        Member("guessed", "", "waits and groups that no record names"),
        Member("oddities", "", "rows that are kept and look wrong"),
        Member("waits", "", "waits, by how they are known"),
        Member("notes", "", "sentences about the inputs"),
    )),
)
# fmt: on

KNOWN_BY = {
    "record": "a record of the trace names it",
    "call order": "the order of the calls shows it",
    "timing": "only times show it; `trace-convert --no-inferred` leaves it out",
    "graph": "recorded of a launched CUDA graph",
}
