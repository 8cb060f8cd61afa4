"""Collects the recorded arguments of communications: from `record_param_comms` of either trace, from kernel arguments, group set-ups."""

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ..schema import host as host_schema
from ..schema import kineto
from ..schema.columns import Bool, Int64, Strings
from ..schema.linked import Activities, Communication, Ops, ProcessGroup
from .categories import Role
from .device_trace import DeviceTrace, integer
from .host_trace import GROUP_INIT, HostTrace

RECORD = "record_param_comms"
WAIT = "wait"
KERNEL = re.compile(
    r"\b(nccl|rccl|msccl|hccl|xccl|oneccl|nvshmem|rocshmem|c10d)|ncclKernel|ncclDevKernel|ncclSym|rcclGenericKernel|mscclKernel"
    r"|cross_device_reduce|multimem_all_|oneRankReduce|deep_ep",
    re.IGNORECASE,
)
TENSOR = re.compile(rb'\[\s*\d+,\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+),\s*"([^"]*)"\s*\]')
TENSOR_TYPE = re.compile(r"Tensor\(([^()]*(?:\([^()]*\))?)\)")
SHORTENED = "..."


def is_communication_kernel(names: Strings) -> Bool:
    """Activities whose kernel belongs to a communication library."""
    known = np.array([bool(KERNEL.search(name)) for name in names.table] + [False], np.bool_)
    return known[names.codes]


def from_device(args: kineto.Args) -> Communication:
    """The arguments on a kernel or `record_param_comms` row of the device trace."""
    return Communication(
        name=str(args.collective or ""),
        dtype=str(args.dtype or ""),
        in_elements=integer(args.in_elements, -1),
        out_elements=integer(args.out_elements, -1),
        in_split=_integers(args.in_split),
        out_split=_integers(args.out_split),
        group=str(args.group_name if args.group_name is not None else ""),
        description=str(args.group_description or ""),
        group_size=integer(args.group_size, -1),
        ranks=_integers(args.group_ranks),
        sequence=integer(args.comm_sequence, -1),
        source=integer(args.source_rank, -1),
        target=integer(args.target_rank, -1),
    )


def from_host(inputs: bytes, outputs: bytes, attributes: dict[str, Any]) -> Communication:
    """The arguments of a `record_param_comms` host node: named attributes where there are any, else the positional inputs.

    Positions vary by version: a tensor (or list of them, or none), the sequence number, the group, a rank, the name, two split
    lists. The first text argument is the name.
    """
    lists = msgspec.json.decode(inputs, type=host_schema.TensorLists)
    values, types = msgspec.json.decode(lists.values), msgspec.json.decode(lists.types)
    scalars = [(value, kind) for value, kind in zip(values, types, strict=False) if "Tensor(" not in kind]
    numbers = [value for value, kind in scalars if kind == "Int"]
    pair = next((value for value, kind in scalars if kind.startswith("Tuple[Int")), None)
    group = next((value for value, kind in scalars if kind.startswith("Tuple[String")), None)
    name = next((value for value, kind in scalars if kind == "String"), "")
    splits = [value for value, kind in scalars if kind.startswith("GenericList")]
    sequence = pair[0] if pair else numbers[0] if numbers else -1
    after_group = (pair is None) + (group is None)
    peer = numbers[after_group] if len(numbers) > after_group else -1
    name = str(attributes.get("collective_name", name))
    dtype = TENSOR_TYPE.search(" ".join(types))
    return Communication(
        name=name,
        dtype=str(attributes.get("dtype", dtype.group(1) if dtype else "")),
        in_elements=integer(attributes.get("in_msg_nelems"), _elements(bytes(lists.values))),
        out_elements=integer(attributes.get("out_msg_nelems"), _elements(outputs)),
        in_split=_integers(attributes.get("in_split_size", splits[0] if splits else [])),
        out_split=_integers(attributes.get("out_split_size", splits[1] if len(splits) > 1 else [])),
        group=str(attributes.get("pg_name", group[0] if group else numbers[1] if len(numbers) > 1 else "")),
        description=str(attributes.get("pg_desc", group[1] if group else "")),
        group_size=integer(attributes.get("pg_size"), -1),
        ranks=_regular_ranks(attributes),
        sequence=integer(sequence, -1),
        source=peer if "recv" in name else -1,
        target=peer if "send" in name else -1,
    )


def merge(first: Communication, second: Communication) -> Communication:
    """What `first` knows, and what only `second` does."""
    empty = Communication()
    chosen = {
        field: getattr(first, field) if getattr(first, field) != getattr(empty, field) else getattr(second, field)
        for field in Communication.__struct_fields__
    }
    return Communication(**chosen)


@dataclass(slots=True)
class CollectiveOps:
    """The `record_param_comms` ops: each one's recorded arguments by row, and how to find the one around another op."""

    recorded: dict[int, Communication]
    parent: Int64

    def around(self, op: int) -> int:
        """The nearest of them around an op (or itself), -1 for none."""
        while op >= 0 and op not in self.recorded:
            op = int(self.parent[op])
        return op

    def is_wait(self, op: int) -> bool:
        return op >= 0 and self.recorded[op].name == WAIT


def collective_ops(ops: Ops, parent: Int64, device: DeviceTrace, device_op: Int64) -> CollectiveOps:
    """Collects the arguments of all communication ops, from the host trace completed by the device trace.

    `device_op` holds the row in `ops` of each op row of the device trace.
    """
    recorded: dict[int, Communication] = {}
    device_row = np.full(len(ops), -1, np.int64)
    device_row[device_op] = np.arange(len(device_op))
    for op in np.flatnonzero(ops.name.codes == _code(ops.name, RECORD)).tolist():
        known = ops.recorded_by_host[op]
        found = from_host(ops.inputs[op], ops.outputs[op], ops.extra.get(op, {})) if known else Communication()
        args = device.communication.get((Role.OP, int(device_row[op])))
        recorded[op] = merge(found, from_device(args)) if args else found
    return CollectiveOps(recorded, parent)


