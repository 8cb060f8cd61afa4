"""Reductions and ops that relate each element to many: sums, softmax, norms, losses, pooling."""

from collections.abc import Callable
from math import prod

from .family import NEW, Family, Rule, everything, like_first, unknown_results
from .recorded_op import FLOATING, RecordedOp, Tensor, Unknown

Count = Callable[[RecordedOp], int]

REDUCTION = Family("reduction", "elementary steps of each element of the argument", "the definitions of the ops")
SCAN = Family("scan", REDUCTION.operations, REDUCTION.source)
SOFTMAX = Family(
    "softmax",
    "5 of each element: maximum, difference, exp, sum, and quotient or difference; backward 4",
    "the definitions of the ops",
)
NORM = Family(
    "normalisation",
    "8 of each element: mean, variance (3), scaling (2), weight and bias (2); with given statistics 4; of the root of "
    "the mean square"
    " 4; backward 13: the normalised value (2), sums (5), product with the weight, gradient (5); of the root of the "
    "mean square 9",
    "the definitions of the ops",
)
LOSS = Family(
    "loss", "elementary steps of each element of the argument, of nll_loss of each target", "the definitions of the ops"
)
POOLING = Family(
    "pooling",
    "a step of each element of the window at each position of the result, of adaptive pooling and backward of each "
    "element of the input",
    "the definitions of the ops",
)
REDUCTIONS = {
    1: "sum nansum mean prod max min amax amin aminmax argmax argmin any all count_nonzero _is_any_true _is_all_true",
    2: "norm linalg_vector_norm _foreach_norm dist",
    4: "std var std_mean var_mean logsumexp",
}
SCANS = {
    1: "cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp cumsum_ cumprod_",
}
SOFTMAXES = {
    5: "_softmax _log_softmax _safe_softmax",
    4: "_softmax_backward_data _log_softmax_backward_data",
}
NORMS = {
    8: "native_layer_norm native_group_norm _batch_norm_with_update",
    13: (
        "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward cudnn_batch_norm_backward "
        "miopen_batch_norm_backward batch_norm_backward"
    ),
    4: "_fused_rms_norm _batch_norm_no_update",
    9: "_fused_rms_norm_backward",
}
BATCH_NORMS = "native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit"
TRAINING = 5
LOSSES = {
    3: "mse_loss mse_loss_backward l1_loss",
    5: "smooth_l1_loss huber_loss binary_cross_entropy_backward",
    4: "smooth_l1_loss_backward huber_loss_backward",
    7: "binary_cross_entropy",
}
OF_TARGETS = "nll_loss_forward nll_loss2d_forward"
OF_TARGETS_BACKWARD = "nll_loss_backward nll_loss2d_backward"
WINDOW = 1
POOLS = "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d"
ADAPTIVE = "_adaptive_avg_pool2d _adaptive_avg_pool3d"
POOLS_BACKWARD = " ".join(f"{name}_backward" for name in (*POOLS.split(), *ADAPTIVE.split()))


def of_elements(steps: int, position: int = 0) -> Count:
    """Returns a function for so many steps of each element of an argument, a tensor or a list of tensors."""
    return lambda op: steps * sum(tensor.elements for tensor in op.tensors(position))


def _batch_norm(op: RecordedOp) -> int:
    return (8 if op.argument(TRAINING) else 4) * op.tensor(0).elements


def _pooled(op: RecordedOp) -> int:
    window, dimensions = op.integers(WINDOW), 2 if "2d" in op.name else 3
    if not op.results:
        raise Unknown("results")
    return op.results[0].elements * prod(window * dimensions if len(window) == 1 else window)


def _reduced(op: RecordedOp) -> list[Tensor]:
    """Returns one result without the reduced dimensions. Raises Unknown for integers, whose result may have another
    type.
    """
    x, dimensions = op.tensor(0), op.integers(1) if len(op.inputs) > 1 and op.inputs[1] is not None else ()
    if any(not -len(x.shape) <= dimension < len(x.shape) for dimension in dimensions):
        raise Unknown("dimensions")
    reduced = {dimension % len(x.shape) for dimension in dimensions} or set(range(len(x.shape)))
    shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in reduced)
    name = op.name.partition("::")[2]
    if name in ("any", "all"):
        return [Tensor.of(shape, 1, NEW)]
    if name not in ("sum", "mean", "amax", "amin") or x.dtype not in FLOATING:
        raise Unknown("results")
    return [Tensor.of(shape, x.item, NEW, x.dtype)]


def _layer_normed(op: RecordedOp) -> list[Tensor]:
    """Returns one result like the input, and mean and deviation of each row in single precision, or
    double for doubles.
    """
    x, row = op.tensor(0), prod(op.integers(1))
    if not row:
        raise Unknown("rows")
    statistics = [Tensor.of((x.elements // row,), max(x.item, 4), NEW + 1 + number) for number in range(2)]
    return [Tensor.of(x.shape, x.item, NEW), *statistics]


RESULTS = {"native_layer_norm": _layer_normed}


def _rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for family, by_steps, results in (
        (REDUCTION, REDUCTIONS, _reduced),
        (SCAN, SCANS, like_first),
        (SOFTMAX, SOFTMAXES, like_first),
        (NORM, NORMS, unknown_results),
        (LOSS, LOSSES, unknown_results),
    ):
        for steps, names in by_steps.items():
            for name in names.split():
                # the gradient of a loss is one number, followed by the argument of the loss
                count = of_elements(steps, int(family is LOSS and name.endswith("_backward")))
                rules[f"aten::{name}"] = Rule(family, count, everything, RESULTS.get(name, results), steps)
    for family, names, operations in (
        (NORM, BATCH_NORMS, _batch_norm),
        (POOLING, POOLS, _pooled),
        (POOLING, ADAPTIVE, of_elements(1)),
        (POOLING, POOLS_BACKWARD, of_elements(1, 1)),
        (LOSS, OF_TARGETS, of_elements(1, 1)),
        (LOSS, OF_TARGETS_BACKWARD, of_elements(1, 2)),
    ):
        rules |= {f"aten::{name}": Rule(family, operations, everything, unknown_results) for name in names.split()}
    return rules


RULES = _rules()
