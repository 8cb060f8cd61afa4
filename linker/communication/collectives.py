"""Finds which communication each op recorded, and which each kernel of a communication library did. The arguments are
those of `record_param_comms`, of the annotations around it, and of the kernel itself. One kernel may do what several
calls gave to the library, when their group ends: then it takes the arguments recorded before.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema import columns
from ...schema.columns import ActivityRows, Bool, CallRows, Categorical, CommunicationRows, Int64, OpRows
from ...schema.dtypes import bytes_per_element
from ...schema.linked import Activities, Calls, Communication, Ops, integer, kineto
from ..readers import Role
from .arguments import WAIT, from_device, from_host, from_shapes, merge, of_lists

RECORD = "record_param_comms"
CALL = re.compile(r"nccl[A-Z]\w*")
"""The range of a call of NCCL, which has arguments where an export of Nsight Systems has its payload."""
ANNOTATION = re.compile(r"(\w*ccl|mpi|ucc|c10d)::?(\w+)")
COALESCED = "coalesced"
BARRIER = "barrier"
KERNEL = re.compile(
    r"\b(nccl|rccl|msccl|hccl|xccl|oneccl|nvshmem|rocshmem|c10d)|ncclKernel|ncclDevKernel|ncclSym|rcclGenericKernel"
    r"|mscclKernel|cross_device_reduce|multimem_|(one|two)_shot_all_reduce|oneRankReduce|deep_ep",
    re.IGNORECASE,
)
SINGLE = (WAIT, "init", BARRIER, COALESCED)
"""Records of what is never given to the library to be launched together with others."""


@dataclass(slots=True)
class CollectiveOps:
    """The records of collectives with their arguments; `number` is the position of each op in `rows`, or -1. So many
    kernels are `unnamed`: their arguments or the ops that launched them tell that they communicate, not their names.
    `tensors` has what the lists of ops say of their tensors, as far as these were decoded: that takes long.
    """

    rows: OpRows
    recorded: list[Communication]
    parent: OpRows
    ops: Ops
    arguments: Mapping[Role, Mapping[int, kineto.Args]]
    device_row: columns.DeviceOpRows
    tensors: dict[int, Communication] = field(default_factory=dict)
    contradicted: dict[int, tuple[int, int]] = field(default_factory=dict)
    unnamed: int = 0
    number: "memoryview[int]" = field(init=False)
    _record: OpRows = field(init=False)

    def __post_init__(self) -> None:
        number = columns.positions(self.rows, len(self.ops))
        self.number = number.data
        # the last entry is for no op (-1)
        self._record = OpRows(np.append(columns.nearest(number >= 0, self.parent), -1))

    def enclosing_record(self, op: int) -> int:
        """Returns the innermost record that encloses an op, or the op itself if it is one, -1 for none."""
        return int(self._record[op])

    def enclosing_records(self, ops: Int64) -> OpRows:
        """Returns the same for many ops."""
        return OpRows(self._record[ops])

    def of(self, op: int) -> Communication:
        """Returns the arguments of a record."""
        return self.recorded[self.number[op]]

    def by_tensors(self, op: int, said: Communication) -> Communication:
        """Returns what is said of a record, with the dtype and elements of its tensors if these have other bytes."""
        if (tensors := self.tensors.get(op)) is None:
            args = self.arguments[Role.OP].get(int(self.device_row[op]))
            tensors = from_shapes(args) if args else Communication()
            if self.ops.recorded_by_host[op]:
                tensors = of_lists(self.ops.arguments.inputs(op), self.ops.arguments.outputs(op))
        named, held = (each.in_elements * bytes_per_element(each.dtype, 0) for each in (said, tensors))
        if min(named, held) <= 0 or named == held or said.name != self.of(op).name:
            return said
        self.contradicted[op] = named, held
        names = ("dtype", "in_elements", "out_elements")
        return msgspec.structs.replace(said, **{name: getattr(tensors, name) for name in names})

    def is_wait(self, op: int) -> bool:
        """Returns whether a record is of waiting for a collective."""
        return self.of(op).name == WAIT

    def of_annotation(self, op: int) -> Communication:
        """Returns what an op such as `nccl:all_reduce` tells: the collective's name, and tensors that are its input."""
        ops = self.ops
        match = ANNOTATION.match(ops.name[op])
        library, name = match.groups() if match else ("", "")
        if not match or name == COALESCED:
            return Communication()
        if library == "c10d":
            return Communication(name=name)
        if ops.recorded_by_host[op] and (inputs := ops.arguments.inputs(op)).elements >= 0:
            return Communication(name, inputs.dtype, inputs.elements)
        args = self.arguments[Role.OP].get(int(self.device_row[op]))
        return msgspec.structs.replace(from_device(args) if args else Communication(), name=name)


