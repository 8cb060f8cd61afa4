"""What a process submitted: what each call does, its streams as queues, and its event records."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...schema.columns import Int64, Lookup
from ...schema.linked import NEVER, Activities, Calls, SyncCall, sync_calls
from ...schema.machine import MachineCalibration
from ..communication import CollectiveOps
from ..readers import DeviceTrace
from .call_sites import CallSites
from .data_origins import DataOrigins
from .event_record_calls import EventRecordCalls
from .named_events import EventRecord, NamedEvents, SyncRecord, SyncRecords
from .streams import StreamKey, StreamQueues, ThreadLaunches
from .timing_model import TimingModel


@dataclass(slots=True, frozen=True)
class Process:
    """One process; `kinds` is what each call does, `awaited` the activity that each wait op of a collective names."""

    calls: Calls
    activities: Activities
    collectives: CollectiveOps
    awaited: Lookup
    timing: TimingModel
    origins: DataOrigins
    queues: StreamQueues
    launches: ThreadLaunches
    call_sites: CallSites
    sync_records: SyncRecords
    kinds: Int64
    named_events: NamedEvents
    event_record_calls: EventRecordCalls

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
        return self.sync_records.of(int(self.calls.correlation[call]))

    def recorded_stream(self, call: int) -> StreamKey | None:
        """Returns the stream that a call's cuda_sync row names."""
        record = self.sync_record(call)
        return self.queues.find(record.device, record.stream) if record is not None else None

    def is_named(self, call: int) -> bool:
        """Returns whether the trace names the event record that a call waits for."""
        return self.named_events.recorder(call, self.sync_record(call)) >= 0

    def named_record(self, call: int) -> EventRecord | None:
        """Returns the event record that the trace names for a call, None also where its stream is unknown."""
        record = self.sync_record(call)
        recorder = self.named_events.recorder(call, record)
        if record is None or recorder < 0:
            return None
        return self.named_events.event_record(recorder, record, self.event_record_calls)

    def enclosing_collective(self, call: int) -> int:
        """Returns the collective in whose op a call was made, -1 for none."""
        return self.event_record_calls.enclosing_collective(call)

    def awaited_by_collective(self, call: int) -> int:
        """Returns the activity that the collective's wait op that encloses a call names, -1 for none."""
        return self.awaited.get(self.enclosing_collective(call))

    def pending(self, device: int, call: int) -> tuple[int, ...]:
        """Returns the last activities that had been submitted to the streams of a device (of all for -1) at a call."""
        keys, time = self.queues.on_device(device), self.start(call)
        return tuple(sorted({source for key in keys for source in self.queues.sources(key, time)}))


def process_of(
    device: DeviceTrace,
    calls: Calls,
    activities: Activities,
    *,
    collectives: CollectiveOps,
    awaited: Lookup,
    calibration: MachineCalibration,
) -> Process:
    """Returns one process.

    `activities` have their times on the host's clock, `awaited` is the activity that each wait op of a collective
    names.
    """
    queues, launches = StreamQueues(activities, calls), ThreadLaunches(activities, calls)
    call_sites = CallSites(calls, collectives.ops, collectives.parent)
    sync_records = SyncRecords(device.syncs)
    kinds = _kinds(calls, sync_records)
    named_events = NamedEvents(calls, sync_records, device.event_records, queues)
    return Process(
        calls=calls,
        activities=activities,
        collectives=collectives,
        awaited=awaited,
        timing=TimingModel(activities, calls, calibration),
        origins=DataOrigins(collectives.ops, activities, calls),
        queues=queues,
        launches=launches,
        call_sites=call_sites,
        sync_records=sync_records,
        kinds=kinds,
        named_events=named_events,
        event_record_calls=EventRecordCalls(
            calls,
            kinds,
            activities,
            collectives=collectives,
            launches=launches,
            call_sites=call_sites,
            known_streams=named_events.streams(),
        ),
    )


def _kinds(calls: Calls, records: SyncRecords) -> Int64:
    """Returns what each call does, by its name, else by its cuda_sync row."""
    kinds = sync_calls(calls.name)
    unrecognised = np.flatnonzero((kinds == SyncCall.NONE) & (calls.correlation != 0))
    kinds[unrecognised] = records.kinds(calls.correlation[unrecognised])
    return kinds
