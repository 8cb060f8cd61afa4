"""Where attention and convolutions have their arguments, as PyTorch's schemas have them; what products make.

Steps counted by hand: of optimizers for each of 30 parameters, of ops that relate each of 6 x 7 elements to many.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from execgraph.converter.work import Tensor, Unknown, Work
from execgraph.converter.work.products import (
    ATTENTION_ARGUMENTS,
    BOTTOM,
    CONVOLUTION_ARGUMENTS,
    CONVOLUTION_BACKWARD,
    LENGTHS,
    POSITIONS_FIRST,
    SPANS,
    TOP,
    pairs,
    product,
)
from execgraph.converter.work.recorded_op import broadcast
from support.graphs import FLOAT, ordered, tensors, work


def operations(name: str, queries: int = 6, is_causal: bool = False, sequences: int = 0) -> int:
    """Of 2 x 3 heads of width 8 with 6 keys; or of so many sequences of that length one after the other."""
    shapes = [(2, 3, places, 8) for places in (queries, 6)]
    if sequences:
        shapes = [(sequences * places, 3, 8) for places in (queries, 6)]
    elif name in POSITIONS_FIRST:
        shapes = [(batch, places, heads, width) for batch, heads, places, width in shapes]
    query, key = (Tensor.of(shape, FLOAT, number) for number, shape in enumerate(shapes))
    offsets = Tensor.of((sequences + 1,), FLOAT, 7) if sequences else None
    values = {"query": query, "key": key, "value": key, "custom_mask_type": int(is_causal)}
    values |= dict.fromkeys(("is_causal", "causal"), is_causal)
    values |= dict.fromkeys(("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k"), offsets)
    values |= {"max_q": queries, "max_k": 6, "max_seqlen_q": queries, "max_seqlen_k": 6}
    return work(name, ordered(ATTENTION_ARGUMENTS[name], **values), []).operations


@pytest.mark.parametrize("name", ATTENTION_ARGUMENTS)
def test_a_mask_leaves_the_pairs_from_its_corner_on(name: str) -> None:
    """Two products of 2 * 8 operations for each pair, five for the gradients; a causal mask leaves 21 of 36 pairs.

    Of 4 queries: 1 + 2 + 3 + 4 pairs from the first key on, 3 + 4 + 5 + 6 up to the last one.
    """
    products, left = 5 if "backward" in name else 2, 18 if name.startswith("flash_attn") else 10
    assert operations(name) == 6 * 36 * products * 16
    assert operations(name, is_causal=True) == 6 * 21 * products * 16
    assert operations(name, queries=4, is_causal=True) * 24 == operations(name, queries=4) * left


@pytest.mark.parametrize(
    "name",
    [name for name in ATTENTION_ARGUMENTS if any(word in ATTENTION_ARGUMENTS[name] for word in (LENGTHS, SPANS))],
)
def test_sequences_one_after_the_other_are_where_the_schema_has_them(name: str) -> None:
    assert operations(name, sequences=2) == operations(name)


@pytest.mark.parametrize("name", ATTENTION_ARGUMENTS)
def test_attention_is_counted_as_pytorch_does_whatever_the_kernel(name: str) -> None:
    """What torch.utils.flop_counter gives for heads that share keys, and values of another width."""
    shapes = ((2, 8, 128, 64), (2, 2, 96, 64), (2, 2, 96, 32))
    if name in POSITIONS_FIRST:
        shapes = tuple((batch, places, heads, width) for batch, heads, places, width in shapes)
    query, key, value = tensors(*shapes)
    values = {"query": query, "key": key, "value": value, "custom_mask_type": 0, "is_causal": False, "causal": False}
    found = work(name, ordered(ATTENTION_ARGUMENTS[name], **values), [])
    assert found.operations == (100_663_296 if "backward" in name else 37_748_736)


def test_sequences_of_several_lengths_and_attention_within_a_window_are_unknown() -> None:
    """Twelve rows are no two sequences of 7."""
    (row, q), offsets = tensors((12, 3, 8), (2, 6, 3, 8)), Tensor.of((3,), FLOAT, 9)
    for longest, whole in ((6, True), (7, False)):
        arguments = [row, row, row, offsets, offsets, longest, longest, 0.0, False, False]
        with contextlib.nullcontext() if whole else pytest.raises(Unknown):
            assert work("aten::_flash_attention_forward", arguments, [row]).operations == 6912
    schema = (
        "flash_attn::_flash_attn_forward(Tensor q, Tensor k, Tensor v, bool causal, int window_size_left) -> Tensor"
    )
    assert work("flash_attn::_flash_attn_forward", [q, q, q, False, -1], [q], schema).operations == 6912
    with pytest.raises(Unknown, match="within a window"):
        work("flash_attn::_flash_attn_forward", [q, q, q, False, 0], [q], schema)


def test_a_memory_efficient_mask_may_start_in_the_other_corner() -> None:
    def masked(mask: object) -> int | None:
        query, key = Tensor.of((2, 4, 3, 8), FLOAT, 0), Tensor.of((2, 6, 3, 8), FLOAT, 1)
        values = {"query": query, "key": key, "value": key, "custom_mask_type": mask}
        return work(
            "aten::_efficient_attention_forward",
            ordered(ATTENTION_ARGUMENTS["aten::_efficient_attention_forward"], **values),
            [],
        ).operations

    assert [masked(mask) for mask in (0, 1, 2)] == [6 * left * 32 for left in (24, 10, 18)]
    for mask in (3, -1, None):
        with pytest.raises(Unknown):
            masked(mask)


@pytest.mark.parametrize(("queries", "keys", "top", "bottom"), [(3, 4, 6, 9), (4, 3, 9, 6), (3, 3, 6, 6)])
def test_a_mask_leaves_the_pairs_below_its_diagonal(queries: int, keys: int, top: int, bottom: int) -> None:
    found = [pairs(queries, keys, corner) for corner in (TOP, BOTTOM, None)]
    assert found == [top, bottom, queries * keys]


def test_gradients_are_like_query_key_and_value() -> None:
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    query, key, value = tensors((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 4))
    found = work(name, ordered(ATTENTION_ARGUMENTS[name], query=query, key=key, value=value, is_causal=False), None)
    assert found.bytes == FLOAT * 2 * (48 + 80 + 40)


VALUES: dict[str, Any] = {"stride": [3], "padding": [5], "dilation": [4], "output_padding": [1], "groups": 2}
"""No two are equal, so that none can stand in for another."""


def convolved(name: str, x: tuple[int, ...], weight: tuple[int, ...], **more: Any) -> tuple[Work, int]:
    """The work by the arguments alone, and how many elements the result has."""
    x_tensor, weight_tensor = tensors(x, weight)
    arguments = ordered(CONVOLUTION_ARGUMENTS[name], **{**VALUES, "input": x_tensor, "weight": weight_tensor, **more})
    found = work(name, arguments, None)
    return found, found.bytes // FLOAT - x_tensor.elements - weight_tensor.elements


def dimensions_of(name: str) -> int:
    return next((number for number in (1, 3) if f"{number}d" in name), 2)


@pytest.mark.parametrize("name", [name for name in CONVOLUTION_ARGUMENTS if "transpose" not in name])
def test_a_convolution_gives_fewer_positions_by_stride_and_dilation(name: str) -> None:
    """From 9 positions 4 with a window of 3 that is 9 wide, 6 if it is not dilated."""
    dimensions = dimensions_of(name)
    found, elements = convolved(name, (1, 4) + (9,) * dimensions, (6, 4) + (3,) * dimensions, transposed=False)
    positions = (4 if "dilation" in CONVOLUTION_ARGUMENTS[name] else 6) ** dimensions
    assert (found.operations, elements) == (2 * positions * 24 * 3**dimensions, 6 * positions)


@pytest.mark.parametrize(
    "name", [name for name in CONVOLUTION_ARGUMENTS if "output_padding" in CONVOLUTION_ARGUMENTS[name]]
)
def test_a_transposed_convolution_gives_more_positions_and_the_channels_of_all_groups(name: str) -> None:
    """From 5 positions (5 - 1) * 3 - 2 * 5 + 8 + 1 + 1 = 12, in two groups of 3 channels."""
    dimensions = dimensions_of(name)
    found, elements = convolved(name, (1, 4) + (5,) * dimensions, (4, 3) + (3,) * dimensions, transposed=True)
    assert (found.operations, elements) == (2 * 5**dimensions * 12 * 3**dimensions, 6 * 12**dimensions)


def test_an_input_without_a_batch_is_one() -> None:
    batch, elements = convolved("aten::conv2d", (1, 4, 9, 9), (6, 4, 3, 3))
    assert convolved("aten::conv2d", (4, 9, 9), (6, 4, 3, 3)) == (batch, elements)


@pytest.mark.parametrize(
    ("x", "more"),
    [
        *(((*batch, 9, 9), {}) for batch in ((), (1, 1, 4))),
        ((6, 4), {}),
        *(
            ((1, 4, 9, 9), more)
            for more in ({"stride": [0]}, {"stride": [1] * 3}, {"padding": [1] * 3}, {"dilation": []})
        ),
    ],
)
def test_shapes_and_arguments_that_do_not_fit_are_unknown(x, more):
    with pytest.raises(Unknown):
        convolved("aten::conv2d", x, (6, 4, 3, 3) if x[-1] == 9 else x, **more)


GRADIENTS = "gradient input weight bias_sizes stride padding dilation transposed output_padding groups output_mask"


@pytest.mark.parametrize(
    ("mask", "operations", "elements"),
    [
        ([True, True, True], 2 * 2 * 16 * 216, 256 + 216 + 6), ([True, False, False], 2 * 16 * 216, 256),
        ([False, True, False], 2 * 16 * 216, 216), ([False, False, True], 0, 6),
    ],
)  # fmt: skip
def test_only_the_gradients_that_are_asked_for_count(mask: list[bool], operations: int, elements: int) -> None:
    """Of 6 channels at 16 positions, from 4 at 64."""
    gradient, x, weight = tensors((1, 6, 4, 4), (1, 4, 8, 8), (6, 4, 3, 3))
    arguments = ordered(GRADIENTS, gradient=gradient, input=x, weight=weight, transposed=False, output_mask=mask)
    found = work(CONVOLUTION_BACKWARD, arguments, None)
    assert (found.operations, found.bytes) == (operations, FLOAT * (96 + 256 + 216 + elements))


def test_the_gradients_of_a_transposed_convolution_are_of_the_positions_of_its_input() -> None:
    gradient, x, weight = tensors((1, 6, 8, 8), (1, 4, 4, 4), (4, 6, 3, 3))
    arguments = ordered(GRADIENTS, gradient=gradient, input=x, weight=weight, transposed=True, output_mask=[True] * 3)
    assert work(CONVOLUTION_BACKWARD, arguments, None).operations == 2 * 2 * 16 * 216


Shape = tuple[int, ...]


def or_none(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, None where that is unknown."""
    try:
        return function(*arguments)
    except Unknown:
        return None


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ((3, 4), (4, 5), (120, (3, 5))),
        ((4,), (4, 5), (40, (5,))),
        ((3, 4), (4,), (24, (3,))),
        ((4,), (4,), (8, ())),
        ((1, 4), (4, 1), (8, (1, 1))),
        ((2, 3, 4), (2, 4, 5), (240, (2, 3, 5))),
        ((7, 1, 3, 4), (2, 4, 5), (1680, (7, 2, 3, 5))),
        ((2, 3, 4), (4,), (48, (2, 3))),
        *(
            (*shapes, None)
            for shapes in (((), (4,)), ((4,), ()), ((3, 4), (5, 4)), ((3,), (4,)), ((2, 3, 4), (3, 4, 5)))
        ),
    ],
)
def test_a_product_drops_the_dimensions_that_meet(left, right, found):
    assert or_none(product, left, right) == found


