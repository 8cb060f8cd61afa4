"""Writes the device trace of a simulated rank, the Chrome JSON that Kineto would have written, rows in its order.

Times in are ns from the start of the run. They are written in µs, on the clocks of host and device: relative to
`baseTimeNanoseconds` with three digits, or whole and since the epoch, as Kineto did before it had that field.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain, cycle, islice

from ...schema.columns import Interner
from ...schema.io import open_output, write_items
from .job import NONE, Collective, Opaque, Tensor, Value
from .machine import BASE_NS
from .record import EVENT_SYNC, STREAM_SYNC, STREAM_WAIT, SYNC_KINDS, RankRun, correlation, is_recorded, record_function

CONTEXT = 1
WAIT_LANE, STREAM_SYNC_LANE = 1, 1_000_000
"""The thread on which Kineto shows waits that belong to no stream, and by how much it moves stream synchronisations."""
CBIDS = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51,
    "cudaGraphLaunch": 311, "cudaEventRecord": 135, "cudaEventQuery": 138, "cudaEventSynchronize": 137,
    "cudaStreamWaitEvent": 147, "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165,
    "cudaStreamIsCapturing": 317,
}  # fmt: skip
FLOW_STARTS = {"cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaDeviceSynchronize"}
"""Calls besides launches from which an ac2g flow starts; it ends at all others."""
DEVICE = {
    "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_899_345_920, "computeMajor": 8, "computeMinor": 0,
    "maxThreadsPerBlock": 1024, "warpSize": 32, "numSms": 108,
}  # fmt: skip
KERNEL_SHAPE = (
    '"registers per thread": 32, "shared memory": 16384, "blocks per SM": 2.370370, "warps per SM": 18.962963, '
    '"grid": [256, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 29'
)
LISTED = 30
"""Longer lists of ranks and split sizes are cut."""
EXTERNAL_IDS_PER_BLOCK = 512
FRAMES = (
    "torch/nn/modules/module.py(1751): _wrapped_call_impl", "<built-in function isinstance>",
    "torch/nn/modules/module.py(1762): _call_impl", "torch/_jit_internal.py(104): is_scripting",
    "<built-in method _get_tracing_state of PyCapsule object at 0x7f84d0a51f50>",
    "torch/nn/modules/module.py(1954): __getattr__", "<built-in function len>",
)  # fmt: skip
"""What Python goes through before it calls an op."""


def write_device_trace(path: str, head: dict[str, object], rows: Iterator[str]) -> None:
    """Writes the trace in pieces. Raises DataError when the file cannot be written."""
    with open_output(path) as file:
        file.write((json.dumps(head)[:-1] + ', "traceEvents": [').encode())
        write_items(file, rows)
        file.write(b"\n  ]\n}\n")


def device_rows(run: RankRun, sync_records: bool, resolved_events: bool, stacks: int) -> Iterator[str]:
    """Returns the rows of the trace, with `stacks` calls of Python per called op.

    CUPTI records synchronisation if `sync_records`, and where events were recorded if `resolved_events`.
    """
    profile = _Profile(run)
    return chain(
        profile.ops(), profile.python(stacks) if stacks else (),
        profile.calls_and_activities(sync_records, resolved_events), profile.stream_annotations(), profile.names(),
        profile.window(),
    )  # fmt: skip


def device_head(run: RankRun, name: str, stacks: int) -> dict[str, object]:
    """Returns what the trace of this name says beside its rows."""
    head: dict[str, object] = {"schemaVersion": 1, "deviceProperties": [{"id": run.device, **DEVICE}]}
    if run.job.ranks > 1:
        groups = [{**group.config, "pg_size": len(group.ranks), "ranks": group.ranks} for group in run.groups]
        identity = {"rank": run.rank, "world_size": run.job.ranks, "pg_count": len(groups), "pg_config": groups}
        head["distributedInfo"] = {"backend": "nccl", **identity, "nccl_version": "2.27.5"}
    head |= {"with_stack": 1} if stacks else {}
    head |= {"record_shapes": 1, "displayTimeUnit": "ms"}
    head |= {} if run.job.machine.whole_us else {"baseTimeNanoseconds": BASE_NS}
    return head | {"traceName": name}


def track_fields(process: int | str, thread: int | str) -> str:
    """Returns the fields that say of which process and thread a row is."""
    return f'"pid": {json.dumps(process)}, "tid": {json.dumps(thread)}'


def input_args(inputs: tuple[Value, ...]) -> str:
    """Returns what `record_shapes` adds to an op; empty for an op without arguments."""
    columns = zip(*map(_shown, inputs), strict=True)
    names = ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")
    return "".join(f'"{name}": {json.dumps(column)}, ' for name, column in zip(names, columns, strict=False))


def _shown(value: Value) -> tuple[object, ...]:
    """Returns an argument's value, type, strides and shape; the value of a scalar alone is recorded."""
    if isinstance(value, Tensor):
        return "", value.dtype, value.strides, value.shape
    if value is None or isinstance(value, Opaque | str):
        return "", "", (), ()
    if not isinstance(value, tuple):
        return str(value), "Scalar", (), ()
    if tensors := [item for item in value if isinstance(item, Tensor)]:
        return "", "TensorList", [item.strides for item in tensors], [item.shape for item in tensors]
    return str([*value]), "ScalarList", (), ()


