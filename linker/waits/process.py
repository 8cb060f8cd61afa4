"""What a process submitted: what each call does, its streams as queues, its event records, and when each activity
could and should have started by its known dependencies.

An activity that waited for an unknown event starts later than its known dependencies explain, right after what it
waited for has ended. Nothing that ended after it started can have blocked it, except within the error of the clocks. A
correct program lets a stream wait for another one before it uses what that one wrote, or overwrites what that one read.
"""

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ...schema.columns import Lookup, Ragged
from ...schema.linked import FOREVER, HOST, NEVER, Activities, Calls, Ops, previous_on_stream
from ...schema.machine import ENOUGH, LatencyStats, MachineCalibration, of_each, of_name
from ..communication import CollectiveOps
from ..readers import DeviceTrace
from .events import EventRecord, EventRecordCalls, SyncRecord, SyncRecords
from .submissions import CallSites, StreamKey, StreamQueues, ThreadLaunches


class TimingModel:
    """For each activity the earliest and the expected start, and the errors of the clocks. All times in ns.

    `ready_ns` is when all known dependencies of an activity had ended, `expected_start_ns` by when it usually starts
    then. `timestamp_quantum_ns` is by how much two times of one clock may be off, `clock_uncertainty_ns` by how much
    those of host and device may: a call never returns before what it waited for has ended, but it may seem to by the
    median time that calls take to return. `max_clock_lead_ns` is how far the device's clock may at most be ahead of the
    host's: no activity starts before its launch call, so the shortest launch limits it. `return_error_ns` and
    `max_return_lead_ns` are the same two by synchronising call; they are small where returns of calls of that name were
    measured on these very clocks. `max_gap_ns` is the longest usual gap between two activities of a stream.
    """

    def __init__(self, activities: Activities, calls: Calls, calibration: MachineCalibration) -> None:
        self.timestamp_quantum_ns = 2 * calibration.resolution_ns
        self.clock_uncertainty_ns = calibration.time_error_ns + of_name(calibration.sync_return, "").median
        self._sync_return_latency, self._names = calibration.sync_return, calls.name
        before = previous_on_stream(activities)
        ready, expected = np.full((2, len(activities)), NEVER, np.int64)
        follows = np.flatnonzero(before >= 0)
        ended = activities.end[before[follows]]
        ready[follows] = ended
        expected[follows] = ended + of_each(calibration.gap, activities.category.take(follows)).upper
        called = np.flatnonzero(activities.call_row >= 0)
        call = activities.call_row[called]
        launched = calls.end[call] + of_each(calibration.launch, calls.name.take(call)).upper
        ready[called] = np.maximum(ready[called], calls.start[call])
        expected[called] = np.maximum(expected[called], launched)
        shortest = int((activities.start[called] - calls.start[call]).min(initial=FOREVER))
        self.ready_ns, self.expected_start_ns = ready.data, expected.data
        self.max_clock_lead_ns = self.clock_uncertainty_ns + (max(shortest, 0) if shortest < FOREVER else 0)
        # where returns were measured, it is their own clock that they are compared with
        knows_returns = calls.name.where(lambda name: calibration.sync_return.get(name, LatencyStats()).count >= ENOUGH)
        error = calibration.time_error_ns
        self.return_error_ns = np.where(knows_returns, error, self.clock_uncertainty_ns).data
        self.max_return_lead_ns = np.where(knows_returns, error, self.max_clock_lead_ns).data
        self.max_gap_ns = of_name(calibration.gap, "").upper

    def max_sync_return_ns(self, call: int) -> int:
        """Returns how long after the awaited end a call of that name usually returns at most."""
        return of_name(self._sync_return_latency, self._names[call]).upper

    def add_dependency(self, activity: int, end: int, max_reaction_ns: int) -> None:
        """Adds that an activity follows one that ended at `end`, usually within `max_reaction_ns`."""
        self.ready_ns[activity] = max(self.ready_ns[activity], end)
        self.expected_start_ns[activity] = max(self.expected_start_ns[activity], end + max_reaction_ns)


