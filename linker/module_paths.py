"""Finds for which module and which Python function each op, call and activity was done.

In the forward pass they are the innermost calls of Python that enclose an op on its thread. The backward pass runs on
another thread or below the call of `backward`: its ops belong to the module and function of the forward op that they
differentiate. A module that is called inside a backward op, as activation checkpointing does, is below that op's
module.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT, CallRows, Categorical, Int32, Int64, OpRows, RowMap, Rows, ThreadIntervals, nearest
from ..schema.linked import Calls, Ops
from .forward_ops import forward_ops
from .readers import RecordedPython
from .stacks import SEPARATOR, Paths, Stack, function_stack, module_stack

JoinPaths = Callable[[str, str, str], str]
"""Returns the path of a call inside a backward op, from the path of the forward op, and from the paths around the
backward op and around the call on their thread.
"""


class PythonContext(NamedTuple):
    """The module's path and the Python function of ops and of calls; code -1 where there is none."""

    op_module: Categorical
    op_function: Categorical
    call_module: Categorical
    call_function: Categorical

    def of_activities(self, call_row: CallRows, op_row: OpRows) -> tuple[Categorical, Categorical]:
        """Returns the modules and functions of the launch calls, of the ops for activities without a call."""
        pairs = (self.op_module, self.call_module), (self.op_function, self.call_function)
        module, function = (
            Categorical(np.where(call_row >= 0, _codes_at(call, call_row), _codes_at(op, op_row)), op.table)
            for op, call in pairs
        )
        return module, function


def _codes_at(column: Categorical, rows: Rows) -> Int32:
    return np.append(column.codes, np.int32(-1))[rows]


class _Spans(NamedTuple):
    """The ops that have times, then the calls. `parent` is the position here of the op that encloses each, `forward`
    that of the forward op that it differentiates, -1 for none.
    """

    times: ThreadIntervals
    parent: Rows
    forward: Rows


def python_context(rows: RecordedPython, ops: Ops, op_parent: OpRows, calls: Calls) -> PythonContext:
    """Returns the modules and functions of ops and calls; `op_parent` is the op that encloses each op. O(n log n)."""
    timed = np.flatnonzero(ops.start != ABSENT)
    spans = _spans(ops, op_parent, calls, timed)
    # the innermost op that encloses each span that differentiates another
    backward = nearest(spans.forward >= 0, spans.parent)

    def of_ops_and_calls(stack: Stack, join: JoinPaths) -> tuple[Categorical, Categorical]:
        code, paths = _paths(stack, spans, backward, join)
        of_ops = np.full(len(ops), -1, np.int32)
        of_ops[timed] = code[: len(timed)]
        return Categorical(of_ops, paths), Categorical(code[len(timed) :].astype(np.int32), paths)

    op_module, call_module = of_ops_and_calls(module_stack(rows), _join_modules)
    op_function, call_function = of_ops_and_calls(function_stack(rows), _innermost)
    return PythonContext(op_module, op_function, call_module, call_function)


def _spans(ops: Ops, op_parent: OpRows, calls: Calls, timed: Rows) -> _Spans:
    position = np.full(len(ops), -1, np.int64)
    position[timed] = np.arange(len(timed))
    columns = ((ops.thread, calls.thread), (ops.start, calls.start), (ops.end, calls.end))
    times = ThreadIntervals(*(np.concatenate((of_op[timed], of_call)) for of_op, of_call in columns))
    parent = RowMap(position)[np.concatenate((op_parent[timed], calls.op_row))]
    forward = np.concatenate((RowMap(position)[forward_ops(ops)[timed]], np.full(len(calls), -1)))
    return _Spans(times, parent, forward)


def _paths(stack: Stack, spans: _Spans, backward: Rows, join: JoinPaths) -> tuple[Int64, list[str]]:
    """Returns the code of each span's path, -1 for none, and the paths. `backward` is the backward op that encloses a
    span.
    """
    enclosing = stack.enclosing(spans.times)
    on_thread = RowMap(stack.code)[enclosing]
    paths = Paths()
    for text in stack.text:
        paths.number(text)
    code = np.where(backward < 0, on_thread, -1)
    forward, is_open = RowMap(spans.forward)[backward], backward >= 0
    # once per level of backward passes in each other
    while (ready := np.flatnonzero(is_open & ~is_open[forward])).size:
        code[ready] = code[forward[ready]]
        rows = ready[(enclosing[ready] >= 0) & (enclosing[ready] != enclosing[backward[ready]])]
        keys = np.stack((code[rows], on_thread[backward[rows]], on_thread[rows]))
        triples, which = np.unique(keys, axis=1, return_inverse=True) if len(rows) else (keys, rows)
        path_parts = [["" if number < 0 else paths.texts[number] for number in triple] for triple in triples.T.tolist()]
        numbers = [paths.number(join(*triple)) for triple in path_parts]
        code[rows] = np.array(numbers, np.int64)[which.reshape(-1)]
        is_open[ready] = False
    return code, paths.texts


def _join_modules(forward: str, backward: str, inner: str) -> str:
    """Returns the path of modules that are called inside a backward op.

    Args:
        forward: The path of the forward op that it differentiates.
        backward: The path around the backward op on its thread.
        inner: The path of the call on that thread. A module that `forward` has too is a second run of that one.
    """
    below = inner.removeprefix(f"{backward}{SEPARATOR}") if backward else inner
    path, first = forward.split(SEPARATOR) if forward else [], below.partition(SEPARATOR)[0]
    return SEPARATOR.join([*(path[: path.index(first)] if first in path else path), below])


def _innermost(_: str, __: str, inner: str) -> str:
    return inner
