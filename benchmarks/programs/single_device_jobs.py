"""Jobs without communication: copies ahead, CUDA graphs, a data loader, each kind of wait.

Each is a generator that writes one rank's program and yields after each step.
"""

from collections.abc import Iterator
from functools import cache

from execgraph.tools.generate import (
    COMPUTE,
    DEFAULT,
    DEVICE_TO_HOST,
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
    size_bytes,
    steps,
    stream_us,
)

from .more_instructions import GraphNode, launch_graph, query_event

LOADER = "loader"
COPY_STREAM, SIDE_STREAM = 20, 24
PINNED_BYTES_PER_US = 12_000
SPIN = Activity("at::cuda::(anonymous namespace)::spin_kernel(long)")


@cache
def upload_activity(size: int) -> Activity:
    """Returns a copy of `size` bytes of pinned memory to the device."""
    return Activity("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", MEMORY, size)


@cache
def memset_activity(size: int) -> Activity:
    """Returns a memset of `size` bytes on the device."""
    return Activity("Memset (Device)", "gpu_memset", MEMORY, size)


def upload(process: Process, buffer: Tensor, stream: int) -> None:
    """buffer.copy_(pinned, non_blocking=True)."""
    main, size = process.main, size_bytes(buffer)
    source = process.tensor(f"pinned {buffer.id}", *buffer.shape, device="cpu")
    with main.op("aten::copy_", (buffer, source, True), (buffer,), own_us=8.0):
        main.copy(upload_activity(size), stream, size / PINNED_BYTES_PER_US)


def prefetch(process: Process) -> Iterator[None]:
    """The next batch is copied on a side stream into one of two buffers while a step computes from the other."""
    main = process.main
    buffers = [batch(process, f"batch {i}") for i in range(2)]
    for step in steps(process):
        now, after = step % 2, (step + 1) % 2
        if step == 0:
            upload(process, buffers[now], COPY_STREAM)
            main.record(f"copied {now}", COPY_STREAM)
        else:
            main.wait(COPY_STREAM, f"used {after}")
        main.wait(COMPUTE, f"copied {now}")
        upload(process, buffers[after], COPY_STREAM)
        main.record(f"copied {after}", COPY_STREAM)
        loss = model(process, buffers[now])
        backward(process, loss)
        main.record(f"used {now}", COMPUTE)
        sgd_step(process)
        if step % 2:
            item(process, loss)
        yield


def graph(process: Process) -> Iterator[None]:
    """A CUDA graph of forward and backward on two streams, fed by copies on a third; optimizer and loss are eager."""
    main = process.main
    static, loss = batch(process), process.tensor("loss")
    nodes = captured(process)
    for step in steps(process):
        if step:
            main.wait(COPY_STREAM, "replayed")
        upload(process, static, COPY_STREAM)
        main.record("copied", COPY_STREAM)
        main.wait(COMPUTE, "copied")
        with main.annotation("## graph replay ##", own_us=10.0):
            launch_graph(main, nodes, COMPUTE)
        main.record("replayed", COMPUTE)
        # what was captured still has parameters and gradients, though none of its ops runs again
        for layer in range(process.size.layers):
            weight = process.tensor(f"layers.{layer}.weight", process.size.hidden, process.size.hidden)
            process.parameters.append((weight, process.gradient(weight)))
        sgd_step(process)
        if step % 2:
            item(process, loss)
        yield


def captured(process: Process) -> tuple[GraphNode, ...]:
    """Forward and backward as graph nodes; the sums for the biases run on a branch of their own."""
    size = process.size
    shape = process.tensor("shape", size.tokens, size.hidden)
    gemm, light = gemm_us(size.tokens, size.hidden, size.hidden), stream_us(shape, shape)
    main_line: list[tuple[Activity, float]] = [
        *[(layers.GEMM, gemm), (layers.CLAMP, light)] * size.layers,
        (layers.MSE, light),
    ]
    main_line += [(layers.THRESHOLD, light), (layers.GEMM_BACKWARD, gemm), (layers.GEMM_WEIGHT, gemm)] * size.layers
    nodes: list[GraphNode] = []
    last: tuple[int, ...] = ()
    for activity, us in main_line:
        nodes.append(graph_node(process, activity, COMPUTE, us, last))
        last = (len(nodes) - 1,)
        if activity is layers.THRESHOLD:
            nodes.append(graph_node(process, layers.REDUCE, SIDE_STREAM, light / 2, last))
    return tuple(nodes)


