"""The work of ops of a linked trace, computed once for all ops that were recorded alike."""

from collections.abc import Hashable

import numpy as np

from ...schema.columns import Bool, Int64, OpRows
from ...schema.linked import Ops, TensorReader
from .recorded_op import Unknown, alike, recorded_by_device, recorded_by_host
from .table import RULES, Work, work_of, work_of_triton

AT_ONCE = 1 << 13
BACKEND, TRITON, PREFIX = "kernel_backend", "triton", "triton_"
"""The attribute that names the backend of a kernel, its value for Triton, and the prefix of the names of such ops."""


class OpWorks:
    """The work of ops, by row. `has_rule` is whether the table has a rule for each op, `family` a number
    of its family.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._reader = TensorReader()
        self._cache: dict[Hashable, Work | None] = {}
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
        keys = [key for first in range(0, len(rows), AT_ONCE) for key in self._alike(rows[first : first + AT_ONCE])]
        number = {key: number for number, key in enumerate(self._cache)}
        return [*self._cache.values()], np.fromiter(map(number.__getitem__, keys), np.int64, len(keys))

    def _alike(self, block: Int64) -> list[Hashable]:
        """Returns for each op a key of the cache, the same for those that were recorded alike."""
        ops = self._ops
        inputs, outputs = ops.inputs.at(block), ops.outputs.at(block)
        by_host = ops.recorded_by_host[block].tolist()
        recorded = zip(by_host, self._reader.alike(inputs, outputs), inputs, strict=True)
        names, schemas = ops.name.codes[block].tolist(), ops.op_schema.codes[block].tolist()
        keys: list[Hashable] = [
            *zip(names, schemas, [alike if host else text for host, alike, text in recorded], strict=True)
        ]
        first = dict(zip(reversed(keys), reversed(range(len(block))), strict=True))
        for key, index in first.items():
            if key not in self._cache:
                self._cache[key] = self._work(int(block[index]), inputs[index], outputs[index])
        return keys

    def _work(self, row: int, inputs: bytes, outputs: bytes) -> Work | None:
        name, schema = self._ops.name[row], self._ops.op_schema[row]
        try:
            if not self._ops.recorded_by_host[row]:
                op = recorded_by_device(name, inputs)
            else:
                op = recorded_by_host(name, schema, alike(inputs, outputs))
            return work_of(op) if name in RULES else work_of_triton(op)
        except (Unknown, RecursionError):
            return None
