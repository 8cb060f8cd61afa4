"""Uses the annotations of the user (record_function) that enclose ops as modules, if Python's calls are unknown."""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from ...linker.modules import Paths, Stack, forward_ops
from ...schema.columns import (
    ABSENT,
    Bool,
    Categorical,
    Int64,
    Keys,
    ThreadIntervals,
    Tree,
    asof_backward,
    nearest,
    nest,
)
from ...schema.linked import Activities, Calls, LinkedTrace, Ops, are_step_marks, op_tree

USER_SCOPE = 7
TableT = TypeVar("TableT", Ops, Calls, Activities)


def are_annotations(ops: Ops) -> Bool:
    """Returns which ops are annotations of the user with a time, without those that mark steps."""
    annotates: Bool = (ops.scope == USER_SCOPE) & (ops.start != ABSENT) & ~are_step_marks(ops.name)
    return annotates


def with_modules(linked: LinkedTrace) -> LinkedTrace:
    """Returns the trace itself if it has modules, else with the annotations that enclose each op as its module path.

    An op of the backward pass that no annotation encloses has the annotations that are open on the thread that called
    its worker thread, else those of the forward op that it differentiates.
    """
    if linked.activities.module is not None or not len(linked.ops):
        return linked
    ops, calls, activities = linked.ops, linked.calls, linked.activities
    code, paths = _annotations(linked)
    of_ops = Categorical(np.append(code, -1).astype(np.int32), paths)
    return replace(
        linked,
        ops=_add_module_column(ops, of_ops.take(np.arange(len(ops)))),
        calls=_add_module_column(calls, of_ops.take(calls.op_row)),
        activities=_add_module_column(activities, of_ops.take(activities.op_row)),
    )


def _add_module_column(table: TableT, module: Categorical) -> TableT:
    return replace(table, module=module, python_function=Categorical.nulls(len(module)))


def op_path(linked: LinkedTrace, tree: Tree, row: int) -> list[str]:
    """Returns the names of an op and of the ops that enclose it, outermost first, without annotations of the user."""
    return [linked.ops.name[op] for op in tree.path(row) if linked.ops.scope[op] != USER_SCOPE]


def _annotations(linked: LinkedTrace) -> tuple[Int64, list[str]]:
    """Returns for each op the position of the path of its enclosing annotations, -1 for none, and the paths."""
    ops, tree, paths = linked.ops, op_tree(linked.ops), Paths()
    annotates = are_annotations(ops)
    code = np.full(len(ops), -1, np.int64)
    for rows in tree.levels:
        code[rows] = np.append(code, -1)[tree.parent[rows]]
        annotations = rows[annotates[rows]]
        code[annotations] = paths.below(code[annotations], ops.name.codes[annotations].astype(np.int64), ops.name.table)
    if paths:
        _add_backward(linked, tree, code, np.flatnonzero(annotates))
    return code, [*paths]


def _add_backward(linked: LinkedTrace, tree: Tree, code: Int64, annotations: Int64) -> None:
    """Fills in the codes of ops of the backward pass that have none."""
    ops, handoffs = linked.ops, linked.handoffs
    forward = forward_ops(ops)
    apart = (forward >= 0) & (ops.thread[forward] != ops.thread)
    rows = np.flatnonzero((code < 0) & np.isin(ops.thread, ops.thread[apart]) & (ops.start != ABSENT))
    order = np.lexsort((handoffs.target_time, handoffs.target_thread))
    targets = Keys(handoffs.target_thread[order], handoffs.target_time[order])
    last = asof_backward(targets, Keys(ops.thread[rows], ops.start[rows]))
    rows, called = rows[last >= 0], order[last[last >= 0]]
    intervals = ThreadIntervals(*(column[annotations] for column in (ops.thread, ops.start, ops.end)))
    nesting = nest(intervals)
    stack = Stack(intervals._replace(end=nesting.end), nesting.parent, code[annotations], [])
    enclosing = stack.enclosing(ThreadIntervals.at(handoffs.source_thread[called], handoffs.source_time[called]))
    code[rows] = np.append(stack.code, -1)[enclosing]
    nearest_forward = nearest(forward >= 0, tree.parent)
    remaining = np.flatnonzero((code < 0) & (nearest_forward >= 0))
    code[remaining] = code[forward[nearest_forward[remaining]]]