def collective_ops(
    ops: Ops,
    parent: OpRows,
    arguments: Mapping[Role, Mapping[int, kineto.Args]],
    device_op: OpRows,
    other_steps: bool = False,
) -> CollectiveOps:
    """Collects the arguments of all communication ops from the host trace, completed by those of the device trace."""
    every = (args for role in arguments.values() for args in role.values())
    other_steps = other_steps and any(args.comm_sequence is not None for args in every)
    device_row = columns.DeviceOpRows(columns.positions(device_op, len(ops)))
    rows = OpRows(np.flatnonzero(ops.name.equal(RECORD)))
    recorded, tensors = list[Communication](), dict[int, Communication]()
    for op in rows.tolist():
        is_by_host, args = ops.recorded_by_host[op], arguments[Role.OP].get(int(device_row[op]))
        by_host = Communication()
        if is_by_host:
            inputs, outputs = ops.arguments.inputs(op), ops.arguments.outputs(op)
            by_host, tensors[op] = from_host(inputs, outputs, ops.extra.get(op, {})), of_lists(inputs, outputs)
        if other_steps:
            by_host = msgspec.structs.replace(by_host, sequence=-1)
        recorded.append(merge(by_host, from_device(args)) if args else by_host)
    named = {op: record for op, record in zip(rows.tolist(), recorded, strict=True) if record.name}
    around, calls = columns.nearest(ops.name.equal(RECORD), parent), dict[int, Communication]()
    for op in np.flatnonzero(ops.name.where(lambda name: bool(CALL.fullmatch(name)))).tolist():
        args = arguments[Role.OP].get(int(device_row[op]))
        if args and args.collective and int(around[op]) not in named:
            calls[op] = from_device(args)
    if calls:
        # records without arguments may be of anything
        rows, recorded = OpRows(np.array([*named, *calls])), [*named.values(), *calls.values()]
    collectives = CollectiveOps(rows, recorded, parent, ops, arguments, device_row, tensors)
    recorded[:] = map(collectives.by_tensors, rows.tolist(), recorded)
    # some versions record the all-reduce of one element within the record of a barrier: it is that barrier
    enclosing = collectives.enclosing_records(parent[rows])
    for position in np.flatnonzero(enclosing >= 0).tolist():
        if collectives.of(enclosing[position]).name == BARRIER:
            recorded[position] = msgspec.structs.replace(recorded[position], name=BARRIER)
    return collectives


def is_communication_kernel(names: Categorical) -> Bool:
    """Returns which activities are kernels of a communication library, by their names."""
    return names.where(lambda name: bool(KERNEL.search(name)))


class _Kernels(NamedTuple):
    """Communication kernels by start: the op and the call that launched each, and the record that encloses them."""

    row: ActivityRows
    op: OpRows
    call: CallRows
    record: OpRows


