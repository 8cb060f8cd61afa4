"""Writes the host trace of a simulated rank, as PyTorch's observer would have written it (schema 1.1.1-chakra.0.0.4).

Nodes stand in the order in which their ops ended, ids grow with the order in which they began; tensors and storages
take their ids from the same counter, one for each address that the observer meets. An op that has a tensor among its
results but not among its inputs has made it, at an address of its own. After its last use another tensor takes the
address, and with it the number. Tensors that no op makes keep theirs, as parameters do.
"""

import json
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from ...schema.io import open_output
from .instructions import ITEM_BYTES, Collective, Group, Opaque, Tensor, Value
from .kineto_rows import collective_dtype, stride
from .record import NONE, Identity, RankRun, as_numpy, record_function

ID = "%d"
SCHEMA = "1.1.1-chakra.0.0.4"
ROOT = 1
USER_SCOPE = 7
GROUP_ANNOTATION = 1
"""The RecordFunction id of the node that lists the process groups."""
FREE_BEFORE_REUSE = 256
"""How many addresses of a kind an allocator holds before it gives the first one out again."""
MemoryObject: TypeAlias = tuple[bool, int]
"""A tensor or (True) a storage, by its number in the job."""


class Argument(NamedTuple):
    """An argument as the host trace has it: JSON values and the name of the type."""

    value: object
    shape: object
    type: str
    strides: object


def argument(value: Value) -> Argument:
    """Returns an argument of an op, with ID for the numbers of a tensor and of its storage."""
    if isinstance(value, Tensor):
        where = [ID, ID, value.offset, value.numel, ITEM_BYTES[value.dtype], value.device]
        return Argument(where, value.shape, f"Tensor({value.dtype})", value.strides)
    if isinstance(value, Opaque):
        return Argument(f"<{value.type}>", [], value.type, [])
    if isinstance(value, tuple):
        return listed("GenericList", [argument(item) for item in value])
    if value is None:
        return Argument("<None>", [], "None", [])
    return Argument(value, [], {bool: "Bool", int: "Int", float: "Double", str: "String"}[type(value)], [])


def listed(kind: str, items: list[Argument]) -> Argument:
    """Returns a list or tuple; it has one type for each element."""
    return Argument(
        [item.value for item in items],
        [item.shape for item in items],
        f"{kind}[{','.join(item.type for item in items)}]",
        [item.strides for item in items],
    )


def text(arguments: Iterable[Argument]) -> str:
    """Returns the arguments as a JSON object of four lists, to be formatted with the numbers of its tensors."""
    values, shapes, types, strides = ([*column] for column in zip(*arguments, strict=True)) if arguments else ([],) * 4
    lists = json.dumps({"values": values, "shapes": shapes, "types": types, "strides": strides})
    return lists.replace("%", "%%").replace(f'"%{ID}"', ID)


def collective_arguments(collective: Collective, sequence: int) -> list[Argument]:
    """Returns the positional inputs of record_param_comms behind its tensor."""
    group = collective.group

    def of(*values: Value) -> list[Argument]:
        return [argument(value) for value in values]

    return [
        listed("Tuple", of(sequence, collective.is_p2p)),
        listed("Tuple", of(group.name, group.description)),
        *of(collective.rank, collective.name, collective.in_splits, collective.out_splits),
        *of(group.ranks[0] if group.ranks else -1, stride(group.ranks) if group.ranks else -1),
        *of(max(1, len(group.ranks)), collective.asynchronous),
    ]


class _Lives(NamedTuple):
    """From which op's beginning to which op's beginning each memory object is in use; `of_mention` is in the order of
    ops.
    """

    of_mention: "array[int]"
    is_storage: bytearray
    first: "array[int]"
    last: "array[int]"


def tensors_in(values: Iterable[Value]) -> Iterator[Tensor]:
    """Yields the tensors in the order in which the observer lists them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors_in(value)


class TensorIds:
    """The ids of a run's ops, and of the tensors in the arguments of each, all from one counter."""

    def __init__(self, run: RankRun, last_id: int) -> None:
        self._mentioned = [_memory_objects(chain(op.inputs, op.outputs)) for op in run.op_table]
        lives = _lives(run, self._mentioned)
        self._of_mention, self._of_life = lives.of_mention, array("q", bytes(8 * len(lives.first)))
        self.op, self._first_mention = array("q"), array("q")
        ending: dict[int, list[int]] = {}
        free: tuple[deque[int], deque[int]] = (deque(), deque())
        life = mention = 0
        for row, code in enumerate(run.ops.op):
            last_id += 1
            self.op.append(last_id)
            self._first_mention.append(mention)
            mention += len(self._mentioned[code])
            while life < len(lives.first) and lives.first[life] == row:
                addresses = free[lives.is_storage[life]]
                if len(addresses) > FREE_BEFORE_REUSE:
                    self._of_life[life] = addresses.popleft()
                else:
                    last_id += 1
                    self._of_life[life] = last_id
                ending.setdefault(lives.last[life], []).append(life)
                life += 1
            for ended in ending.pop(row, ()):
                free[lives.is_storage[ended]].append(self._of_life[ended])

    def of(self, row: int, code: int) -> tuple[int, ...]:
        """Returns the numbers of the tensors of an op, inputs first, each with that of its storage behind it."""
        first = self._first_mention[row]
        return tuple(self._of_life[life] for life in self._of_mention[first : first + len(self._mentioned[code])])


