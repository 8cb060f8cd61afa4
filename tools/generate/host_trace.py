"""Writes the host trace of a simulated rank, as PyTorch's observer would have written it (schema 1.1.1-chakra.0.0.4).

Nodes stand in the order in which their ops ended, ids grow with the order in which they began; tensors and storages
take their ids from the same counter.
"""

import json
from collections.abc import Iterator

import numpy as np

from ...schema.io import open_output
from .host_arguments import Argument, argument, collective_arguments, text
from .identity import Identity, record_function
from .instructions import Collective, Group, Value
from .kineto_args import collective_dtype, stride
from .record import NONE, RankRun, as_numpy
from .tensor_ids import TensorIds, tensors_in

SCHEMA = "1.1.1-chakra.0.0.4"
ROOT = 1
USER_SCOPE = 7
NOTHING = text([]) % ()
GROUP_ANNOTATION = 1
"""The RecordFunction id of the node that lists the process groups."""


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
