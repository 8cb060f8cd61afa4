"""What a process submitted: what each call does, its streams as queues, and its recordings."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Int64, Lookup
from ...schema.linked import Activities, Calls
from ...schema.machine import MachineCalibration
from ...schema.traces import NEVER
from ..communication import CollectiveOps
from ..readers import DeviceTrace, SyncCall, sync_calls
from .call_sites import CallSites
from .data_origins import DataOrigins
from .event_records import EventRecords
from .events import EventRecord, NamedEvents, SyncRecord, SyncRecords
from .streams import StreamKey, StreamQueues, ThreadLaunches
from .timing_model import TimingModel


@dataclass(slots=True, frozen=True)
class Process:
    """One process; `kinds` is what each call does, `awaited` the activity that each wait op of a collective names."""

    calls: Calls
    activities: Activities
    collectives: CollectiveOps
    awaited: Lookup
    has_wait_records: bool
    evidence: TimingModel
    origins: DataOrigins
    queues: StreamQueues
    launches: ThreadLaunches
    places: CallSites
    records: SyncRecords
    kinds: Int64
    events: NamedEvents
    recordings: EventRecords

    def start(self, call: int) -> int:
        """Returns when a call started, ns."""
        return int(self.calls.start[call])

    def end(self, call: int) -> int:
        """Returns when a call ended, ns."""
        return int(self.calls.end[call])

    def last_end(self, activities: Iterable[int]) -> int:
        """Returns when the last of them ended."""
        return max((int(self.activities.end[row]) for row in activities), default=NEVER)

    def record(self, call: int) -> SyncRecord | None:
        """Returns the cuda_sync row of a call."""
        return self.records.of(int(self.calls.correlation[call]))

    def recorded_stream(self, call: int) -> StreamKey | None:
        """Returns the stream that a call's record names."""
        record = self.record(call)
        return self.queues.find(record.device, record.stream) if record is not None else None

    def is_named(self, call: int) -> bool:
        """Returns whether the trace names the recording that a call waits for."""
        return self.events.named(call, self.record(call)) >= 0

    def named(self, call: int) -> EventRecord | None:
        """Returns the recording that the trace names for a call, None also where its stream is not known."""
        record = self.record(call)
        if record is None or not self.is_named(call):
            return None
        return self.events.recording(self.events.named(call, record), record, self.recordings)

    def collective(self, call: int) -> int:
        """Returns the collective around a call, -1 for none."""
        return self.collectives.around(int(self.calls.op_row[call]))

    def named_by_collective(self, call: int) -> int:
        """Returns the activity that the wait op around a call names, -1 for none."""
        return self.awaited.get(self.collective(call))

    def pending(self, device: int, call: int) -> tuple[int, ...]:
        """Returns what the streams of a device (of all for -1) had been given at a call and come to last."""
        keys, time = self.queues.on_device(device), self.start(call)
        return tuple(sorted({source for key in keys for source in self.queues.sources(key, time)}))


def process_of(
    device: DeviceTrace,
    calls: Calls,
    activities: Activities,
    collectives: CollectiveOps,
    awaited: Lookup,
    machine: MachineCalibration,
) -> Process:
    """`activities` have their times on the host's clock, `awaited` is the activity that each wait op of a collective
    names.
    """
    queues, launches = StreamQueues(activities, calls), ThreadLaunches(activities, calls)
    places = CallSites(calls, collectives.ops, collectives.parent)
    records = SyncRecords(device.syncs)
    kinds = _kinds(calls, records)
    events = NamedEvents(calls, records, device.event_records, queues)
    recordings = EventRecords(calls, kinds, activities, collectives, launches, places, events.streams())
    return Process(
        calls,
        activities,
        collectives,
        awaited,
        records.tell_of(SyncCall.STREAM_WAIT),
        TimingModel(activities, calls, machine),
        DataOrigins(collectives.ops, activities, calls),
        queues,
        launches,
        places,
        records,
        kinds,
        events,
        recordings,
    )


def _kinds(calls: Calls, records: SyncRecords) -> Int64:
    """Returns what each call does; where its name does not tell, its record does."""
    kinds = sync_calls(calls.name)
    untold = np.flatnonzero((kinds == SyncCall.NONE) & (calls.correlation != 0))
    kinds[untold] = records.kinds(calls.correlation[untold])
    return kinds
