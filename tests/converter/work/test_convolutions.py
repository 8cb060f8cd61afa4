"""Where each convolution has its arguments, as PyTorch's schemas have them, and what its result follows from."""

from typing import Any

import pytest
from execgraph.converter.work import Unknown, Work
from execgraph.converter.work.convolutions import BACKWARD, RULES
from support.graphs import FLOAT, ordered, tensors, work

GENERAL = "input weight bias stride padding dilation transposed output_padding groups"
PLAIN = "input weight bias stride padding dilation groups"
PADDING_FIRST = "input weight bias padding stride dilation groups"
UNDILATED = "input weight kernel_size bias stride padding"
TRANSPOSED = "input weight bias stride padding output_padding groups dilation"
ARGUMENTS = {
    "convolution": GENERAL,
    "_convolution": GENERAL,
    "convolution_overrideable": GENERAL,
    "conv1d": PLAIN,
    "conv2d": PLAIN,
    "conv3d": PLAIN,
    "cudnn_convolution": "input weight padding stride dilation groups",
    "mkldnn_convolution": PADDING_FIRST,
    "miopen_convolution": PADDING_FIRST,
    "miopen_depthwise_convolution": PADDING_FIRST,
    "cudnn_convolution_relu": PLAIN,
    "cudnn_convolution_add_relu": "input weight z alpha bias stride padding dilation groups",
    "_conv_depthwise2d": "input weight kernel_size bias stride padding dilation",
    "conv_depthwise3d": "input weight kernel_size bias stride padding dilation",
    "_slow_conv2d_forward": UNDILATED,
    "thnn_conv2d": UNDILATED,
    "slow_conv3d": UNDILATED,
    "slow_conv3d_forward": UNDILATED,
    "cudnn_convolution_transpose": "input weight padding output_padding stride dilation groups",
    "miopen_convolution_transpose": "input weight bias padding output_padding stride dilation groups",
    "conv_transpose1d": TRANSPOSED,
    "conv_transpose2d": TRANSPOSED,
    "conv_transpose3d": TRANSPOSED,
}
VALUES: dict[str, Any] = {"stride": [3], "padding": [5], "dilation": [4], "output_padding": [1], "groups": 2}
"""No two are equal, so that none can stand in for another."""


def convolved(name: str, x: tuple[int, ...], weight: tuple[int, ...], **more: Any) -> tuple[Work, int]:
    """The work by the arguments alone, and how many elements the result has."""
    x_tensor, weight_tensor = tensors(x, weight)
    arguments = ordered(ARGUMENTS[name], **{**VALUES, "input": x_tensor, "weight": weight_tensor, **more})
    found = work(f"aten::{name}", arguments, None)
    return found, found.bytes // FLOAT - x_tensor.elements - weight_tensor.elements


def dimensions_of(name: str) -> int:
    return next((number for number in (1, 3) if f"{number}d" in name), 2)


def test_every_convolution_is_listed() -> None:
    assert {f"aten::{name}" for name in ARGUMENTS} | {BACKWARD} == RULES.keys()


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if "transpose" not in name])
def test_a_convolution_gives_fewer_positions_by_stride_and_dilation(name: str) -> None:
    """From 9 positions 4 with a window of 3 that is 9 wide, 6 if it is not dilated."""
    dimensions = dimensions_of(name)
    found, elements = convolved(name, (1, 4) + (9,) * dimensions, (6, 4) + (3,) * dimensions, transposed=False)
    positions = (4 if "dilation" in ARGUMENTS[name] else 6) ** dimensions
    assert (found.operations, elements) == (2 * positions * 24 * 3**dimensions, 6 * positions)


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if "output_padding" in ARGUMENTS[name]])
def test_a_transposed_convolution_gives_more_positions_and_the_channels_of_all_groups(name: str) -> None:
    """From 5 positions (5 - 1) * 3 - 2 * 5 + 8 + 1 + 1 = 12, in two groups of 3 channels."""
    dimensions = dimensions_of(name)
    found, elements = convolved(name, (1, 4) + (5,) * dimensions, (4, 3) + (3,) * dimensions, transposed=True)
    assert (found.operations, elements) == (2 * 5**dimensions * 12 * 3**dimensions, 6 * 12**dimensions)


def test_an_input_without_a_batch_is_one() -> None:
    batch, elements = convolved("conv2d", (1, 4, 9, 9), (6, 4, 3, 3))
    assert convolved("conv2d", (4, 9, 9), (6, 4, 3, 3)) == (batch, elements)


@pytest.mark.parametrize(
    ("x", "weight", "more"),
    [
        ((9, 9), (6, 4, 3, 3), {}),
        ((1, 1, 4, 9, 9), (6, 4, 3, 3), {}),
        ((6, 4), (6, 4), {}),
        ((1, 4, 9, 9), (6, 4, 3, 3), {"stride": [0]}),
        ((1, 4, 9, 9), (6, 4, 3, 3), {"stride": [1, 1, 1]}),
        ((1, 4, 9, 9), (6, 4, 3, 3), {"padding": [1, 1, 1]}),
        ((1, 4, 9, 9), (6, 4, 3, 3), {"dilation": []}),
    ],
)
def test_shapes_and_arguments_that_do_not_fit_are_unknown(
    x: tuple[int, ...], weight: tuple[int, ...], more: dict[str, Any]
) -> None:
    with pytest.raises(Unknown):
        convolved("conv2d", x, weight, **more)


@pytest.mark.parametrize(
    ("mask", "operations", "elements"),
    [
        ([True, True, True], 2 * 2 * 16 * 216, 256 + 216 + 6),
        ([True, False, False], 2 * 16 * 216, 256),
        ([False, True, False], 2 * 16 * 216, 216),
        ([False, False, True], 0, 6),
    ],
)
def test_only_the_gradients_that_are_asked_for_count(mask: list[bool], operations: int, elements: int) -> None:
    """Of 6 channels at 16 positions, from 4 at 64."""
    gradient, x, weight = tensors((1, 6, 4, 4), (1, 4, 8, 8), (6, 4, 3, 3))
    names = "gradient input weight bias_sizes stride padding dilation transposed output_padding groups output_mask"
    arguments = ordered(names, gradient=gradient, input=x, weight=weight, transposed=False, output_mask=mask)
    found = work(BACKWARD, arguments, None)
    read = sum(tensor.elements for tensor in (gradient, x, weight))
    assert (found.operations, found.bytes) == (operations, FLOAT * (read + elements))


def test_the_gradients_of_a_transposed_convolution_are_of_the_positions_of_its_input() -> None:
    gradient, x, weight = tensors((1, 6, 8, 8), (1, 4, 4, 4), (4, 6, 3, 3))
    names = "gradient input weight bias_sizes stride padding dilation transposed output_padding groups output_mask"
    arguments = ordered(names, gradient=gradient, input=x, weight=weight, transposed=True, output_mask=[True] * 3)
    assert work(BACKWARD, arguments, None).operations == 2 * 2 * 16 * 216
