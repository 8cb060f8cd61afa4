"""Finds what the profiler lost of a device: activities of launch calls, calls of activities, and both. What rightly has
no activity does not count: copies and sets, launches that are captured into a graph, and the last ones of a recording.
Nor do activities that may have been launched before the recording began.
"""

import re
from typing import NamedTuple

import numpy as np

from ..schema import columns
from ..schema.columns import ActivityRows, Bool, CallRows, DeviceOpRows, Int64, Lookup, RowMap, ThreadIntervals
from ..schema.linked import FOREVER, NEVER, Activities, Calls, SyncCall, are_step_marks, sync_calls
from ..schema.machine import AGREEING, LONGEST
from ..schema.reasons import Reason
from .contradictions import ADVICE, Contradiction
from .joining import enclosing_ops
from .match import Match
from .odd_ops import signs_in_device_trace
from .ops_without_calls import ops_without_calls
from .readers import DeviceTrace, HostTrace
from .steps import Period
from .windows import trace_start

LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|KernelLaunch|GraphLaunch")
BY_FLOW = re.compile(r"^AscendCL@acl(nn(?!\w*GetWorkspaceSize$)|opCompileAndExecute$)")
"""Launch calls, of one kernel or several, that have a correlation only by the flow to an activity."""
CAPTURE_BEGINS, CAPTURE_ENDS = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")
STREAMS_SHOWN, NAME_SHOWN = 3, 40
WITHOUT_CALL = "what they waited for is not known"
MEANING = "what the device did then is not known, so that idle times and waits are not those of the run"
LINK_PART = "link the window in which calls were recorded, or record again"
ALLOW = "let the profiler use CUPTI or roctracer: as administrator, on WSL with a driver for it, with no other profiler"
WARM_UP = "give the profiler a warm-up step before it records"
WITH_GRAPHS = (
    "start the profiler before graphs are captured, update CUPTI or roctracer (rocm-trace-lite: RTL_MODE=full), or record "
    "without graphs"
)
RECORD_LESS = "record again, with fewer steps or a larger ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB of Kineto"


class LostRecords(NamedTuple):
    """Of the `launches`, by time, those `alone` lack an activity, and those of one kernel `share` a correlation with
    several. A launch of a graph stands in `short` for each activity that it lacks, and in `before` the call before each
    of the `silent` ops, which lost calls. The launch calls of the `uncalled` activities were lost.
    """

    launches: CallRows
    alone: CallRows
    share: CallRows
    streams: list[int]
    short: CallRows
    silent: DeviceOpRows
    before: CallRows
    uncalled: ActivityRows

    @property
    def by_reason(self) -> dict[Reason, CallRows]:
        """The rows of calls that are counted; a part of the trace without a call lacks nothing at it or behind it."""
        lone = {Reason.LAUNCHES_WITHOUT_ACTIVITY: self.alone, Reason.LAUNCHES_THAT_SHARE: self.share}
        return lone | {Reason.OPS_WITHOUT_CALLS: self.before, Reason.SHORT_GRAPHS: self.short}

    def contradictions(self, device: DeviceTrace) -> list[Contradiction]:
        """Returns what is missing, from when to when, and what to do; nothing of a file that is cut off."""
        if device.ends_early:
            return []
        found, zero, calls = list[tuple[str, str, str]](), trace_start(device), device.calls

        def period(start: Int64) -> str:
            return f"{Period(int(start.min()), int(start.max())).in_words(zero)} of the trace"

        if count := len(self.alone):
            where = period(calls.start[self.alone])
            on = f", in ops that launch on stream {', '.join(map(str, self.streams))}"
            where += on if 0 < len(self.streams) <= STREAMS_SHOWN else ""
            share = f"; {len(self.share)} launches of one kernel have several" if len(self.share) else ""
            what = f"{count:,} of {len(self.launches):,} launch calls have no activity (from {where}){share}"
            cases = (
                (share or device.skipped[Reason.UNUSABLE_TIME], ADVICE),
                (calls.name.where(is_graph_launch)[self.alone].all(), WITH_GRAPHS),
                (count == len(self.launches), ALLOW),
                (np.array_equal(self.alone, self.launches[:count]), WARM_UP),
            )
            found.append((what, MEANING, next((advice for holds, advice in cases if holds), RECORD_LESS)))
        elif count := len(self.share):
            where = period(calls.start[self.share])
            what = f"{count:,} of {len(self.launches):,} launch calls of one kernel have several (from {where})"
            found.append((what, "kernels of theirs count more than once", ADVICE))
        if count := len(self.short):
            where = period(calls.start[self.short])
            what = f"launches of CUDA graphs lack {count:,} activities of theirs in other steps (from {where})"
            found.append((what, MEANING, RECORD_LESS))
        if count := len(self.silent):
            first, where = device.ops.name[self.silent[0]][:NAME_SHOWN], period(device.ops.start[self.silent])
            what = f"{count:,} ops lack calls, and what these launched (from {where}; the first: {first})"
            found.append((what, MEANING, RECORD_LESS))
        if count := len(self.uncalled):
            rows = device.activities
            where, zeros = period(rows.start[self.uncalled]), int((rows.correlation[self.uncalled] == 0).sum())
            named = f"; {zeros:,} have no correlation" if zeros else ""
            what = f"{count:,} of {len(rows):,} activities have no launch call (from {where}){named}"
            apart = int(_are_apart(rows, device.calls)[self.uncalled].sum())
            what += f"; {apart:,} ran long before or after all calls, so the run seems longer" * bool(apart)
            found.append((what, WITHOUT_CALL, LINK_PART if apart else ADVICE))
        return [Contradiction(device.path, *words) for words in found]


