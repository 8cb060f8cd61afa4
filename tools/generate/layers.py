"""Layers, loss, backward and optimizer as PyTorch runs them on one stream."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter

from ...schema import linked
from .job import Activity, Tensor
from .script import AUTOGRAD, COMPUTE, DEVICE_TO_HOST, Node, Process, Script, gemm_us, stream_us

NATIVE, UNNAMED = "void at::native::", "void at::native::(anonymous namespace)::"
ELEMENTWISE = NATIVE + "vectorized_elementwise_kernel<4, at::native::{0}, at::detail::Array<char*, {1}> >"
GEMM = Activity("ampere_sgemm_128x128_tn")
GEMM_BACKWARD = Activity("ampere_sgemm_128x128_nn")
GEMM_WEIGHT = Activity("ampere_sgemm_128x128_nt")
REDUCE = Activity(f"{NATIVE}reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float> > >")
CLAMP = Activity(ELEMENTWISE.format("ClampFunctor<float>", 2))
THRESHOLD = Activity(ELEMENTWISE.format("ThresholdFunctor<float>", 3))
MSE = Activity(ELEMENTWISE.format("MseFunctor<float>", 3))
FILL = Activity(ELEMENTWISE.format("FillFunctor<float>", 1))
ADD = Activity(ELEMENTWISE.format("CUDAFunctor_add<float>", 3))
COPY = Activity(ELEMENTWISE.format("CopyFunctor<float>", 2))
SCALE = Activity(f"{NATIVE}vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, MulFunctor<float> > >")
CAT = Activity(f"{UNNAMED}CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>")
INDEX_SELECT = Activity(f"{UNNAMED}indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>")
EMBEDDING_BACKWARD = Activity(f"{UNNAMED}embedding_backward_feature_kernel<float, float, long>")
MULTI_TENSOR = Activity(f"{UNNAMED}multi_tensor_apply_kernel<TensorListMetadata<2> >")
TENSORS_PER_KERNEL = 32
BACKWARD_SCOPE, FORWARD_THREAD = 1, 1

OnGradient = Callable[[Script, Tensor, Tensor], None]
"""What happens on the autograd thread when a parameter has its gradient: called with the parameter and the gradient."""
Hooks = Callable[[int], OnGradient | None]
"""Gives the hook, if there is one, for the parameters of a layer by its number."""
TABLE_ROWS = 100_000


def linear(
    process: Process, name: str, x: Tensor, outputs: int, on_gradient: OnGradient | None = None, result: str = ""
) -> Tensor:
    """x @ weight.T + bias: x is (rows, inputs), the result (rows, outputs), its name `result` where one is given."""
    rows, inputs = x.shape
    main, stream = process.main, process.compute
    weight, bias = process.tensor(f"{name}.weight", outputs, inputs), process.tensor(f"{name}.bias", outputs)
    turned = process.view(f"{name}.weight.t", weight, inputs, outputs, strides=(1, inputs))
    y = process.tensor(result or f"{name}.y", rows, outputs)
    turned_gradient = process.gradient(turned)
    weight_gradient = process.view(f"{name}.gradient", turned_gradient, outputs, inputs, strides=(1, outputs))

    def backward(script: Script) -> None:
        gradient, columns = process.gradient(y), process.view(f"{x.id} turned", x, inputs, rows, strides=(1, inputs))
        us, of_weight = gemm_us(rows, inputs, outputs), gemm_us(inputs, outputs, rows)
        script.kernel("aten::mm", (gradient, weight), (process.gradient(x),), GEMM_BACKWARD, us, stream, 4.0)
        script.leaf("aten::t", (x,), (columns,))
        script.kernel("aten::mm", (columns, gradient), (turned_gradient,), GEMM_WEIGHT, of_weight, stream, 4.0)
        of_bias = (process.gradient(bias),)
        script.kernel("aten::sum", (gradient, (0,), True, None), of_bias, REDUCE, stream_us(gradient), stream, 4.0)

    with main.op("aten::linear", (x, weight, bias), (y,), sequence=process.sequence):
        accumulate(process, weight, weight_gradient, on_gradient)
        with main.op("aten::t", (weight,), (turned,), sequence=process.sequence):
            turn_back = partial(Script.leaf, name="aten::t", inputs=(turned_gradient,), outputs=(weight_gradient,))
            process.differentiable("TBackward0", (turned_gradient,), turn_back)
        accumulate(process, bias, process.gradient(bias), on_gradient)
        with main.op("aten::addmm", (bias, x, turned, 1, 1), (y,), sequence=process.sequence, own_us=12.0):
            process.differentiable("AddmmBackward0", (process.gradient(y),), backward)
            main.launch(GEMM, stream, gemm_us(rows, outputs, inputs))
    return y


def relu(process: Process, name: str, x: Tensor) -> Tensor:
    """max(x, 0), of the shape of x."""
    y, stream = process.tensor(f"{name}.y", *x.shape), process.compute

    def backward(script: Script) -> None:
        inputs = process.gradient(y), y, 0
        us = stream_us(y, y, x)
        script.kernel("aten::threshold_backward", inputs, (process.gradient(x),), THRESHOLD, us, stream)

    with process.main.op("aten::relu", (x,), (y,), sequence=process.sequence):
        process.differentiable("ReluBackward0", (process.gradient(y),), backward)
        process.main.kernel("aten::clamp_min", (x, 0), (y,), CLAMP, stream_us(x, y), stream)
    return y


def no_hooks(_: int) -> None:
    """Gradients stay where they are."""


def stack(process: Process, name: str, x: Tensor, numbers: range, hooks: Hooks = no_hooks) -> Tensor:
    """Returns what linear layers with these numbers make of x, each with the ReLU behind it."""
    for number in numbers:
        layer = f"{name}.{number}"
        x = relu(process, f"{layer}.relu", linear(process, layer, x, process.size.hidden, hooks(number)))
    return x


def add(process: Process, name: str, x: Tensor, other: Tensor) -> Tensor:
    """x + other; its backward hands the gradient on as it is."""
    y = process.tensor(f"{name}.y", *x.shape)
    with process.main.op("aten::add", (x, other, 1), (y,), sequence=process.sequence, own_us=8.0):
        process.differentiable("AddBackward0", (process.gradient(y),), lambda script: None)
        process.main.launch(ADD, COMPUTE, stream_us(x, other, y))
    return y


def concatenate(process: Process, name: str, x: Tensor, other: Tensor) -> Tensor:
    """Returns the columns of x and then of the other one."""
    y = process.tensor(f"{name}.y", x.shape[0], x.shape[1] + other.shape[1])

    def backward(script: Script) -> None:
        for part, first in ((x, 0), (other, x.shape[1])):
            gradient, inputs = process.gradient(part), (process.gradient(y), 1, first, part.shape[1])
            script.kernel("aten::narrow_copy", inputs, (gradient,), COPY, stream_us(part, part), COMPUTE)

    with process.main.op("aten::cat", ((x, other), 1), (y,), sequence=process.sequence, own_us=10.0):
        process.differentiable("CatBackward0", (process.gradient(y),), backward)
        process.main.launch(CAT, COMPUTE, stream_us(x, other, y))
    return y


def embedding(process: Process, name: str, indices: Tensor, width: int) -> Tensor:
    """Returns rows of a table by index."""
    weight, y = process.tensor(f"{name}.weight", TABLE_ROWS, width), process.tensor(f"{name}.y", *indices.shape, width)
    gradient = process.gradient(weight)

    def backward(script: Script) -> None:
        inputs = (process.gradient(y), indices, TABLE_ROWS, -1, False)
        us = stream_us(y, y)
        script.kernel("aten::embedding_dense_backward", inputs, (gradient,), EMBEDDING_BACKWARD, us, COMPUTE, 12.0)

    with process.main.op("aten::embedding", (weight, indices, -1, False, False), (y,), sequence=process.sequence):
        accumulate(process, weight, gradient)
        process.differentiable("EmbeddingBackward0", (process.gradient(y),), backward)
        process.main.kernel("aten::index_select", (weight, 0, indices), (y,), INDEX_SELECT, stream_us(y, y), COMPUTE)
    return y


def mse_loss(process: Process, x: Tensor, name: str = "loss") -> Tensor:
    """Returns the mean squared difference from a target, a scalar."""
    target, loss, stream = process.tensor(f"target of {name}", *x.shape), process.tensor(name), process.compute

    def backward(script: Script) -> None:
        inputs, us = (process.gradient(loss), x, target, 1), stream_us(x, target, x)
        script.kernel("aten::mse_loss_backward", inputs, (process.gradient(x),), MSE, us, stream)

    with process.main.op("aten::mse_loss", (x, target, 1), (loss,), sequence=process.sequence, own_us=10.0):
        process.differentiable("MseLossBackward0", (process.gradient(loss),), backward)
        process.main.launch(MSE, stream, stream_us(x, target))
        process.main.launch(REDUCE, stream, stream_us(x))
    return loss


def accumulate(process: Process, parameter: Tensor, gradient: Tensor, on_gradient: OnGradient | None = None) -> None:
    """Puts the node on the tape that takes a parameter's gradient; the optimizer will step the parameter."""
    detached = process.view(f"held gradient {gradient.id}", gradient, *gradient.shape, strides=gradient.strides)
    body = partial(Script.leaf, name="aten::detach", inputs=(gradient,), outputs=(detached,))
    hook = None if on_gradient is None else lambda script: on_gradient(script, parameter, detached)
    process.parameters.append((parameter, detached))
    process.tape.append(Node("torch::autograd::AccumulateGrad", -1, (gradient,), body, hook))