def link_communications(
    collectives: CollectiveOps, activities: Activities, calls: Calls
) -> tuple[list[Communication], CommunicationRows]:
    """Returns the communications that ran on the device, and for each activity the row of its own, -1 for none."""
    is_named = is_communication_kernel(activities.name) | activities.category.equal("collective_comm")
    is_unnamed = _communicate_unnamed(collectives, activities, is_named)
    collectives.unnamed = int(is_unnamed.sum())
    rows = np.flatnonzero(is_named | is_unnamed)
    rows = ActivityRows(rows[np.argsort(activities.start[rows], kind="stable")])
    op = OpRows(activities.op_row[rows])
    kernels = _Kernels(rows, op, CallRows(activities.call_row[rows]), collectives.enclosing_records(op))
    launched_later = _launched_later(collectives, activities, calls, kernels)
    communication_row = CommunicationRows(np.full(len(activities), -1, np.int64))

    communications, row_of_record = list[Communication](), dict[int, int]()
    for kernel, op, record in zip(kernels.row.tolist(), kernels.op.tolist(), kernels.record.tolist(), strict=True):
        parts = launched_later.get(kernel, [])
        first_record = record if record >= 0 else parts[0] if parts else -1
        count = len(communications)
        row = row_of_record.setdefault(first_record, count) if first_record >= 0 else count
        communication_row[kernel] = row
        if row == count:
            joined = _joined([*map(collectives.of, parts)]) if parts else _recorded(collectives, kernel, op)
            communications.append(joined)
    return communications, communication_row


def _communicate_unnamed(collectives: CollectiveOps, activities: Activities, is_named: Bool) -> Bool:
    """Returns which other kernels have arguments of one, or were launched by one in a trace where no name tells any."""
    op, names = activities.op_row, collectives.ops.name
    record = collectives.enclosing_records(op)
    single = [max(recorded.group_size, len(recorded.ranks)) == 1 for recorded in collectives.recorded]
    is_direct = np.append(names.where(lambda name: name == RECORD or bool(ANNOTATION.match(name))), False)[op]
    launched = is_direct & (record >= 0) & ~columns.isin(record, collectives.rows[single]) & (not is_named.any())
    launched[[*collectives.arguments[Role.ACTIVITY]]] = True
    return np.asarray(launched & ~is_named & activities.category.equal("kernel"))


def _recorded(collectives: CollectiveOps, kernel: int, op: int) -> Communication:
    """Returns the arguments on a kernel, completed by those of record, annotations and c10d ops around its launch."""
    record, args = collectives.enclosing_record(op), collectives.arguments[Role.ACTIVITY].get(kernel)
    enclosing = collectives.of(record) if record >= 0 else Communication()
    while op >= 0 and not (enclosing.name and enclosing.dtype):
        enclosing = merge(enclosing, collectives.of_annotation(op))
        op = int(collectives.parent[op])
    if not args:
        return enclosing
    complete = merge(from_device(args), enclosing)
    complete = collectives.by_tensors(record, complete) if record >= 0 else complete
    return msgspec.structs.replace(complete, name=BARRIER) if enclosing.name == BARRIER else complete


def _launched_later(
    collectives: CollectiveOps, activities: Activities, calls: Calls, kernels: _Kernels
) -> dict[int, list[int]]:
    """Returns for kernels that were launched outside any record, by activity row, the records that they belong to."""
    # these are the records before the launch, on its thread, since the launch before: any launch ends the group that
    # communications were given in. Further kernels of the same op belong to the same records
    is_outside = _is_launched_outside(collectives, activities, kernels)
    records = _records_without_launch(collectives, kernels) if is_outside.any() else OpRows(np.empty(0, np.int64))
    records_of: dict[int, list[int]] = {}
    if not len(records):
        return records_of
    launched = np.flatnonzero(kernels.call >= 0)
    call, row = kernels.call[launched], np.concatenate((records, launched))
    is_record = np.arange(len(row)) < len(records)
    thread = np.concatenate((collectives.ops.thread[records], calls.thread[call]))
    time = np.concatenate((collectives.ops.start[records], calls.start[call]))
    # the records and launches of each thread by time; launches come before records of the same time
    for events in columns.split_groups(np.lexsort((row, is_record, time, thread)), thread):
        pending, previous_op, previous = list[int](), -1, list[int]()
        for number, of_record in zip(row[events].tolist(), is_record[events].tolist(), strict=True):
            if of_record:
                pending.append(number)
                continue
            if is_outside[number]:
                op = int(kernels.op[number])
                previous = pending or (previous if 0 <= op == previous_op else [])
                previous_op, records_of[int(kernels.row[number])] = op, previous
            pending = []
    return records_of


