"""Writes the host trace of a simulated rank, as PyTorch's observer would have written it (schema 1.1.1-chakra.0.0.4).

Nodes stand in the order in which their ops ended, ids grow with their begins. Tensors and storages take ids from the
same counter, one for each address: what an op makes has one that another tensor takes after its last use.
"""

import json
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np

from ...schema.io import open_output, write_items
from ...schema.linked import USER_SCOPE
from .job import ITEM_BYTES, NONE, Collective, Opaque, Tensor, Value
from .record import RankRun, as_numpy, record_function

ID = "%d"
SCHEMA = "1.1.1-chakra.0.0.4"
ROOT = 1
GROUP_ANNOTATION = 1
"""The RecordFunction id of the node that lists the process groups."""
FREE_BEFORE_REUSE = 256
"""How many addresses of a kind an allocator holds before it gives the first one out again."""
MemoryObject: TypeAlias = tuple[bool, int]
"""A tensor or (True) a storage, by its number in the job."""
Argument: TypeAlias = tuple[object, object, str, object]
"""An argument as the host trace has it: its value and shape, the name of its type, its strides."""
TYPES = {bool: "Bool", int: "Int", float: "Double", str: "String"}
ATTRS = ",".join(
    f'{{"name": "{name}", "type": "{kind}", "value": %s}}'
    for kind, names in (
        ("uint64", ("rf_id", "fw_parent")),
        ("int64", ("seq_id",)),
        ("uint64", ("scope", "tid", "fw_tid")),
        ("string", ("op_schema", "kernel_backend", "kernel_file", "tensor_range")),
    )
    for name in names
)


def argument(value: Value) -> Argument:
    """Returns an argument of an op, with ID for the numbers of a tensor and of its storage."""
    if isinstance(value, Tensor):
        where = [ID, ID, value.offset, value.numel, ITEM_BYTES[value.dtype], value.device]
        return where, value.shape, f"Tensor({value.dtype})", value.strides
    if isinstance(value, Opaque):
        return f"<{value.type}>", (), value.type, ()
    if isinstance(value, tuple):
        return listed("GenericList", value)
    return ("<None>", (), "None", ()) if value is None else (value, (), TYPES[type(value)], ())


def listed(kind: str, items: Iterable[Value]) -> Argument:
    """Returns a list or tuple; it has one type for each element."""
    values, shapes, types, strides = _columns([*map(argument, items)])
    return values, shapes, f"{kind}[{','.join(map(str, types))}]", strides


def text(arguments: list[Argument]) -> str:
    """Returns the arguments as a JSON object of four lists, to be formatted with the numbers of its tensors."""
    lists = json.dumps(dict(zip(("values", "shapes", "types", "strides"), _columns(arguments), strict=True)))
    return lists.replace("%", "%%").replace(f'"%{ID}"', ID)


def _columns(arguments: list[Argument]) -> Sequence[tuple[object, ...]]:
    return [*zip(*arguments, strict=True)] or [()] * 4


NOTHING = text([]) % ()


def _memory_objects(values: Iterable[object]) -> list[MemoryObject]:
    """Returns the tensors, each with its storage, in the order in which the observer lists them."""
    found: list[MemoryObject] = []
    for value in values:
        if isinstance(value, Tensor):
            found += (False, value.id), (True, value.storage)
        elif isinstance(value, tuple):
            found += _memory_objects(value)
    return found


