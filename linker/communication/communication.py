"""Which communication each kernel of a communication library did: the recorded arguments around its launch, or those before it.

Several messages or collectives may be given to the library one by one and launched together, when their group ends: by one kernel
that no `record_param_comms` is around.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

import msgspec
import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Strings, filled, let_go
from ...schema.linked import Activities, Calls, Communication, Ops
from ...schema.traces import kineto
from ..readers import ActivityRows, Role
from .process_groups import WAIT
from .recorded_arguments import Once, dtype_of, elements, from_device, from_host, merge, sharing

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


def is_communication_kernel(names: Strings) -> Bool:
    """Activities whose kernel belongs to a communication library."""
    return names.where(lambda name: bool(KERNEL.search(name)))


@dataclass(slots=True)
class CollectiveOps:
    """The `record_param_comms` ops: each one's recorded arguments by row, and how to find the one around another op."""

    recorded: dict[int, Communication]
    parent: Int64
    ops: Ops
    arguments: Mapping[Role, Mapping[int, kineto.Args]]
    device_row: Int64

    def around(self, op: int) -> int:
        """The nearest of them around an op (or itself), -1 for none."""
        while op >= 0 and op not in self.recorded:
            op = int(self.parent[op])
        return op

    def outside(self, op: int) -> int:
        """The nearest of them that one of them lies in, -1 for none."""
        return self.around(int(self.parent[op]))

    def is_wait(self, op: int) -> bool:
        """Whether one of them waits for others."""
        return self.recorded[op].name == WAIT

    def told(self, op: int) -> Communication:
        """What is recorded around an op: by the nearest `record_param_comms`, completed by the annotations and c10d ops around."""
        found, record = Communication(), self.around(op)
        if record >= 0:
            found = self.recorded[record]
        while op >= 0 and not (found.name and found.dtype):
            found = merge(found, self._annotation(op))
            op = int(self.parent[op])
        return found

    def _annotation(self, op: int) -> Communication:
        """What an op such as `nccl:all_reduce` tells: the collective's name, and its tensors if they are what the rank puts in."""
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
    recorded: dict[int, Communication] = {}
    device_row = filled(len(ops), -1)
    device_row[device_op] = np.arange(len(device_op))
    once: Once = {}
    for number, op in enumerate(np.flatnonzero(ops.name.equal(RECORD)).tolist()):
        if not number % AT_ONCE:
            let_go()
        known = ops.recorded_by_host[op]
        found = from_host(ops.inputs[op], ops.outputs[op], ops.extra.get(op, {})) if known else Communication()
        args = arguments[Role.OP].get(int(device_row[op]))
        recorded[op] = sharing(merge(found, from_device(args)) if args else found, once)
    collectives = CollectiveOps(recorded, parent, ops, arguments, device_row)
    for op, found in recorded.items():
        # a barrier is an all-reduce of one element, which some versions record too
        outer = collectives.outside(op)
        if outer >= 0 and recorded[outer].name == BARRIER:
            recorded[op] = msgspec.structs.replace(found, name=BARRIER)
    return collectives


def link_communications(
    collectives: CollectiveOps,
    activities: ActivityRows | Activities,
    ops: Ops,
    calls: Calls,
    call_row: Int64,
    activity_op: Int64,
) -> tuple[list[Communication], Int64]:
    """The communications that ran on the device, and for each activity the position of its own (-1 for none).

    Kernels that one communication took share it. Arguments on the kernel itself come first, completed by those around the launch; a
    communication kernel without either keeps an empty record.
    """
    communications: list[Communication] = []
    position, of_source = np.full(len(activity_op), -1, np.int64), dict[tuple[str, int], int]()
    of_library = activities.category.equal("collective_comm")
    kernels = np.flatnonzero(is_communication_kernel(activities.name) | of_library)
    kernels = kernels[np.argsort(activities.start[kernels], kind="stable")]
    together = _launched_together(collectives, ops, calls, call_row, activity_op, kernels)
    once: Once = {}
    for row in kernels.tolist():
        op, args = int(activity_op[row]), collectives.arguments[Role.ACTIVITY].get(row)
        record, parts = collectives.around(op), together.get(row, [])
        source = ("record", record) if record >= 0 else ("records", parts[0]) if parts else ("kernel", row)
        if source in of_source:
            position[row] = of_source[source]
            continue
        told = _joined([collectives.recorded[part] for part in parts]) if parts else collectives.told(op)
        position[row] = of_source[source] = len(communications)
        communications.append(sharing(_completed(args, told), once) if args and not parts else told)
    return communications, position