@pytest.mark.parametrize(
    ("shapes", "together"),
    [
        ([(3, 1), (4,)], (3, 4)), ([(2, 3), (3,), ()], (2, 3)), ([(1, 1), (1,)], (1, 1)), ([()], ()), ([], ()),
        ([(0, 3), (1, 3)], (0, 3)),
    ],
)  # fmt: skip
def test_broadcast_shapes_have_the_longest_extent_of_each_dimension(shapes: list[Shape], together: Shape) -> None:
    assert broadcast(shapes) == together
    with pytest.raises(Unknown):
        broadcast([*shapes, (2, 3), (2, 4)])


def test_a_packed_weight_tells_no_more_than_the_result() -> None:
    x, weight, result = tensors((7, 4, 64), (2, 1, 32, 4), (7, 4, 16))
    assert work("aten::_weight_int4pack_mm", [x, weight], [result]).operations == 2 * 28 * 64 * 16
    for results in ([], [Tensor.of((), FLOAT, 9)]):
        with pytest.raises(Unknown):
            work("aten::_weight_int4pack_mm", [x, weight], results)


def test_results_follow_from_the_arguments_if_they_are_of_their_type() -> None:
    a, b = tensors((3, 4), (4, 5), item=2)
    assert work("aten::mm", [a, b], None).bytes == 2 * (12 + 20 + 15)
    (bias,) = tensors((5,), item=FLOAT)
    assert work("aten::addmm", [bias, *tensors((3, 4), (4, 5))], None).operations == 120
    for name in ("aten::_int_mm", "aten::_scaled_mm", "quantized::linear"):
        with pytest.raises(Unknown):
            work(name, tensors((3, 4), (4, 5)), None)


