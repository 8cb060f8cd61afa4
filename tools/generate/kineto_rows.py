"""Rows of a device trace as JSON text: how they are written, those of host ops with their flows, and those of Python.

Times in are ns from the start of the run. They are written in µs: with three digits and relative to
`baseTimeNanoseconds`, so that ns are exact, or whole and since the epoch, as Kineto did before it had that field.
"""

import json
from array import array
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import NamedTuple

from .instructions import Collective, Opaque, Tensor, Value
from .machine import Times
from .record import BASE_NS, FIRST_NS, NONE, Identity, RankRun, record_function

C10_TYPES = {"float": "Float", "long int": "Long"}
LISTED = 30
"""Longer lists of ranks and split sizes are cut."""
EXTERNAL_IDS_PER_BLOCK = 512
FRAMES = (
    "torch/nn/modules/module.py(1751): _wrapped_call_impl",
    "<built-in function isinstance>",
    "torch/nn/modules/module.py(1762): _call_impl",
    "torch/_jit_internal.py(104): is_scripting",
    "<built-in method _get_tracing_state of PyCapsule object at 0x7f84d0a51f50>",
    "torch/nn/modules/module.py(1954): __getattr__",
    "<built-in function len>",
)
"""What Python goes through before it calls an op."""


class Rows(NamedTuple):
    """Writes rows with times of one resolution."""

    whole_us: bool = False

    @property
    def first_ns(self) -> int:
        """What the trace gives as the start of the run."""
        return BASE_NS + FIRST_NS if self.whole_us else FIRST_NS

    def cut(self, ns: Times) -> Times:
        """Returns a time as it is written; where that is in whole µs, starts and lengths are cut, each by itself."""
        return ns - ns % 1000 if self.whole_us else ns

    def complete(self, category: str, name: str, track: str, start: int, end: int, *, args: str) -> str:
        """Returns a row from `start` to `end`; `track` as from track_fields(), `args` without their braces."""
        return (
            f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, {track}, '
            f'"ts": {self.at(start)}, "dur": {self._micros(end - start)}, "args": {{{args}}}}}'
        )

    def flow(self, category: str, starts: bool, number: int, track: str, at: int) -> str:
        """Returns one end of the arrow `number`: its start, or what it points to."""
        ends = "" if starts else ', "bp": "e"'
        return (
            f'{{"ph": "{"s" if starts else "f"}", "id": {number}, {track}, "ts": {self.at(at)}, '
            f'"cat": "{category}", "name": "{category}"{ends}}}'
        )

    def label(self, what: str, process: int, thread: int, key: str, value: str | int) -> str:
        """Returns a metadata row: what a process or thread is called, or where it is shown."""
        return (
            f'{{"ph": "M", "name": "{what}", "ts": {self.at(0)}, {track_fields(process, thread)}, '
            f'"args": {{"{key}": {json.dumps(value)}}}}}'
        )

    def at(self, ns: int) -> str:
        """Returns a time of the run as text."""
        return self._micros(self.first_ns + ns)

    def _micros(self, ns: int) -> str:
        return str(ns // 1000) if self.whole_us else f"{ns // 1000}.{ns % 1000:03d}"


def track_fields(process: int | str, thread: int | str) -> str:
    """Returns the fields that say of which process and thread a row is."""
    return f'"pid": {json.dumps(process)}, "tid": {json.dumps(thread)}'


def input_args(inputs: tuple[Value, ...]) -> str:
    """Returns what `record_shapes` adds to an op; empty for an op without arguments."""
    if not inputs:
        return ""
    columns: dict[str, Callable[[Value], object]] = {
        "Concrete Inputs": _concrete,
        "Input type": _type,
        "Input Strides": lambda value: _field_values(value, "strides"),
        "Input Dims": lambda value: _field_values(value, "shape"),
    }
    return "".join(f'"{name}": {json.dumps([of(value) for value in inputs])}, ' for name, of in columns.items())


def _is_tensors(value: Value) -> bool:
    return (
        isinstance(value, tuple)
        and not isinstance(value, Tensor | Opaque)
        and isinstance(next(iter(value), None), Tensor)
    )


def _field_values(value: Value, field: str) -> object:
    if isinstance(value, Tensor):
        return getattr(value, field)
    return [getattr(item, field) for item in value] if isinstance(value, tuple) and _is_tensors(value) else []


def _type(value: Value) -> str:
    if isinstance(value, Tensor):
        return value.dtype
    if value is None or isinstance(value, Opaque | str):
        return ""
    if isinstance(value, tuple):
        return "TensorList" if _is_tensors(value) else "ScalarList"
    return "Scalar"


def _concrete(value: Value) -> str:
    if _type(value) == "ScalarList" and isinstance(value, tuple):
        return str(list(value))
    return str(value) if _type(value) == "Scalar" else ""


def collective_args(collective: Collective, sequence: int) -> str:
    """Returns what Kineto says of a collective, on its op and on its kernel."""
    group = collective.group
    args: dict[str, object] = {
        "Collective name": collective.name,
        "In msg nelems": collective.in_elements,
        "Out msg nelems": collective.out_elements,
        "Group size": max(1, len(group.ranks)),
        "dtype": collective_dtype(collective),
        "In split size": _shortened(collective.in_splits),
        "Out split size": _shortened(collective.out_splits),
        "Process Group Ranks": _shortened(group.ranks),
        "Rank": collective.rank,
        "Seq": sequence,
        "Is asynchronized op": collective.asynchronous,
    }
    if group.name:
        args |= {"Process Group Name": group.name, "Process Group Description": group.description}
        args |= {"Global rank start": group.ranks[0], "Global rank stride": stride(group.ranks)}
    if collective.is_p2p:
        args["Dst Rank" if collective.name == "send" else "Src Rank"] = group.ranks[collective.rank]
    return json.dumps(args)[1:-1] + ", "


def collective_dtype(collective: Collective) -> str:
    """Returns the type of the first tensor's elements, Byte without one."""
    return C10_TYPES[collective.tensors[0].dtype] if collective.tensors else "Byte"


def stride(ranks: tuple[int, ...]) -> int:
    """Returns the distance between the ranks of a group, 1 for one rank."""
    return ranks[1] - ranks[0] if len(ranks) > 1 else 1


def _shortened(numbers: tuple[int, ...]) -> str:
    listed = [*map(str, numbers[:LISTED]), *["..."][: len(numbers) > LISTED]]
    return f"[{', '.join(listed)}]"


def external_ids(run: RankRun, threads: int) -> "array[int]":
    """Kineto's own id of each op: from 1, in blocks of 512 that belong to one thread each."""
    ids = array("q", bytes(8 * len(run.ops)))
    used, block, blocks = [0] * threads, [0] * threads, 0
    for row, thread in enumerate(run.ops.thread):
        if used[thread] % EXTERNAL_IDS_PER_BLOCK == 0:
            block[thread], blocks = blocks, blocks + 1
        ids[row] = 1 + EXTERNAL_IDS_PER_BLOCK * block[thread] + used[thread] % EXTERNAL_IDS_PER_BLOCK
        used[thread] += 1
    return ids


def op_rows(run: RankRun, who: Identity, rows: Rows, external: "array[int]") -> Iterator[str]:
    """Yields a row for each op, and one for each flow behind the op where it starts or ends."""
    flows = _forward_backward(run)
    inputs = [input_args(op.inputs) for op in run.op_table]
    position = 0
    for thread, tid in enumerate(who.tids):
        at = track_fields(who.pid, tid)
        for row, op_thread in enumerate(run.ops.thread):
            if op_thread != thread:
                continue
            op = run.op_table[run.ops.op[row]]
            args = f'"External id": {external[row]}, {_op_args(run, row)}{inputs[run.ops.op[row]]}"Ev Idx": {position}'
            category = "user_annotation" if op.annotation else "cpu_op"
            # the end is cut, not the length: an op that ends with the one around it still does
            start, end = rows.cut(run.ops.start[row]), rows.cut(run.ops.end[row])
            yield rows.complete(category, op.name, at, start, end, args=args)
            if row in flows:
                yield rows.flow("fwdbwd", flows[row] > 0, abs(flows[row]), at, start)
            position += 1


def _op_args(run: RankRun, row: int) -> str:
    ops = run.ops
    args = f'"Record function id": {record_function(row)}, '
    if ops.sequence[row] >= 0:
        args += f'"Sequence number": {ops.sequence[row]}, "Fwd thread id": {ops.forward_thread[row]}, '
    collective = run.op_table[ops.op[row]].collective
    return args + (collective_args(collective, ops.comm_sequence[row]) if collective else "")


def _forward_backward(run: RankRun) -> dict[int, int]:
    """Returns each op's flow from a forward op to its backward op, negative where it ends."""
    ops = run.ops
    forward: dict[tuple[int, int], int] = {}
    flows: dict[int, int] = {}
    for row, sequence in enumerate(ops.sequence):
        if sequence < 0:
            continue
        if not ops.forward_thread[row]:
            forward[ops.thread[row] + 1, sequence] = row
        elif run.op_table[ops.op[row]].scope:
            source = forward.pop((ops.forward_thread[row], sequence), None)
            if source is not None:
                number = len(flows) // 2 + 1
                flows[source], flows[row] = number, -number
    return flows


def python_rows(run: RankRun, who: Identity, rows: Rows, calls: int) -> Iterator[str]:
    """So many calls around each outermost op that Python called, which last as long as the op."""
    ops, number = run.ops, 0
    for row, parent in enumerate(ops.parent):
        op = run.op_table[ops.op[row]]
        by_python = not op.annotation and not ops.forward_thread[row]
        if not by_python or (parent != NONE and not run.op_table[ops.op[parent]].annotation):
            continue
        at, caller = track_fields(who.pid, who.tids[ops.thread[row]]), "null"
        called = f"<built-in method {op.name.rpartition(':')[2]} of type object at 0x7f84d8c4ea40>"
        for name in (*islice(cycle(FRAMES), calls - 1), called):
            number += 1
            args = f'"Python parent id": {caller}, "Python id": {number}, "Ev Idx": {len(ops) + number - 1}'
            yield rows.complete(
                "python_function", name, at, rows.cut(ops.start[row]), rows.cut(ops.end[row]), args=args
            )
            caller = str(number)