def backward(process: Process, loss: Tensor) -> None:
    """loss.backward(): the main thread seeds the gradient and stands still while the autograd thread runs the tape."""
    seed(process, loss, process.compute)
    begin_backward(process, AUTOGRAD)
    end_backward(process, AUTOGRAD)


def seed(process: Process, loss: Tensor, stream: int) -> None:
    """Fills the gradient of the loss with ones."""
    ones = process.gradient(loss)
    with process.main.op("aten::ones_like", (loss, 6, 0, None, False, 1), (ones,)):
        process.main.kernel("aten::fill_", (ones, 1.0), (ones,), FILL, stream_us(ones), stream, 4.0)


def begin_backward(process: Process, name: str) -> None:
    """Hands the tape to an autograd thread, whose engine evaluates its nodes in reverse."""
    script = process.scripts[name]
    process.main.put(f"backward on {name}")
    script.get(f"backward on {name}")
    for node in reversed(process.tape):
        frame = f"{linked.AUTOGRAD}: {node.name}"
        sequence, thread = node.sequence, FORWARD_THREAD
        with script.op(frame, sequence=sequence, forward_thread=thread):
            with script.op(node.name, node.inputs, scope=BACKWARD_SCOPE, sequence=sequence, forward_thread=thread):
                node.body(script)
            if node.hook is not None:
                node.hook(script)
    process.tape.clear()
    for _, wait in sorted(process.at_end, key=itemgetter(0)):
        wait(script)
    process.at_end.clear()
    script.put(f"backward done on {name}")