def link_communications(
    collectives: CollectiveOps, device: DeviceTrace, activity_op: Int64
) -> tuple[list[Communication], Int64]:
    """The communications that ran on the device, and for each activity the position of its own (-1 for none).

    Arguments on the kernel itself come first, completed by those of the nearest `record_param_comms` around the launch; a
    communication kernel without either keeps an empty record.
    """
    communications: list[Communication] = []
    position = np.full(len(activity_op), -1, np.int64)
    for row in np.flatnonzero(is_communication_kernel(device.activities.name)).tolist():
        found = collectives.recorded.get(collectives.around(int(activity_op[row])), Communication())
        args = device.communication.get((Role.ACTIVITY, row))
        position[row] = len(communications)
        communications.append(merge(from_device(args), found) if args else found)
    return communications, position


def awaited_collectives(
    collectives: CollectiveOps, ops: Ops, activities: Activities, communications: list[Communication]
) -> dict[int, int]:
    """For `record_param_comms` ops that are waits the row of the activity whose completion they wait for.

    A wait carries the sequence number of its collective; its group is often blank, so the latest collective with that number is it.
    """
    launched: dict[int, list[int]] = {}
    for row in np.flatnonzero(activities.communication_row >= 0).tolist():
        sequence = communications[int(activities.communication_row[row])].sequence
        if sequence >= 0 and activities.op_row[row] >= 0:
            launched.setdefault(sequence, []).append(row)
    found: dict[int, int] = {}
    for op, recorded in collectives.recorded.items():
        candidates = launched.get(recorded.sequence, []) if recorded.name == WAIT else []
        before = [row for row in candidates if ops.start[activities.op_row[row]] < ops.start[op]]
        if before:
            found[op] = max(before, key=lambda row: int(ops.start[activities.op_row[row]]))
    return found


def process_groups(host: HostTrace | None, device: DeviceTrace) -> list[ProcessGroup]:
    """The groups that either trace describes, the host's first, without repetition."""
    described: list[Any] = []
    if host is not None:
        for row in np.flatnonzero([GROUP_INIT in name for name in host.name.table]).tolist():
            for node in np.flatnonzero(host.name.codes == row).tolist():
                described += _described(host.inputs[node])
    groups: dict[str, ProcessGroup] = {}
    for entry in [*described, *device.groups]:
        name = str(entry.get("pg_name", ""))
        groups.setdefault(
            name,
            ProcessGroup(
                name=name,
                description=str(entry.get("pg_desc", "")),
                ranks=_integers(entry.get("ranks")),
                size=integer(entry.get("group_size", entry.get("pg_size")), -1),
            ),
        )
    return list(groups.values())


def with_members(
    communications: list[Communication], groups: list[ProcessGroup], world_size: int
) -> list[Communication]:
    """The communications with the global ranks of their groups, where these can be told.

    From the arguments, else from the group's description; a group of the world's size is the world, by its recorded size or the
    length of its split lists, and so is the only group of a trace that describes none.
    """
    world = list(range(world_size)) if world_size > 0 else []
    described = {group.name: group.ranks or (world if group.size in (-1, world_size) else []) for group in groups}
    only = len({found.group for found in communications if found.name != WAIT}) == 1 and not groups

    def members(found: Communication) -> list[int]:
        if found.ranks or found.group in described:
            return found.ranks or described[found.group]
        sizes = {found.group_size, len(found.in_split), len(found.out_split)}
        return world if world_size in sizes or only else []

    return [msgspec.structs.replace(found, ranks=members(found)) for found in communications]


def _described(inputs: bytes) -> Iterable[dict[str, Any]]:
    """The dicts in the text argument of a `process_group:init` node: JSON, or Python's own notation in 2.1."""
    values = msgspec.json.decode(msgspec.json.decode(inputs, type=host_schema.TensorLists).values)
    for text in values:
        if not isinstance(text, str):
            continue
        try:
            entries = json.loads(text)
        except ValueError:
            try:
                entries = ast.literal_eval(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
        yield from (entry for entry in entries if isinstance(entry, dict)) if isinstance(entries, list) else ()


def _integers(value: Any) -> list[int]:
    """A list of ints that may be given as text; a shortened list (Kineto cuts at 30) counts as unknown."""
    if isinstance(value, str):
        return [] if SHORTENED in value else [int(number) for number in re.findall(r"-?\d+", value)]
    if isinstance(value, dict):
        return sorted(integer(rank, -1) for rank in value)
    if isinstance(value, list):
        return [int(number) for number in value if isinstance(number, int | float)]
    return []


def _regular_ranks(attributes: dict[str, Any]) -> list[int]:
    start, size = integer(attributes.get("global_rank_start"), -1), integer(attributes.get("pg_size"), -1)
    stride = integer(attributes.get("global_rank_stride"), 1 if size == 1 else -1)
    return (
        list(range(start, start + size * stride, stride)) if start >= 0 and 0 < size <= 1 << 20 and stride > 0 else []
    )


def _elements(text: bytes) -> int:
    counts = [int(found.group(3)) for found in TENSOR.finditer(text)]
    return sum(counts) if counts else -1


def _code(names: Strings, name: str) -> int:
    return names.table.index(name) if name in names.table else -2