def collective_args(collective: Collective, sequence: int) -> str:
    """Returns what Kineto says of a collective, on its op and on its kernel."""
    group = collective.group
    args: dict[str, object] = {
        "Collective name": collective.name, "In msg nelems": collective.elements[0],
        "Out msg nelems": collective.elements[1], "Group size": max(1, len(group.ranks)), "dtype": collective.dtype,
        "In split size": _shortened(collective.in_splits), "Out split size": _shortened(collective.out_splits),
        "Process Group Ranks": _shortened(group.ranks), "Rank": collective.rank, "Seq": sequence,
        "Is asynchronized op": True,
    }  # fmt: skip
    if group.name:
        args |= {"Process Group Name": group.name, "Process Group Description": group.description}
        args |= {"Global rank start": group.ranks[0], "Global rank stride": group.stride}
    if collective.is_p2p:
        args["Dst Rank" if collective.name == "send" else "Src Rank"] = group.ranks[collective.rank]
    return json.dumps(args)[1:-1]


def _shortened(numbers: tuple[int, ...]) -> str:
    return f"[{', '.join([*map(str, numbers[:LISTED]), *['...'][: len(numbers) > LISTED]])}]"


class _Profile:
    """A rank's run as its profiler sees it: the machine's resolution, the device's clock, what is shown, ids of ops."""

    def __init__(self, run: RankRun) -> None:
        self.run, self.machine = run, run.job.machine
        self.clock = self.machine.clock(run.rank)
        self.tracks = [track_fields(run.pid, tid) for tid in run.tids]
        self.is_recorded = is_recorded(run).tolist()
        self.external: list[int] = []
        # Kineto's own ids of ops are from 1, in blocks of 512 that belong to one thread each
        used, blocks = Counter[int](), Interner[tuple[int, int]]()
        for thread in run.ops.thread:
            block, position = divmod(used[thread], EXTERNAL_IDS_PER_BLOCK)
            self.external.append(1 + EXTERNAL_IDS_PER_BLOCK * blocks[thread, block] + position)
            used[thread] += 1

    def _complete(self, category: str, name: str, track: str, start: int, end: int, args: str) -> str:
        """Returns a row from `start` to `end`; `track` as from track_fields(), `args` without their braces."""
        return (
            f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, {track}, '
            f'"ts": {self._at(start)}, "dur": {self._micros(end - start)}, "args": {{{args}}}}}'
        )

    def _flow(self, category: str, starts: bool, number: int, track: str, at: int) -> str:
        """Returns one end of the arrow `number`: its start, or what it points to."""
        ends = "" if starts else ', "bp": "e"'
        return (
            f'{{"ph": "{"s" if starts else "f"}", "id": {number}, {track}, "ts": {self._at(at)}, '
            f'"cat": "{category}", "name": "{category}"{ends}}}'
        )

    def _at(self, ns: int) -> str:
        """Returns a time of the run as text."""
        return self._micros(self.machine.first_ns + ns)

    def _micros(self, ns: int) -> str:
        return str(ns // 1000) if self.machine.whole_us else f"{ns // 1000}.{ns % 1000:03d}"

    def ops(self) -> Iterator[str]:
        """Yields a row for each op, and one for each flow behind the op where it starts or ends."""
        run, ops = self.run, self.run.ops
        flows = self._forward_backward()
        inputs = [input_args(op.inputs) for op in run.op_table]
        for position, row in enumerate(sorted(range(len(ops)), key=ops.thread.__getitem__)):
            op, at = run.op_table[ops.op[row]], self.tracks[ops.thread[row]]
            args = f'"External id": {self.external[row]}, "Record function id": {record_function(row)}, '
            if ops.sequence[row] >= 0:
                args += f'"Sequence number": {ops.sequence[row]}, "Fwd thread id": {ops.forward_thread[row]}, '
            if op.collective:
                args += f"{collective_args(op.collective, ops.comm_sequence[row])}, "
            args += f'{inputs[ops.op[row]]}"Ev Idx": {position}'
            category = "user_annotation" if op.annotation else "cpu_op"
            start, end = self._op_span(row)
            yield self._complete(category, op.name, at, start, end, args)
            if row in flows:
                yield self._flow("fwdbwd", flows[row] > 0, abs(flows[row]), at, start)

    def _op_span(self, row: int) -> tuple[int, int]:
        """Returns when an op ran. Its end is cut, not its length: an op that ends with the one around it still does."""
        return self.machine.cut(self.run.ops.start[row]), self.machine.cut(self.run.ops.end[row])

    def _forward_backward(self) -> dict[int, int]:
        """Returns each op's flow from a forward op to its backward op, negative where it ends."""
        ops = self.run.ops
        forward: dict[tuple[int, int], int] = {}
        flows: dict[int, int] = {}
        for row, (thread, sequence) in enumerate(zip(ops.forward_thread, ops.sequence, strict=True)):
            if sequence >= 0 and not thread:
                forward[ops.thread[row] + 1, sequence] = row
            elif (thread, sequence) in forward and self.run.op_table[ops.op[row]].scope:
                number = len(flows) // 2 + 1
                flows[forward.pop((thread, sequence))], flows[row] = number, -number
        return flows

    def python(self, calls: int) -> Iterator[str]:
        """Yields so many calls around each outermost op that Python called, which last as long as the op."""
        ops, op_table, number = self.run.ops, self.run.op_table, 0
        for row, parent in enumerate(ops.parent):
            op = op_table[ops.op[row]]
            is_outermost = parent == NONE or op_table[ops.op[parent]].annotation
            if op.annotation or ops.forward_thread[row] or not is_outermost:
                continue
            (start, end), at, caller = self._op_span(row), self.tracks[ops.thread[row]], "null"
            called = f"<built-in method {op.name.rpartition(':')[2]} of type object at 0x7f84d8c4ea40>"
            for name in (*islice(cycle(FRAMES), calls - 1), called):
                number += 1
                args = f'"Python parent id": {caller}, "Python id": {number}, "Ev Idx": {len(ops) + number - 1}'
                yield self._complete("python_function", name, at, start, end, args)
                caller = str(number)

    def calls_and_activities(self, sync_records: bool, resolved_events: bool) -> Iterator[str]:
        run, calls, activities = self.run, self.run.calls, self.run.activities
        linked = self._innermost(is_annotation=False)
        syncs = {call: row for row, call in enumerate(run.syncs.call)} if sync_records else {}
        used = set(activities.stream)
        activity = 0
        for row, caller in enumerate(calls.op):
            op = linked[caller]
            link = f'"External id": {self.external[op]}, ' if op != NONE else ""
            first = activity
            while activity < len(activities) and activities.call[activity] == row:
                if self.is_recorded[activity]:
                    yield from self._activity(activity, link)
                activity += 1
            if row in syncs and (run.syncs.kind[syncs[row]] != STREAM_WAIT or run.syncs.stream[syncs[row]] in used):
                yield from self._sync_record(syncs[row], link, resolved_events)
            name, at = run.call_names[calls.name[row]], self.tracks[calls.thread[row]]
            args = f'{link}"cbid": {CBIDS[name]}, "correlation": {correlation(row)}'
            yield self._complete("cuda_runtime", name, at, calls.start[row], calls.end[row], args)
            is_start = activity > first or name in FLOW_STARTS
            yield self._flow("ac2g", is_start, correlation(row), at, calls.start[row])

    def _innermost(self, *, is_annotation: bool) -> list[int]:
        """Returns the innermost annotation, or op that is none, around each op, or itself; and NONE at the end."""
        run, innermost = self.run, [NONE] * (len(self.run.ops) + 1)
        for row, parent in enumerate(run.ops.parent):
            is_one = run.op_table[run.ops.op[row]].annotation == is_annotation
            innermost[row] = row if is_one else innermost[parent]
        return innermost

    def _device_span(self, activity: int) -> tuple[int, int]:
        """Returns when an activity ran, by the device's clock."""
        activities = self.run.activities
        return self.clock.read(activities.start[activity]), self.clock.read(activities.end[activity])

    def _activity(self, row: int, link: str) -> Iterator[str]:
        device, activities = self.run.device, self.run.activities
        activity, number = self.run.activity_table[activities.activity[row]], correlation(activities.call[row])
        start, end = self._device_span(row)
        args = f'{link}"device": {device}, "context": {CONTEXT}, "stream": {activities.stream[row]}, '
        args += f'"correlation": {number}, '
        if activities.node[row]:
            args += f'"graph id": 1, "graph node id": {activities.node[row]}, '
        if activity.category == "kernel":
            args += f'"queued": 0, {KERNEL_SHAPE}'
        else:
            args += f'"bytes": {activity.bytes}, "memory bandwidth (GB/s)": {activity.bytes / max(1, end - start)}'
        if activity.collective:
            args += f", {collective_args(activity.collective, activities.comm_sequence[row])}"
        at = track_fields(device, activities.stream[row])
        yield self._complete(activity.category, activity.name, at, start, end, args)
        yield self._flow("ac2g", False, number, at, start)

    def _sync_record(self, row: int, link: str, resolved: bool) -> Iterator[str]:
        """Yields CUPTI's record of a call that waits; it lies within the call and is timed on the host."""
        syncs, calls, device = self.run.syncs, self.run.calls, self.run.device
        call, kind, stream = syncs.call[row], syncs.kind[row], syncs.stream[row]
        margin = min(600, (calls.end[call] - calls.start[call]) // 4)
        start, end = calls.start[call] + margin, calls.end[call] - margin
        lane = stream + STREAM_SYNC_LANE if kind == STREAM_SYNC else stream if kind == STREAM_WAIT else WAIT_LANE
        args = f'{link}"cuda_sync_kind": "{SYNC_KINDS[kind]}", '
        if kind in (EVENT_SYNC, STREAM_WAIT):
            is_known = resolved and syncs.recorded_by[row] != NONE
            args += (
                f'"wait_on_stream": {syncs.recorded_on[row] if is_known else -1}, '
                f'"wait_on_cuda_event_record_corr_id": {correlation(syncs.recorded_by[row]) if is_known else -1}, '
                f'"wait_on_cuda_event_id": {syncs.event[row]}, '
            )
        args += f'"stream": {stream}, "correlation": {correlation(call)}, "device": {device}, "context": {CONTEXT}'
        at = track_fields(device, lane)
        yield self._complete("cuda_sync", SYNC_KINDS[kind], at, start, end, args)
        yield self._flow("ac2g", False, correlation(call), at, start)

    def stream_annotations(self) -> Iterator[str]:
        """Yields for each annotation that is the innermost one around launches a row on each of their streams."""
        run, activities = self.run, self.run.activities
        annotation_of = self._innermost(is_annotation=True)
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for row, call in enumerate(activities.call):
            op = annotation_of[run.calls.op[call]]
            if op != NONE and self.is_recorded[row]:
                key, (start, end) = (op, activities.stream[row]), self._device_span(row)
                first, last = spans.get(key, (start, end))
                spans[key] = min(start, first), max(end, last)
        for (op, stream), (start, end) in spans.items():
            name, args = run.op_table[run.ops.op[op]].name, f'"External id": {self.external[op]}'
            at = track_fields(self.run.device, stream)
            yield self._complete("gpu_user_annotation", name, at, start - 1, end, args)

    def names(self) -> Iterator[str]:
        """Yields what processes and threads are called, and where they are shown."""
        run = self.run
        tracks = [(run.device, stream, f"stream {stream} ") for stream in sorted(set(run.activities.stream))]
        tracks += [(run.pid, tid, f"thread {tid} (python)") for tid in run.tids]
        on_device = f"GPU {run.device}", 16_777_216 + run.device
        for kind, process, thread, facts in (
            ("process", run.pid, 0, {"name": "python", "labels": "CPU", "sort_index": run.pid}),
            ("process", run.device, 0, {"name": "python", "labels": on_device[0], "sort_index": on_device[1]}),
            *(("thread", process, thread, {"name": name, "sort_index": thread}) for process, thread, name in tracks),
        ):
            for key, value in facts.items():
                yield (
                    f'{{"ph": "M", "name": "{kind}_{key}", "ts": {self._at(0)}, {track_fields(process, thread)}, '
                    f'"args": {{"{key}": {json.dumps(value)}}}}}'
                )

    def window(self) -> Iterator[str]:
        """Yields when the recording began and ended."""
        end, at = self.run.period()[1], track_fields("Spans", "PyTorch Profiler")
        yield self._complete("Trace", "PyTorch Profiler (0)", at, 0, end, '"Op count": 0')
        begin = "Iteration Start: PyTorch Profiler", track_fields("Traces", "Trace PyTorch Profiler"), 0
        for name, at, ns in (begin, ("Record Window End", track_fields("", ""), end)):
            yield f'{{"ph": "i", "s": "g", "name": "{name}", {at}, "ts": {self._at(ns)}}}'