class TensorIds:
    """The ids of a run's ops and of the tensors in their arguments, all from one counter.

    A memory object has several lives, each from the beginning of its first op to that of its last one.
    """

    def __init__(self, run: RankRun, last_id: int) -> None:
        self._mentioned = [_memory_objects(chain(op.inputs, op.outputs)) for op in run.op_table]
        self._life_of_mention, self._is_storage = array("q"), bytearray()
        self._first, self._last = array("q"), array("q")
        self._live(run)
        self._of_life = array("q", bytes(8 * len(self._first)))
        self.op, self._first_mention = array("q"), array("q")
        ending: dict[int, list[int]] = {}
        free: tuple[deque[int], deque[int]] = (deque(), deque())
        life = mention = 0
        for row, code in enumerate(run.ops.op):
            last_id += 1
            self.op.append(last_id)
            self._first_mention.append(mention)
            mention += len(self._mentioned[code])
            while life < len(self._first) and self._first[life] == row:
                addresses = free[self._is_storage[life]]
                if len(addresses) > FREE_BEFORE_REUSE:
                    self._of_life[life] = addresses.popleft()
                else:
                    last_id += 1
                    self._of_life[life] = last_id
                ending.setdefault(self._last[life], []).append(life)
                life += 1
            for ended in ending.pop(row, ()):
                free[self._is_storage[ended]].append(self._of_life[ended])

    def _live(self, run: RankRun) -> None:
        made = [{*_memory_objects(op.outputs)} - {*_memory_objects(op.inputs)} for op in run.op_table]
        life_of: dict[MemoryObject, int] = {}
        maker_of: dict[MemoryObject, int] = {}
        last_called = [*range(len(run.ops))]
        """The last op that began within each op."""
        for row in range(len(run.ops) - 1, -1, -1):
            if (parent := run.ops.parent[row]) != NONE:
                last_called[parent] = max(last_called[parent], last_called[row])
        for row, code in enumerate(run.ops.op):
            for memory_object in self._mentioned[code]:
                # a caller lists what the ops that it calls make
                is_made = memory_object in made[code] and not _encloses(run, maker_of.get(memory_object, NONE), row)
                if is_made or memory_object not in life_of:
                    life_of[memory_object] = len(self._first)
                    maker_of[memory_object] = row if is_made else NONE
                    self._is_storage.append(memory_object[0])
                    self._first.append(row)
                    self._last.append(row)
                life = life_of[memory_object]
                self._last[life] = max(self._last[life], last_called[row])
                self._life_of_mention.append(life)
        # what no op made was there before, and stays
        for memory_object, maker in maker_of.items():
            if maker == NONE:
                self._last[life_of[memory_object]] = len(run.ops)

    def of(self, row: int, code: int) -> tuple[int, ...]:
        """Returns the numbers of the tensors of an op, inputs first, each with that of its storage behind it."""
        first = self._first_mention[row]
        return tuple(self._of_life[life] for life in self._life_of_mention[first : first + len(self._mentioned[code])])


def _encloses(run: RankRun, caller: int, row: int) -> bool:
    """Returns whether an op is this one, or called by it, directly or not."""
    while row > caller:
        row = run.ops.parent[row]
    return row == caller != NONE


def write_host_trace(run: RankRun, path: str) -> None:
    """Writes the trace node by node, O(n log n) in the ops. Raises DataError when the file cannot be written."""
    head = f'"schema": "{SCHEMA}", "pid": {run.pid}, "time": "2026-01-31 00:00:00", "start_ts": 1000'
    with open_output(path) as file:
        file.write(f'{{\n  {head},\n  "nodes": ['.encode())
        write_items(file, _nodes(run))
        file.write(f'\n  ],\n  "finish_ts": {1000 + run.period()[1] // 1_000_000}\n}}\n'.encode())


