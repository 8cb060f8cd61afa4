"""Families of ops that multiply: matrix products, convolutions and attention, by the shapes of their arguments."""

from collections.abc import Callable
from math import prod

from . import recorded_op
from .recorded_op import RecordedOp, Rule, Shape, Tensor, Unknown, everything, rules_by_name

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
    batch = recorded_op.broadcast([rows[:-2], columns[:-2]])
    shape = batch + rows[-2:-1] * (len(left) > 1) + columns[-1:] * (len(right) > 1)
    return 2 * prod(batch) * rows[-2] * rows[-1] * columns[-1], shape


def _product_rule(shapes: Callable[[RecordedOp], tuple[Shape, Shape]], same_type: bool = True) -> Rule:
    def results(op: RecordedOp) -> list[Tensor]:
        return [op.tensor(0).like(product(*shapes(op))[1])]

    known = results if same_type else recorded_op.unknown_results
    return Rule("matrix product", lambda op: product(*shapes(op))[0], everything, known)


def _packed(op: RecordedOp) -> tuple[Shape, Shape]:
    """Returns the shapes of input and weight; the weight has a layout of its own, so the result gives its outputs."""
    x = op.shape(0)
    if not x or not op.results or not op.results[0].shape:
        raise Unknown("outputs")
    return x, (x[-1], op.results[0].shape[-1])


def _grouped(op: RecordedOp) -> int:
    """Returns the operations of a product whose groups are concatenated, so that each row or column counts once."""
    left, right = op.shape(0), op.shape(1)
    if len(left) == len(right) == 3:
        return product(left, right)[0]
    if len(left) + len(right) not in (4, 5) or left[-1] != right[-2]:
        raise Unknown("matrices that fit")
    return 2 * left[-2] * left[-1] * right[-1]


MATRIX_RULES = rules_by_name({
    "mm bmm mv dot vdot matmul": _product_rule(lambda op: (op.shape(0), op.shape(1))),
    "addmm addmm_ baddbmm baddbmm_ addmv addmv_ addbmm addbmm_ _addmm_activation":
        _product_rule(lambda op: (op.shape(1), op.shape(2))),
    "_scaled_mm _scaled_mm_v2 _int_mm": _product_rule(lambda op: (op.shape(0), op.shape(1)), same_type=False),
    # the weight is recorded as (outputs, inputs)
    "linear mkldnn::_linear_pointwise _weight_int8pack_mm":
        _product_rule(lambda op: (op.shape(0), op.shape(1, 2)[::-1])),
    "_weight_int4pack_mm _weight_int4pack_mm_with_scales_and_zeros quantized::linear quantized::linear_relu "
    "quantized::linear_dynamic quantized::linear_relu_dynamic": _product_rule(_packed, same_type=False),
    "_grouped_mm _scaled_grouped_mm": Rule("matrix product", _grouped),
})  # fmt: skip


CONVOLUTION_ARGUMENTS = rules_by_name({
    "convolution _convolution convolution_overrideable": "input weight bias stride padding dilation transposed"
    " output_padding groups",
    "conv1d conv2d conv3d cudnn_convolution_relu": "input weight bias stride padding dilation groups",
    "cudnn_convolution": "input weight padding stride dilation groups",
    "mkldnn_convolution miopen_convolution miopen_depthwise_convolution": "input weight bias padding stride dilation"
    " groups",
    "cudnn_convolution_add_relu": "input weight z alpha bias stride padding dilation groups",
    "_conv_depthwise2d conv_depthwise3d": "input weight kernel_size bias stride padding dilation",
    "_slow_conv2d_forward thnn_conv2d slow_conv3d slow_conv3d_forward": "input weight kernel_size bias stride padding",
    "cudnn_convolution_transpose": "input weight padding output_padding stride dilation groups",
    "miopen_convolution_transpose": "input weight bias padding output_padding stride dilation groups",
    "conv_transpose1d conv_transpose2d conv_transpose3d": "input weight bias stride padding output_padding groups"
    " dilation",
})  # fmt: skip
"""The arguments of each op in order, up to the last one that counts."""


def _position(op: RecordedOp, *names: str) -> int:
    """Returns where an op has the first argument of these names, -1 if it has none of them."""
    arguments = ARGUMENTS[op.name].split()
    return next((arguments.index(name) for name in names if name in arguments), -1)