class DataOrigins:
    """The streams that last touched storages of each activity, by the ops that launched. There are none where no host
    trace records tensors.

    They are computed at the first use, as traces that record what every wait is for do not need them. O(tensors).
    """

    def __init__(self, ops: Ops, activities: Activities, calls: Calls) -> None:
        self._ops, self._activities, self._calls = ops, activities, calls

    @cached_property
    def _origins(self) -> dict[int, set[tuple[StreamKey, int]]]:
        """The other streams of each activity, and when their work was launched (ns)."""
        ops, activities = self._ops, self._activities
        rows = np.flatnonzero((activities.call_row >= 0) & (activities.op_row >= 0))
        launched = self._calls.start[activities.call_row[rows]]
        order = np.lexsort((activities.start[rows], launched))
        last: dict[int, tuple[StreamKey, int]] = {}
        origins: dict[int, set[tuple[StreamKey, int]]] = {}
        columns = rows, launched, activities.device[rows], activities.stream[rows], activities.op_row[rows]
        tensors = ops.arguments.tensors
        tensors = tensors.where((tensors.device != HOST) & (tensors.storage != 0))
        storages = Ragged.grouped(tensors.row, tensors.storage, len(ops))
        for row, time, device, stream, op in zip(*(column[order].tolist() for column in columns), strict=True):
            key, touched = StreamKey(device, stream), {*storages[op].tolist()}
            if elsewhere := {last[storage] for storage in touched if storage in last and last[storage][0] != key}:
                origins[row] = elsewhere
            last.update(dict.fromkeys(touched, (key, time)))
        return origins

    def streams(self, activities: Iterable[int], since: int, until: int) -> list[StreamKey]:
        """Returns the other streams that last touched what these activities use, the latest launch first.

        Only what was launched from `since` to before `until` (ns) counts.
        """
        origins = {origin for row in activities for origin in self._origins.get(row, ()) if since <= origin[1] < until}
        return list(dict.fromkeys(stream for stream, _ in sorted(origins, key=lambda origin: -origin[1])))


class Process:
    """One process: what its calls do (`kinds`), what it submitted, and what the trace says of its events."""

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
        """`activities` have their times on the host's clock, `awaited` is the activity that each wait op of a
        collective names.
        """
        self.calls, self.activities, self.collectives, self.awaited = calls, activities, collectives, awaited
        self.timing = TimingModel(activities, calls, calibration)
        self.origins = DataOrigins(collectives.ops, activities, calls)
        self.queues, self.launches = StreamQueues(activities, calls), ThreadLaunches(activities, calls)
        self.call_sites = CallSites(calls, collectives.ops, collectives.parent)
        self.sync_records = SyncRecords(calls, device.syncs, device.event_records, self.queues)
        self.kinds = self.sync_records.kinds
        self.event_record_calls = EventRecordCalls(
            calls,
            self.kinds,
            activities,
            collectives=collectives,
            launches=self.launches,
            call_sites=self.call_sites,
            known_streams=self.sync_records.streams(),
        )

    def start(self, call: int) -> int:
        """Returns when a call started, ns."""
        return int(self.calls.start[call])

    def end(self, call: int) -> int:
        """Returns when a call ended, ns."""
        return int(self.calls.end[call])

    def last_end(self, activities: Iterable[int]) -> int:
        """Returns when the last of the activities ended, ns; NEVER for none."""
        return max((int(self.activities.end[row]) for row in activities), default=NEVER)

    def sync_record(self, call: int) -> SyncRecord | None:
        """Returns the cuda_sync row of a call."""
        return self.sync_records.of(call)

    def recorded_stream(self, call: int) -> StreamKey | None:
        """Returns the stream that a call's cuda_sync row names."""
        record = self.sync_record(call)
        return self.queues.find(record.device, record.stream) if record is not None else None

    def is_named(self, call: int) -> bool:
        """Returns whether the trace names the event record that a call waits for."""
        return self.sync_records.recorder(call) >= 0

    def named_record(self, call: int) -> EventRecord | None:
        """Returns the event record that the trace names for a call, None also where its stream is unknown."""
        return self.sync_records.event_record(call, self.event_record_calls)

    def enclosing_collective(self, call: int) -> int:
        """Returns the collective in whose op a call was made, -1 for none."""
        return self.event_record_calls.enclosing_collective(call)

    def awaited_by_collective(self, call: int) -> int:
        """Returns the activity that the collective's wait op that encloses a call names, -1 for none."""
        return self.awaited.get(self.enclosing_collective(call))

    def pending(self, device: int, call: int) -> tuple[int, ...]:
        """Returns the last activities that had been submitted to the streams of a device (of all for -1) at a call."""
        keys, time = [key for key in self.queues.rows if device in (-1, key.device)], self.start(call)
        return tuple(sorted({source for key in keys for source in self.queues.sources(key, time)}))
