"""What random programs are made of: work on streams, events between them, waits of the host, CUDA graphs, a backward pass, collectives.

Each kind takes a draft, draws what it needs and returns the part, which writes its instructions for a rank and a step. No part waits for
what a later one does, and storages are ordered across streams as PyTorch orders them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..instructions import Activity, Tensor
from .layers import ADD, CLAMP, GEMM, REDUCE, backward
from .nccl import BYTES_PER_US
from .process import COMPUTE
from .random_draft import Draft, Part, Rank
from .script import DEVICE_TO_HOST, Script
from .single_device_jobs import PINNED_BYTES_PER_US, graph_node, upload_activity
from .stream_jobs import STAGED_BYTES_PER_US, pageable_activity

GRAPH_STREAMS = (40, 44)
OPS = (("aten::mm", GEMM), ("aten::sum", REDUCE), ("aten::clamp_min", CLAMP), ("aten::add", ADD))
AROUND = ("aten::linear", "aten::mean", "aten::relu", "aten::add_")
"""Ops around those that launch."""


# ops


class Nest(NamedTuple):
    """An op with ops inside, and the kernels that it launches after them."""

    name: str
    own_us: float
    kernels: tuple[tuple[Activity, float], ...]
    inner: "tuple[Nest, ...]"

    def write(self, script: Script, stream: int, reads: Tensor, writes: Tensor) -> None:
        # what an in-place op writes is its first argument
        inputs = (writes, reads) if self.name.endswith("_") else (reads, writes)
        with script.op(self.name, inputs, (writes,), own_us=self.own_us):
            for nest in self.inner:
                nest.write(script, stream, reads, writes)
            for kernel, us in self.kernels:
                script.launch(kernel, stream, us)


def _nest(draft: Draft, depth: int, launches: bool = True) -> Nest:
    random = draft.random
    name, kernel = random.choice(OPS)
    if depth == 1:
        kernels = tuple((kernel, draft.kernel_us()) for _ in range(random.randint(1, 3) if launches else 0))
        return Nest(name if launches else "aten::view", draft.host_us(), kernels, ())
    inner = tuple(_nest(draft, depth - 1, launches) for _ in range(random.choice((1, 1, 2))))
    also = ((kernel, draft.kernel_us()),) if launches and random.random() < 0.2 else ()
    return Nest(random.choice(AROUND), draft.host_us(), also, inner)


def work_on(draft: Draft, stream: int, source: int | None = None) -> Part:
    """An op whose kernels write a result and read `source`, or else any result of the stream or of those that it has waited for."""
    nest, idle, number = _nest(draft, draft.random.randint(1, 3)), draft.host_us() / 3, draft.number()
    if source is None:
        source = draft.random.choice(draft.readable[stream] or [number])
    draft.readable[stream].append(number)
    draft.latest[stream] = number

    def write(rank: Rank, script: Script) -> None:
        script.work(idle)
        nest.write(script, stream, rank.result(source), rank.result(number))

    return write


def _kernels(draft: Draft) -> Part:
    return _all_of([work_on(draft, draft.stream()) for _ in range(draft.random.randint(1, 2))])


def _host(draft: Draft) -> Part:
    """Ops that launch nothing, and Python around them."""
    nest, idle, number = _nest(draft, draft.random.randint(1, 3), launches=False), draft.host_us(), draft.number()

    def write(rank: Rank, script: Script) -> None:
        script.work(idle)
        nest.write(script, COMPUTE, rank.result(number), rank.result(number))

    return write


def _all_of(parts: Sequence[Part]) -> Part:
    def write(rank: Rank, script: Script) -> None:
        for part in parts:
            part(rank, script)

    return write


def _perhaps_work(draft: Draft) -> Part:
    """What the host does between recording an event and waiting for it."""
    return _all_of([draft.random.choice((_kernels, _host))(draft) for _ in range(draft.random.randint(0, 2))])


# streams


def _hand_off(draft: Draft) -> Part:
    """One stream waits for another, now and then through a third one that has nothing to do itself, and goes on with what that wrote."""
    source, target = draft.two_streams()
    through = draft.random.choice((target, target, draft.stream()))
    event, onwards, recorded = f"event {draft.number()}", f"event {draft.number()}", tuple(draft.readable[source])
    written = draft.latest.get(source)
    between = _perhaps_work(draft)
    draft.has_waited(target, recorded)
    after = work_on(draft, target, written)

    def write(rank: Rank, script: Script) -> None:
        script.record(event, source)
        between(rank, script)
        script.wait(through, event)
        if through != target:
            script.record(onwards, through)
            script.wait(target, onwards)
        after(rank, script)

    return write


def _behind(draft: Draft) -> Part:
    """The host waits for what a stream was given one step ago, or another stream does and goes on with that."""
    source, target = draft.two_streams()
    event, on_host, work = f"event {draft.number()}", draft.random.random() < 0.5, work_on(draft, source)
    nest, written, number = _nest(draft, 1), draft.latest[source], draft.number()

    def write(rank: Rank, script: Script) -> None:
        before, now = (f"{event} of {step % 2}" for step in (rank.step - 1, rank.step))
        if rank.step and on_host:
            script.synchronize_event(before)
        elif rank.step:
            script.wait(target, before)
            nest.write(script, target, rank.result(written, of_last_step=True), rank.result(number))
        work(rank, script)
        script.record(now, source)

    return write


def fork(streams: tuple[int, ...]) -> Part:
    def write(_: Rank, script: Script) -> None:
        script.record("forked", COMPUTE)
        for stream in streams[1:]:
            script.wait(stream, "forked")

    return write


def join(streams: tuple[int, ...]) -> Part:
    def write(_: Rank, script: Script) -> None:
        for stream in streams[1:]:
            script.record(f"joined {stream}", stream)
            script.wait(COMPUTE, f"joined {stream}")

    return write


def _graph(draft: Draft) -> Part:
    """A CUDA graph of two to eight kernels: it begins on the stream that it is launched on, and may go on on streams of its own."""
    random, number, stream, host = draft.random, draft.number(), draft.stream(), draft.host_us()
    own = (stream, *random.sample(GRAPH_STREAMS, random.randint(0, len(GRAPH_STREAMS))))
    nodes = []
    for place in range(random.randint(2, 8)):
        kernel, after = random.choice(OPS)[1], tuple(random.sample(range(place), min(place, 2)))
        nodes.append((kernel, random.choice(own) if place else stream, draft.kernel_us(), after))

    def write(rank: Rank, script: Script) -> None:
        if number not in rank.graphs:
            rank.graphs[number] = tuple(graph_node(rank.process, *node) for node in nodes)
        script.work(host)
        script.graph(rank.graphs[number], stream)

    return write


# waits of the host


def _event(draft: Draft) -> Part:
    """The host waits for an event, or asks for it again and again."""
    stream, event, between = draft.stream(), f"event {draft.number()}", _perhaps_work(draft)
    pause_us = draft.random.choice((None, 1.0, 4.0))

    def write(rank: Rank, script: Script) -> None:
        script.record(event, stream)
        between(rank, script)
        if pause_us is None:
            script.synchronize_event(event)
        else:
            script.query_event(event, pause_us)

    return write


def _synchronize(draft: Draft) -> Part:
    """The host waits for a stream, now and then for the device."""
    stream, whole = draft.stream(), draft.random.random() < 0.3

    def write(_: Rank, script: Script) -> None:
        if whole:
            script.synchronize_device()
        else:
            script.synchronize_stream(stream)

    return write


def _item(draft: Draft) -> Part:
    """tensor.item(): a copy that holds the host, with or without the synchronisation that follows it in PyTorch."""
    stream, number, synchronizes = draft.stream(), draft.number(), draft.random.random() < 0.7

    def write(rank: Rank, script: Script) -> None:
        with script.op("aten::_local_scalar_dense", (rank.result(number),)):
            script.copy(DEVICE_TO_HOST, stream, 1.6, blocking=True)
            if synchronizes:
                script.synchronize_stream(stream)

    return write


def _upload(draft: Draft) -> Part:
    """A copy to the device: of pinned memory while the host goes on, or of pageable memory, which holds it."""
    stream, number, us, pinned = draft.stream(), draft.number(), draft.kernel_us(), draft.random.random() < 0.6
    activity = (upload_activity if pinned else pageable_activity)(
        round(us * (PINNED_BYTES_PER_US if pinned else STAGED_BYTES_PER_US))
    )

    def write(rank: Rank, script: Script) -> None:
        buffer = rank.result(number)
        source = rank.process.tensor(f"source {number}", *buffer.shape, device="cpu")
        with script.op("aten::copy_", (buffer, source, pinned), (buffer,), own_us=8.0):
            script.copy(activity, stream, us, blocking=not pinned)

    return write


# other threads, other ranks


def _backward(draft: Draft) -> Part:
    """Forward ops, then a backward pass on the autograd thread, in which anything may happen that happens in a forward one."""
    inside = (_kernels, _kernels, _host, _hand_off, _item, _event)
    forward = [_kernels(draft) for _ in range(draft.random.randint(1, 4))]
    behind = [draft.random.choice(inside)(draft) for _ in forward]

    def write(rank: Rank, script: Script) -> None:
        process, loss = rank.process, rank.process.tensor("loss")
        for forth, back in zip(forward, reversed(behind), strict=True):
            with script.op("aten::matmul", sequence=process.sequence):
                process.differentiable("MmBackward0", (loss,), _on_thread(rank, back))
                forth(rank, script)
        backward(process, loss)

    return write


def _on_thread(rank: Rank, part: Part) -> Callable[[Script], None]:
    return lambda script: part(rank, script)


def _collective(draft: Draft) -> Part:
    """An all-reduce, which later parts run beside; work where there is only one rank."""
    work, number, elements = work_on(draft, COMPUTE), draft.number(), round(draft.kernel_us() * BYTES_PER_US / 4)
    if draft.ranks == 1:
        return work
    draft.under_way.append(number)

    def write(rank: Rank, script: Script) -> None:
        work(rank, script)
        summed = rank.process.tensor(f"gradients {number}", elements)
        rank.works[number] = rank.communicator.all_reduce(script, summed)

    return write


def awaited(number: int) -> Part:
    return lambda rank, script: rank.works.pop(number).wait(script)


KINDS: dict[Callable[[Draft], Part], float] = {
    _kernels: 6.0,
    _host: 2.0,
    _hand_off: 4.0,
    _behind: 1.0,
    _graph: 0.5,
    _event: 1.0,
    _synchronize: 0.5,
    _item: 0.5,
    _upload: 1.0,
    _backward: 0.7,
    _collective: 2.0,
}
"""What a part may be, and how often."""
