"""Finds for which module and which Python function each op, call and activity was done. In the forward pass these are
the innermost calls of Python around it; ops of the backward pass belong to those of the forward op that they
differentiate, and modules called inside them are below these.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..schema import columns
from ..schema.columns import Bool, Categorical, Int64, OpRows, RowMap, Rows, ThreadIntervals
from ..schema.linked import LinkedTrace, Ops
from .readers import RecordedPython
from .threads import ForwardThreads

MODULE = "nn.Module: "
SEPARATOR = "/"
JoinPaths = Callable[[str, str, str], str]
"""Returns the path of a call inside a backward op, from those of the forward op, around the backward op, and inside."""


class Stack(NamedTuple):
    """n calls, each with the row of the call that encloses it (-1 for none) and its name, `text[code]`."""

    calls: ThreadIntervals
    parent: Rows
    code: Int64
    text: list[str]

    @classmethod
    def of(cls, rows: RecordedPython, chosen: Bool) -> "Stack":
        """Returns the chosen calls of Python."""
        calls = ThreadIntervals(*(column[chosen] for column in (rows.thread, rows.start, rows.end)))
        nesting, names = columns.nest(calls), rows.name.take(chosen)
        return cls(calls._replace(end=nesting.end), nesting.parent, names.codes.astype(np.int64), names.table)

    def enclosing(self, spans: ThreadIntervals) -> Rows:
        """Returns for each span the row of the innermost call that encloses it, -1 for none. O(n log n)."""
        if not len(self.parent):
            return np.full(len(spans.start), -1, np.int64)
        nested = columns.NestedIntervals(self.calls, self.parent)
        return nested.innermost(spans, rounding=columns.ROUNDING, tolerance=columns.TOLERANCE)


class Paths(columns.Interner[str]):
    """The paths of nested modules, numbered as they come. A module that calls itself keeps its path."""

    def below(self, enclosing_path: Int64, name: Int64, names: list[str]) -> Int64:
        """Returns for each pair the path of `names[name]` below the path `enclosing_path` (-1 for none), by number."""
        if not len(enclosing_path):
            return enclosing_path
        pairs, which = np.unique(np.stack((enclosing_path, name)), axis=1, return_inverse=True)
        texts, numbers = [*self, ""], []
        for path, last in ((texts[path], names[code]) for path, code in pairs.T.tolist()):
            is_same = path.rpartition(SEPARATOR)[2] == last
            numbers.append(self[path if path and is_same else f"{path}{SEPARATOR}{last}" if path else last])
        return np.array(numbers, np.int64)[which.reshape(-1)]


def module_stack(calls: Stack) -> Stack:
    """Returns calls of modules named by their paths, as `Net_0/Sequential_0/Linear_2`."""
    names, paths = [name.removeprefix(MODULE) for name in calls.text], Paths()
    code, remaining = np.full(len(calls.code), -1, np.int64), np.arange(len(calls.code))
    while len(remaining):  # once per level
        enclosing_path = RowMap(code)[calls.parent[remaining]]
        ready = (calls.parent[remaining] < 0) | (enclosing_path >= 0)
        code[remaining[ready]] = paths.below(enclosing_path[ready], calls.code[remaining[ready]], names)
        remaining = remaining[~ready]
    return calls._replace(code=code, text=[*paths])


def with_modules(linked: LinkedTrace, rows: RecordedPython, op_parent: OpRows) -> LinkedTrace:
    """Returns the trace with the modules and functions of Python's calls; `op_parent` encloses each op. O(n log n)."""
    ops, calls = linked.ops, linked.calls
    timed = np.flatnonzero(ops.start != columns.ABSENT)
    position = RowMap(columns.positions(timed, len(ops)))
    # spans are the ops that have times, then the calls
    both = ((ops.thread, calls.thread), (ops.start, calls.start), (ops.end, calls.end))
    spans = ThreadIntervals(*(np.concatenate((of_op[timed], of_call)) for of_op, of_call in both))
    parent = position[np.concatenate((op_parent[timed], calls.op_row))]
    forward = np.concatenate((position[forward_ops(ops)[timed]], np.full(len(calls), -1)))

    def of_rows(stack: Stack, join: JoinPaths) -> tuple[Int64, Int64, list[str]]:
        code, paths = _paths(stack, spans, parent, forward, join)
        of_ops, of_calls = np.full(len(ops), -1, np.int64), code[len(timed) :]
        of_ops[timed] = code[: len(timed)]
        return of_ops, of_calls, paths

    is_module = rows.name.where(lambda name: name.startswith(MODULE))
    modules = of_rows(module_stack(Stack.of(rows, is_module)), _join_modules)
    # functions are named as `train.py(12): forward`
    functions = of_rows(Stack.of(rows, ~is_module), lambda forward, backward, inner: inner)
    return labelled(linked, module=modules, python_function=functions)