def end_backward(process: Process, thread: str) -> None:
    """Lets the main thread wait for the end of the autograd thread."""
    process.main.get(f"backward done on {thread}")


def sgd_step(process: Process) -> None:
    """Optimizer.step: the parameters of this step's tape, each with its gradient, or the view of a bucket for it."""
    parameters = tuple(parameter for parameter, _ in process.parameters)
    gradients = tuple(process.views.get(parameter, gradient) for parameter, gradient in process.parameters)
    main = process.main
    with (
        main.annotation("Optimizer.step#SGD.step", own_us=20.0),
        main.op("aten::_foreach_add_", (parameters, gradients, -0.01), own_us=10.0),
    ):
        for first in range(0, len(parameters), TENSORS_PER_KERNEL):
            some = parameters[first : first + TENSORS_PER_KERNEL]
            main.launch(MULTI_TENSOR, COMPUTE, stream_us(*some, *some, *some))


def item(process: Process, tensor: Tensor) -> None:
    """tensor.item(): copies to pageable memory, which waits for the device."""
    main = process.main
    with main.op("aten::item", (tensor,)), main.op("aten::_local_scalar_dense", (tensor,)):
        main.copy(DEVICE_TO_HOST, COMPUTE, 1.6, blocking=True)
        main.synchronize_stream(COMPUTE)
