"""Which communication each kernel of a communication library did: the recorded arguments around its launch, or those
before it.

Several messages or collectives may be given to the library one by one and launched together, when their group ends: by
one kernel that no `record_param_comms` is around.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

import msgspec
import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    Categorical,
    Int64,
    Lookup,
    split_groups,
)
from ...schema.linked import Activities, Calls, Communication, Communications, Ops
from ...schema.traces import integer, kineto
from ..readers import RecordedActivities, Role
from .process_groups import WAIT
from .recorded_arguments import dtype_of, elements, from_device, from_host, merge

RECORD = "record_param_comms"
KERNEL = re.compile(
    r"\b(nccl|rccl|msccl|hccl|xccl|oneccl|nvshmem|rocshmem|c10d)|ncclKernel|ncclDevKernel|ncclSym|rcclGenericKernel|mscclKernel"
    r"|cross_device_reduce|multimem_|(one|two)_shot_all_reduce|oneRankReduce|deep_ep",
    re.IGNORECASE,
)
ANNOTATION = re.compile(r"(\w*ccl|mpi|ucc|c10d)::?(\w+)")
COALESCED = "coalesced"
BARRIER = "barrier"
AT_ONCE = 1 << 10
SINGLE = (WAIT, "init", BARRIER, COALESCED)
"""Records of what is never given to the library to be launched together with others."""


def is_communication_kernel(names: Categorical) -> Bool:
    """Returns activities whose kernel belongs to a communication library."""
    return names.where(lambda name: bool(KERNEL.search(name)))


@dataclass(slots=True)
class CollectiveOps:
    """The `record_param_comms` ops: their rows, each one's recorded arguments, and how to find the one around another
    op.

    `number` is the place of each op in `rows`, -1 for other ops.
    """

    rows: Int64
    recorded: Communications
    parent: Int64
    ops: Ops
    arguments: Mapping[Role, Mapping[int, kineto.Args]]
    device_row: Int64
    number: "memoryview[int]" = field(init=False)

    def __post_init__(self) -> None:
        number = np.full(len(self.ops), -1, np.int64)
        number[self.rows] = np.arange(len(self.rows))
        self.number = number.data

    def around(self, op: int) -> int:
        """Returns the nearest of them around an op (or itself), -1 for none."""
        while op >= 0 and self.number[op] < 0:
            op = int(self.parent[op])
        return op

    def around_each(self, ops: Int64) -> Int64:
        """Returns the same for many ops."""
        return np.fromiter(map(self.around, ops.tolist()), np.int64, len(ops))

    def outer(self) -> Int64:
        """Returns for each of them the nearest of them that it lies in, -1 for none."""
        return self.around_each(self.parent[self.rows])

    def of(self, op: int) -> Communication:
        """Returns what is recorded of one of them."""
        return self.recorded[self.number[op]]

    def is_wait(self, op: int) -> bool:
        """Returns whether one of them waits for others."""
        return self.of(op).name == WAIT

    def told(self, op: int) -> Communication:
        """Returns what is recorded around an op: by the nearest `record_param_comms`, completed by the annotations and
        c10d ops around.
        """
        found, record = Communication(), self.around(op)
        if record >= 0:
            found = self.of(record)
        while op >= 0 and not (found.name and found.dtype):
            found = merge(found, self._annotation(op))
            op = int(self.parent[op])
        return found

    def _annotation(self, op: int) -> Communication:
        """Returns what an op such as `nccl:all_reduce` tells: the collective's name, and its tensors if they are what
        the rank puts in.
        """
        ops = self.ops
        match = ANNOTATION.match(ops.name[op])
        library, name = match.groups() if match else ("", "")
        if not match or name == COALESCED:
            return Communication()
        if library == "c10d":
            return Communication(name=name)
        if ops.recorded_by_host[op] and elements(ops.inputs[op]) >= 0:
            return Communication(name, dtype_of(ops.inputs[op].decode()), elements(ops.inputs[op]))
        args = self.arguments[Role.OP].get(int(self.device_row[op]))
        return msgspec.structs.replace(from_device(args) if args else Communication(), name=name)


def collective_ops(
    ops: Ops, parent: Int64, arguments: Mapping[Role, Mapping[int, kineto.Args]], device_op: Int64
) -> CollectiveOps:
    """Collects the arguments of all communication ops, from the host trace completed by the device trace's `arguments`.

    `device_op` holds the row in `ops` of each op row of the device trace.
    """
    device_row = np.full(len(ops), -1, np.int64)
    device_row[device_op] = np.arange(len(device_op))
    rows = np.flatnonzero(ops.name.equal(RECORD))

    def recorded() -> Iterator[Communication]:
        for op in rows.tolist():
            known = ops.recorded_by_host[op]
            found = from_host(ops.inputs[op], ops.outputs[op], ops.extra.get(op, {})) if known else Communication()
            args = arguments[Role.OP].get(int(device_row[op]))
            yield merge(found, from_device(args)) if args else found

    collectives = CollectiveOps(rows, Communications.of(recorded()), parent, ops, arguments, device_row)
    _name_barriers(collectives)
    return collectives


def _name_barriers(collectives: CollectiveOps) -> None:
    """A barrier is an all-reduce of one element, which some versions record too, in the barrier's own record."""
    is_barrier = np.array([name == BARRIER for name in collectives.recorded.texts("name")], np.bool_)
    if not is_barrier.any():
        return
    named = is_barrier.copy()
    for number, outer in enumerate(collectives.outer().tolist()):
        is_barrier[number] |= outer >= 0 and is_barrier[collectives.number[outer]]
    collectives.recorded.rename(np.flatnonzero(is_barrier & ~named), BARRIER)


