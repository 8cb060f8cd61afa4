"""The work of ops of a linked trace, computed once for all ops that were recorded alike."""

from collections.abc import Hashable

import numpy as np

from ...schema.columns import Bool, Int64, Interner, OpRows
from ...schema.linked import Ops
from .recorded_op import Unknown, recorded_by_device, recorded_by_host
from .table import RULES, Work, work_of, work_of_triton

BACKEND, TRITON, PREFIX = "kernel_backend", "triton", "triton_"
"""The attribute that names the backend of a kernel, its value for Triton, and the prefix of the names of such ops."""


class OpWorks:
    """The work of ops, by row. `has_rule` is whether the table has a rule for each op, `family` a number
    of its family.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._triton = ops.name.where(lambda name: name.startswith(PREFIX))
        self._triton[[row for row, attributes in ops.extra.items() if attributes.get(BACKEND) == TRITON]] = True
        families = {rule.family.name: number for number, rule in enumerate(RULES.values())}
        named = ops.name.numbers(lambda name: families[RULES[name].family.name] if name in RULES else -1, -1)
        self.has_rule: Bool = (named >= 0) | self._triton
        self.family: Int64 = named

    def works(self, rows: OpRows) -> tuple[list[Work | None], Int64]:
        """Returns the distinct works of these ops, None where not known, and which of them each op has.

        All the ops must have a rule.
        """
        ops, numbers = self._ops, Interner[Hashable]()
        columns = (column[rows].tolist() for column in (ops.name.codes, ops.op_schema.codes, ops.recorded_by_host))
        number = numbers.codes(zip(*columns, ops.arguments.alike(rows), strict=True), len(rows))
        first = np.unique(number, return_index=True)[1]
        return [*map(self._work, rows[first].tolist())], number.astype(np.int64)

    def _work(self, row: int) -> Work | None:
        ops, name = self._ops, self._ops.name[row]
        try:
            if not ops.recorded_by_host[row]:
                op = recorded_by_device(name, ops.inputs[row])
            else:
                op = recorded_by_host(name, ops.op_schema[row], ops.inputs[row], ops.outputs[row])
            return work_of(op) if name in RULES else work_of_triton(op)
        except (Unknown, RecursionError):
            return None
