"""Collects the recorded arguments of communication ops: `record_param_comms`, and annotations that enclose them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from ...schema.columns import DeviceOpRows, Int64, OpRows
from ...schema.linked import Communication, Communications, Ops, kineto
from ..readers import Role
from .process_groups import WAIT
from .recorded_arguments import dtype_of, elements, from_device, from_host, merge

RECORD = "record_param_comms"
ANNOTATION = re.compile(r"(\w*ccl|mpi|ucc|c10d)::?(\w+)")
COALESCED = "coalesced"
BARRIER = "barrier"


@dataclass(slots=True)
class CollectiveOps:
    """The `record_param_comms` ops ("records"): their rows, and the recorded arguments of each.

    `parent` is the op that encloses each op, `arguments` is what the device trace recorded by its own rows, and
    `device_row` the row there of each op. `number` is the position of each op in `rows`, -1 for other ops.
    """

    rows: OpRows
    recorded: Communications
    parent: OpRows
    ops: Ops
    arguments: Mapping[Role, Mapping[int, kineto.Args]]
    device_row: DeviceOpRows
    number: "memoryview[int]" = field(init=False)

    def __post_init__(self) -> None:
        number = np.full(len(self.ops), -1, np.int64)
        number[self.rows] = np.arange(len(self.rows))
        self.number = number.data

    def enclosing_record(self, op: int) -> int:
        """Returns the innermost record that encloses an op, or the op itself if it is one, -1 for none."""
        while op >= 0 and self.number[op] < 0:
            op = int(self.parent[op])
        return op

    def enclosing_records(self, ops: Int64) -> OpRows:
        """Returns the same for many ops."""
        return OpRows(np.fromiter(map(self.enclosing_record, ops.tolist()), np.int64, len(ops)))

    def parent_records(self) -> OpRows:
        """Returns for each record the innermost other one that encloses it, -1 for none."""
        return self.enclosing_records(self.parent[self.rows])

    def of(self, op: int) -> Communication:
        """Returns the arguments of a record."""
        return self.recorded[self.number[op]]

    def is_wait(self, op: int) -> bool:
        """Returns whether a record is of waiting for a collective."""
        return self.of(op).name == WAIT

    def enclosing_communication(self, op: int) -> Communication:
        """Returns the arguments of the record that encloses an op, completed by the annotations and c10d ops that
        enclose it.
        """
        record = self.enclosing_record(op)
        communication = self.of(record) if record >= 0 else Communication()
        while op >= 0 and not (communication.name and communication.dtype):
            communication = merge(communication, self._annotation(op))
            op = int(self.parent[op])
        return communication

    def _annotation(self, op: int) -> Communication:
        """Returns what an op such as `nccl:all_reduce` tells: the collective's name, and its tensors where they are
        the rank's input.
        """
        ops = self.ops
        match = ANNOTATION.match(ops.name[op])
        library, name = match.groups() if match else ("", "")
        if not match or name == COALESCED:
            return Communication()
        if library == "c10d":
            return Communication(name=name)
        if ops.recorded_by_host[op] and elements(ops.inputs[op]) >= 0:
            return Communication(name, dtype_of(ops.inputs[op]), elements(ops.inputs[op]))
        args = self.arguments[Role.OP].get(int(self.device_row[op]))
        return msgspec.structs.replace(from_device(args) if args else Communication(), name=name)


def collective_ops(
    ops: Ops, parent: OpRows, arguments: Mapping[Role, Mapping[int, kineto.Args]], device_op: OpRows
) -> CollectiveOps:
    """Collects the arguments of all communication ops from the host trace, completed by the device trace's `arguments`.

    `device_op` is the row in `ops` of each op of the device trace.
    """
    device_row = DeviceOpRows(np.full(len(ops), -1, np.int64))
    device_row[device_op] = np.arange(len(device_op))
    rows = OpRows(np.flatnonzero(ops.name.equal(RECORD)))

    def recorded() -> Iterator[Communication]:
        for op in rows.tolist():
            by_host = Communication()
            if ops.recorded_by_host[op]:
                by_host = from_host(ops.inputs[op], ops.outputs[op], ops.extra.get(op, {}))
            args = arguments[Role.OP].get(int(device_row[op]))
            yield merge(by_host, from_device(args)) if args else by_host

    collectives = CollectiveOps(rows, Communications.of(recorded()), parent, ops, arguments, device_row)
    _name_barriers(collectives)
    return collectives


def _name_barriers(collectives: CollectiveOps) -> None:
    """Names the all-reduce of one element a barrier that some versions record within the record of a barrier."""
    is_barrier = np.array([name == BARRIER for name in collectives.recorded.texts("name")], np.bool_)
    if not is_barrier.any():
        return
    named = is_barrier.copy()
    for position, parent in enumerate(collectives.parent_records().tolist()):
        is_barrier[position] |= parent >= 0 and is_barrier[collectives.number[parent]]
    collectives.recorded.rename(np.flatnonzero(is_barrier & ~named), BARRIER)