def is_graph_launch(name: str) -> bool:
    """Returns whether a call of that name launches a graph, which has several activities."""
    return "GraphLaunch" in name


def launch_calls(calls: Calls) -> CallRows:
    """Returns the calls that launch kernels or graphs, in the order of time, without those captured into a graph."""
    rows = np.flatnonzero((_named(calls, LAUNCH) & (calls.correlation != 0)) | _named(calls, BY_FLOW))
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    begins, ends = (np.sort(calls.start[_named(calls, pattern)]) for pattern in (CAPTURE_BEGINS, CAPTURE_ENDS))
    # captures that began before the recording have only an end
    before = (1 + np.arange(len(ends)) - np.searchsorted(begins, ends)).max(initial=0)
    open_captures = before + np.searchsorted(begins, calls.start[rows]) - np.searchsorted(ends, calls.start[rows])
    return CallRows(rows[open_captures <= 0])


def lost_records(
    device: DeviceTrace,
    call_row: CallRows,
    host: HostTrace | None = None,
    match: Match | None = None,
    nesting: columns.Nesting | None = None,
) -> LostRecords:
    """Returns what the trace of one process lacks, by the call of each activity and the `match` of ops. O(n log n)."""
    ops, calls, activities, launches = device.ops, device.calls, device.activities, launch_calls(device.calls)
    count = Lookup(*np.unique(activities.correlation, return_counts=True)).of(calls.correlation[launches])
    count[calls.correlation[launches] == 0] = -1
    of_several = calls.name.where(lambda name: is_graph_launch(name) or bool(BY_FLOW.match(name)))
    share = CallRows(launches[(count > 1) & ~of_several[launches]])
    alone = CallRows(launches[(count < 0) & ~_beyond_end(device, launches, count > 0)])
    if len(alone) <= (activities.correlation == 0).sum():
        alone = CallRows(alone[:0])  # activities without a correlation may be theirs
    nesting = nesting or columns.nest(ThreadIntervals(ops.thread, ops.start, ops.end), ops.event_index)
    around = enclosing_ops(calls, ops, nesting, are_step_marks(ops.name))
    name = np.append(ops.name.codes, -2)
    is_alike = columns.isin(name[RowMap(around)[call_row]], name[around[alone]][around[alone] >= 0])
    streams = np.unique(activities.stream[is_alike]).tolist()
    uncalled, in_time = uncalled_activities(activities, calls, call_row), np.argsort(calls.start, kind="stable")
    launching = columns.isin(calls.name.codes, calls.name.codes[call_row[call_row >= 0]])
    launching[launches] = True
    silent = ops_without_calls(host, device, match, nesting.parent, around, launching)
    if len(silent) <= len(uncalled) or any(count for count, *_ in signs_in_device_trace(device)):
        # activities without a call, and calls on other threads or at other times, may be theirs
        silent = DeviceOpRows(silent[:0])
    before = CallRows(in_time[np.searchsorted(calls.start[in_time], ops.start[silent], "right") - 1])
    short = short_graphs(device, call_row)
    return LostRecords(launches, alone, share, streams, short, silent, before, uncalled)


