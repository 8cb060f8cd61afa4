"""Jobs about streams: chains of waits, loops that query an event, copies of pageable memory, full queues.

Each is a generator that writes one rank's program and yields after each step.
"""

from collections.abc import Iterator
from functools import cache

from execgraph.tools.generate import (
    COMPUTE,
    MEMORY,
    Activity,
    Process,
    Tensor,
    backward,
    batch,
    gemm_us,
    item,
    layers,
    model,
    sgd_step,
    simulation,
    size_bytes,
    steps,
    stream_us,
)

from .more_instructions import query_event
from .single_device_jobs import COPY_STREAM, SIDE_STREAM

THIRD_STREAM = 28
STAGED_BYTES_PER_US = 6_000
"""How fast pageable memory is copied to where the device can read it."""
STAGED = 64 * 1024
"""Copies of fewer bytes are staged as a whole, and the call returns at once."""


def streams(process: Process) -> Iterator[None]:
    """Chains over three streams: one event for two waits, one wait for two streams, one stream that only passes on."""
    main = process.main
    x, y, z = batch(process, "x"), batch(process, "y"), batch(process, "z")
    for step in steps(process):
        _kernel(process, layers.CLAMP, THIRD_STREAM, batch(process, "w"))
        for layer in range(process.size.layers):
            _kernel(process, layers.GEMM, COMPUTE, x, 3 if layer % 2 else 1)
            main.record("forked", COMPUTE)
            for stream, tensor, often in ((COPY_STREAM, y, 2), (SIDE_STREAM, z, 1 + layer % 3)):
                main.wait(stream, "forked")
                _kernel(process, layers.GEMM, stream, tensor, often)
                main.record(f"done {stream}", stream)
            main.wait(THIRD_STREAM, f"done {COPY_STREAM}")
            main.record("handed on", THIRD_STREAM)
            _kernel(process, layers.CLAMP, COMPUTE, x)
            main.wait(SIDE_STREAM, "handed on")
            _kernel(process, layers.REDUCE, SIDE_STREAM, z)
            main.record("joined", SIDE_STREAM)
            main.wait(COMPUTE, "joined")
            main.wait(COMPUTE, f"done {COPY_STREAM}")
        _kernel(process, layers.CLAMP, COMPUTE, x)
        if step % 2:
            item(process, process.tensor("loss"))
        yield


def _kernel(process: Process, activity: Activity, stream: int, tensor: Tensor, times: int = 1) -> None:
    main = process.main
    for _ in range(times):
        with main.op("aten::mm", (tensor, tensor), (tensor,), own_us=8.0):
            rows, columns = tensor.shape
            us = gemm_us(rows, columns, columns) if activity is layers.GEMM else stream_us(tensor, tensor)
            main.launch(activity, stream, us)


def polling(process: Process) -> Iterator[None]:
    """The host queries the event behind the forward pass again and again, and does other things in between."""
    main = process.main
    for _ in steps(process):
        loss = model(process, batch(process))
        main.record("forward", COMPUTE)
        query_event(main, "forward", pause_us=4.0)
        backward(process, loss)
        sgd_step(process)
        yield


@cache
def pageable_activity(size: int) -> Activity:
    """Returns a copy of `size` bytes of pageable memory to the device."""
    return Activity("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", MEMORY, size)


def pageable(process: Process) -> Iterator[None]:
    """Batches from pageable memory: the call returns when the last piece is staged; small copies are staged at once."""
    main = process.main
    x, labels = batch(process), process.tensor("labels", process.size.tokens, dtype="long int")
    for step in steps(process):
        for buffer in (x, labels):
            source = process.tensor(f"pageable {buffer.id}", *buffer.shape, dtype=buffer.dtype, device="cpu")
            size = size_bytes(buffer)
            with main.op("aten::copy_", (buffer, source, False), (buffer,), own_us=8.0):
                main.copy(pageable_activity(size), COMPUTE, size / STAGED_BYTES_PER_US, blocking=size >= STAGED)
        loss = model(process, x)
        backward(process, loss)
        sgd_step(process)
        if step % 2:
            item(process, loss)
        yield


def queue(process: Process) -> Iterator[None]:
    """The host launches more than the queue of a stream takes, and blocks until kernels have started."""
    main, x = process.main, process.tensor("x", 64, 64)
    for _ in steps(process):
        with main.op("aten::_foreach_add_", ((x,), (x,), 1), own_us=5.0):
            for _ in range(simulation.QUEUE_LIMIT + 150):
                main.launch(layers.CLAMP, COMPUTE, 100.0)
        main.leaf("aten::randperm", (64,), (x,), us=3000.0)
        item(process, x)
        yield
