"""Convolutions of any number of dimensions: forward, transposed, grouped, and the gradients of input and weight."""

from math import prod
from typing import NamedTuple

from .family import NEW, Family, Rule, everything
from .recorded_op import RecordedOp, Tensor, Unknown

Shape = tuple[int, ...]
FAMILY = Family(
    "convolution",
    "2 x the weight's elements x batch x positions of the result, transposed of the input; the weight's gradient 2 x"
    " batch x channels in x channels out x positions of both, whatever the groups; padding counts, the bias does not",
    "`conv_flop_count`, `conv_backward_flop` of torch.utils.flop_counter; of `cudnn_convolution` it takes the argument"
    " `benchmark` for `transposed`, this does not",
)


class Layout(NamedTuple):
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


GENERAL = Layout(3, 4, 5, 6, 7, 8)
LAYOUTS = {
    **dict.fromkeys(("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"), GENERAL),
    **dict.fromkeys(("aten::conv1d", "aten::conv2d", "aten::conv3d"), Layout(3, 4, 5)),
    "aten::cudnn_convolution": Layout(3, 2, 4),
    **dict.fromkeys(
        ("aten::mkldnn_convolution", "aten::miopen_convolution", "aten::miopen_depthwise_convolution"), Layout(4, 3, 5)
    ),
    "aten::cudnn_convolution_relu": Layout(3, 4, 5),
    "aten::cudnn_convolution_add_relu": Layout(5, 6, 7),
    **dict.fromkeys(("aten::_conv_depthwise2d", "aten::conv_depthwise3d"), Layout(4, 5, 6)),
    **dict.fromkeys(("aten::_slow_conv2d_forward", "aten::thnn_conv2d"), Layout(4, 5, None)),
    **dict.fromkeys(("aten::slow_conv3d", "aten::slow_conv3d_forward"), Layout(4, 5, None)),
    "aten::cudnn_convolution_transpose": Layout(4, 2, 5, None, 3, 6),
    "aten::miopen_convolution_transpose": Layout(5, 3, 6, None, 4, 7),
    **dict.fromkeys(
        ("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d"), Layout(3, 4, 7, None, 5, 6)
    ),
}
BACKWARD = "aten::convolution_backward"
MASK = 10


def _forward(op: RecordedOp) -> int:
    x, weight, result = op.shape(0), op.shape(1), op.results[:1]
    if not result or len(weight) < 3:
        raise Unknown("a convolution's shapes")
    return _applied(weight, x if LAYOUTS[op.name].is_transposed(op) else result[0].shape)


def _applied(weight: Shape, positions: Shape) -> int:
    """Returns the operations of applying the weight at each position of a tensor, which may lack the
    batch dimension.
    """
    if len(positions) not in (len(weight), len(weight) - 1):
        raise Unknown("a convolution's shapes")
    batch = positions[0] if len(positions) == len(weight) else 1
    return 2 * batch * prod(positions[2 - len(weight) :]) * prod(weight)


def _results(op: RecordedOp) -> list[Tensor]:
    x, weight, layout = op.tensor(0), op.shape(1), LAYOUTS[op.name]
    dimensions, transposed = len(weight) - 2, layout.is_transposed(op)
    if dimensions < 1 or len(x.shape) not in (len(weight), len(weight) - 1):
        raise Unknown("a convolution's shapes")

    def each(position: int | None, default: int = 0) -> tuple[int, ...]:
        values = (default,) if position is None else op.integers(position)
        return values * dimensions if len(values) == 1 else values

    stride, padding, dilation = each(layout.stride), each(layout.padding), each(layout.dilation, default=1)
    more = each(layout.output_padding if transposed else None)
    if any(len(values) != dimensions for values in (stride, padding, dilation, more)) or 0 in stride:
        raise Unknown("a convolution's arguments")
    positions = x.shape[-dimensions:]
    extent = [step * (size - 1) for step, size in zip(dilation, weight[2:], strict=True)]
    if transposed:
        sizes = [
            (n - 1) * s - 2 * p + r + o + 1
            for n, s, p, r, o in zip(positions, stride, padding, extent, more, strict=True)
        ]
        # the weight is (in, out / groups, …)
        channels = weight[1] * sum(op.integers(layout.groups))
    else:
        sizes = [(n + 2 * p - r - 1) // s + 1 for n, s, p, r in zip(positions, stride, padding, extent, strict=True)]
        channels = weight[0]
    return [Tensor.of((*x.shape[: -dimensions - 1], channels, *sizes), x.item, NEW, x.dtype)]


def _backward(op: RecordedOp) -> int:
    """Returns the operations of the gradients that the mask asks for."""
    gradient, x, weight = op.shape(0), op.shape(1), op.shape(2)
    transposed, mask = bool(op.argument(7)), op.integers(MASK)
    if len(weight) < 3 or len(mask) < 2 or not len(gradient) == len(x) == len(weight):
        raise Unknown("a convolution's shapes")
    # the gradient of the input is a convolution of the other kind (transposed or not)
    of_input = _applied(weight, x if transposed else gradient)
    of_weight = _applied((x[1], gradient[1], *weight[2:]), x if transposed else gradient)
    return of_input * bool(mask[0]) + of_weight * bool(mask[1])


def _gradients(op: RecordedOp) -> list[Tensor]:
    mask, bias = op.integers(MASK), op.shape(0)[1:2]
    like = [op.tensor(1), op.tensor(2), Tensor.of(bias, op.tensor(0).item, 0)]
    return [
        Tensor.of(tensor.shape, tensor.item, NEW + number)
        for number, (tensor, is_asked_for) in enumerate(zip(like, mask, strict=False))
        if is_asked_for
    ]


RULES = dict.fromkeys(LAYOUTS, Rule(FAMILY, _forward, everything, _results))
RULES[BACKWARD] = Rule(FAMILY, _backward, everything, _gradients)
