"""The work of ops of a linked trace, computed once for all ops that were recorded alike."""

from collections.abc import Iterable

from ...schema.columns import Bool, Int64
from ...schema.linked import Ops
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
        self._cache: dict[tuple[str, str, bytes], Work | None] = {}
        self._triton = ops.name.where(lambda name: name.startswith(PREFIX))
        self._triton[[row for row, attributes in ops.extra.items() if attributes.get(BACKEND) == TRITON]] = True
        families = {rule.family.name: number for number, rule in enumerate(RULES.values())}
        named = ops.name.numbers(lambda name: families[RULES[name].family.name] if name in RULES else -1, -1)
        self.has_rule: Bool = (named >= 0) | self._triton
        self.family: Int64 = named

    def works(self, rows: Iterable[int]) -> dict[int, Work]:
        """Returns the known work of these ops, all of which must have a rule."""
        op_rows = [*rows]
        known_works: dict[int, Work] = {}
        for first in range(0, len(op_rows), AT_ONCE):
            block = op_rows[first : first + AT_ONCE]
            arguments = zip(self._ops.inputs.at(block), self._ops.outputs.at(block), strict=True)
            works = (self._work(row, *tensors) for row, tensors in zip(block, arguments, strict=True))
            known_works |= {row: work for row, work in zip(block, works, strict=True) if work is not None}
        return known_works

    def _work(self, row: int, inputs: bytes, outputs: bytes) -> Work | None:
        ops = self._ops
        by_host = bool(ops.recorded_by_host[row])
        text = alike(inputs, outputs) if by_host else inputs
        key = ops.name[row], ops.op_schema[row] if by_host else "", text
        if key not in self._cache:
            self._cache[key] = self._parsed_work(row, *key)
        return self._cache[key]

    def _parsed_work(self, row: int, name: str, schema: str, text: bytes) -> Work | None:
        try:
            by_host = self._ops.recorded_by_host[row]
            op = recorded_by_host(name, schema, text) if by_host else recorded_by_device(name, text)
            return work_of(op) if name in RULES else work_of_triton(op)
        except (Unknown, RecursionError):
            return None