@pytest.mark.parametrize(
    ("left", "right", "operations"),
    [
        ((10, 4), (3, 4, 5), 400),
        ((3, 10, 4), (4, 5), 400),
        ((10, 4), (4, 5), 400),
        ((3, 10, 4), (3, 4, 5), 1200),
        *((*shapes, None) for shapes in (((10, 4), (3, 5, 4)), ((4,), (4, 5)), ((2, 3, 10, 4), (4, 5)))),
    ],
)
def test_groups_that_are_concatenated_multiply_each_row_once(left, right, operations):
    found = or_none(work, "aten::_grouped_mm", tensors(left, right), tensors((1,)))
    assert (found and found.operations) == operations


X, OTHER, FEW, ONE = *tensors((6, 7), (6, 7), (6,)), Tensor.of((), FLOAT, 9)
PARAMETERS, GRADIENTS_OF, STATES = (
    [Tensor.of((count,), FLOAT, first + count) for count in (10, 20)] for first in (0, 100, 200)
)
STEPS_OF_THE_ARGUMENT = {
    1: "sum cumsum", 2: "norm", 3: "mse_loss",
    4: "std logsumexp _softmax_backward_data _fused_rms_norm _batch_norm_no_update", 5: "_softmax smooth_l1_loss",
    7: "binary_cross_entropy", 8: "native_layer_norm", 9: "_fused_rms_norm_backward",
    13: "native_layer_norm_backward",
}  # fmt: skip
STEPS_OF_THE_RESULT = {"clamp": 2, "lerp": 3, "sigmoid": 4, "gelu": 5, "mish": 6, "silu_backward": 9, "gelu_backward": 11,
                       "mish_backward": 12}  # fmt: skip
