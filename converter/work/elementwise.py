"""Element-wise ops: arithmetic, activations and their gradients, on tensors or lists of tensors."""

from collections.abc import Callable

from .family import NEW, Family, Rule, everything, like_first
from .matrix_products import broadcast
from .recorded_op import FLOATING, RecordedOp, Tensor, Unknown

FAMILY = Family(
    "element-wise",
    "elementary steps, as in the table below, of each element of the result: a sum, product, comparison, choice, or "
    "one call of"
    " exp, log, sqrt, erf and their like is a step",
    "the definitions in PyTorch's documentation",
)
LISTS = Family(
    "element-wise on lists",
    "as element-wise, of each element of the first list",
    FAMILY.source,
    "tensors of the lists read and written",
)
COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan"
STEPS = {
    1: (
        "add sub rsub mul div true_divide floor_divide remainder fmod neg abs sign pow square sqrt exp expm1 exp2 log "
        "log1p log2 log10 sin cos tan erf erfc erfinv tanh sinh cosh atan atan2 asin acos floor ceil round trunc "
        "reciprocal maximum minimum fmax fmin clamp_min clamp_max relu threshold frac threshold_backward where "
        "masked_fill bitwise_and bitwise_or bitwise_not bitwise_xor isinf isfinite isposinf isneginf __and__ __or__ "
        "__xor__ copysign lgamma digamma __lshift__ __rshift__ bitwise_left_shift bitwise_right_shift relu6 sgn angle "
        "signbit"
    ),
    2: (
        "rsqrt clamp hardtanh hardtanh_backward leaky_relu leaky_relu_backward native_dropout_backward _masked_scale "
        "hypot _prelu_kernel prelu addr hardsigmoid_backward abs_backward"
    ),
    3: (
        "addcmul addcdiv lerp sigmoid_backward tanh_backward native_dropout _fused_dropout elu nan_to_num elu_backward "
        "xlogy hardsigmoid hardshrink softshrink log_sigmoid_backward"
    ),
    4: "sigmoid hardswish softplus hardswish_backward softplus_backward logaddexp log_sigmoid_forward",
    5: "silu glu gelu logit logit_backward",
    6: "mish glu_backward",
    9: "silu_backward",
    11: "gelu_backward",
    12: "mish_backward",
}
"""Names by the number of elementary steps; comparisons take one."""
NEVER_IN_PLACE = ("backward", "dropout", "_forward", "__", "where", "maximum", "minimum")
TAKES_BOTH_HALVES = ("glu",)
WITH_LISTS = (
    "add sub mul div neg abs sqrt rsqrt exp log pow reciprocal addcmul addcdiv lerp "
    "maximum minimum clamp_min clamp_max "
    "sign erf tanh sigmoid round floor ceil"
)


def _of_results(steps: int) -> Callable[[RecordedOp], int]:
    def operations(op: RecordedOp) -> int:
        if not op.results:
            raise Unknown("results")
        return steps * op.results[0].elements

    return operations


def _of_first_list(steps: int) -> Callable[[RecordedOp], int]:
    return lambda op: steps * sum(tensor.elements for tensor in op.tensors(0))


def _results(op: RecordedOp) -> list[Tensor]:
    """Returns one result of the broadcast shape of the arguments, if they have one type."""
    name = op.name.partition("::")[2]
    if name.endswith("_") and not name.endswith("__"):
        return like_first(op)
    shape = broadcast([tensor.shape for tensor in op.read])
    # a number is a tensor without dimensions here, whose type is ignored
    types = {(tensor.item, tensor.dtype) for tensor in op.read if tensor.shape or not shape}
    if name in COMPARISONS.split():
        return [Tensor.of(shape, 1, NEW)]
    if name in TAKES_BOTH_HALVES or len(types) != 1 or next(iter(types))[1] not in FLOATING:
        raise Unknown("results")
    (item, dtype) = types.pop()
    return [Tensor.of(shape, item, NEW, dtype)]


def _rules() -> dict[str, Rule]:
    steps = dict.fromkeys(COMPARISONS.split(), 1) | {
        name: count for count, names in STEPS.items() for name in names.split()
    }
    rules: dict[str, Rule] = {}
    for name, count in steps.items():
        rule = Rule(FAMILY, _of_results(count), everything, _results, count)
        rules[f"aten::{name}"] = rule
        if not name.endswith(NEVER_IN_PLACE):
            rules[f"aten::{name}_"] = rule
    for name in WITH_LISTS.split():
        rule = Rule(LISTS, _of_first_list(steps[name]), everything, _results, steps[name])
        rules |= {f"aten::_foreach_{name}": rule, f"aten::_foreach_{name}_": rule}
    return rules


RULES = _rules()
