"""Steps counted by hand: of optimizers for each of 30 parameters, of ops that relate each of 6 x 7 elements to many."""

from typing import Any

import pytest
from execgraph.converter.work import Tensor, Unknown
from support.graphs import FLOAT, ordered, tensors, work


def of_parameters(first: int) -> list[Tensor]:
    """Two tensors of 10 and 20 elements."""
    return [Tensor.of((count,), FLOAT, first + number) for number, count in enumerate((10, 20))]


@pytest.mark.parametrize(("name", "steps"), [("_fused_adam_", 13), ("_fused_adamw_", 14), ("_fused_adagrad_", 7)])
def test_each_parameter_takes_so_many_steps(name: str, steps: int) -> None:
    parameters, gradients, states = of_parameters(0), of_parameters(2), of_parameters(4)
    assert work(f"aten::{name}", [parameters, gradients, states, states, [], []], []).operations == 30 * steps


def test_momentum_takes_two_more_steps() -> None:
    parameters, gradients, momenta = of_parameters(0), of_parameters(2), of_parameters(4)
    names = "self grads momentum_buffer_list weight_decay momentum lr"
    for buffers, steps in ((momenta, 4), ([], 2)):
        arguments = ordered(names, self=parameters, grads=gradients, momentum_buffer_list=buffers, lr=0.1)
        assert work("aten::_fused_sgd_", arguments, []).operations == 30 * steps


def test_finding_and_removing_a_scale_takes_two_steps_for_each_gradient() -> None:
    found, scale = Tensor.of((), FLOAT, 8), Tensor.of((), FLOAT, 9)
    name = "aten::_amp_foreach_non_finite_check_and_unscale_"
    assert work(name, [of_parameters(0), found, scale], []).operations == 30 * 2


X = (6, 7)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("sum", 1),
        ("norm", 2),
        ("std", 4),
        ("logsumexp", 4),
        ("cumsum", 1),
        ("_softmax", 5),
        ("_softmax_backward_data", 4),
        ("native_layer_norm", 8),
        ("native_layer_norm_backward", 13),
        ("_fused_rms_norm", 4),
        ("_batch_norm_no_update", 4),
        ("_fused_rms_norm_backward", 9),
        ("mse_loss", 3),
        ("smooth_l1_loss", 5),
        ("binary_cross_entropy", 7),
    ],
)
def test_each_element_of_the_argument_takes_so_many_steps(name: str, steps: int) -> None:
    x, other = tensors(X, X)
    assert work(f"aten::{name}", [x, other], [Tensor.of((), FLOAT, 9)]).operations == 42 * steps


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("mse_loss_backward", 3),
        ("binary_cross_entropy_backward", 5),
        ("smooth_l1_loss_backward", 4),
        ("huber_loss_backward", 4),
    ],
)
def test_a_loss_passes_its_gradient_to_each_element_of_its_argument(name: str, steps: int) -> None:
    gradient, x, target = tensors((), X, (3,))
    assert work(f"aten::{name}", [gradient, x, target], [x]).operations == 42 * steps


@pytest.mark.parametrize(
    "name", ["native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit"]
)
def test_a_batch_norm_with_given_statistics_takes_half_the_steps(name: str) -> None:
    (x,) = tensors(X)
    for training, steps in ((True, 8), (False, 4)):
        arguments = ordered("input weight bias running_mean running_var training", input=x, training=training)
        assert work(f"aten::{name}", arguments, [x]).operations == 42 * steps


@pytest.mark.parametrize(
    ("name", "window", "steps"),
    [
        ("max_pool2d_with_indices", [3, 2], 6),
        ("max_pool2d_with_indices", [3], 9),
        ("avg_pool2d", [2], 4),
        ("avg_pool3d", [2], 8),
        ("max_pool3d_with_indices", [2, 3, 4], 24),
    ],
)
def test_pooling_goes_over_the_window_at_each_position_of_the_result(name: str, window: list[int], steps: int) -> None:
    x, result, indices = tensors((8, 8), (2, 4), (1,))
    assert work(f"aten::{name}", [x, window], [result, indices]).operations == 8 * steps
    for results in ([], None):
        with pytest.raises(Unknown):
            work(f"aten::{name}", [x, window], results)


@pytest.mark.parametrize("dimensions", ["2d", "3d"])
def test_adaptive_pooling_and_gradients_of_pooling_take_a_step_for_each_element_of_the_input(dimensions: str) -> None:
    gradient, x = tensors((2, 2), X)
    assert work(f"aten::_adaptive_avg_pool{dimensions}", [x, [2, 2]], [gradient]).operations == 42
    for name in (f"avg_pool{dimensions}", f"max_pool{dimensions}_with_indices", f"_adaptive_avg_pool{dimensions}"):
        assert work(f"aten::{name}_backward", [gradient, x, [3, 3]], [x]).operations == 42


@pytest.mark.parametrize("name", ["nll_loss", "nll_loss2d"])
def test_a_loss_of_targets_takes_a_step_for_each_of_them(name: str) -> None:
    gradient, x, target = tensors((), X, (6,))
    assert work(f"aten::{name}_forward", [x, target], [gradient]).operations == 6
    assert work(f"aten::{name}_backward", [gradient, x, target], [x]).operations == 6


# What a reduction of a device trace alone gives


def left_by(name: str, *more: Any, dtype: str = "float", shape: tuple[int, ...] = (2, 3, 5)) -> int:
    """The bytes of the result."""
    x = Tensor.of(shape, FLOAT, 0, dtype)
    return work(f"aten::{name}", [x, *more], None).bytes - x.bytes


@pytest.mark.parametrize(
    ("dimensions", "elements"), [([0], 15), ([-1], 6), ([0, 2], 3), ([-3, 1], 5), ([], 1), (None, 1), (1, 10)]
)
def test_a_reduction_leaves_the_other_dimensions(dimensions: Any, elements: int) -> None:
    assert left_by("sum", dimensions) == FLOAT * elements
    assert left_by("any", dimensions) == elements


@pytest.mark.parametrize(("dimensions"), [[3], [-4]])
def test_dimensions_that_a_tensor_does_not_have_are_unknown(dimensions: list[int]) -> None:
    with pytest.raises(Unknown):
        left_by("sum", dimensions)


def test_what_a_reduction_gives_for_integers_or_as_positions_is_unknown() -> None:
    for name, dtype in (("sum", "long int"), ("argmax", "float")):
        with pytest.raises(Unknown):
            left_by(name, [0], dtype=dtype)


@pytest.mark.parametrize(("item", "statistics"), [(2, 4), (4, 4), (8, 8)])
def test_a_layer_norm_keeps_mean_and_deviation_of_each_row(item: int, statistics: int) -> None:
    x = Tensor.of((6, 8), item, 0)
    assert work("aten::native_layer_norm", [x, [8]], None).bytes == 2 * x.bytes + 2 * 6 * statistics
    assert work("aten::native_layer_norm", [x, [6, 8]], None).bytes == 2 * x.bytes + 2 * statistics
    with pytest.raises(Unknown):
        work("aten::native_layer_norm", [x, [0]], None)


def test_a_sum_of_a_scalar_is_one() -> None:
    assert left_by("sum", shape=()) == FLOAT
    assert left_by("all", shape=()) == 1