NORMS = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
NORM_ARGUMENTS = "input weight bias running_mean running_var training"
LOSSES = {"mse_loss": 3, "binary_cross_entropy": 5, "smooth_l1_loss": 4, "huber_loss": 4}
OF_POOLS = [
    f"{name}_backward"
    for n in "23"
    for name in (f"avg_pool{n}d", f"max_pool{n}d_with_indices", f"_adaptive_avg_pool{n}d")
]


@pytest.mark.parametrize(
    ("name", "inputs", "results", "operations"),
    [
        *((name, [X, OTHER], [ONE], 42 * n) for n, names in STEPS_OF_THE_ARGUMENT.items() for name in names.split()),
        *((name, [OTHER] * 3, [FEW], 6 * steps) for name, steps in STEPS_OF_THE_RESULT.items()),
        # a loss passes its gradient to each element of its argument, one of targets to each of them
        *((f"{name}_backward", [ONE, X, FEW], [X], 42 * steps) for name, steps in LOSSES.items()),
        *((f"{name}_forward", [X, FEW], [ONE], 6) for name in ("nll_loss", "nll_loss2d")),
        *((f"{name}_backward", [ONE, X, FEW], [X], 6) for name in ("nll_loss", "nll_loss2d")),
        # with given statistics
        *((name, ordered(NORM_ARGUMENTS, input=X, training=True), [X], 42 * 8) for name in NORMS),
        *((name, ordered(NORM_ARGUMENTS, input=X, training=False), [X], 42 * 4) for name in NORMS),
        # pooling goes over the window at each position of the result
        ("max_pool2d_with_indices", [X, [3, 2]], [FEW, ONE], 6 * 6),
        ("max_pool2d_with_indices", [X, [3]], [FEW, ONE], 6 * 9),
        ("avg_pool2d", [X, [2]], [FEW], 6 * 4),
        ("avg_pool3d", [X, [2]], [FEW], 6 * 8),
        ("max_pool3d_with_indices", [X, [2, 3, 4]], [FEW, ONE], 6 * 24),
        *((name, [X, [2, 2]], [FEW], 42) for name in ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")),
        *((name, [FEW, X, [3, 3]], [X], 42) for name in OF_POOLS),
        # optimizers take steps for each parameter, more with momentum
        ("_fused_adam_", [PARAMETERS, GRADIENTS_OF, STATES, STATES, [], []], [], 30 * 13),
        ("_fused_adamw_", [PARAMETERS, GRADIENTS_OF, STATES, STATES, [], []], [], 30 * 14),
        ("_fused_adagrad_", [PARAMETERS, GRADIENTS_OF, STATES, STATES, [], []], [], 30 * 7),
        ("_fused_sgd_", [PARAMETERS, GRADIENTS_OF, STATES, 0.0, 0.9, 0.1], [], 30 * 4),
        ("_fused_sgd_", [PARAMETERS, GRADIENTS_OF, [], 0.0, 0.0, 0.1], [], 30 * 2),
        ("_amp_foreach_non_finite_check_and_unscale_", [GRADIENTS_OF, ONE, ONE], [], 30 * 2),
    ],
)
def test_an_op_takes_so_many_steps_for_each_element(name, inputs, results, operations):
    assert work(f"aten::{name}", inputs, results).operations == operations


@pytest.mark.parametrize("results", [[], None])
def test_without_its_result_pooling_is_unknown(results: list[Tensor] | None) -> None:
    with pytest.raises(Unknown):
        work("aten::avg_pool2d", [X, [2]], results)


def left_by(name: str, *more: Any, dtype: str = "float", shape: tuple[int, ...] = (2, 3, 5)) -> int:
    """The bytes of the result."""
    x = Tensor.of(shape, FLOAT, 0, dtype)
    return work(f"aten::{name}", [x, *more], None).bytes - x.bytes


@pytest.mark.parametrize(
    ("dimensions", "elements"), [([0], 15), ([-1], 6), ([0, 2], 3), ([-3, 1], 5), ([], 1), (None, 1), (1, 10)]
)
def test_a_reduction_leaves_the_other_dimensions(dimensions, elements):
    assert left_by("sum", dimensions) == FLOAT * elements
    assert left_by("any", dimensions) == elements
    assert (left_by("sum", shape=()), left_by("all", shape=())) == (FLOAT, 1)


@pytest.mark.parametrize(
    ("name", "dimensions", "dtype"),
    [("sum", [3], "float"), ("sum", [-4], "float"), ("sum", [0], "long int"), ("argmax", [0], "float")],
    ids=["dimension too high", "dimension too low", "of integers", "positions"],
)
def test_what_a_reduction_gives_is_unknown(name: str, dimensions: list[int], dtype: str) -> None:
    with pytest.raises(Unknown):
        left_by(name, dimensions, dtype=dtype)


@pytest.mark.parametrize(("item", "statistics"), [(2, 4), (4, 4), (8, 8)])
def test_a_layer_norm_keeps_mean_and_deviation_of_each_row(item: int, statistics: int) -> None:
    x = Tensor.of((6, 8), item, 0)
    assert work("aten::native_layer_norm", [x, [8]], None).bytes == 2 * x.bytes + 2 * 6 * statistics
    assert work("aten::native_layer_norm", [x, [6, 8]], None).bytes == 2 * x.bytes + 2 * statistics
    with pytest.raises(Unknown):
        work("aten::native_layer_norm", [x, [0]], None)
