"""Jobs without communication: each is a generator that writes one rank's program and yields after each step.

Every job has waits that cost nothing in the base run and hold the run up once durations change.
"""

from collections.abc import Iterator

from .instructions import Tensor
from .layers import backward, begin_backward, end_backward, item, linear, mse_loss, relu, seed, sgd_step
from .program_process import AUTOGRAD, COMPUTE, SECOND_AUTOGRAD, Process

SIDE_STREAM = 24


def steps(process: Process) -> Iterator[int]:
    """Yields the training steps, each in its annotation; the profiler waits for the device after the last one."""
    process.main.work(process.random.uniform(2.0, 4.0))
    for step in range(process.size.steps):
        with process.main.annotation(f"ProfilerStep#{step}", own_us=0.1):
            yield step
    process.main.synchronize_device()


def model(process: Process, x: Tensor) -> Tensor:
    """Returns a stack of linear layers with ReLU between, and the loss."""
    size = process.size
    with process.main.annotation("## forward ##"):
        for layer in range(size.layers):
            x = relu(process, f"layers.{layer}.relu", linear(process, f"layers.{layer}", x, size.hidden))
        return mse_loss(process, x, process.tensor("target", *x.shape))


def batch(process: Process, name: str = "batch") -> Tensor:
    """Returns a batch of the job's size: tokens × hidden."""
    return process.tensor(name, process.size.tokens, process.size.hidden)


def simple(process: Process) -> Iterator[None]:
    """One stream: forward, backward, optimizer; loss.item() in every second step."""
    for step in steps(process):
        loss = model(process, batch(process))
        backward(process, loss)
        sgd_step(process)
        if step % 2:
            item(process, loss)
        yield


def hostbound(process: Process) -> Iterator[None]:
    """As simple, with kernels so short that the device waits for the host."""
    return simple(process)


def event_sync(process: Process) -> Iterator[None]:
    """The host waits for an event behind the forward pass before: long past, unless the device falls behind."""
    main = process.main
    for step in steps(process):
        if step:
            main.synchronize_event(f"forward {(step - 1) % 2}")
        loss = model(process, batch(process))
        main.record(f"forward {step % 2}", COMPUTE)
        backward(process, loss)
        sgd_step(process)
        yield


def towers(process: Process) -> Iterator[None]:
    """Two models on streams of their own, whose backward passes run at once, on an autograd thread each."""
    main, layers = process.main, process.size.layers
    for step in steps(process):
        main.record("stepped", COMPUTE)
        main.wait(SIDE_STREAM, "stepped")
        tapes = {}
        for stream, thread, many in ((COMPUTE, AUTOGRAD, layers), (SIDE_STREAM, SECOND_AUTOGRAD, 1 + layers // 2)):
            process.compute = stream
            loss = _tower(process, thread, many)
            seed(process, loss, stream)
            tapes[thread], process.tape = process.tape, []
        process.compute = COMPUTE
        for thread, tape in tapes.items():
            process.tape = tape
            begin_backward(process, thread)
        for thread in tapes:
            end_backward(process, thread)
        main.record("second done", SIDE_STREAM)
        main.wait(COMPUTE, "second done")
        sgd_step(process)
        if step % 2:
            item(process, loss)
        yield


def _tower(process: Process, name: str, layers: int) -> Tensor:
    x = batch(process, name)
    for layer in range(layers):
        x = relu(process, f"{name}.{layer}.relu", linear(process, f"{name}.{layer}", x, process.size.hidden))
    return mse_loss(process, x, batch(process, f"{name}.target"), f"{name}.loss")