def _is_transposed(op: RecordedOp) -> bool:
    """Says it of an op that may be either by its argument; others that have an output padding are. Raises Unknown."""
    flag = _position(op, "transposed")
    return _position(op, "output_padding") >= 0 and (flag < 0 or bool(op.argument(flag)))


def _convolved(op: RecordedOp) -> int:
    x, weight, result = op.shape(0), op.shape(1), op.results[:1]
    if not result or len(weight) < 3:
        raise Unknown("a convolution's shapes")
    return _applied(weight, x if _is_transposed(op) else result[0].shape)


def _applied(weight: Shape, positions: Shape) -> int:
    """Returns the operations of a weight at each position of a tensor, which may lack the batch dimension."""
    if len(positions) not in (len(weight), len(weight) - 1):
        raise Unknown("a convolution's shapes")
    batch = positions[0] if len(positions) == len(weight) else 1
    return 2 * batch * prod(positions[2 - len(weight) :]) * prod(weight)


def _convolution_results(op: RecordedOp) -> list[Tensor]:
    x, weight, transposed = op.tensor(0), op.shape(1), _is_transposed(op)
    dimensions = len(weight) - 2
    if dimensions < 1 or len(x.shape) not in (len(weight), len(weight) - 1):
        raise Unknown("a convolution's shapes")

    def each(name: str, default: int = 0) -> tuple[int, ...]:
        position = _position(op, name)
        values = (default,) if position < 0 else op.integers(position)
        return values * dimensions if len(values) == 1 else values

    more = each("output_padding") if transposed else (0,) * dimensions
    arguments = (each("stride"), each("padding"), each("dilation", default=1), more)
    if any(len(values) != dimensions for values in arguments) or 0 in arguments[0]:
        raise Unknown("a convolution's arguments")
    sizes = []
    for n, extent, stride, padding, dilation, added in zip(x.shape[-dimensions:], weight[2:], *arguments, strict=True):
        covered = dilation * (extent - 1)
        inverse = (n - 1) * stride - 2 * padding + covered + added + 1
        sizes.append(inverse if transposed else (n + 2 * padding - covered - 1) // stride + 1)
    # the weight of a transposed one is (in, out / groups, …)
    channels = weight[1] * sum(each("groups")[:1]) if transposed else weight[0]
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


CONVOLUTION_RULES = dict.fromkeys(
    CONVOLUTION_ARGUMENTS, Rule("convolution", _convolved, everything, _convolution_results)
)
CONVOLUTION_RULES[CONVOLUTION_BACKWARD] = Rule("convolution", _backward_convolved, everything, _convolution_gradients)


MASK_TYPE = "custom_mask_type"
LENGTHS, SPANS = "cum_seq_q cum_seq_k max_q max_k", "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
"""The offsets of sequences of several lengths, and the longest ones."""
BACKWARD = "grad_out query key value"
HEADS_FIRST = rules_by_name({
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu": "query key value dropout_p"
    " is_causal",
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention": "query key value attn_bias"
    " compute_log_sumexp dropout_p is_causal",
    "_scaled_dot_product_fused_attention_overrideable": "query key value attn_bias dropout_p is_causal",
    "_cudnn_attention_forward": f"query key value attn_bias {LENGTHS} compute_log_sumexp dropout_p is_causal",
    "_scaled_dot_product_flash_attention_backward": f"{BACKWARD} out logsumexp {LENGTHS} dropout_p is_causal",
    "_scaled_dot_product_flash_attention_for_cpu_backward": f"{BACKWARD} out logsumexp dropout_p is_causal",
    "_scaled_dot_product_efficient_attention_backward": f"{BACKWARD} attn_bias out logsumexp philox_seed"
    " philox_offset dropout_p grad_input_mask is_causal",
    "_scaled_dot_product_cudnn_attention_backward _cudnn_attention_backward": f"{BACKWARD} out logsumexp"
    f" philox_seed philox_offset attn_bias {LENGTHS} dropout_p is_causal",
    "_scaled_dot_product_fused_attention_overrideable_backward": f"{BACKWARD} attn_bias grad_input_mask out"
    f" logsumexp {LENGTHS} dropout_p is_causal",
})  # fmt: skip
POSITIONS_FIRST = rules_by_name({
    "_flash_attention_forward": f"query key value {LENGTHS} dropout_p is_causal",
    "_efficient_attention_forward": f"query key value bias {SPANS} dropout_p {MASK_TYPE}",
    "flash_attn::_flash_attn_forward": "query key value dropout_p softmax_scale causal",
    "_flash_attention_backward": f"{BACKWARD} out logsumexp {LENGTHS} dropout_p is_causal",
    "_efficient_attention_backward": f"{BACKWARD} bias out {SPANS} logsumexp dropout_p philox_seed philox_offset"
    f" {MASK_TYPE}",
    "flash_attn::_flash_attn_backward": f"{BACKWARD} out softmax_lse dq dk dv dropout_p softmax_scale causal",
})  # fmt: skip
"""Ops whose shapes have sequence positions before heads."""
ATTENTION_ARGUMENTS = HEADS_FIRST | POSITIONS_FIRST
ARGUMENTS = CONVOLUTION_ARGUMENTS | ATTENTION_ARGUMENTS


def _sizes(op: RecordedOp) -> tuple[int, int, int, int, int]:
    """Returns how many heads there are, the queries and keys of each, and the widths of queries and values."""
    query, key, value = (list(op.shape(_position(op, name))) for name in ("query", "key", "value"))
    lengths = _position(op, "cum_seq_q", "cu_seqlens_q")
    if lengths >= 0 and isinstance(op.argument(lengths), Tensor):
        # sequences that are concatenated are a batch, if all have one length
        sequences, longest = op.shape(lengths, 1)[0] - 1, [op.argument(lengths + 2), op.argument(lengths + 3)]
        of_each = zip((query, key, value), (*longest, longest[1]), strict=True)
        query, key, value = (_as_batch(shape[-3:], sequences, length) for shape, length in of_each)
    elif not len(query) == len(key) == len(value) == 4:
        raise Unknown("queries, keys and values")
    elif op.name in POSITIONS_FIRST:
        query, key, value = ([batch, heads, positions, width] for batch, positions, heads, width in (query, key, value))
    batch, heads, queries, width = query
    if key[:1] + key[3:] != [batch, width] or value[:3] != key[:3] or not key[1] or heads % key[1]:
        raise Unknown("queries, keys and values that fit")
    return batch * heads, queries, key[2], width, value[3]


def _as_batch(shape: list[int], sequences: int, length: recorded_op.Value) -> list[int]:
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


def _corner(op: RecordedOp) -> str | None:
    for name in ("window_size", "window_size_left", "window_size_right"):
        window = op.named(name)
        if isinstance(window, int) and window >= 0 and not isinstance(window, bool):
            raise Unknown("attention within a window")
    position = _position(op, "is_causal", "causal", MASK_TYPE)
    name = ARGUMENTS[op.name].split()[position]
    flag = op.named(name, position)
    if name == MASK_TYPE:
        if not isinstance(flag, int) or flag not in CORNERS:
            raise Unknown("a mask")
        return CORNERS[flag]
    if not isinstance(flag, bool):
        raise Unknown("whether it is causal")
    return (BOTTOM if op.name.startswith("flash_attn::") else TOP) if flag else None


def _attended(op: RecordedOp) -> int:
    heads, queries, keys, width, value_width = _sizes(op)
    each = 3 * width + 2 * value_width if op.name.endswith("backward") else width + value_width
    return 2 * heads * pairs(queries, keys, _corner(op)) * each


def _attention_results(op: RecordedOp) -> list[Tensor]:
    """Returns a result like the query but as wide as values, and the log-sums; backward the three gradients."""
    if op.name.endswith("backward"):
        return [op.tensor(position).like(op.shape(position), position) for position in (1, 2, 3)]
    query, (heads, queries, _, _, value_width) = op.tensor(0), _sizes(op)
    return [query.like((*query.shape[:-1], value_width)), query._replace(item=4).like((heads, queries), 1)]


ATTENTION_RULES = dict.fromkeys(ATTENTION_ARGUMENTS, Rule("attention", _attended, everything, _attention_results))

RULES: dict[str, Rule] = MATRIX_RULES | CONVOLUTION_RULES | ATTENTION_RULES