def link_communications(
    collectives: CollectiveOps,
    activities: RecordedActivities | Activities,
    ops: Ops,
    calls: Calls,
    call_row: Int64,
    activity_op: Int64,
) -> tuple[Communications, Int64]:
    """Yields the communications that ran on the device, and for each activity the position of its own (-1 for none).

    Kernels that one communication took share it. Arguments on the kernel itself come first, completed by those around
    the launch; a communication kernel without either keeps an empty record.
    """
    position, of_record = np.full(len(activity_op), -1, np.int64), dict[int, int]()
    of_library = activities.category.equal("collective_comm")
    kernels = np.flatnonzero(is_communication_kernel(activities.name) | of_library)
    kernels = kernels[np.argsort(activities.start[kernels], kind="stable")]
    launching = activity_op[kernels]
    around = collectives.around_each(launching)
    together = _launched_together(collectives, ops, calls, call_row, kernels, launching, around)

    def linked() -> Iterator[Communication]:
        count = 0
        for row, op, record in zip(kernels.tolist(), launching.tolist(), around.tolist(), strict=True):
            args, parts = collectives.arguments[Role.ACTIVITY].get(row), together.get(row, [])
            known = record if record >= 0 else parts[0] if parts else -1
            position[row] = of_record.setdefault(known, count) if known >= 0 else count
            if position[row] == count:
                told = _joined([*map(collectives.of, parts)]) if parts else collectives.told(op)
                yield _completed(args, told) if args and not parts else told
                count += 1

    return Communications.of(linked()), position


def _completed(args: kineto.Args, told: Communication) -> Communication:
    found = merge(from_device(args), told)
    return msgspec.structs.replace(found, name=BARRIER) if told.name == BARRIER else found


