"""Families of ops that multiply: matrix products, convolutions and attention, by the shapes of their arguments.

Matrix products are single, batched, with an addend, linear, quantised and grouped; convolutions have any number of
dimensions, are transposed and grouped, and have gradients of input and weight; attention is flash, memory-efficient,
cuDNN's and overridden, forward and backward.
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from .recorded_op import (
    RecordedOp,
    Rule,
    Shape,
    Tensor,
    Unknown,
    Value,
    broadcast,
    everything,
    rules_by_name,
    unknown_results,
)

CONVOLUTION_BACKWARD = "aten::convolution_backward"
MASK = 10
TOP, BOTTOM = "upper left", "lower right"
"""The corner from which the diagonal of a causal mask starts, if the numbers of queries and keys differ."""
CORNERS = {0: None, 1: TOP, 2: BOTTOM}
"""The corner by `custom_mask_type` of the memory-efficient kernels."""


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


def _product_rule(shapes: Callable[[RecordedOp], tuple[Shape, Shape]], same_type: bool = True) -> Rule:
    def results(op: RecordedOp) -> list[Tensor]:
        return [op.tensor(0).like(product(*shapes(op))[1])]

    known = results if same_type else unknown_results
    return Rule("matrix product", lambda op: product(*shapes(op))[0], everything, known)


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


MATRIX_RULES = rules_by_name(
    {
        "mm bmm mv dot vdot matmul": _product_rule(lambda op: (op.shape(0), op.shape(1))),
        "addmm addmm_ baddbmm baddbmm_ addmv addmv_ addbmm addbmm_ _addmm_activation": _product_rule(
            lambda op: (op.shape(1), op.shape(2))
        ),
        "_scaled_mm _scaled_mm_v2 _int_mm": _product_rule(lambda op: (op.shape(0), op.shape(1)), same_type=False),
        # the weight is recorded as (outputs, inputs)
        "linear mkldnn::_linear_pointwise _weight_int8pack_mm": _product_rule(
            lambda op: (op.shape(0), op.shape(1, 2)[::-1])
        ),
        "_weight_int4pack_mm _weight_int4pack_mm_with_scales_and_zeros quantized::linear quantized::linear_relu "
        "quantized::linear_dynamic quantized::linear_relu_dynamic": _product_rule(_packed, same_type=False),
        "_grouped_mm _scaled_grouped_mm": Rule("matrix product", _grouped),
    }
)


class ConvolutionLayout(NamedTuple):
    """Positions of arguments, None for an argument that the op lacks; `flag` is the one that makes it transposed.

    `groups` is 0 for an op that is never transposed, as only others need it.
    """

    stride: int
    padding: int
    dilation: int | None
    flag: int | None = None
    output_padding: int | None = None
    groups: int = 0

    def is_transposed(self, op: RecordedOp) -> bool:
        """Returns whether an op of this layout is transposed. Raises Unknown."""
        return self.groups > 0 if self.flag is None else bool(op.argument(self.flag))


CONVOLUTIONS = rules_by_name(
    {
        "convolution _convolution convolution_overrideable": ConvolutionLayout(3, 4, 5, 6, 7, 8),
        "conv1d conv2d conv3d": ConvolutionLayout(3, 4, 5),
        "cudnn_convolution": ConvolutionLayout(3, 2, 4),
        "mkldnn_convolution miopen_convolution miopen_depthwise_convolution": ConvolutionLayout(4, 3, 5),
        "cudnn_convolution_relu": ConvolutionLayout(3, 4, 5),
        "cudnn_convolution_add_relu": ConvolutionLayout(5, 6, 7),
        "_conv_depthwise2d conv_depthwise3d": ConvolutionLayout(4, 5, 6),
        "_slow_conv2d_forward thnn_conv2d slow_conv3d slow_conv3d_forward": ConvolutionLayout(4, 5, None),
        "cudnn_convolution_transpose": ConvolutionLayout(4, 2, 5, None, 3, 6),
        "miopen_convolution_transpose": ConvolutionLayout(5, 3, 6, None, 4, 7),
        "conv_transpose1d conv_transpose2d conv_transpose3d": ConvolutionLayout(3, 4, 7, None, 5, 6),
    }
)


def _convolved(op: RecordedOp) -> int:
    x, weight, result = op.shape(0), op.shape(1), op.results[:1]
    if not result or len(weight) < 3:
        raise Unknown("a convolution's shapes")
    return _applied(weight, x if CONVOLUTIONS[op.name].is_transposed(op) else result[0].shape)


def _applied(weight: Shape, positions: Shape) -> int:
    """Returns the operations of a weight at each position of a tensor, which may lack the batch dimension."""
    if len(positions) not in (len(weight), len(weight) - 1):
        raise Unknown("a convolution's shapes")
    batch = positions[0] if len(positions) == len(weight) else 1
    return 2 * batch * prod(positions[2 - len(weight) :]) * prod(weight)


def _convolution_results(op: RecordedOp) -> list[Tensor]:
    x, weight, layout = op.tensor(0), op.shape(1), CONVOLUTIONS[op.name]
    dimensions, transposed = len(weight) - 2, layout.is_transposed(op)
    if dimensions < 1 or len(x.shape) not in (len(weight), len(weight) - 1):
        raise Unknown("a convolution's shapes")

    def each(position: int | None, default: int = 0) -> tuple[int, ...]:
        values = (default,) if position is None else op.integers(position)
        return values * dimensions if len(values) == 1 else values

    more = each(layout.output_padding if transposed else None)
    arguments = (each(layout.stride), each(layout.padding), each(layout.dilation, default=1), more)
    if any(len(values) != dimensions for values in arguments) or 0 in arguments[0]:
        raise Unknown("a convolution's arguments")
    sizes = []
    for n, extent, stride, padding, dilation, added in zip(x.shape[-dimensions:], weight[2:], *arguments, strict=True):
        covered = dilation * (extent - 1)
        inverse = (n - 1) * stride - 2 * padding + covered + added + 1
        sizes.append(inverse if transposed else (n + 2 * padding - covered - 1) // stride + 1)
    # the weight of a transposed one is (in, out / groups, …)
    channels = weight[1] * sum(op.integers(layout.groups)) if transposed else weight[0]
    return [x.like((*x.shape[: -dimensions - 1], channels, *sizes))]


def _backward_convolved(op: RecordedOp) -> int:
    """Returns the operations of the gradients that the mask asks for."""
    gradient, x, weight = op.shape(0), op.shape(1), op.shape(2)
    transposed, mask = bool(op.argument(7)), op.integers(MASK)
    if len(weight) < 3 or len(mask) < 2 or not len(gradient) == len(x) == len(weight):
        raise Unknown("a convolution's shapes")
    # the gradient of the input is a convolution of the other kind (transposed or not)
    of_input = _applied(weight, x if transposed else gradient)
    of_weight = _applied((x[1], gradient[1], *weight[2:]), x if transposed else gradient)
    return of_input * bool(mask[0]) + of_weight * bool(mask[1])


def _convolution_gradients(op: RecordedOp) -> list[Tensor]:
    mask, bias = op.integers(MASK), op.shape(0)[1:2]
    like = [op.tensor(1), op.tensor(2), op.tensor(0).like(bias)]
    asked_for = [number for number, flag in enumerate(mask[: len(like)]) if flag]
    return [like[number].like(like[number].shape, number) for number in asked_for]


CONVOLUTION_RULES = dict.fromkeys(CONVOLUTIONS, Rule("convolution", _convolved, everything, _convolution_results))
CONVOLUTION_RULES[CONVOLUTION_BACKWARD] = Rule("convolution", _backward_convolved, everything, _convolution_gradients)


class AttentionLayout(NamedTuple):
    """Positions of arguments: the query, with key and value after it, and the mask; whether heads come before sequence
    positions in the shapes.

    `lengths` is the position of the offsets of sequences of several lengths; the longest ones are two positions behind.
    """

    query: int
    causal: int
    heads_first: bool = True
    lengths: int | None = None
    corner: str = TOP
    argument: str = "is_causal"


MASK_TYPE = "custom_mask_type"
ATTENTIONS = rules_by_name(
    {
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu": AttentionLayout(0, 4),
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention": AttentionLayout(0, 6),
        "_scaled_dot_product_fused_attention_overrideable": AttentionLayout(0, 5),
        "_cudnn_attention_forward": AttentionLayout(0, 10, lengths=4),
        "_flash_attention_forward": AttentionLayout(0, 8, heads_first=False, lengths=3),
        "_efficient_attention_forward": AttentionLayout(0, 9, heads_first=False, lengths=4, argument=MASK_TYPE),
        "flash_attn::_flash_attn_forward": AttentionLayout(0, 5, False, None, BOTTOM, "causal"),
        # backward, where the query follows the gradient
        "_scaled_dot_product_flash_attention_backward": AttentionLayout(1, 11, lengths=6),
        "_scaled_dot_product_flash_attention_for_cpu_backward": AttentionLayout(1, 7),
        "_scaled_dot_product_efficient_attention_backward": AttentionLayout(1, 11),
        "_scaled_dot_product_cudnn_attention_backward": AttentionLayout(1, 14, lengths=9),
        "_scaled_dot_product_fused_attention_overrideable_backward": AttentionLayout(1, 13, lengths=8),
        "_cudnn_attention_backward": AttentionLayout(1, 14, lengths=9),
        "_flash_attention_backward": AttentionLayout(1, 11, heads_first=False, lengths=6),
        "_efficient_attention_backward": AttentionLayout(1, 14, heads_first=False, lengths=6, argument=MASK_TYPE),
        "flash_attn::_flash_attn_backward": AttentionLayout(1, 11, False, None, BOTTOM, "causal"),
    }
)


def _sizes(op: RecordedOp, layout: AttentionLayout) -> tuple[int, int, int, int, int]:
    """Returns the heads of all sequences together, the queries and keys of each head, and the widths of queries and
    values.
    """
    query, key, value = (list(op.shape(layout.query + offset)) for offset in range(3))
    lengths = layout.lengths
    if lengths is not None and isinstance(op.argument(lengths), Tensor):
        # sequences that are concatenated are a batch, if all have one length
        sequences, longest = op.shape(lengths, 1)[0] - 1, [op.argument(lengths + 2), op.argument(lengths + 3)]
        of_each = zip((query, key, value), (*longest, longest[1]), strict=True)
        query, key, value = (_as_batch(shape[-3:], sequences, length) for shape, length in of_each)
    elif not len(query) == len(key) == len(value) == 4:
        raise Unknown("queries, keys and values")
    elif not layout.heads_first:
        query, key, value = ([batch, heads, positions, width] for batch, positions, heads, width in (query, key, value))
    batch, heads, queries, width = query
    if key[:1] + key[3:] != [batch, width] or value[:3] != key[:3] or not key[1] or heads % key[1]:
        raise Unknown("queries, keys and values that fit")
    return batch * heads, queries, key[2], width, value[3]


def _as_batch(shape: list[int], sequences: int, length: Value) -> list[int]:
    if not isinstance(length, int) or len(shape) != 3 or shape[0] != sequences * length:
        raise Unknown("lengths of sequences")
    return [sequences, shape[1], length, shape[2]]


def pairs(queries: int, keys: int, corner: str | None) -> int:
    """Returns how many pairs a mask with the diagonal from this corner leaves; all pairs without a corner.

    >>> pairs(3, 4, TOP), pairs(3, 4, BOTTOM), pairs(3, 4, None)
    (6, 9, 12)
    """
    if corner is None:
        return queries * keys
    # a triangle, and a rectangle beside or below it
    side = min(queries, keys)
    triangle = side * (side + 1) // 2
    if queries > keys:
        return triangle + (queries - keys) * keys * (corner == TOP)
    return triangle + queries * (keys - queries) * (corner == BOTTOM)


def _corner(op: RecordedOp, layout: AttentionLayout) -> str | None:
    for name in ("window_size", "window_size_left", "window_size_right"):
        window = op.named(name)
        if isinstance(window, int) and window >= 0 and not isinstance(window, bool):
            raise Unknown("attention within a window")
    flag = op.named(layout.argument, layout.causal)
    if layout.argument == MASK_TYPE:
        if not isinstance(flag, int) or flag not in CORNERS:
            raise Unknown("a mask")
        return CORNERS[flag]
    if not isinstance(flag, bool):
        raise Unknown("whether it is causal")
    return layout.corner if flag else None


def _attended(op: RecordedOp) -> int:
    layout = ATTENTIONS[op.name]
    heads, queries, keys, width, value_width = _sizes(op, layout)
    each = 3 * width + 2 * value_width if layout.query else width + value_width
    return 2 * heads * pairs(queries, keys, _corner(op, layout)) * each


def _attention_results(op: RecordedOp) -> list[Tensor]:
    """Returns a result like the query but as wide as values, and the logarithm of each query's sum (float); backward
    the gradients of query, key and value.
    """
    layout = ATTENTIONS[op.name]
    if layout.query:
        return [op.tensor(position).like(op.shape(position), position) for position in (1, 2, 3)]
    query, (heads, queries, _, _, value_width) = op.tensor(0), _sizes(op, layout)
    return [query.like((*query.shape[:-1], value_width)), query._replace(item=4).like((heads, queries), 1)]


ATTENTION_RULES = dict.fromkeys(ATTENTIONS, Rule("attention", _attended, everything, _attention_results))

RULES: dict[str, Rule] = MATRIX_RULES | CONVOLUTION_RULES | ATTENTION_RULES
