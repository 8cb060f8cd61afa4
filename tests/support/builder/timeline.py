"""Plays a small run that never happened and writes its host and device trace as any supported PyTorch version would.

In go a few lines: ops, launches, events, copies, waits and collectives, with times in microseconds. Out come the two
files. An activity starts as early as its launch call, its stream and the events that the stream waits for allow.

    t = TraceBuilder(torch="2.13")
    with t.op("aten::mm", inputs=[a, b], outputs=[c]):
        t.work(5)
        t.launch("sgemm", stream=7, duration=20)
    t.stream_synchronize(7)
    host, device = t.write(tmp_path)
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from support.builder import records
from support.builder.records import Activity, Call, Collective, Comms, Event, Group, Op, PythonCall, Sync, Tensor
from support.builder.traces import device_trace, host_trace

ALL_STREAMS = -1
CALL_US = 4
SYNC_CALL_US = 2
COPIED = {"bytes": 1024}


@dataclass
class HostThread:
    clock: int
    node: int
    stack: list[Op] = field(default_factory=list)


def ns(us: float) -> int:
    return round(us * 1000)


class TraceBuilder:
    """Plays a run on one process and one device; `threads` are RecordFunction thread numbers, 1 is the main thread.

    `torch` is a version of `LAYOUTS`. `sync_records` adds `cuda_sync` rows, `event_correlations=False`
    leaves the record's correlation in them unknown (-1). With `event_rows` they name an event by its id alone, and
    `cuda_event` rows tell where each id was recorded, as from CUDA 12.9 on. `rank` and `world_size` go into
    `distributedInfo` when a rank is given.
    """

    def __init__(
        self,
        torch: str = "2.13",
        *,
        rank: int | None = None,
        world_size: int = 1,
        device: int = 0,
        pid: int = 1000,
        sync_records: bool = True,
        event_correlations: bool = True,
        clock_offset: float = 0,
        clock_drift: float = 0,
        event_rows: bool = False,
    ) -> None:
        self.layout = records.LAYOUTS[torch]
        self.rank, self.world_size, self.device, self.pid = rank, world_size, device, pid
        self.sync_records, self.event_correlations, self.event_rows = sync_records, event_correlations, event_rows
        self.clock_offset, self.clock_drift = clock_offset, clock_drift
        self.ops: list[Op] = []  # in the order they end, as the host trace lists them
        self.calls: list[Call] = []
        self.activities: list[Activity] = []
        self.syncs: list[Sync] = []
        self.event_records: list[Event] = []
        self.groups: list[Group] = []
        self.python_calls: list[PythonCall] = []
        self.device_events: list[dict[str, Any]] = []
        self.threads: dict[int, HostThread] = {}
        self.ready: dict[int, int] = defaultdict(int)  # per stream: when all that was submitted to it is done
        self._ids, self._rf_ids, self._correlations, self._events = count(2), count(1), count(100), count()
        self._sequence: dict[str, Iterator[int]] = defaultdict(lambda: count(1))
        self._external_ids = count(1537)  # as in a process's later windows, so that none equals its op's rf_id
        self._thread = 1
        self._enter_thread(1, 0)

    # the clock of the current host thread

    @property
    def now(self) -> float:
        """The current thread's clock in µs since the start of the run."""
        return self._current.clock / 1000

    def work(self, us: float) -> None:
        """Host time passes, inside an op as its own work."""
        self._current.clock += ns(us)

    idle = work

    def wait_until(self, us: float) -> None:
        self._current.clock = max(self._current.clock, ns(us))

    @contextmanager
    def thread(self, number: int, start: float | None = None) -> Iterator[None]:
        """What follows happens on another host thread, which starts now (or at `start`) or goes on as it was left."""
        previous = self._thread
        if number not in self.threads:
            self._enter_thread(number, self._current.clock)
        self._thread = number
        if start is not None:
            self.wait_until(start)
        try:
            yield
        finally:
            self._thread = previous

    def join_thread(self, number: int) -> None:
        """The current thread is blocked until what the other one has done so far is over."""
        self._current.clock = max(self._current.clock, self.threads[number].clock)

    @property
    def _current(self) -> HostThread:
        return self.threads[self._thread]

    def _enter_thread(self, number: int, clock: int) -> None:
        self.threads[number] = HostThread(clock, next(self._ids))

    # ops and tensors

    def tensor(
        self,
        shape: Sequence[int] = (4, 4),
        dtype: str = "float",
        *,
        storage: "int | Tensor | None" = None,
        offset: int = 0,
        device: str | None = None,
        strides: Sequence[int] | None = None,
    ) -> Tensor:
        """A tensor of its own storage, or a view of another tensor's. `offset` and `strides` are in elements."""
        if isinstance(storage, Tensor):
            storage = storage.storage
        place = f"cuda:{self.device}" if device is None else device
        number = next(self._ids)
        steps = None if strides is None else tuple(strides)
        return Tensor(
            number, next(self._ids) if storage is None else storage, offset, tuple(shape), dtype, place, steps
        )

    @contextmanager
    def op(self, name: str, *, duration: float = 0, **described: Any) -> Iterator[Op]:
        """An op that lasts as long as what happens inside it, at least `duration`.

        `described` are fields of Op: inputs, outputs, schema, scope, seq_id, fw_thread, fw_parent, `only="host"` or
        `only="device"` for an op that the other file lacks, `args` for its device-trace row.
        """
        thread = self._current
        parent = thread.stack[-1] if thread.stack else None
        number, rf_id, external_id = next(self._ids), next(self._rf_ids), next(self._external_ids)
        op = Op(number, rf_id, external_id, name, self._thread, parent, thread.clock, thread.clock, **described)
        thread.stack.append(op)
        yield op
        thread.stack.pop()
        thread.clock = op.end = max(thread.clock, op.start + ns(duration))
        self.ops.append(op)

    def leaf(self, name: str, duration: float, **described: Any) -> Op:
        """An op that does nothing but take `duration` µs of host time."""
        with self.op(name, duration=duration, **described) as op:
            return op

    def annotation(self, name: str, **described: Any) -> AbstractContextManager[Op]:
        """A `record_function` range such as `ProfilerStep#3`; use it as `with t.annotation(...)`."""
        return self.op(name, scope=records.USER_SCOPE, **described)

    @contextmanager
    def python(self, name: str) -> Iterator[None]:
        """A call of a Python function such as `train.py(3): step`, as recorded with_stack."""
        thread, call = self._current, PythonCall(name, self._thread, self._current.clock, 0)
        self.python_calls.append(call)
        yield
        call.end = thread.clock

    def module(self, name: str) -> AbstractContextManager[None]:
        """A call of a module such as `Linear_0`, as recorded with_modules."""
        return self.python(f"nn.Module: {name}")

    def _innermost_op(self) -> Op | None:
        return next((op for op in reversed(self._current.stack) if op.scope != records.USER_SCOPE), None)

    # calls and activities

    def call(self, name: str, duration: float = CALL_US, *, correlation: int | None = None) -> Call:
        """A runtime or driver call on the current thread."""
        start = self._current.clock
        number = next(self._correlations) if correlation is None else correlation
        self._current.clock = start + ns(duration)
        self.calls.append(Call(name, self._thread, start, self._current.clock, number, self._innermost_op()))
        return self.calls[-1]

    def launch(
        self,
        name: str,
        stream: int = 7,
        duration: float = 10,
        *,
        call: str = "cudaLaunchKernel",
        call_duration: float = CALL_US,
        latency: float | None = None,
        start: float | None = None,
        correlation: int | None = None,
        category: str = "kernel",
        **args: Any,
    ) -> Activity:
        """A launch call and its activity, which starts `latency` after the call does, or when it returns, or later."""
        made = self.call(call, call_duration, correlation=correlation)
        earliest = made.start + ns(call_duration if latency is None else latency)
        begin = max(earliest, self.ready[stream]) if start is None else ns(start)
        return self.activity(name, stream, begin / 1000, duration, made, category, **args)

    def activity(
        self,
        name: str,
        stream: int,
        start: float,
        duration: float,
        call: Call | None = None,
        category: str = "kernel",
        **args: Any,
    ) -> Activity:
        """A device activity at a given time; without a call it has a correlation that no call has."""
        correlation = call.correlation if call else next(self._correlations)
        end = ns(start) + ns(duration)
        op = call.op if call else None
        self.activities.append(Activity(category, name, self.device, stream, ns(start), end, correlation, op, args))
        self.ready[stream] = max(self.ready[stream], end)
        return self.activities[-1]

    def memcpy(
        self, kind: str, stream: int = 7, duration: float = 5, *, blocking: bool | None = None, **options: Any
    ) -> Activity:
        """A copy, kind `HtoD`, `DtoH` or `DtoD`; a blocking one (DtoH unless told) returns when the copy is done."""
        ends = {"H": "Pageable", "D": "Device"}
        name = f"Memcpy {kind} ({ends[kind[0]]} -> {ends[kind[-1]]})"
        named = {"call": "cudaMemcpyAsync", "category": "gpu_memcpy"}
        copy = self.launch(name, stream, duration, **named | COPIED | options)
        if kind == "DtoH" if blocking is None else blocking:
            self._block_until(self.calls[-1], copy.end)
        return copy

    def memset(self, stream: int = 7, duration: float = 2, **options: Any) -> Activity:
        named = {"call": "cudaMemsetAsync", "category": "gpu_memset"}
        return self.launch("Memset (Device)", stream, duration, **named | COPIED | options)

    def graph_launch(
        self, kernels: Sequence[tuple[str, int, float]], *, call_duration: float = 8, latency: float = 0
    ) -> list[Activity]:
        """One cudaGraphLaunch and its kernels, each (name, stream, duration), `latency` µs after the call."""
        made = self.call("cudaGraphLaunch", call_duration)
        return [
            self.activity(
                name, stream, max(made.end + round(1000 * latency), self.ready[stream]) / 1000, duration, made
            )
            for name, stream, duration in kernels
        ]

    # synchronisation

    def event(self) -> Event:
        return Event(next(self._events))

    def record_event(self, event: Event | None = None, *, stream: int = 7) -> Event:
        """cudaEventRecord: the event is done when all that was submitted to the stream before is done."""
        event = event or self.event()
        made = self.call("cudaEventRecord", SYNC_CALL_US)
        event.time, event.stream, event.correlation = max(made.end, self.ready[stream]), stream, made.correlation
        self.event_records.append(replace(event))
        return event

    def wait_event(self, event: Event, *, stream: int) -> None:
        """cudaStreamWaitEvent: what is submitted to the stream later starts after the event."""
        made = self.call("cudaStreamWaitEvent", SYNC_CALL_US)
        self.ready[stream] = max(self.ready[stream], event.time)
        self._sync("Stream Wait Event", made, stream, event)

    def stream_synchronize(self, stream: int = 7) -> None:
        self._synchronize("cudaStreamSynchronize", self.ready[stream], "Stream Sync", stream)

    def device_synchronize(self) -> None:
        self._synchronize("cudaDeviceSynchronize", max(self.ready.values(), default=0), "Context Sync")

    def event_synchronize(self, event: Event) -> None:
        self._synchronize("cudaEventSynchronize", event.time, "Event Sync", event=event)

    def _synchronize(
        self, name: str, time: int, kind: str, stream: int = ALL_STREAMS, event: Event | None = None
    ) -> None:
        made = self.call(name, SYNC_CALL_US)
        self._block_until(made, time)
        self._sync(kind, made, stream, event)

    def event_query(self, event: Event) -> bool:
        """cudaEventQuery: does not block; says whether the event was done."""
        made = self.call("cudaEventQuery", SYNC_CALL_US)
        self._sync("Event Sync", made, ALL_STREAMS, event)
        return event.time <= made.start

    def _block_until(self, call: Call, time: int) -> None:
        """The call returns its own duration after `time`, if that is later than it would anyway."""
        call.end = self._current.clock = max(call.end, time + call.end - call.start)

    def _sync(self, kind: str, call: Call, stream: int, event: Event | None = None) -> None:
        if self.sync_records:
            self.syncs.append(Sync(kind, stream, call.start + 500, call.end - 500, call.correlation, call.op, event))

    # collectives

    def group(self, ranks: Sequence[int], name: str | None = None, description: str = "default_pg") -> Group:
        self.groups.append(Group(str(len(self.groups)) if name is None else name, description, tuple(ranks)))
        return self.groups[-1]

    def collective(
        self,
        name: str = "allreduce",
        *,
        group: Group,
        tensors: Sequence[Tensor] | None = None,
        stream: int = 20,
        duration: float = 50,
        after: int | None = 7,
        kernel: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        peer: int | None = None,
        root: int | None = None,
        in_split: Sequence[int] = (),
        out_split: Sequence[int] = (),
        seq: int | None = None,
    ) -> Collective:
        """`c10d::NAME_` with its `record_param_comms` and kernel, which waits for the work now on stream `after`.

        `tensors` are the input and, if it is another one, the output. `peer` is the other rank of send and recv,
        `root` that of a collective that has one, both by their place in the group.
        """
        inputs = list(tensors or [self.tensor()])
        kind = "messages of " if peer is not None else ""
        seq = next(self._sequence[kind + group.name]) if seq is None else seq
        rank = next((place for place in (peer, root) if place is not None), self.rank or 0)
        splits = list(in_split), list(out_split)
        comms = Comms(name, group, seq, rank, inputs[0], inputs[-1], *splits, p2p=peer is not None)
        outputs = inputs[-1:]
        with (
            self.op(f"c10d::{name}_", duration=4, inputs=inputs, outputs=outputs),
            self.op("record_param_comms", duration=3, inputs=inputs[:1], outputs=outputs, comms=comms) as op,
            self.annotation(f"nccl:{name}"),
        ):
            if after is not None:
                self.wait_event(self.record_event(stream=after), stream=stream)
            launched = self.launch(kernel, stream, duration, call="cudaLaunchKernelExC")
            done = self.record_event(stream=stream)
        return Collective(op, launched, group, seq, done)

    def batch(
        self,
        messages: Sequence[tuple[str, int, Tensor]],
        *,
        group: Group,
        stream: int = 20,
        duration: float = 50,
        after: int | None = 7,
        annotated: bool = True,
    ) -> Activity:
        """`batch_isend_irecv`: messages, each (send or recv, peer's place, tensor), that are launched at once.

        Unless `annotated`, the launch is in no op or annotation at all.
        """
        seq = next(self._sequence[f"messages of {group.name}"])
        for name, peer, tensor in messages:
            comms = Comms(name, group, seq, peer, tensor, tensor, p2p=True)
            with (
                self.op(f"c10d::{name}", duration=4, inputs=[tensor]),
                self.op("record_param_comms", duration=3, inputs=[tensor], outputs=[tensor], comms=comms),
            ):
                if after is not None:
                    self.wait_event(self.record_event(stream=after), stream=stream)
        kernel, call = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "cudaLaunchKernelExC"
        with self.annotation("nccl:coalesced") if annotated else nullcontext():
            return self.launch(kernel, stream, duration, call=call)

    def wait_collective(self, collective: Collective, *, stream: int = 7) -> None:
        """`Work.wait()`: the stream waits for the collective, the host does not."""
        comms = Comms("wait", collective.group, collective.seq, self.rank or 0)
        with self.op("record_param_comms", duration=1, comms=comms):
            self.wait_event(collective.done, stream=stream)

    # what comes out

    def add_device_event(self, event: dict[str, Any]) -> None:
        """A row of the device trace as it is."""
        self.device_events.append(event)

    @property
    def makespan_us(self) -> float:
        """From the first to the last thing that both traces show of the run."""
        timed: list[Op | Call | Activity] = [*self.ops, *self.calls, *self.activities]
        return (max(row.end for row in timed) - min(row.start for row in timed)) / 1000

    @property
    def origin_ns(self) -> int:
        """Where the run's time 0 lies on the device trace's own clock."""
        return round(self.layout.origin_us * 1000)

    def host_trace(self) -> dict[str, Any]:
        return host_trace(self)

    def device_trace(self) -> dict[str, Any]:
        return device_trace(self)

    def write(self, folder: Path, *, compressed: bool = False) -> tuple[Path, Path]:
        """Writes the pair, named by rank if there is one, and returns the host's and the device's path."""
        ending = ("" if self.rank is None else f"_rank{self.rank}") + (".json.gz" if compressed else ".json")
        paths = folder / f"host{ending}", folder / f"device{ending}"
        for path, trace in zip(paths, (self.host_trace(), self.device_trace()), strict=True):
            text = json.dumps(trace).encode()
            path.write_bytes(gzip.compress(text, mtime=0) if compressed else text)
        return paths