def _nodes(run: RankRun) -> Iterator[str]:
    """Yields the nodes of a rank. Texts of arguments are made once for each distinct op, but for the tensors' ids."""
    threads = [*range(ROOT + 1, ROOT + 1 + len(run.tids))]
    for number, node in enumerate(threads, 1):
        yield _node(node, "[pytorch|profiler|execution_trace|thread]", ROOT, _attrs(scope=USER_SCOPE, tid=number))
    groups_id = threads[-1] + 1
    if run.groups:
        attrs = _attrs(rf_id=GROUP_ANNOTATION, scope=USER_SCOPE, tid=1)
        groups = [
            {**group.config, "ranks": group.ranks, "group_size": len(group.ranks), "group_count": len(run.groups)}
            for group in run.groups
        ]
        listed_groups = text([argument(json.dumps(groups))]) % ()
        yield _node(groups_id, "## process_group:init ##", threads[0], attrs, listed_groups)
    ids, ops, ends = TensorIds(run, groups_id), run.ops, as_numpy(run.ops.end)
    inputs_of = [[*map(argument, op.inputs)] for op in run.op_table]
    outputs_of = [[*map(argument, op.outputs)] for op in run.op_table]
    texts = [*zip(map(text, inputs_of), map(text, outputs_of), strict=True)]
    for row in np.lexsort((-np.arange(len(ends)), ends)).tolist():
        code, parent, forward = ops.op[row], ops.parent[row], ops.forward_open[row]
        op, (inputs, outputs), numbers = run.op_table[code], texts[code], ids.of(row, code)
        # the autograd engine's frame around a backward node does not know what it evaluates
        is_frame = ops.forward_thread[row] > 0 and op.scope == 0
        attrs = _attrs(
            rf_id=record_function(row), fw_parent=ids.op[forward] if forward != NONE else 0,
            seq_id=-1 if is_frame else ops.sequence[row], scope=op.scope, tid=ops.thread[row] + 1,
            fw_tid=0 if is_frame else ops.forward_thread[row], op_schema=op.schema,
        )  # fmt: skip
        if op.collective:
            attrs += _collective_attrs(op.collective)
            inputs = text([*inputs_of[code], *_collective_arguments(op.collective, ops.comm_sequence[row])])
        above = ids.op[parent] if parent != NONE else threads[ops.thread[row]]
        first_output = len(_memory_objects(op.inputs))
        sides = inputs % numbers[:first_output], outputs % numbers[first_output:]
        yield _node(ids.op[row], op.name, above, attrs, *sides)
    yield _node(ROOT, "[pytorch|profiler|execution_trace|process]", ROOT, _attrs(scope=USER_SCOPE, tid=0))


def _node(number: int, name: str, parent: int, attrs: str, inputs: str = NOTHING, outputs: str = NOTHING) -> str:
    return (
        f'      {{\n        "id": {number}, "name": {json.dumps(name)}, "ctrl_deps": {parent},\n'
        f'        "inputs": {inputs},\n        "outputs": {outputs},\n        "attrs": [{attrs}]\n      }}'
    )


def _attrs(
    *, rf_id: int = 0, fw_parent: int = 0, seq_id: int = -1, scope: int, tid: int, fw_tid: int = 0, op_schema: str = ""
) -> str:
    return ATTRS % (rf_id, fw_parent, seq_id, scope, tid, fw_tid, f'"{op_schema}"', '""', '""', '""')


def _collective_arguments(collective: Collective, sequence: int) -> Iterator[Argument]:
    """Yields the positional inputs of record_param_comms behind its tensor."""
    group = collective.group
    yield listed("Tuple", (sequence, collective.is_p2p))
    yield listed("Tuple", (group.name, group.description))
    first, stride = (group.ranks[0], group.stride) if group.ranks else (-1, -1)
    values: list[Value] = [collective.rank, collective.name, collective.in_splits, collective.out_splits]
    yield from map(argument, [*values, first, stride, max(1, len(group.ranks)), True])


def _collective_attrs(collective: Collective) -> str:
    """Returns what the observer adds to record_param_comms, from the comma on."""
    group = collective.group
    attrs: list[tuple[str, str, str | int]] = [
        ("collective_name", "string", collective.name), ("dtype", "string", collective.dtype),
        ("in_msg_nelems", "uint64", collective.elements[0]), ("out_msg_nelems", "uint64", collective.elements[1]),
        ("in_split_size", "string", str([*collective.in_splits])),
        ("out_split_size", "string", str([*collective.out_splits])),
    ]  # fmt: skip
    if group.name:
        attrs += [
            ("global_rank_start", "uint64", group.ranks[0]),
            ("global_rank_stride", "uint64", group.stride),
            ("pg_name", "string", group.name),
            ("pg_desc", "string", group.description),
        ]
    attrs += [("pg_size", "uint64", max(1, len(group.ranks))), ("is_asynchronized_op", "string", "True")]
    return "".join("," + json.dumps({"name": name, "type": kind, "value": value}) for name, kind, value in attrs)
