"""Optimizer steps of one op on lists of parameters, and gradient scaling."""

from collections.abc import Callable

from .family import Family, Rule, everything, moved, unknown_results
from .recorded_op import RecordedOp, Tensor

FAMILY = Family(
    "optimizer",
    "elementary steps of each parameter: SGD 4 with momentum, 2 without; Adagrad 7; Adam 13, AdamW 14: mean (3), mean "
    "square (4),"
    " its root, correction and epsilon (3), step (3), weight decay; finding and removing a scale 2",
    "the algorithms in the documentation of torch.optim",
    "parameters, gradients and states read, parameters and states written; gradients too where a scale is removed",
)
STEPS = {"_fused_adam": 13, "_fused_adamw": 14, "_fused_adagrad": 7}
SGD, SGD_WITHOUT_MOMENTUM = 4, 2
MOMENTUM = 2
GRADIENTS = 1
UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"


def _of_parameters(steps: int) -> Callable[[RecordedOp], int]:
    return lambda op: steps * sum(tensor.elements for tensor in op.tensors(0))


def _sgd(op: RecordedOp) -> int:
    steps = SGD if op.tensors(MOMENTUM) else SGD_WITHOUT_MOMENTUM
    return steps * sum(tensor.elements for tensor in op.tensors(0))


def _stepped(op: RecordedOp) -> int:
    scaled = isinstance(op.named("grad_scale"), Tensor)
    gradients = set() if scaled else {tensor.memory for tensor in op.tensors(GRADIENTS)}
    return moved(op.read, [tensor for tensor in op.written if tensor.memory not in gradients])


RULES = {
    **{
        f"aten::{name}_": Rule(FAMILY, _of_parameters(steps), _stepped, unknown_results, steps)
        for name, steps in STEPS.items()
    },
    "aten::_fused_sgd_": Rule(FAMILY, _sgd, _stepped, unknown_results),
    UNSCALE: Rule(FAMILY, _of_parameters(2), everything, unknown_results, 2),
}
