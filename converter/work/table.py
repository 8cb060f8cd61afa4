"""The table of all ops whose work is known, and the work of an op by it."""

from typing import NamedTuple

from . import attention, convolutions, elementwise, matrix_products, memory_ops, optimizers, reductions
from .family import Family, Rule, everything, moved, unknown_results
from .recorded_op import LARGEST, RecordedOp, Unknown

TRITON = Family(
    "Triton kernel",
    "not known, and absent",
    "the arguments that the kernel was launched with",
    "the tensors among its arguments, each once",
)
SCAN = Rule(reductions.SCAN, reductions.of_elements(1), everything, unknown_results, 1)
RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **reductions.RULES,
    **memory_ops.RULES,
    **optimizers.RULES,
    **matrix_products.RULES,
    **convolutions.RULES,
    **attention.RULES,
    "fbgemm::asynchronous_complete_cumsum": SCAN,
}
"""The rules by the op's name."""


class Work(NamedTuple):
    """The work of an op: floating-point operations (None if not known), bytes read and written, and bytes of an element
    of its largest tensor, which shows the number format (0 if not known).
    """

    operations: int | None
    bytes: int
    element: int = 0


def work_of(op: RecordedOp) -> Work:
    """Returns the work of an op that is in the table. Raises Unknown if its arguments do not determine it."""
    rule = RULES[op.name]
    if not op.has_results:
        op = op.with_results(rule.results(op))
    return _possible(op, Work(rule.operations(op), rule.moved(op), _element(op)))


def work_of_triton(op: RecordedOp) -> Work:
    """Returns the work of a Triton kernel that was launched as an op. Raises Unknown."""
    return _possible(op, Work(None, moved(op.read, []), _element(op)))


def _element(op: RecordedOp) -> int:
    largest = max([*op.read, *op.written], key=lambda tensor: tensor.stored, default=None)
    return max(largest.item, 0) if largest else 0


def _possible(op: RecordedOp, work: Work) -> Work:
    if not op.read and not op.written:
        raise Unknown("tensors")
    if max(work.operations or 0, work.bytes) >= LARGEST:
        raise Unknown("a number of this world")
    return work
