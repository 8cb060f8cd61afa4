"""For which module and which Python function each op, call and activity was done.

Forward they are the innermost calls of Python around an op on its thread. The backward pass runs on another thread or
below the call of `backward`: what it does counts to the module and function of the forward op that it differentiates. A
module that is called inside a backward op, as activation checkpointing does, stands below that op's module.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Categorical, Int32, Int64, RowMap, Rows, nearest
from ...schema.linked import Calls, Ops
from ..readers import RecordedPython
from .forward_ops import forward_ops
from .stacks import SEPARATOR, Paths, Stack, function_stack, module_stack

Joined = Callable[[str, str, str], str]
"""Gives the place of what is called inside a backward op from that op's place, from what is around it on its thread,
and its own there.
"""


class CallSites(NamedTuple):
    """The path of the module and the Python function of ops and of calls, without a text where there is none."""

    op_module: Categorical
    op_function: Categorical
    call_module: Categorical
    call_function: Categorical

    def of_activities(self, call_row: Rows, op_row: Rows) -> tuple[Categorical, Categorical]:
        """Returns those of their launch calls, else of their ops."""
        pairs = (self.op_module, self.call_module), (self.op_function, self.call_function)
        module, function = (
            Categorical(np.where(call_row >= 0, _through(call, call_row), _through(op, op_row)), op.table)
            for op, call in pairs
        )
        return module, function


def _through(texts: Categorical, rows: Rows) -> Int32:
    return np.append(texts.codes, np.int32(-1))[rows]


class _Spans(NamedTuple):
    """Ops that have times, then calls: where each ran, the place of the op around it, and of the forward op that it
    differentiates.
    """

    thread: Int64
    start: Int64
    end: Int64
    parent: Rows
    forward: Rows


def places_of(rows: RecordedPython, ops: Ops, op_parent: Rows, calls: Calls) -> CallSites:
    """Returns the places of ops and calls; `op_parent` is the row of the op around each op. O(n log n)."""
    timed = np.flatnonzero(ops.start != ABSENT)
    spans = _spans(ops, op_parent, calls, timed)
    # the innermost op around each that differentiates another
    below = nearest(spans.forward >= 0, spans.parent)

    def both(stack: Stack, joined: Joined) -> tuple[Categorical, Categorical]:
        code, texts = _places(stack, spans, below, joined)
        of_ops = np.full(len(ops), -1, np.int32)
        of_ops[timed] = code[: len(timed)]
        return Categorical(of_ops, texts), Categorical(code[len(timed) :].astype(np.int32), texts)

    (op_module, call_module) = both(module_stack(rows), _joined_paths)
    (op_function, call_function) = both(function_stack(rows), _innermost)
    return CallSites(op_module, op_function, call_module, call_function)


def _spans(ops: Ops, op_parent: Rows, calls: Calls, timed: Rows) -> _Spans:
    place = np.full(len(ops), -1, np.int64)
    place[timed] = np.arange(len(timed))
    thread, start, end = (
        np.concatenate((of_op[timed], of_call))
        for of_op, of_call in ((ops.thread, calls.thread), (ops.start, calls.start), (ops.end, calls.end))
    )
    parent = RowMap(place)[np.concatenate((op_parent[timed], calls.op_row))]
    forward = np.concatenate((RowMap(place)[forward_ops(ops)[timed]], np.full(len(calls), -1)))
    return _Spans(thread, start, end, parent, forward)


def _places(stack: Stack, spans: _Spans, below: Rows, joined: Joined) -> tuple[Int64, list[str]]:
    """Returns the code of each span's place, -1 for none, and the texts."""
    around = stack.around(spans.thread, spans.start, spans.end)
    own = RowMap(stack.code)[around]
    paths = Paths()
    for text in stack.text:
        paths.number(text)
    found = np.where(below < 0, own, -1)
    forward, waiting = RowMap(spans.forward)[below], below >= 0
    # once per level of backward passes in each other
    while (ready := np.flatnonzero(waiting & ~waiting[forward])).size:
        found[ready] = found[forward[ready]]
        rows = ready[(around[ready] >= 0) & (around[ready] != around[below[ready]])]
        keys = np.stack((found[rows], own[below[rows]], own[rows]))
        triples, which = np.unique(keys, axis=1, return_inverse=True) if len(rows) else (keys, rows)
        texts = [["" if code < 0 else paths.texts[code] for code in triple] for triple in triples.T.tolist()]
        numbers = [paths.number(joined(*triple)) for triple in texts]
        found[rows] = np.array(numbers, np.int64)[which.reshape(-1)]
        waiting[ready] = False
    return found, paths.texts


def _joined_paths(outer: str, top: str, inner: str) -> str:
    """Returns the path of modules called inside a backward op of `outer`: `inner` as it stands on the thread, where
    `top` is around that op.

    A module that is done again stands where it stood before.
    """
    own = inner.removeprefix(f"{top}{SEPARATOR}") if top else inner
    before, first = outer.split(SEPARATOR) if outer else [], own.partition(SEPARATOR)[0]
    kept = before[: before.index(first)] if first in before else before
    return SEPARATOR.join([*kept, own])


def _innermost(_: str, __: str, inner: str) -> str:
    return inner