def _memory_objects(values: Iterable[Value]) -> list[MemoryObject]:
    return [
        memory_object for tensor in tensors_in(values) for memory_object in ((False, tensor.id), (True, tensor.storage))
    ]


def _lives(run: RankRun, mentioned: list[list[MemoryObject]]) -> _Lives:
    """Returns the lives in the order in which they begin."""
    lives = _Lives(array("q"), bytearray(), array("q"), array("q"))
    made = [{*_memory_objects(op.outputs)} - {*_memory_objects(op.inputs)} for op in run.op_table]
    life_of: dict[MemoryObject, int] = {}
    maker_of: dict[MemoryObject, int] = {}
    last_called = _last_called(run)
    for row, code in enumerate(run.ops.op):
        for memory_object in mentioned[code]:
            # a caller lists what the ops that it calls make
            is_made = memory_object in made[code] and not _encloses(run, maker_of.get(memory_object, NONE), row)
            if is_made or memory_object not in life_of:
                life_of[memory_object] = len(lives.first)
                maker_of[memory_object] = row if is_made else NONE
                lives.is_storage.append(memory_object[0])
                lives.first.append(row)
                lives.last.append(row)
            life = life_of[memory_object]
            lives.last[life] = max(lives.last[life], last_called[row])
            lives.of_mention.append(life)
    # what no op made was there before, and stays
    for life in (life_of[memory_object] for memory_object, maker in maker_of.items() if maker == NONE):
        lives.last[life] = len(run.ops)
    return lives


def _last_called(run: RankRun) -> list[int]:
    """Returns the last op that began within each op."""
    last = [*range(len(run.ops))]
    for row in reversed(last.copy()):
        parent = run.ops.parent[row]
        if parent != NONE:
            last[parent] = max(last[parent], last[row])
    return last


def _encloses(run: RankRun, caller: int, row: int) -> bool:
    """Returns whether an op is this one, or called by it, directly or not."""
    while row > caller:
        row = run.ops.parent[row]
    return row == caller != NONE


NOTHING = text([]) % ()


def write_host_trace(run: RankRun, who: Identity, path: str) -> None:
    """Writes the trace node by node, O(n log n) in the ops. Raises DataError when the file cannot be written."""
    head = (
        f'{{\n  "schema": "{SCHEMA}", "pid": {who.pid}, "time": "2026-01-31 00:00:00", "start_ts": 1000,\n  "nodes": ['
    )
    with open_output(path) as file:
        file.write(head.encode())
        separator = b"\n"
        for node in _Nodes(run, who).all():
            file.write(separator + node.encode())
            separator = b",\n"
        file.write(f'\n  ],\n  "finish_ts": {1000 + run.period().end // 1_000_000}\n}}\n'.encode())


