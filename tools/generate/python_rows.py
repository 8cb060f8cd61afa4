"""The rows of Python's calls in a device trace, as `with_stack=True` records them, after those of ops."""

from collections.abc import Iterator
from itertools import cycle, islice

from .chrome import Rows, track_fields
from .identity import Identity
from .record import NONE, RankRun

FRAMES = (
    "torch/nn/modules/module.py(1751): _wrapped_call_impl",
    "<built-in function isinstance>",
    "torch/nn/modules/module.py(1762): _call_impl",
    "torch/_jit_internal.py(104): is_scripting",
    "<built-in method _get_tracing_state of PyCapsule object at 0x7f84d0a51f50>",
    "torch/nn/modules/module.py(1954): __getattr__",
    "<built-in function len>",
)
"""What Python goes through before it calls an op."""


def python_rows(run: RankRun, who: Identity, rows: Rows, calls: int) -> Iterator[str]:
    """So many calls around each outermost op that Python called, which last as long as the op."""
    ops, number = run.ops, 0
    for row, parent in enumerate(ops.parent):
        op = run.op_table[ops.op[row]]
        by_python = not op.annotation and not ops.forward_thread[row]
        if not by_python or (parent != NONE and not run.op_table[ops.op[parent]].annotation):
            continue
        at, caller = track_fields(who.pid, who.tids[ops.thread[row]]), "null"
        called = f"<built-in method {op.name.rpartition(':')[2]} of type object at 0x7f84d8c4ea40>"
        for name in (*islice(cycle(FRAMES), calls - 1), called):
            number += 1
            args = f'"Python parent id": {caller}, "Python id": {number}, "Ev Idx": {len(ops) + number - 1}'
            yield rows.complete(
                "python_function", name, at, rows.cut(ops.start[row]), rows.cut(ops.end[row]), args=args
            )
            caller = str(number)
