"""What a process submitted: calls, streams as queues, event records, and when each activity could have started. An
activity that waited for an unknown event starts late, right after what it waited for has ended. A trace names an event
record by its call, else by the event's id, which is reused; from CUDA 12.9 on only the id is recorded.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...schema import columns, linked
from ...schema.columns import Bool, Int64, Keys, Lookup, Ragged, RowMap, asof_backward, groupby, is_group_start, isin
from ...schema.linked import NEVER, Activities, Calls, Ops, Provenance, SyncCall
from ...schema.machine import ENOUGH, LatencyStats, MachineCalibration, of_each, of_name
from ...schema.reasons import AnyReason
from ..communication import CollectiveOps
from ..readers import DeviceTrace, RecordedEvents, RecordedSyncs
from .submissions import CallSites, StreamKey, StreamQueues, ThreadLaunches

FoundCalls = dict[AnyReason, MutableSequence[int]]
"""Calls by reason, one entry per time, -1 for no call."""


def _none_yet() -> FoundCalls:
    return defaultdict(lambda: array("q"))


@dataclass(slots=True)
class Findings:
    """What became of waits: `resolved` and how, `guessed`, blocking nothing (`oddities`), not resolved (`dropped`)."""

    resolved: FoundCalls = field(default_factory=_none_yet)
    guessed: FoundCalls = field(default_factory=_none_yet)
    oddities: FoundCalls = field(default_factory=_none_yet)
    dropped: FoundCalls = field(default_factory=_none_yet)


class EventRecords(NamedTuple):
    """All event records by time; their position is their number. `streams` are those that each may be on, the likeliest
    first; in `kinds` are those that one thread made from the same ops after one launch.
    """

    rows: "memoryview[int]"
    time: "memoryview[int]"
    in_collective: list[bool]
    streams: list[list[StreamKey]]
    kind: "memoryview[int]"
    kinds: list[tuple[Int64, Int64]]


def _previous_on_thread(calls: Calls, chosen: Bool) -> Int64:
    """Returns for each call the last of the `chosen` ones before it on its thread, -1 for none."""
    # of calls that began at once, the chosen ones come first
    order = np.lexsort((~chosen, calls.start, calls.thread))
    rank, rows = np.argsort(order), order[chosen[order]]
    return RowMap(rows)[asof_backward(Keys(calls.thread[rows], rank[rows]), Keys(calls.thread, rank - 1))]


class SyncRecord(NamedTuple):
    """What a cuda_sync row says of its call; -1 where unknown."""

    device: int
    stream: int
    wait_stream: int
    record_correlation: int
    event: int
    kind: int


class EventRecord(NamedTuple):
    """All that a stream had been given at a time (ns); `waiting` is the stream that waits where that is inferred."""

    time: int
    stream: StreamKey
    provenance: Provenance
    waiting: StreamKey | None = None


class RecordedWaits(NamedTuple):
    """Calls that let a stream wait, the calls that recorded the events, and the numbers of both streams."""

    call_row: Int64
    recorder: Int64
    waiting: Int64
    awaited: Int64


class SyncRecords:
    """What the trace says of synchronising calls: what each does, and the call that recorded its event, or -1."""

    def __init__(self, calls: Calls, syncs: RecordedSyncs, event_rows: RecordedEvents, queues: StreamQueues) -> None:
        row_of = Lookup(syncs.correlation, np.arange(len(syncs.start)))
        row = row_of.of(calls.correlation)
        self._queues, self._row_of_call = queues, row.data
        kinds = syncs.kind.numbers(lambda name: linked.SYNC_RECORDS.get(name.lower(), SyncCall.NONE), SyncCall.NONE)
        columns = (syncs.device, syncs.stream, syncs.wait_stream, syncs.record_correlation, syncs.event, kinds)
        self._columns = [column.data for column in columns]
        self.kinds = linked.sync_calls(calls.name)
        unrecognised = (self.kinds == SyncCall.NONE) & (calls.correlation != 0)
        self.kinds[unrecognised] = np.append(kinds, SyncCall.NONE)[row[unrecognised]]
        rows = np.unique(row_of.of(syncs.correlation))
        self.has_stream_waits = bool((kinds[rows] == SyncCall.STREAM_WAIT).any())
        rows = rows[syncs.record_correlation[rows] > 0]
        recorder = syncs.record_correlation[rows]
        recorders = np.concatenate((event_rows.correlation[::-1], recorder))
        named_calls = np.flatnonzero(isin(calls.correlation, recorders))
        self._call_of = Lookup(calls.correlation[named_calls], named_calls)
        """The calls that the trace names, by correlation."""
        streams = np.concatenate((event_rows.stream[::-1], syncs.wait_stream[rows]))
        self._recorded_on = np.append(Lookup(self._call_of.of(recorders), streams).of(np.arange(len(calls))), -1)
        """The number of the stream that each call recorded on, -1 for unknown; the last one is for no call (-1)."""
        awaited = self._call_of.of(recorder)
        self.awaited = np.unique(awaited[awaited >= 0])
        synced = np.flatnonzero(row >= 0)
        recorded, event = syncs.record_correlation[row[synced]], syncs.event[row[synced]]
        named = np.where(recorded > 0, self._call_of.of(recorded), -1)
        self.is_recorded, self.is_before_trace = row >= 0, np.zeros(len(calls), np.bool_)
        self.event, self.recorder = np.full((2, len(calls)), -1)
        self.event[synced] = event
        self.is_before_trace[synced] = (recorded > 0) & (named < 0)
        is_earlier = (named >= 0) & (calls.start[named] < calls.start[synced])
        self.recorder[synced] = np.where(is_earlier, named, self._last_of_event(calls, event_rows, synced, event))

    def _last_of_event(self, calls: Calls, event_rows: RecordedEvents, waits: Int64, event: Int64) -> Int64:
        """Returns for waiting calls the last call before each that recorded the event of this id, -1 for none."""
        call = self._call_of.of(event_rows.correlation)
        order = np.lexsort((call, calls.start[call], event_rows.event)) if len(calls) else call
        order = order[(call[order] >= 0) & (event_rows.event[order] >= 0)]
        recorded = Keys(event_rows.event[order], calls.start[call[order]])
        return RowMap(call[order])[asof_backward(recorded, Keys(event, calls.start[waits] - 1))]

    def of(self, call: int) -> SyncRecord | None:
        """Returns what the last row of a call says of it."""
        row = self._row_of_call[call]
        return SyncRecord(*(column[row] for column in self._columns)) if row >= 0 else None

    def streams(self) -> dict[int, StreamKey]:
        """Returns the streams that the trace names for calls that record events, by call."""
        calls = np.flatnonzero(self._recorded_on >= 0)
        streams = ((call, self._queues.find(-1, int(self._recorded_on[call]))) for call in calls.tolist())
        return {call: stream for call, stream in streams if stream is not None}

    def stream_waits(self) -> RecordedWaits:
        """Returns the calls that let a stream wait and whose event record the trace names."""
        calls = np.flatnonzero((self.kinds == SyncCall.STREAM_WAIT) & (self.recorder >= 0))
        _, waiting, awaited, *_ = (np.asarray(column)[np.asarray(self._row_of_call)[calls]] for column in self._columns)
        recorded_on = self._recorded_on[self.recorder[calls]]
        return RecordedWaits(calls, self.recorder[calls], waiting, np.where(recorded_on >= 0, recorded_on, awaited))

    def awaited_stream(self, call: int) -> StreamKey | None:
        """Returns the stream that the trace names for the event record that it names for a call, None for unknown."""
        device, _, wait_stream, *_ = (column[self._row_of_call[call]] for column in self._columns)
        number = int(self._recorded_on[self.recorder[call]])
        number = number if number >= 0 else wait_stream
        return self._queues.find(device, number) if number >= 0 else None


class TimingModel:
    """The earliest and expected start of each activity, and the errors of the clocks, in ns. `clock_uncertainty_ns` is
    by how much times of host and device may be off, `max_clock_lead_ns` how far the device's clock may be ahead, as no
    activity starts before its launch. `return_error_ns` and `max_return_lead_ns` are the same by synchronising call.
    """

    def __init__(self, activities: Activities, calls: Calls, calibration: MachineCalibration) -> None:
        self.timestamp_quantum_ns = 2 * calibration.resolution_ns
        self.clock_uncertainty_ns = calibration.time_error_ns + of_name(calibration.sync_return, "").median
        self.max_sync_return_ns = of_each(calibration.sync_return, calls.name).upper.data
        before, call = linked.previous_on_stream(activities), activities.call_row
        ended, submitted = np.append(activities.end, NEVER)[before], np.append(calls.start, NEVER)[call]
        follows = np.where(before >= 0, ended + of_each(calibration.gap, activities.category).upper, NEVER)
        launched = np.append(calls.end + of_each(calibration.launch, calls.name).upper, NEVER)[call]
        self.ready_ns, self.expected_start_ns = np.maximum(ended, submitted).data, np.maximum(follows, launched).data
        shortest = int((activities.start - submitted)[call >= 0].min(initial=linked.FOREVER))
        self.max_clock_lead_ns = self.clock_uncertainty_ns + (max(shortest, 0) if shortest < linked.FOREVER else 0)
        # where returns were measured, it is their own clock that they are compared with
        knows_returns = calls.name.where(lambda name: calibration.sync_return.get(name, LatencyStats()).count >= ENOUGH)
        error = calibration.time_error_ns
        self.return_error_ns = np.where(knows_returns, error, self.clock_uncertainty_ns).data
        self.max_return_lead_ns = np.where(knows_returns, error, self.max_clock_lead_ns).data
        self.max_gap_ns = of_name(calibration.gap, "").upper

    def add_dependency(self, activity: int, end: int, max_reaction_ns: int) -> None:
        """Adds that an activity follows one that ended at `end`, usually within `max_reaction_ns`."""
        self.ready_ns[activity] = max(self.ready_ns[activity], end)
        self.expected_start_ns[activity] = max(self.expected_start_ns[activity], end + max_reaction_ns)


class DataOrigins:
    """The streams that last touched storages of each activity, computed at first use; none without recorded tensors."""

    def __init__(self, ops: Ops, activities: Activities, calls: Calls) -> None:
        self._ops, self._activities, self._calls = ops, activities, calls

    @cached_property
    def of_activity(self) -> dict[int, set[tuple[StreamKey, int]]]:
        """The other streams of each activity, and when their work was launched (ns)."""
        ops, activities = self._ops, self._activities
        tensors = ops.arguments.tensors
        tensors = tensors.where((tensors.device != linked.HOST) & (tensors.storage != 0))
        storages = Ragged.grouped(tensors.row, tensors.storage, len(ops))
        rows = np.flatnonzero((activities.call_row >= 0) & (activities.op_row >= 0))
        launched = self._calls.start[activities.call_row[rows]]
        order = np.lexsort((activities.start[rows], launched))
        touched = storages.take(activities.op_row[rows[order]])
        number, storage = touched.rows(), touched.values
        by_storage = np.lexsort((number, storage))
        by_storage = by_storage[is_group_start(storage[by_storage], number[by_storage])]
        follows = np.flatnonzero(storage[by_storage[1:]] == storage[by_storage[:-1]])
        before, after = order[number[by_storage[follows]]], order[number[by_storage[follows + 1]]]
        device, stream, origins = activities.device[rows], activities.stream[rows], defaultdict(set)
        elsewhere = (device[before] != device[after]) | (stream[before] != stream[after])
        before, after = before[elsewhere], after[elsewhere]
        columns = (column.tolist() for column in (rows[after], device[before], stream[before], launched[before]))
        for row, on_device, on_stream, time in zip(*columns, strict=True):
            origins[row].add((StreamKey(on_device, on_stream), time))
        return origins

    def streams(self, activities: Iterable[int], since: int, until: int) -> list[StreamKey]:
        """Returns other streams that last touched what these use, the latest first, from `since` to before `until`."""
        if not self.of_activity:
            return []
        origins = {
            origin for row in activities for origin in self.of_activity.get(row, ()) if since <= origin[1] < until
        }
        return list(dict.fromkeys(stream for stream, _ in sorted(origins, key=lambda origin: -origin[1])))


class Process:
    """One process: what its calls do, what it submitted, and what the trace says of its events. Columns are by call, -1
    for none: the activities that its thread launched last before it and first from then on, and what events it names.
    """

    def __init__(
        self,
        device: DeviceTrace,
        calls: Calls,
        activities: Activities,
        *,
        collectives: CollectiveOps,
        awaited: Lookup,
        calibration: MachineCalibration,
    ) -> None:
        """`activities` have times of the host's clock. `awaited` is what each wait op of a collective names."""
        self.device, self.calls, self.activities = device, calls, activities
        self.collectives, self.calibration = collectives, calibration
        self.timing = TimingModel(activities, calls, calibration)
        self.origins = DataOrigins(collectives.ops, activities, calls)
        self.start, self.end = calls.start.data, calls.end.data
        self.queues, self.launches = StreamQueues(activities, calls), ThreadLaunches(activities, calls)
        self.last_launch = self.launches.last(calls.thread, calls.start).data
        self.next_launch = self.launches.next(calls.thread, calls.start).data
        self.call_sites = CallSites(calls, collectives.ops, collectives.parent)
        self.sync_records = SyncRecords(calls, device.syncs, device.event_records, self.queues)
        self.kinds = kinds = self.sync_records.kinds
        is_named, of_calls = self.sync_records.recorder >= 0, collectives.enclosing_records(calls.op_row)
        named_by_collective = np.where(is_named | self.sync_records.is_before_trace, -1, awaited.of(of_calls))
        self.collective, self.awaited_by_collective = of_calls.data, named_by_collective.data
        event_calls = isin(kinds, (SyncCall.EVENT_RECORD, SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC))
        previous = _previous_on_thread(calls, event_calls)
        rows = np.flatnonzero(kinds == SyncCall.EVENT_RECORD)
        rows = rows[np.argsort(calls.start[rows], kind="stable")]
        right_before = RowMap(columns.positions(rows, len(calls)))[previous]
        self.previous_event_call, self.record_right_before = previous.data, right_before.data
        self.event_records = self._event_records(rows)

    def _event_records(self, rows: Int64) -> EventRecords:
        """Returns the event records that these calls made."""
        thread, step, named = self.calls.thread, self.call_sites.step, self.sync_records.streams()
        last, before = np.asarray(self.last_launch), np.asarray(self.previous_event_call)[rows]
        in_collective = np.asarray(self.collective)[rows] >= 0
        # a call right after another event record, with no launch between them, probably records on another stream
        is_next = (before >= 0) & (self.kinds[before] == SyncCall.EVENT_RECORD) & (last[rows] == last[before])
        streams = list[list[StreamKey]]()
        shared: dict[tuple[StreamKey, ...], list[StreamKey]] = {}
        for row, is_other in zip(rows.tolist(), (is_next & ~in_collective).tolist(), strict=True):
            likely = [named[row]] if row in named else self.streams_in_use(row)
            likely = [*likely[1:], *likely[:1]] if is_other and row not in named else likely
            streams.append(shared.setdefault(tuple(likely), likely))
        last = last[rows]
        in_step = (last >= 0) & (step[RowMap(self.activities.call_row)[last]] == step[rows])
        launched = np.append(self.activities.name.codes, -1)[np.where(in_step, last, -1)]
        kinds, time = groupby(thread[rows], self.call_sites.path[rows], launched), self.calls.start[rows]
        of_kind = [(part, time[part]) for part in kinds.rows()]
        return EventRecords(rows.data, time.data, in_collective.tolist(), streams, kinds.number.data, of_kind)

    def last_end(self, activities: Iterable[int]) -> int:
        """Returns when the last of the activities ended, ns; NEVER for none."""
        return max((int(self.activities.end[row]) for row in activities), default=NEVER)

    def streams_in_use(self, call: int, other_than: StreamKey | None = None) -> list[StreamKey]:
        """Returns the streams that the thread used at a call, the last first: in a collective that of its launch."""
        collective, last, activities = self.collective[call], self.last_launch[call], self.activities
        launched_in = self.collectives.enclosing_record(int(activities.op_row[last])) if last >= 0 else -1
        if collective >= 0 and launched_in == collective:
            return [StreamKey.of(activities, last)]
        streams = self.launches.streams_before(int(self.calls.thread[call]), self.start[call])
        return [stream for stream in streams if stream != other_than]

    def recorded_stream(self, call: int) -> StreamKey | None:
        """Returns the stream that a call's cuda_sync row names."""
        record = self.sync_records.of(call)
        return self.queues.find(record.device, record.stream) if record is not None else None

    def named_record(self, call: int) -> EventRecord | None:
        """Returns the event record that the trace names for a call; None for none, and where its stream is unknown."""
        recorder = int(self.sync_records.recorder[call])
        if int(self.kinds[call]) == SyncCall.STREAM_SYNC:
            recorder, stream = call, self.recorded_stream(call)
        elif recorder < 0:
            return None
        else:
            stream = self.sync_records.awaited_stream(call) or next(iter(self.streams_in_use(recorder)), None)
        return EventRecord(self.start[recorder], stream, Provenance.RECORD) if stream is not None else None

    def pending(self, device: int, call: int) -> tuple[int, ...]:
        """Returns the last activities that had been submitted to the streams of a device (of all for -1) at a call."""
        keys, time = [key for key in self.queues.rows if device in (-1, key.device)], self.start[call]
        return tuple(sorted({source for key in keys for source in self.queues.sources(key, time)}))