def _launched_together(
    collectives: CollectiveOps,
    ops: Ops,
    calls: Calls,
    call_row: Int64,
    kernels: Int64,
    launching: Int64,
    around: Int64,
) -> dict[int, list[int]]:
    """Returns for kernels that were launched outside any record the records before, on their thread, that launched
    nothing themselves.

    Any launch ends the group that they were given in. Further kernels of the same `launching` op belong to the same
    records. `around` is the record around each launch.
    """
    call, alone = call_row[kernels], np.bincount(call_row[call_row >= 0], minlength=len(calls)) == 1
    # a call with several activities launches what was captured before, not what was just given
    outside = (around < 0) & np.append(alone, False)[call]
    if not outside.any():
        return {}
    rows, start = collectives.rows, ops.start[collectives.rows]
    launched = np.array([*_with_outer(collectives, {*around.tolist()})], np.int64)
    given = np.array([name not in SINGLE for name in collectives.recorded.texts("name")], np.bool_) & (start != ABSENT)
    given &= ~np.isin(rows, launched) & ~np.isin(collectives.outer(), launched)
    records, places = rows[given], np.flatnonzero(call >= 0)
    thread = np.concatenate((ops.thread[records], calls.thread[call[places]]))
    time = np.concatenate((start[given], calls.start[call[places]]))
    record, place = np.full((2, len(thread)), -1)
    record[: len(records)], place[len(records) :] = records, places
    together: dict[int, list[int]] = {}
    for events in split_groups(np.lexsort((record, time, thread)), thread):
        before, last = list[int](), (-1, list[int]())
        for op, at in zip(record[events].tolist(), place[events].tolist(), strict=True):
            if op >= 0:
                before.append(op)
                continue
            row, here = int(kernels[at]), int(launching[at])
            if outside[at] and not _is_told(collectives, row):
                together[row] = before or (last[1] if here >= 0 and here == last[0] else [])
                last = (here, together[row])
            before = []
    return together


def _is_told(collectives: CollectiveOps, row: int) -> bool:
    args = collectives.arguments[Role.ACTIVITY].get(row)
    return args is not None and str(args.collective or COALESCED) != COALESCED


def _with_outer(collectives: CollectiveOps, records: set[int]) -> set[int]:
    """Returns these records and all that they lie in."""
    found = set[int]()
    for op in records:
        while op >= 0 and op not in found:
            found.add(op)
            op = collectives.around(int(collectives.parent[op]))
    return found


def _joined(parts: list[Communication]) -> Communication:
    """Communications that one kernel did as one: collectives of one kind as one of their summed sizes, messages side by
    side.
    """
    first = parts[0]
    if len({part.name for part in parts}) == 1 and not first.name.startswith(("send", "recv", "isend", "irecv")):
        sizes = {
            name: integer(sum(max(getattr(part, name), 0) for part in parts), -1)
            for name in ("in_elements", "out_elements")
        }
        return msgspec.structs.replace(first, **sizes)
    shared = {
        name: getattr(first, name) for name in ("dtype", "group", "description", "group_size", "ranks", "sequence")
    }
    return Communication(name=COALESCED, **shared, coalesced=parts)


def awaited_collectives(
    collectives: CollectiveOps, ops: Ops, activities: Activities, communications: Communications
) -> Lookup:
    """Returns for `record_param_comms` ops that are waits the row of the activity whose completion they wait for.

    A wait carries the sequence number of its collective; its group is often blank, so the latest collective with that
    number, of its group if that is told, is it.
    """
    group, sequence = communications.texts("group"), communications.numbers("sequence")
    talking = np.flatnonzero((activities.communication_row >= 0) & (activities.op_row >= 0))
    communication = activities.communication_row[talking]
    launched: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    own = zip(sequence[communication].tolist(), talking.tolist(), communication.tolist(), strict=True)
    for number, row, place in own:
        if number >= 0:
            launched[number].append((int(ops.start[activities.op_row[row]]), row, group[place]))
    found = []
    is_wait = [name == WAIT for name in collectives.recorded.texts("name")]
    for op in collectives.rows[is_wait].tolist():
        wait, start = collectives.of(op), ops.start[op]
        before = [one for one in launched.get(wait.sequence, []) if one[0] < start]
        if before:
            of_group = [one for one in before if one[2] == wait.group]
            found.append((op, max(of_group or before, key=itemgetter(0))[1]))
    waits, awaited = np.array(found, np.int64).reshape(-1, 2).T
    return Lookup(waits, awaited)
