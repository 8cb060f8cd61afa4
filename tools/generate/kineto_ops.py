"""The rows of host ops in a device trace: thread by thread, by start, with flows from forward to backward ops."""

from array import array
from collections.abc import Iterator

from .chrome import Rows, track_fields
from .identity import Identity, record_function
from .kineto_args import collective_args, input_args
from .record import RankRun

EXTERNAL_IDS_PER_BLOCK = 512


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