def short_graphs(device: DeviceTrace, call_row: CallRows) -> CallRows:
    """Returns the launches of graphs that lack activities of the same graph in another step, once for each activity."""
    calls, marks = device.calls, np.sort(device.ops.start[are_step_marks(device.ops.name)])
    launches = np.intersect1d(np.flatnonzero(calls.name.where(is_graph_launch)), call_row)
    launches = launches[np.argsort(calls.start[launches], kind="stable")]
    step = np.searchsorted(marks, calls.start[launches], "right")
    # in steps with as many launches as others
    places = np.bincount(step)[step]
    is_usual = places == np.sort(places)[len(places) // 2 :][:1]
    launches, place, short = launches[is_usual], columns.cumcount(step)[is_usual], [launches[:0]]
    number = Lookup(launches, np.arange(len(launches))).of(call_row)
    ran = np.flatnonzero(number >= 0)
    for of_place in columns.rows_of_each(place[number[ran]]).values():
        graphs, graph = np.unique(number[ran[of_place]], return_inverse=True)
        kernels, kernel = np.unique(device.activities.name.codes[ran[of_place]], return_inverse=True)
        width = len(kernels)
        runs = np.bincount(graph * width + kernel, minlength=len(graphs) * width).reshape(-1, width)
        most = runs.max(axis=0)
        # of one that has all, another may have lost all of a kernel, too
        is_one = (runs == most).all(axis=1).any() or ((runs > 0) | (most <= AGREEING)).all()
        if is_one and ((runs > 0) & (runs < most)).any():
            short.append(np.repeat(launches[graphs], (most - runs).sum(axis=1)))
    return CallRows(np.concatenate(short))


def uncalled_activities(activities: Activities, calls: Calls, call_row: CallRows) -> ActivityRows:
    """Returns activities that were launched while calls were recorded, not before, though their own call was not."""
    rows, has_call = np.flatnonzero(call_row < 0), call_row >= 0
    if not len(rows) or not len(calls.start):
        return ActivityRows(rows[:0])
    start, stream, began = activities.start, columns.group_ids(activities.device, activities.stream), calls.start.min()
    first = np.full(int(stream.max()) + 1, FOREVER)
    np.minimum.at(first, stream[has_call], start[has_call])
    first[first == FOREVER] = start[has_call].min() if has_call.any() else began
    is_earlier = activities.correlation < calls.correlation[calls.correlation != 0].min(initial=FOREVER)
    is_earlier = (is_earlier | (start < began)) & ~_are_apart(activities, calls)
    rows = rows[~((start < first[stream]) & is_earlier)[rows]]
    # profilers lack the calls of single copies
    is_few = len(rows) < AGREEING and not activities.correlation[rows].any()
    return ActivityRows(rows[is_few * len(rows) :])


def _are_apart(activities: Activities, calls: Calls) -> Bool:
    """Returns which activities ran before or after all calls, by longer than these last and than any start takes."""
    apart = np.maximum(calls.start.min() - activities.end, activities.start - calls.end.max())
    return np.asarray(apart > max(int(calls.end.max() - calls.start.min()), LONGEST))


def _named(calls: Calls, pattern: "re.Pattern[str]") -> Bool:
    return calls.name.where(lambda name: pattern.search(name) is not None)


def _beyond_end(device: DeviceTrace, launches: CallRows, has_activity: Bool) -> Bool:
    """Returns which launches, of the last ones, started work that would have ended after the recording."""
    calls, activities, start = device.calls, device.activities, device.calls.start[launches]
    until = max(device.ops.start.max(initial=NEVER), calls.end.max(initial=NEVER))
    awaited = calls.start[sync_calls(calls.name) == SyncCall.DEVICE_SYNC].max(initial=NEVER)
    is_last = start > max(start[has_activity].max(initial=NEVER), awaited)
    # no sooner than all that is recorded had ended, and lasting as long as the longest of it
    begins = np.maximum(start, activities.end.max(initial=NEVER))
    return np.asarray(is_last & (until - begins < (activities.end - activities.start).max(initial=0)))
