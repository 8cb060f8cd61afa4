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
        Member("schema", "", "schema of the host trace that the nodes are written in, always the same; `trace` has the"
                             " recorded one"),
        Member("pid", "", "the process's number"),
        Member("time", "", "local time of the recording, as the host trace has it"),
        Member("start_ts", "ms", "when the host trace begins, on a clock of its own"),
        Member("finish_ts", "ms", "when the host trace ends, on that clock"),
        Member("nodes", "", "ops, then activities"),
        Member("calls", "", "runtime and driver calls"),
        Member("device_waits", "", "activities that waited for activities of another stream"),
        Member("host_waits", "", "calls that did not return before activities had ended"),
        Member("handoffs", "", "threads that waited for threads"),
        Member("communications", "", "recorded arguments; nodes refer to them by position"),
        Member("groups", "", "the process groups, as recorded"),
        Member("trace", "", "where the trace comes from, and its machine"),
        Member("link_report", "", "what became of every row of both inputs"),
    )),
    Record("Node", "An op, or an activity if it has a `cat`. Members without a value are left out.", Node, (
        Member("id", "", "different for every node; an op's is that of the host trace, what only the device trace holds"
                         " follows"),
        Member("name", "", "as recorded"),
        Member("ctrl_deps", "", "id of the op that called this one, of an activity of the op that launched it; elsewhere"
                                " of the op that it follows, or of its thread's root, so that all descend from roots"),
        Member("inputs", "", "`values`, `shapes`, `types` (and `strides`), parallel, as the host trace has them; of"
                             " communication activities those of their op"),
        Member("outputs", "", "the same of the results"),
        Member("attrs", "", "further attributes, see below"),
        Member("cat", "", "category, as `kernel` or `gpu_memcpy`", ACTIVITIES),
        Member("ph", "", "always `X`, for Chakra's converter", ACTIVITIES, "text"),
        Member("ts", "µs", "start, exact to the ns; absent for ops that the device trace does not hold"),
        Member("inclusive_dur", "µs", "length"),
        Member("exclusive_dur", "µs", "length without the ops that it called; of activities the length"),
        Member("thread", "", "the thread as the operating system numbers it", OPS),
        Member("device", "", "number of the device", ACTIVITIES),
        Member("stream", "", "number of the stream", ACTIVITIES),
        Member("correlation", "", "what the profiler numbers launch calls by", ACTIVITIES),
        Member("graph_node", "", "the node of a launched CUDA graph", ACTIVITIES),
        Member("size", "bytes", "what a copy or set moves, -1 where not recorded", ACTIVITIES),
        Member("bandwidth", "bytes/s", "how fast the profiler saw it move, -1 where not recorded", ACTIVITIES),
        Member("call", "", "position in `calls` of the launch call, -1 where none was recorded", ACTIVITIES),
        Member("communication", "", "position in `communications`, of what communicates; of ops, if they do so without"
                                    " the device"),
        Member("pg_name", "", "number of the process group, for Chakra's converter; its recorded name is in"
                              " `communications`", ACTIVITIES, "text"),
        Member("inter_thread_dep", "", "id of the op on another thread that this one followed, for Chakra's"
                                       " converter", OPS, "integer"),
        Member("sync_dep", "", "ids of the activities that the op's calls waited for, or that the activity's stream"
                               " waited for"),
        Member("recorded_by", "", "`device` for an op that the host trace does not hold, `nobody` for the root of a"
                                  " thread that only the file holds", OPS),
        Member("called_by", "", "id of the op that called or launched, -1 for none, where `ctrl_deps` has another"),
        Member("module", "", "path of the module that it was done for, as `Net_0/Linear_2`; with `--modules`, where"
                             " there is one"),
        Member("python_function", "", "innermost Python function around it, as `train.py(12): step`; with `--modules`,"
                                      " where there is one"),
    )),
    Record("Calls", "Columns: lists of one length, an entry per call. Other tables refer to calls by position, from 0.",
           CallTable, (
        Member("names", "", "every name once; not a column"),
        Member("name", "", "position in `names`"),
        Member("thread", "", "the thread as the operating system numbers it"),
        Member("start_ns", "ns", "start"),
        Member("end_ns", "ns", "return"),
        Member("correlation", "", "as recorded, 0 for none"),
        Member("op", "", "id of the innermost op around the call, -1 for none"),
        Member("python_names", "", "every module and Python function once; not a column"),
        Member("module", "", "position in `python_names` of the module that called, -1 for none; left out without"
                             " `--modules`"),
        Member("python_function", "", "position in `python_names` of the function that called, -1 for none; left out"
                                      " without `--modules`"),
    )),
    Record("Waits", "Columns, both of `device_waits` and of `host_waits`.", HostWaitTable, (
        Member("of", "", "who waits: the id of an activity, in `host_waits` the position of a call"),
        Member("source", "", "id of the activity that was waited for; -1: the call waits, but for nothing that was"
                             " recorded"),
        Member("known_by", "", "how it is known, by the table below"),
        Member("since_ns", "ns", "from when on the host waits, null for from the call's start or launch; empty in"
                                 " `device_waits`"),
    )),
    Record("Hand-offs", "Columns: what the target thread does from its time on waited for what the source thread did up"
                        " to its own.",
           HandoffTable, (
        Member("source_thread", "", "the thread that was waited for"),
        Member("source_ns", "ns", "up to when it worked for the other one"),
        Member("target_thread", "", "the thread that waited"),
        Member("target_ns", "ns", "when it went on"),
        Member("waiting_since_ns", "ns", "from when on it did nothing but wait; null: since it began"),
        Member("known_by", "", "how it is known, by the table below"),
    )),
    Record("Communication", "The recorded arguments of one communication. Members at their default are left out.",
           Communication, (
        Member("name", "", "of the collective, or of the message, as recorded"),
        Member("dtype", "", "type of the elements, as recorded"),
        Member("in_elements", "elements", "what the rank puts in"),
        Member("out_elements", "elements", "what the rank gets out"),
        Member("in_split", "elements", "what goes to each member, where that was recorded"),
        Member("out_split", "elements", "what comes from each member, where that was recorded"),
        Member("group", "", "the process group's recorded name"),
        Member("description", "", "the process group's recorded description"),
        Member("group_size", "ranks", "how many members the group has"),
        Member("ranks", "", "global ranks of the members, in the group's order"),
        Member("sequence", "", "sequence number in the group"),
        Member("group_rank", "", "rank in the group of the peer or root, where that was recorded"),
        Member("source", "", "global rank that a message, or a collective with a root, goes out from"),
        Member("target", "", "global rank that a message, or a collective with a root, goes to"),
        Member("tag", "", "tag of a message, as recorded"),
        Member("coalesced", "", "the communications that one kernel did together"),
    )),
    Record("Process group", "As recorded at its creation. Members at their default are left out.", ProcessGroup, (
        Member("name", "", "recorded name"),
        Member("description", "", "recorded description"),
        Member("ranks", "", "global ranks of the members; empty for all"),
        Member("size", "ranks", "how many members it has"),
    )),
    Record("Trace", "Where the trace comes from.", TraceInfo, (
        Member("schema", "", "schema of the host trace, as recorded"),
        Member("pid", "", "the process's number"),
        Member("rank", "", "the process's rank"),
        Member("world_size", "ranks", "how many ranks the job has"),
        Member("base_time_ns", "ns", "to be added to times for the time since 1970; 0 where none was recorded"),
        Member("sync_records", "", "how many synchronisation records the device trace holds"),
        Member("unresolved_waits", "", "how many waits were guessed, or are for an event that was not found"),
        Member("source_host", "", "name of the host trace's file"),
        Member("source_device", "", "name of the device trace's file"),
        Member("time", "", "as on the top level"),
        Member("start_ts", "ms", "as on the top level"),
        Member("finish_ts", "ms", "as on the top level"),
        Member("machine", "", "clocks and latencies of the machine, as measured in the trace"),
        Member("backlog_until", "ns", "of a part of a trace: by activity id until when work from outside the part kept"
                                      " its stream busy, on the device's clock; null for a whole trace"),
        Member("devices", "", "recorded names of the devices that ran anything, by number"),
        Member("step_without_profiler_ns", "ns", "how long a step takes without a profiler, as `capture` measured it; -1"
                                                 " where it was not measured"),
        Member("data_wait_without_profiler_ns", "ns", "how long the loop waits for PyTorch's data loader in such a"
                                                      " step; -1 where it was not measured"),
        Member("measured", "ns", "what else `capture` measured, by the name that it has in the metadata of graphs; absent"
                                 " for other traces"),
    )),
    Record("Machine", "Clocks and latencies of the machine, as measured in the trace. Members at their default are left"
                      " out.",
           MachineCalibration, (
        Member("resolution_ns", "ns", "the unit in which the trace counts time"),
        Member("clock_offset_ns", "ns", "to be added to device times for the host's clock, at the time"
                                        " `clock_from_ns`"),
        Member("clock_drift_ns", "ns", "by how much more at `clock_until_ns`"),
        Member("clock_from_ns", "ns", "from when on the drift was measured"),
        Member("clock_until_ns", "ns", "until when the drift was measured"),
        Member("clock_error_ns", "ns", "by how much the clocks may still disagree"),
        Member("launch", "", "from the end of a launch call to the start on a free stream, by the call's name"),
        Member("gap", "", "between an activity and the next one queued on its stream, by category"),
        Member("sync_return", "", "from an awaited end to the return of the blocking call, by the call's name"),
    )),
    Record("Latency statistics", "How long something usually takes. The key `\"\"` holds it over all names.",
           LatencyStats, (
        Member("median", "ns", "median, without outliers"),
        Member("upper", "ns", "upper limit of usual times; longer ones are unusual"),
        Member("count", "", "how often it was measured"),
    )),
    Record("Link report", "What became of every row of both inputs. The objects count by reason.", LinkReport, (
        Member("world_size", "ranks", "how many ranks the job has"),
        Member("matched_by", "", "`record function id` or `order of names`; empty without a host trace"),
        Member("host_ops", "", "ops of the host trace"),
        Member("device_ops", "", "ops of the device trace"),
        Member("matched", "", "ops of both"),
        Member("agreement_pct", "%", "share of the smaller side's ops that were matched"),
        Member("calls", "", "calls"),
        Member("activities", "", "activities"),
        Member("linked", "", "activities with a launch call"),
        Member("dropped", "", "rows that are not in the linked trace"),
        Member("guessed", "", "waits and groups that no record names"),
        Member("oddities", "", "rows that are in the file and look wrong, by what is wrong with them"),
        Member("waits", "", "waits that were resolved, by how they are known"),
        Member("notes", "", "sentences about the inputs"),
    )),
)
# fmt: on

KNOWN_BY = {
    "record": "a record of the trace names it",
    "call order": "the order of the calls shows it",
    "timing": "only the times show it: `--no-inferred` leaves it out of the graph",
    "graph": "the trace records it of a launched CUDA graph",
}
