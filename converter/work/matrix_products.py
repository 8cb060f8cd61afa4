"""Matrix products: single, batched, with an addend, linear, quantised and grouped."""

from collections.abc import Callable
from math import prod

from .family import NEW, Family, Rule, everything, unknown_results
from .recorded_op import RecordedOp, Tensor, Unknown

Shape = tuple[int, ...]
FAMILY = Family(
    "matrix product",
    "2 m n k of each (m, k) by (k, n) product; addends, scales and activations are not counted",
    "`mm_flop`, `bmm_flop`, `_scaled_mm_flop` of torch.utils.flop_counter",
)


def product(left: Shape, right: Shape) -> tuple[int, Shape]:
    """Returns operations and shape of `torch.matmul`. Raises Unknown for shapes that do not fit.

    >>> product((8, 3, 4), (4, 5))
    (960, (8, 3, 5))
    """
    if not left or not right:
        raise Unknown("two matrices")
    rows, columns = left if len(left) > 1 else (1, *left), right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        raise Unknown("matrices that fit")
    batch = broadcast([rows[:-2], columns[:-2]])
    shape = batch + rows[-2:-1] * (len(left) > 1) + columns[-1:] * (len(right) > 1)
    return 2 * prod(batch) * rows[-2] * rows[-1] * columns[-1], shape


def broadcast(shapes: list[Shape]) -> Shape:
    """Returns the broadcast shape. Raises Unknown.

    >>> broadcast([(3, 1), (4,)])
    (3, 4)
    """
    width = max(map(len, shapes), default=0)
    columns = zip(*((1,) * (width - len(shape)) + shape for shape in shapes), strict=True)
    extents = [set(column) - {1} for column in columns]
    if any(len(of_axis) > 1 for of_axis in extents):
        raise Unknown("shapes that fit")
    return tuple(of_axis.pop() if of_axis else 1 for of_axis in extents)


def _rule(shapes: Callable[[RecordedOp], tuple[Shape, Shape]], same_type: bool = True) -> Rule:
    def results(op: RecordedOp) -> list[Tensor]:
        first = op.tensor(0)
        return [Tensor.of(product(*shapes(op))[1], first.item, NEW, first.dtype)]

    return Rule(FAMILY, lambda op: product(*shapes(op))[0], everything, results if same_type else unknown_results)


def _factors(first: int) -> Callable[[RecordedOp], tuple[Shape, Shape]]:
    """Returns a function for the shapes of the matrices at this position and the next one."""
    return lambda op: (op.shape(first), op.shape(first + 1))


def _linear(op: RecordedOp) -> tuple[Shape, Shape]:
    """Returns the shapes of input and weight, which is recorded as (outputs, inputs)."""
    outputs, inputs = op.shape(1, 2)
    return op.shape(0), (inputs, outputs)


def _packed(op: RecordedOp) -> tuple[Shape, Shape]:
    """Returns the shapes of input and weight; the weight has a layout of its own, so the result gives its outputs."""
    x = op.shape(0)
    if not x or not op.results or not op.results[0].shape:
        raise Unknown("outputs")
    return x, (x[-1], op.results[0].shape[-1])


def _grouped(op: RecordedOp) -> int:
    """Returns the operations of a product of groups that are concatenated in a matrix without a dimension for them.

    (m, k) by (g, k, n) and (g, m, k) by (k, n) multiply each row or column once; (m, k) by (k, n) has its groups in k.
    """
    left, right = op.shape(0), op.shape(1)
    if len(left) == len(right) == 3:
        return product(left, right)[0]
    if len(left) + len(right) not in (4, 5) or left[-1] != right[-2]:
        raise Unknown("matrices that fit")
    return 2 * left[-2] * left[-1] * right[-1]


PLAIN, ADDED, LINEAR, PACKED = _rule(_factors(0)), _rule(_factors(1)), _rule(_linear), _rule(_packed, same_type=False)
OTHER_TYPE = _rule(_factors(0), same_type=False)
GROUPED = Rule(FAMILY, _grouped, everything, unknown_results)
RULES = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::vdot", "aten::matmul"), PLAIN),
    **dict.fromkeys(("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", "aten::addmv"), ADDED),
    **dict.fromkeys(("aten::addmv_", "aten::addbmm", "aten::addbmm_", "aten::_addmm_activation"), ADDED),
    **dict.fromkeys(("aten::_scaled_mm", "aten::_scaled_mm_v2", "aten::_int_mm"), OTHER_TYPE),
    **dict.fromkeys(("aten::linear", "mkldnn::_linear_pointwise"), LINEAR),
    "aten::_weight_int8pack_mm": _rule(_linear),
    **dict.fromkeys(("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_with_scales_and_zeros"), PACKED),
    **dict.fromkeys(("quantized::linear", "quantized::linear_relu", "quantized::linear_dynamic"), PACKED),
    "quantized::linear_relu_dynamic": PACKED,
    **dict.fromkeys(("aten::_grouped_mm", "aten::_scaled_grouped_mm"), GROUPED),
}