Labels = tuple[Int64, Int64, list[str]]
"""The codes of ops and of calls, -1 for none, and the texts that they stand for."""


def labelled(linked: LinkedTrace, **labels: Labels) -> LinkedTrace:
    """Returns the trace with these columns. An activity has what its launch call has, one without a call its op's."""
    tables, activities = (dict[str, Any](), dict[str, Any](), dict[str, Any]()), linked.activities
    for name, (of_ops, of_calls, texts) in labels.items():
        launching = RowMap(of_calls)[activities.call_row]
        of_activities = np.where(activities.call_row >= 0, launching, RowMap(of_ops)[activities.op_row])
        for table, codes in zip(tables, (of_ops, of_calls, of_activities), strict=True):
            table[name] = Categorical(codes.astype(np.int32), texts)
    ops, calls = replace(linked.ops, **tables[0]), replace(linked.calls, **tables[1])
    return replace(linked, ops=ops, calls=calls, activities=replace(activities, **tables[2]))


def _paths(
    stack: Stack, spans: ThreadIntervals, parent: Rows, forward_span: Rows, join: JoinPaths
) -> tuple[Int64, list[str]]:
    """Returns the code of each span's path, -1 for none, and the paths; `parent` and `forward_span` are spans."""
    # the innermost op that encloses each span that differentiates another
    backward = columns.nearest(forward_span >= 0, parent)
    enclosing = stack.enclosing(spans)
    on_thread = RowMap(stack.code)[enclosing]
    paths = columns.Interner[str]()
    paths.codes(stack.text, len(stack.text))
    code = np.where(backward < 0, on_thread, -1)
    forward, is_open = RowMap(forward_span)[backward], backward >= 0
    # once per level of backward passes in each other
    while (ready := np.flatnonzero(is_open & ~is_open[forward])).size:
        code[ready] = code[forward[ready]]
        rows = ready[(enclosing[ready] >= 0) & (enclosing[ready] != enclosing[backward[ready]])]
        keys = np.stack((code[rows], on_thread[backward[rows]], on_thread[rows]))
        triples, which = np.unique(keys, axis=1, return_inverse=True) if len(rows) else (keys, rows)
        texts = [*paths, ""]
        numbers = [paths[join(*(texts[number] for number in triple))] for triple in triples.T.tolist()]
        code[rows] = np.array(numbers, np.int64)[which.reshape(-1)]
        is_open[ready] = False
    return code, [*paths]


def _join_modules(forward: str, backward: str, inner: str) -> str:
    """Returns the path of modules called inside a backward op, from that of the forward op, around it, and inside."""
    # a module that the forward op has too is a second run of that one
    below = inner.removeprefix(f"{backward}{SEPARATOR}") if backward else inner
    path, first = forward.split(SEPARATOR) if forward else [], below.partition(SEPARATOR)[0]
    return SEPARATOR.join([*(path[: path.index(first)] if first in path else path), below])


def forward_ops(ops: Ops) -> OpRows:
    """Returns for each op of the backward pass the last op of its forward thread with its sequence number, else -1."""
    forward_row = OpRows(np.full(len(ops), -1, np.int64))
    with_number = (ops.start != columns.ABSENT) & (ops.seq_id >= 0)
    backward, forward = (np.flatnonzero(with_number & of_pass) for of_pass in (ops.fw_tid > 0, ops.fw_tid <= 0))
    forward = forward[np.lexsort((ops.start[forward], ops.seq_id[forward], ops.thread[forward]))]
    # a backward op without a forward thread has a number that no forward op has
    forward_thread = np.zeros(len(ops), np.int64)
    threads, of_number = ForwardThreads(ops, forward), columns.rows_by_number(forward, ops.tid)
    # threads that number from 0 on share their numbers
    any_thread = cache(lambda numbers: threads.most_frequent(np.array(numbers)))
    for number, rows in columns.rows_by_number(backward, ops.fw_tid).items():
        sequence = np.unique(ops.seq_id[rows])
        thread = ForwardThreads(ops, of_number[number]).most_frequent(sequence) if number in of_number else None
        thread = any_thread(tuple(sequence.tolist())) if thread is None else thread
        if thread is not None:
            forward_thread[rows] = thread
    sequence = ops.seq_id[backward]
    last = columns.asof_backward(
        columns.Keys(ops.thread[forward], ops.seq_id[forward]), columns.Keys(forward_thread[backward], sequence)
    )
    row = RowMap(forward)[last]
    is_earlier = (ops.seq_id[row] == sequence) & (ops.start[row] < ops.start[backward])
    forward_row[backward[is_earlier]] = row[is_earlier]
    return forward_row