def _is_launched_outside(collectives: CollectiveOps, activities: Activities, kernels: _Kernels) -> Bool:
    """Returns which kernels no record is around, neither on the kernel itself nor around its launch."""
    # a call with several activities launches what was captured before, not what was just given
    launched = np.bincount(activities.call_row + 1)
    is_outside: Bool = (kernels.record < 0) & (kernels.call >= 0) & (launched[kernels.call + 1] == 1)
    for number in np.flatnonzero(is_outside).tolist():
        args = collectives.arguments[Role.ACTIVITY].get(int(kernels.row[number]))
        is_outside[number] = args is None or str(args.collective or COALESCED) == COALESCED
    return is_outside


def _records_without_launch(collectives: CollectiveOps, kernels: _Kernels) -> OpRows:
    """Returns the records with times that no kernel was launched in, nor directly around them."""
    rows, launched = collectives.rows, set[int]()
    for op in set(kernels.record.tolist()):
        while op >= 0 and op not in launched:
            launched.add(op)
            op = collectives.enclosing_record(int(collectives.parent[op]))
    around = collectives.enclosing_records(collectives.parent[rows])
    has_launch = np.isin((rows, around), [*launched]).any(axis=0)
    is_grouped = np.array([record.name not in SINGLE for record in collectives.recorded], np.bool_)
    return OpRows(rows[is_grouped & (collectives.ops.start[rows] != columns.ABSENT) & ~has_launch])


def _joined(parts: list[Communication]) -> Communication:
    """Returns the communications of one kernel as one."""
    # collectives of one kind become one of their summed sizes; messages stay side by side
    first = parts[0]
    if len({part.name for part in parts}) == 1 and not first.name.startswith(("send", "recv", "isend", "irecv")):
        in_elements = integer(sum(max(part.in_elements, 0) for part in parts), -1)
        out_elements = integer(sum(max(part.out_elements, 0) for part in parts), -1)
        return msgspec.structs.replace(first, in_elements=in_elements, out_elements=out_elements)
    shared = ("dtype", "group", "description", "group_size", "ranks", "sequence")
    common = {name: getattr(first, name) for name in shared}
    sent, received = (
        {part.group_rank: max(part.in_elements, part.out_elements, 0) for part in parts if part.name == name}
        for name in ("send", "recv")
    )
    members = range(first.group_size if first.group_size >= 0 else len(sent))
    if len(parts) == 2 * len(members) > 2 and sent.keys() == received.keys() == {*members}:
        # each rank, itself included, sends to each
        in_split, out_split = ([each[peer] for peer in members] for each in (sent, received))
        common |= {"in_elements": sum(in_split), "out_elements": sum(out_split), "group_size": len(members)}
        return Communication(name="all_to_all", in_split=in_split, out_split=out_split, **common)
    return Communication(name=COALESCED, **common, coalesced=parts)


def awaited_collectives(
    collectives: CollectiveOps, activities: Activities, communications: Sequence[Communication]
) -> columns.Lookup:
    """Returns for ops that wait the activity of the latest collective of their number, and group where recorded."""
    communicating = np.flatnonzero((activities.communication_row >= 0) & (activities.op_row >= 0))
    communication, start = activities.communication_row[communicating], collectives.ops.start
    # by sequence number: when the op began that launched each activity, the activity, and its group
    launched: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for row, of_row in zip(communicating.tolist(), communication.tolist(), strict=True):
        ran = communications[of_row]
        if ran.sequence >= 0:
            launched[ran.sequence].append((int(start[activities.op_row[row]]), row, ran.group))
    pairs = []
    is_wait = [record.name == WAIT for record in collectives.recorded]
    for op in collectives.rows[is_wait].tolist():
        wait = collectives.of(op)
        if before := [launch for launch in launched.get(wait.sequence, []) if launch[0] < start[op]]:
            pairs.append((op, max(before, key=lambda launch: (launch[2] == wait.group, launch[0]))[1]))
    waits, awaited = np.array(pairs, np.int64).reshape(-1, 2).T
    return columns.Lookup(waits, awaited)