def _completed(args: kineto.Args, told: Communication) -> Communication:
    found = merge(from_device(args), told)
    return msgspec.structs.replace(found, name=BARRIER) if told.name == BARRIER else found


def _launched_together(
    collectives: CollectiveOps,
    ops: Ops,
    calls: Calls,
    call_row: Int64,
    activity_op: Int64,
    kernels: Int64,
) -> dict[int, list[int]]:
    """For kernels that were launched outside any record the records before, on their thread, that launched nothing themselves.

    Any launch ends the group that they were given in. Further kernels of the same launching op belong to the same records.
    """
    around = {row: collectives.around(int(activity_op[row])) for row in kernels.tolist()}
    launching = _with_outer(collectives, set(around.values()))
    by_thread: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for op, found in collectives.recorded.items():
        if ops.start[op] != ABSENT and not {op, collectives.outside(op)} & launching and found.name not in SINGLE:
            by_thread[int(ops.thread[op])].append((int(ops.start[op]), -1, op))
    for row in kernels[call_row[kernels] >= 0].tolist():
        call = int(call_row[row])
        by_thread[int(calls.thread[call])].append((int(calls.start[call]), row, -1))
    alone = np.bincount(call_row[call_row >= 0], minlength=len(calls)) == 1
    together: dict[int, list[int]] = {}
    for events in by_thread.values():
        given, last = list[int](), (-1, list[int]())
        for _, row, op in sorted(events, key=itemgetter(0, 2)):
            if op >= 0:
                given.append(op)
                continue
            # a call with several activities launches what was captured before, not what was just given
            if around[row] < 0 and alone[call_row[row]] and not _is_told(collectives, row):
                here = int(activity_op[row])
                together[row] = given or (last[1] if here >= 0 and here == last[0] else [])
                last = (here, together[row])
            given = []
    return together


def _is_told(collectives: CollectiveOps, row: int) -> bool:
    args = collectives.arguments[Role.ACTIVITY].get(row)
    return args is not None and str(args.collective or COALESCED) != COALESCED


def _with_outer(collectives: CollectiveOps, records: set[int]) -> set[int]:
    """These records and all that they lie in."""
    found = set[int]()
    for op in records:
        while op >= 0 and op not in found:
            found.add(op)
            op = collectives.outside(op)
    return found


def _joined(parts: list[Communication]) -> Communication:
    """Communications that one kernel did as one: collectives of one kind as one of their summed sizes, messages side by side."""
    first = parts[0]
    if len({part.name for part in parts}) == 1 and not first.name.startswith(("send", "recv", "isend", "irecv")):
        sizes = {name: sum(max(getattr(part, name), 0) for part in parts) for name in ("in_elements", "out_elements")}
        return msgspec.structs.replace(first, **sizes)
    shared = {
        name: getattr(first, name) for name in ("dtype", "group", "description", "group_size", "ranks", "sequence")
    }
    return Communication(name=COALESCED, **shared, coalesced=parts)


def awaited_collectives(
    collectives: CollectiveOps, ops: Ops, activities: Activities, communications: list[Communication]
) -> dict[int, int]:
    """For `record_param_comms` ops that are waits the row of the activity whose completion they wait for.

    A wait carries the sequence number of its collective; its group is often blank, so the latest collective with that number, of its
    group if that is told, is it.
    """
    launched: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(activities.communication_row >= 0).tolist():
        sequence = communications[int(activities.communication_row[row])].sequence
        if sequence >= 0 and activities.op_row[row] >= 0:
            launched[sequence].append(row)
    found: dict[int, int] = {}
    for op, recorded in collectives.recorded.items():
        candidates = launched.get(recorded.sequence, []) if recorded.name == WAIT else []
        before = [row for row in candidates if ops.start[activities.op_row[row]] < ops.start[op]]
        of_group = [
            row for row in before if communications[int(activities.communication_row[row])].group == recorded.group
        ]
        if before:
            found[op] = max(of_group or before, key=lambda row: int(ops.start[activities.op_row[row]]))
    return found