def graph_node(process: Process, activity: Activity, stream: int, us: float, after: tuple[int, ...]) -> GraphNode:
    """Returns a kernel of a graph; it follows those at the positions `after`."""
    gap = process.machine.gap_ns / DEFAULT.gap_ns * process.random.uniform(700, 900)
    return GraphNode(activity, stream, round(1000 * us), round(gap), after)


def loader(process: Process) -> Iterator[None]:
    """Yields a data-loader thread makes batches, two ahead at most; the main thread waits for each."""
    main, worker = process.main, process.scripts[LOADER]
    buffer = batch(process)
    rows = tuple(process.tensor(f"sample {i}", process.size.hidden, device="cpu") for i in range(8))
    step_us = 40 * process.size.layers * gemm_us(process.size.tokens, process.size.hidden, process.size.hidden) / 5
    for step in steps(process):
        stacked = process.tensor(f"samples {step % 4}", 8, process.size.hidden, device="cpu")
        for row in rows:
            worker.leaf("aten::empty_strided", (row.shape, row.strides, 6), (row,), us=step_us / 10)
        worker.leaf("aten::stack", (rows, 0), (stacked,), us=step_us / 5)
        worker.put("batches", capacity=2)
        with main.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
            main.get("batches")
        upload(process, buffer, COMPUTE)
        loss = model(process, buffer)
        backward(process, loss)
        sgd_step(process)
        yield


def critical_path(process: Process) -> Iterator[None]:
    """Small programs for each kind of synchronisation: event, query, stream, device, blocking copy, stream waits."""
    for _ in steps(process):
        _one_stream(process)
        _three_streams(process)
        yield


def _one_stream(process: Process) -> None:
    """5 waits of the host: a blocking copy, and a stream, event, queried event and device synchronisation."""
    main = process.main
    ones, total = batch(process, "ones"), process.tensor("total")
    with main.op("aten::fill_", (ones, 1.0), (ones,)):
        main.launch(layers.FILL, COMPUTE, stream_us(ones))
    with main.op("aten::sum", (ones,), (total,)):
        main.launch(layers.REDUCE, COMPUTE, stream_us(ones))
    with main.op("aten::item", (total,)), main.op("aten::_local_scalar_dense", (total,)):
        main.copy(DEVICE_TO_HOST, COMPUTE, 1.6, blocking=True)
        main.synchronize_stream(COMPUTE)
    main.record("begun", COMPUTE)
    main.launch(SPIN, COMPUTE, 36.0)
    main.record("ended", COMPUTE)
    main.synchronize_event("ended")
    query_event(main, "ended")
    main.work(50.0)
    main.synchronize_device()


def _three_streams(process: Process) -> None:
    """6 waits: two queried events, one stream for another, and the device synchronisation for three."""
    first, second, third = 20, 24, 28
    main = process.main
    _matmul(process, first)
    main.record("matmul", first)
    main.work(2000.0)
    query_event(main, "matmul")
    _matmul(process, third)
    main.record("matmul", third)
    main.record("joined", first)
    main.wait(second, "joined")
    main.work(2000.0)
    query_event(main, "matmul")
    _matmul(process, second)
    main.synchronize_device()


def _matmul(process: Process, stream: int) -> None:
    """A matrix product as cuBLAS runs it with a workspace."""
    main, x, y = process.main, batch(process, "ones"), batch(process, f"product {stream}")
    with main.op("aten::matmul", (x, x), (y,)), main.op("aten::mm", (x, x), (y,)):
        main.launch(memset_activity(512), stream, 1.5, "cudaMemsetAsync")
        main.launch(layers.GEMM, stream, gemm_us(x.shape[0], x.shape[1], x.shape[1]))