class _Nodes:
    """The nodes of one rank. Texts of argument lists are made once for each distinct op, but for the tensors' ids."""

    def __init__(self, run: RankRun, who: Identity) -> None:
        self._run, self._who = run, who
        self._threads = [*range(ROOT + 1, ROOT + 1 + len(who.tids))]
        self._groups_id = self._threads[-1] + 1
        self._ids = TensorIds(run, self._groups_id)
        self._inputs = [_arguments(op.inputs) for op in run.op_table]
        self._texts = [
            (text(inputs), text(_arguments(op.outputs))) for inputs, op in zip(self._inputs, run.op_table, strict=True)
        ]

    # nodes

    def all(self) -> Iterator[str]:
        for number, node in enumerate(self._threads, 1):
            yield _node(node, "[pytorch|profiler|execution_trace|thread]", ROOT, _attrs(scope=USER_SCOPE, tid=number))
        if self._who.groups:
            groups = text(_arguments((_groups_text(self._who.groups),))) % ()
            attrs = _attrs(rf_id=GROUP_ANNOTATION, scope=USER_SCOPE, tid=1)
            yield _node(self._groups_id, "## process_group:init ##", self._threads[0], attrs, inputs=groups)
        ends = as_numpy(self._run.ops.end)
        for row in np.lexsort((-np.arange(len(ends)), ends)).tolist():
            yield self._op(row)
        yield _node(ROOT, "[pytorch|profiler|execution_trace|process]", ROOT, _attrs(scope=USER_SCOPE, tid=0))

    def _op(self, row: int) -> str:
        ops = self._run.ops
        code, thread, parent = ops.op[row], ops.thread[row], ops.parent[row]
        op, (inputs, outputs), ids = self._run.op_table[code], self._texts[code], self._ids.of(row, code)
        # the autograd engine's frame around a backward node does not know what it evaluates
        is_frame = ops.forward_thread[row] > 0 and op.scope == 0
        attrs = _attrs(
            rf_id=record_function(row),
            fw_parent=self._ids.op[ops.forward_open[row]] if ops.forward_open[row] != NONE else 0,
            seq_id=-1 if is_frame else ops.sequence[row],
            scope=op.scope,
            tid=thread + 1,
            fw_tid=0 if is_frame else ops.forward_thread[row],
            op_schema=op.schema,
        )
        if op.collective:
            attrs += _collective_attrs(op.collective)
            inputs = text([*self._inputs[code], *collective_arguments(op.collective, ops.comm_sequence[row])])
        above = self._ids.op[parent] if parent != NONE else self._threads[thread]
        first_output = 2 * sum(1 for _ in tensors_in(op.inputs))
        inputs, outputs = inputs % ids[:first_output], outputs % ids[first_output:]
        return _node(self._ids.op[row], op.name, above, attrs, inputs=inputs, outputs=outputs)


def _arguments(values: tuple[Value, ...]) -> list[Argument]:
    return [*map(argument, values)]


def _node(number: int, name: str, parent: int, attrs: str, *, inputs: str = NOTHING, outputs: str = NOTHING) -> str:
    return (
        f'      {{\n        "id": {number}, "name": {json.dumps(name)}, "ctrl_deps": {parent},\n'
        f'        "inputs": {inputs},\n        "outputs": {outputs},\n        "attrs": [{attrs}]\n      }}'
    )


def _attrs(
    *, rf_id: int = 0, fw_parent: int = 0, seq_id: int = -1, scope: int, tid: int, fw_tid: int = 0, op_schema: str = ""
) -> str:
    return (
        f'{{"name": "rf_id", "type": "uint64", "value": {rf_id}}},'
        f'{{"name": "fw_parent", "type": "uint64", "value": {fw_parent}}},'
        f'{{"name": "seq_id", "type": "int64", "value": {seq_id}}},'
        f'{{"name": "scope", "type": "uint64", "value": {scope}}},'
        f'{{"name": "tid", "type": "uint64", "value": {tid}}},'
        f'{{"name": "fw_tid", "type": "uint64", "value": {fw_tid}}},'
        f'{{"name": "op_schema", "type": "string", "value": "{op_schema}"}},'
        '{"name": "kernel_backend", "type": "string", "value": ""},'
        '{"name": "kernel_file", "type": "string", "value": ""},'
        '{"name": "tensor_range", "type": "string", "value": ""}'
    )


def _collective_attrs(collective: Collective) -> str:
    """Returns what the observer adds to record_param_comms, from the comma on."""
    group = collective.group
    attrs: list[tuple[str, str, str | int]] = [
        ("collective_name", "string", collective.name),
        ("dtype", "string", collective_dtype(collective)),
        ("in_msg_nelems", "uint64", collective.in_elements),
        ("out_msg_nelems", "uint64", collective.out_elements),
        ("in_split_size", "string", str(list(collective.in_splits))),
        ("out_split_size", "string", str(list(collective.out_splits))),
    ]
    if group.name:
        attrs += [
            ("global_rank_start", "uint64", group.ranks[0]),
            ("global_rank_stride", "uint64", stride(group.ranks)),
            ("pg_name", "string", group.name),
            ("pg_desc", "string", group.description),
        ]
    attrs += [
        ("pg_size", "uint64", max(1, len(group.ranks))),
        ("is_asynchronized_op", "string", str(collective.asynchronous)),
    ]
    return "".join("," + json.dumps({"name": name, "type": kind, "value": value}) for name, kind, value in attrs)


def _groups_text(groups: tuple[Group, ...]) -> str:
    return json.dumps(
        [
            {
                "pg_name": group.name,
                "pg_desc": group.description,
                "backend_config": "cuda:nccl",
                "ranks": list(group.ranks),
                "group_size": len(group.ranks),
                "group_count": len(groups),
            }
            for group in groups
        ]
    )
