"""The steps of optimizers for each of 30 parameters, and what they read and write."""

import pytest
from execgraph.converter.work import Tensor
from support.graphs import FLOAT, ordered, work


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
