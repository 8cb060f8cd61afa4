"""Families of ops that work element by element or move bytes, as tables: which ops, their steps, bytes and results."""

from collections.abc import Iterator
from math import prod

from . import recorded_op
from .recorded_op import Operations, RecordedOp, Results, Rule, Tensor, Unknown, everything, like_first, moved

COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan"
ELEMENTWISE_STEPS = {
    1: (
        f"{COMPARISONS} "
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
"""Names by the number of elementary steps."""
NEVER_IN_PLACE = ("backward", "dropout", "_forward", "__", "where", "maximum", "minimum")
TAKES_BOTH_HALVES = ("glu",)
WITH_LISTS = (
    "add sub mul div neg abs sqrt rsqrt exp log pow reciprocal addcmul addcdiv lerp "
    "maximum minimum clamp_min clamp_max sign erf tanh sigmoid round floor ceil"
)
POOLS = "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d"
ADAPTIVE = "_adaptive_avg_pool2d _adaptive_avg_pool3d"
TRAINING, WINDOW, MOMENTUM, GRADIENTS = 5, 1, 2, 1
"""Positions of arguments."""
BOOLEAN = Tensor.of((), 1, 0)


def of_elements(steps: int, position: int = 0) -> Operations:
    """Returns a function for so many steps of each element of an argument, a tensor or a list of tensors."""
    return lambda op: steps * sum(tensor.elements for tensor in op.tensors(position))


def _of_result(steps: int) -> Operations:
    return lambda op: steps * _first_result(op).elements


def _first_result(op: RecordedOp) -> Tensor:
    if not op.results:
        raise Unknown("results")
    return op.results[0]


def _pooled(op: RecordedOp) -> int:
    window, dimensions = op.integers(WINDOW), 2 if "2d" in op.name else 3
    return _first_result(op).elements * prod(window * dimensions if len(window) == 1 else window)


def _picked_rows(op: RecordedOp) -> int:
    """Returns the elements of the rows that an embedding bag picks."""
    return op.tensor(1).elements * op.shape(0, 2)[1]


def _broadcast(op: RecordedOp) -> list[Tensor]:
    """Returns one result of the broadcast shape of the arguments, if they have one type."""
    if op.in_place:
        return like_first(op)
    name, shape = op.name.partition("::")[2], recorded_op.broadcast([tensor.shape for tensor in op.read])
    # a number is a tensor without dimensions here, whose type is ignored
    types = {(tensor.item, tensor.dtype) for tensor in op.read if tensor.shape or not shape}
    if name in COMPARISONS.split():
        return [BOOLEAN.like(shape)]
    if name in TAKES_BOTH_HALVES or len(types) != 1 or next(iter(types))[1] not in recorded_op.FLOATING:
        raise Unknown("results")
    return [op.read[0]._replace(item=types.pop()[0]).like(shape)]


def _reduced(op: RecordedOp) -> list[Tensor]:
    """Returns a result without the reduced dimensions. Raises Unknown for integers, which may change their type."""
    x, dimensions = op.tensor(0), op.integers(1) if len(op.inputs) > 1 and op.inputs[1] is not None else ()
    reduced = {_axis(x, dimension) for dimension in dimensions} or set(range(len(x.shape)))
    shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in reduced)
    name = op.name.partition("::")[2]
    if name in ("any", "all"):
        return [BOOLEAN.like(shape)]
    if name not in ("sum", "mean", "amax", "amin") or x.dtype not in recorded_op.FLOATING:
        raise Unknown("results")
    return [x.like(shape)]


def _axis(x: Tensor, dimension: int) -> int:
    if not -len(x.shape) <= dimension < len(x.shape):
        raise Unknown("dimensions")
    return dimension % len(x.shape)


def _layer_normed(op: RecordedOp) -> list[Tensor]:
    """Returns a result like the input, and mean and deviation of each row in at least single precision."""
    x, row = op.tensor(0), prod(op.integers(1))
    if not row:
        raise Unknown("rows")
    in_single = x._replace(item=max(x.item, 4))
    return [x.like(x.shape), *(in_single.like((x.elements // row,), number) for number in (1, 2))]


def _index_selected(op: RecordedOp) -> list[Tensor]:
    x, index, (dimension,) = op.tensor(0), op.tensor(2), op.integers(1)
    axis = _axis(x, dimension)
    return [x.like((*x.shape[:axis], index.elements, *x.shape[axis + 1 :]))]


def _table(op: RecordedOp) -> list[Tensor]:
    """Returns the gradient of the whole table; the third argument is its number of rows."""
    gradient = op.tensor(0)
    return [gradient.like((*op.integers(2), *gradient.shape[-1:]))]


def _written(op: RecordedOp) -> int:
    return moved([], op.written or list(op.tensors(0)))


def _copied(op: RecordedOp) -> int:
    """Returns the bytes of a copy; the old content of the tensor that it overwrites is not read."""
    reads = op.read[1:] if op.name == "aten::copy_" else op.read
    if op.name == "aten::_foreach_copy_":
        into = {tensor.memory for tensor in op.tensors(0)}
        reads = [tensor for tensor in op.read if tensor.memory not in into]
    return moved(reads, op.written)


def _beside(op: RecordedOp) -> int:
    """Returns the bytes of the tensors that the op reads beside the one that it picks from, or puts into."""
    source = op.tensor(0)
    return moved([tensor for tensor in op.read if tensor is not source], [])


def _part(op: RecordedOp) -> int:
    """Returns the bytes of the result, which are read and written."""
    return moved(op.results[:1], op.results[:1])


def _picked(op: RecordedOp) -> int:
    return _part(op) + _beside(op)


def _bag(op: RecordedOp) -> int:
    return _beside(op) + moved([], op.written) + _picked_rows(op) * op.tensor(0).item


def _stepped(op: RecordedOp) -> int:
    scaled = isinstance(op.named("grad_scale"), Tensor)
    gradients = set() if scaled else {tensor.memory for tensor in op.tensors(GRADIENTS)}
    return moved(op.read, [tensor for tensor in op.written if tensor.memory not in gradients])


def _scatter(values: int, accumulate: int | None, *, always: bool = False) -> Rule:
    """Returns the rule of putting the tensor at `values` in place, adding it `always` or if `accumulate` says so."""

    def is_added(op: RecordedOp) -> bool:
        return always or (accumulate is not None and bool(op.argument(accumulate)))

    def put(op: RecordedOp) -> int:
        source, beside = op.tensor(0), _beside(op)
        if not op.in_place:
            return beside + source.bytes + sum(tensor.bytes for tensor in op.results[:1])
        return beside + op.tensor(values).elements * source.item * (2 if is_added(op) else 1)

    return Rule("scatter", lambda op: op.tensor(values).elements * is_added(op), put)


def _moves(family: recorded_op.Family, bytes_moved: Operations, results: Results = recorded_op.unknown_results) -> Rule:
    """Returns the rule of ops without operations."""
    return Rule(family, lambda _: 0, bytes_moved, results)


def _of_steps(
    family: recorded_op.Family,
    steps: int,
    results: Results = recorded_op.unknown_results,
    position: int = 0,
    bytes_moved: Operations = everything,
) -> Rule:
    """Returns the rule of ops that take so many steps of each element of an argument."""
    return Rule(family, of_elements(steps, position), bytes_moved, results, steps)


def _elementwise() -> Iterator[tuple[str, Rule]]:
    steps_of = {name: steps for steps, names in ELEMENTWISE_STEPS.items() for name in names.split()}
    for name, steps in steps_of.items():
        in_place = "" if name.endswith(NEVER_IN_PLACE) else f" {name}_"
        yield name + in_place, Rule("element-wise", _of_result(steps), everything, _broadcast, steps)
    for name in WITH_LISTS.split():
        yield f"_foreach_{name} _foreach_{name}_", _of_steps("element-wise on lists", steps_of[name], _broadcast)


RULES = recorded_op.rules_by_name({
    **dict(_elementwise()),
    "sum nansum mean prod max min amax amin aminmax argmax argmin any all count_nonzero _is_any_true "
    "_is_all_true": _of_steps("reduction", 1, _reduced),
    "norm linalg_vector_norm _foreach_norm dist": _of_steps("reduction", 2, _reduced),
    "std var std_mean var_mean logsumexp": _of_steps("reduction", 4, _reduced),
    "cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp cumsum_ cumprod_":
        _of_steps("scan", 1, like_first),
    "fbgemm::asynchronous_complete_cumsum": _of_steps("scan", 1),
    "_softmax _log_softmax _safe_softmax": _of_steps("softmax", 5, like_first),
    "_softmax_backward_data _log_softmax_backward_data": _of_steps("softmax", 4, like_first),
    "native_layer_norm": _of_steps("normalisation", 8, _layer_normed),
    "native_group_norm _batch_norm_with_update": _of_steps("normalisation", 8),
    "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward cudnn_batch_norm_backward "
    "miopen_batch_norm_backward batch_norm_backward": _of_steps("normalisation", 13),
    "_fused_rms_norm _batch_norm_no_update": _of_steps("normalisation", 4),
    "_fused_rms_norm_backward": _of_steps("normalisation", 9),
    "native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit": Rule("normalisation",
        lambda op: (8 if op.argument(TRAINING) else 4) * op.tensor(0).elements),
    "mse_loss l1_loss": _of_steps("loss", 3), "smooth_l1_loss huber_loss": _of_steps("loss", 5),
    "binary_cross_entropy": _of_steps("loss", 7),
    # the gradient of a loss is one number, followed by the argument of the loss
    "mse_loss_backward": _of_steps("loss", 3, position=1),
    "binary_cross_entropy_backward": _of_steps("loss", 5, position=1),
    "smooth_l1_loss_backward huber_loss_backward": _of_steps("loss", 4, position=1),
    "nll_loss_forward nll_loss2d_forward": Rule("loss", of_elements(1, 1)),
    "nll_loss_backward nll_loss2d_backward": Rule("loss", of_elements(1, 2)), POOLS: Rule("pooling", _pooled),
    ADAPTIVE: Rule("pooling", of_elements(1)),
    " ".join(f"{name}_backward" for name in f"{POOLS} {ADAPTIVE}".split()): Rule("pooling", of_elements(1, 1)),
    "copy_ clone contiguous flip roll tril triu": _moves("copy", _copied, like_first),
    "_to_copy cat _cat stack repeat tril_ triu_ constant_pad_nd reflection_pad1d reflection_pad2d replication_pad2d "
    "pixel_shuffle im2col masked_select nonzero sort topk argsort _unique2 unique_consecutive unique_dim kthvalue "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _foreach_copy_ _chunk_cat _pack_padded_sequence "
    "split_with_sizes_copy slice_scatter select_scatter diag_embed diag channel_shuffle _local_scalar_dense _pin_memory "
    "expand_copy permute_copy view_copy searchsorted bucketize masked_scatter fbgemm::permute_2D_sparse_data "
    "fbgemm::permute_1D_sparse_data fbgemm::bounds_check_indices": _moves("copy", _copied),
    "fill_ zero_ uniform_ normal_": _moves("set", _written, like_first),
    "zeros ones full full_like zeros_like ones_like new_zeros arange eye linspace bernoulli_ random_ exponential_ "
    "geometric_ log_normal_ cauchy_ randperm randn rand randint _foreach_zero_ scalar_tensor logspace":
        _moves("set", _written),
    "index_put_ _index_put_impl_": _scatter(2, 3), "scatter_ index_copy_": _scatter(3, None), "put_": _scatter(2, None),
    "index_add_ scatter_add_ index_add scatter_add": _scatter(3, None, always=True),
    "gather": _moves("gather", _picked, lambda op: [op.tensor(0).like(op.shape(2))]),
    "index_select": _moves("gather", _picked, _index_selected), "embedding":
        _moves("gather", _picked, lambda op: [op.tensor(0).like((*op.shape(1), op.shape(0, 2)[1]))]),
    "index take take_along_dim _unsafe_index": _moves("gather", _picked),
    "narrow_copy slice_copy select_copy": _moves("gather", _part),
    "embedding_dense_backward": Rule("scatter", of_elements(1), everything, _table),
    "_embedding_bag _embedding_bag_forward_only": Rule("embedding bag", _picked_rows, _bag),
    "_embedding_bag_dense_backward": Rule("embedding bag", _picked_rows),
    "_fused_adam_": _of_steps("optimizer", 13, bytes_moved=_stepped),
    "_fused_adamw_": _of_steps("optimizer", 14, bytes_moved=_stepped),
    "_fused_adagrad_": _of_steps("optimizer", 7, bytes_moved=_stepped),
    "_fused_sgd_": Rule("optimizer", lambda op: of_elements(4 if op.tensors(MOMENTUM) else 2)(op), _stepped),
    "_amp_foreach_non_finite_check_and_unscale_": _of_steps("optimizer", 2),
})  # fmt: skip
