"""The parts of random programs: work, events, CUDA graphs, host waits, a backward pass, collectives.

Each kind takes a draft, draws what it needs and returns the part, which writes its instructions for a rank and a step.
No part waits for what a later one does, and storages are ordered across streams as PyTorch orders them.
"""

from collections.abc import Callable

from execgraph.tools.generate import BYTES_PER_US, COMPUTE, Script, backward

from .more_instructions import launch_graph
from .random_draft import Draft, Part, Rank
from .random_ops import OPS, device_ops, draw_nest, host_ops, perhaps_work, work_on
from .random_waits import await_device, await_event, await_side_stream, read_back, read_scalar, upload
from .single_device_jobs import PINNED_BYTES_PER_US, graph_node, upload_activity

GRAPH_STREAMS = (40, 44)
# streams


def _handoff(draft: Draft) -> Part:
    """Makes one stream wait for another, now and then through a third one, and go on with what that wrote."""
    source, target = draft.two_streams()
    through = draft.random.choice((target, target, draft.stream()))
    event, onwards, recorded = f"event {draft.number()}", f"event {draft.number()}", tuple(draft.readable[source])
    written = draft.latest.get(source)
    between = perhaps_work(draft)
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


def _wait_stream(draft: Draft) -> Part:
    """Makes another stream wait for the one in use, right after recording there, and go on with what that wrote.

    This is `side.wait_stream(current_stream())`, most often followed by the way back, as `record_stream`, data-parallel
    buckets and prefetchers do it. Between the two the stream in use may go on.
    """
    source = draft.in_use
    target = draft.random.choice([stream for stream in draft.streams if stream != source] or [source])
    events = f"event {draft.number()}", f"event {draft.number()}"
    before = work_on(draft, source)
    written = draft.latest[source]
    draft.has_waited(target, draft.readable[source])
    onwards = work_on(draft, target, written)
    between = perhaps_work(draft)
    returns, result = draft.random.random() < 0.7, draft.latest[target]
    if returns:
        draft.has_waited(source, draft.readable[target])
    after = work_on(draft, source, result if returns else written)

    def write(rank: Rank, script: Script) -> None:
        before(rank, script)
        script.record(events[0], source)
        script.wait(target, events[0])
        onwards(rank, script)
        between(rank, script)
        if returns:
            script.record(events[1], target)
            script.wait(source, events[1])
        after(rank, script)

    return write


def _prefetch(draft: Draft) -> Part:
    """Copies the next batch from pinned memory on another stream, which the stream in use waits for a step later."""
    stream, target, number, us = draft.in_use, draft.stream(), draft.number(), draft.kernel_us()
    copy, nest, number_of_result = upload_activity(round(us * PINNED_BYTES_PER_US)), draw_nest(draft, 1), draft.number()

    def write(rank: Rank, script: Script) -> None:
        arrived, loaded = (f"batch {number} of {step % 2}" for step in (rank.step - 1, rank.step))
        if rank.step:
            script.wait(stream, arrived)
            batch = rank.result(number, of_last_step=True)
            nest.write(script, stream, batch, rank.result(number_of_result))
        batch = rank.result(number)
        source = rank.process.tensor(f"source {number}", *batch.shape, device="cpu")
        with script.op("aten::copy_", (batch, source, True), (batch,), own_us=8.0):
            script.copy(copy, target, us)
        script.record(loaded, target)

    return write


def _behind(draft: Draft) -> Part:
    """Makes the host, or another stream, wait for what a stream was given one step ago."""
    source, target = draft.two_streams()
    event, on_host, work = f"event {draft.number()}", draft.random.random() < 0.5, work_on(draft, source)
    nest, written, number = draw_nest(draft, 1), draft.latest[source], draft.number()

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
    """Returns all streams wait for the compute stream, which is the first."""

    def write(_: Rank, script: Script) -> None:
        script.record("forked", COMPUTE)
        for stream in streams[1:]:
            script.wait(stream, "forked")

    return write


def join(streams: tuple[int, ...]) -> Part:
    """Returns the compute stream, which is the first, waits for all others."""

    def write(_: Rank, script: Script) -> None:
        for stream in streams[1:]:
            script.record(f"joined {stream}", stream)
            script.wait(COMPUTE, f"joined {stream}")

    return write


def _graph(draft: Draft) -> Part:
    """Returns a CUDA graph of two to eight kernels on the launching stream and perhaps some others."""
    random, number, stream, host = draft.random, draft.number(), draft.stream(), draft.host_us()
    streams = (stream, *random.sample(GRAPH_STREAMS, random.randint(0, len(GRAPH_STREAMS))))
    nodes = []
    for index in range(random.randint(2, 8)):
        kernel, after = random.choice(OPS)[1], tuple(random.sample(range(index), min(index, 2)))
        nodes.append((kernel, random.choice(streams) if index else stream, draft.kernel_us(), after))

    def write(rank: Rank, script: Script) -> None:
        if number not in rank.graphs:
            rank.graphs[number] = tuple(graph_node(rank.process, *node) for node in nodes)
        script.work(host)
        launch_graph(script, rank.graphs[number], stream)

    return write


# other threads, other ranks


def _backward(draft: Draft) -> Part:
    """Returns forward ops, then a backward pass on the autograd thread with the same kinds of instructions."""
    inside = (device_ops, device_ops, host_ops, _handoff, read_scalar, await_event)
    forward = [device_ops(draft) for _ in range(draft.random.randint(1, 4))]
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
    """Returns an all-reduce, which later parts run beside; work where there is only one rank."""
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
    """Returns the wait for the collective of that number."""
    return lambda rank, script: rank.works.pop(number).wait(script)


KINDS: dict[Callable[[Draft], Part], float] = {
    device_ops: 6.0,
    host_ops: 2.0,
    _wait_stream: 6.0,
    _handoff: 2.0,
    _prefetch: 0.7,
    _behind: 1.0,
    _graph: 0.5,
    await_event: 1.0,
    await_device: 0.5,
    await_side_stream: 0.5,
    read_scalar: 0.5,
    read_back: 0.5,
    upload: 1.0,
    _backward: 0.7,
    _collective: 2.0,
}
"""What a part may be, and how often."""
