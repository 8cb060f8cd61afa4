"""The jobs by name, their programs, and how to build one.

A program writes what one rank does and yields after each step. Every one has waits that cost nothing in the base run
and hold the run up once durations change.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from .job import STEP, Group, Job, Step, Tensor
from .layers import (
    add,
    backward,
    begin_backward,
    concatenate,
    embedding,
    end_backward,
    item,
    linear,
    linear_relu,
    mse_loss,
    relu,
    seed,
    sgd_step,
)
from .machine import DEFAULT, Machine
from .nccl import Buckets, Communicator, Rows, Shards, exchange, expert_groups, replica_buckets, replica_groups, world
from .script import AUTOGRAD, COMPUTE, MAIN, SECOND_AUTOGRAD, Process, Size

SIDE_STREAM = UPSTREAM = REDUCE_STREAM = 24
DOWNSTREAM = EXCHANGE_STREAM = 28
MICRO_BATCHES = 4
STAGES = 2
"""Of a pipeline that has replicas."""
EXCHANGE = "1", "exchange"
"""Name and description of a second group of all ranks."""
REPLICAS, EXPERTS = "data_parallel", "expert_data_parallel"
"""How groups of a stage's, and of an expert's, replicas are described."""
HEAD = 4
"""The last layer is so many times narrower than the others."""


def steps(process: Process) -> Iterator[int]:
    """Yields the training steps, each in its annotation; the profiler waits for the device after the last one."""
    process.main.work(process.random.uniform(2.0, 4.0))
    for step in range(process.size.steps):
        with process.main.annotation(f"{STEP}{step}", own_us=0.1):
            yield step
    process.main.synchronize_device()


def model(process: Process, x: Tensor) -> Tensor:
    """Returns a stack of linear layers with ReLU between, and the loss."""
    size = process.size
    with process.main.annotation("## forward ##"):
        for layer in range(size.layers):
            x = linear_relu(process, f"layers.{layer}", f"layers.{layer}.relu", x, size.hidden)
        return mse_loss(process, x, process.tensor("target", *x.shape))


def train(process: Process, step: int, loss: Tensor, parameters: list[tuple[Tensor, Tensor]] | None = None) -> None:
    """Goes back from the loss and steps, `parameters` where the optimizer has others; looks at every second loss."""
    backward(process, loss)
    process.parameters = parameters or process.parameters
    sgd_step(process)
    if step % 2:
        item(process, loss)


def batch(process: Process, name: str = "batch") -> Tensor:
    """Returns a batch of the job's size: tokens × hidden."""
    return process.tensor(name, process.size.tokens, process.size.hidden)


def simple(process: Process) -> Iterator[None]:
    """One stream: forward, backward, optimizer; loss.item() in every second step."""
    for step in steps(process):
        train(process, step, model(process, batch(process)))
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
            x = batch(process, thread)
            for layer in range(many):
                x = linear_relu(process, f"{thread}.{layer}", f"{thread}.{layer}.relu", x, process.size.hidden)
            loss = mse_loss(process, x, batch(process, f"{thread}.target"), f"{thread}.loss")
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


def pipeline(process: Process) -> Iterator[None]:
    """Pipeline parallel: the layers are split over the ranks, which send activations on and gradients back."""
    yield from _pipelined(process, process.size.ranks)


def pipeline_dp(process: Process) -> Iterator[None]:
    """Pipeline of two stages, data parallel: replicas all-reduce their gradients with the last micro-batch."""
    yield from _pipelined(process, STAGES)


def _pipelined(process: Process, stages: int) -> Iterator[None]:
    size, rank, group, main = process.size, process.rank, world(process.size.ranks), process.main
    stage = rank % stages
    is_last = stage == stages - 1
    layers = range(stage * size.layers // stages, (stage + 1) * size.layers // stages)
    buckets = replica_buckets(process, stages, REPLICAS, len(layers))
    before, after = Communicator(process, group, UPSTREAM), Communicator(process, group, DOWNSTREAM)
    for _ in steps(process):
        tapes, sent = [], []
        for micro in range(MICRO_BATCHES):
            x = y = process.tensor(f"input {micro}", size.tokens // MICRO_BATCHES or 1, size.hidden)
            if stage > 0:
                before.receive(main, x, rank - 1).wait(main)
            reducing = buckets if micro == MICRO_BATCHES - 1 else None
            for index, layer in enumerate(layers):
                hook = reducing.layer(index) if reducing else None
                y = linear(process, f"layers.{layer}", y, size.hidden, hook, result=f"layers.{layer} of {micro}")
                y = relu(process, f"relu {layer} of {micro}", y)
            if is_last:
                y = mse_loss(process, y, process.tensor("target", *y.shape))
            else:
                sent.append(after.send(main, y, rank + 1))
            tapes.append((process.tape, x, y))
            process.tape = []
        for process.tape, x, y in tapes:
            if not is_last:
                after.receive(main, process.gradient(y), rank + 1).wait(main)
            backward(process, y)
            if stage > 0:
                sent.append(before.send(main, process.gradient(x), rank - 1))
        for work in sent:
            work.wait(main)
        sgd_step(process)
        yield


def sharded(process: Process) -> Iterator[None]:
    """Sharded data parallel: layers are all-gathered before use, gradients reduce-scattered after, prefetched."""
    size = process.size
    widths = [*[size.hidden] * size.layers, max(1, size.hidden // HEAD)]
    shards = Shards(Communicator(process, world(size.ranks), SIDE_STREAM), [(size.hidden, width) for width in widths])
    for step in steps(process):
        x = batch(process)
        for layer, width in enumerate(widths):
            with process.main.annotation("FullyShardedDataParallel.forward"):
                shards.use(process.main, layer, layer + 1)
                x = linear(process, f"layers.{layer}", x, width, shards.on_gradient(layer))
                # before its backward the layer is gathered again, and the one before it beside that
                gather = partial(shards.use, layer=layer, following=layer - 1)
                process.differentiable("PreBackwardFunctionBackward", (process.gradient(x),), gather)
                x = relu(process, f"relu {layer}", x)
        loss = mse_loss(process, x, process.tensor("target", *x.shape))
        train(process, step, loss, [(shard, gradients) for _, shard, _, gradients in shards.units])
        yield


def ddp(process: Process) -> Iterator[None]:
    """Data parallel: gradients are all-reduced in buckets while backward computes the next ones."""
    size = process.size
    communicator = Communicator(process, world(size.ranks), REDUCE_STREAM)
    buckets = Buckets(communicator, [size.hidden] * size.layers)
    for step in steps(process):
        x = batch(process)
        with process.main.annotation("DistributedDataParallel.forward"):
            for layer in range(size.layers):
                x = linear_relu(process, f"layers.{layer}", f"relu {layer}", x, size.hidden, buckets.layer(layer))
        train(process, step, mse_loss(process, x, batch(process, "target")))
        yield


def moe(process: Process) -> Iterator[None]:
    """Mixture of experts: tokens go to their experts and back by all-to-all, beside a shared expert."""
    group = next(group for group in expert_groups(process.size.ranks) if process.rank in group.ranks)
    yield from _mixture(process, Communicator(process, group, EXCHANGE_STREAM))


def uneven(process: Process) -> Iterator[None]:
    """Mixture of experts with uneven load: every rank sends every other as many tokens as it has for it."""
    yield from _mixture(process, Communicator(process, world(process.size.ranks), EXCHANGE_STREAM), is_uneven=True)


def _spread(ranks: int, tokens: int, layer: int) -> tuple[Rows, ...]:
    """Returns how many of its tokens each rank sends to each."""
    weights = [[1 + (5 * source + 3 * target + layer) % 7 for target in range(ranks)] for source in range(ranks)]
    shares = [[tokens * weight // sum(row) for weight in row] for row in weights]
    return tuple((tokens - sum(row[1:]), *row[1:]) for row in shares)


def moe_dp(process: Process) -> Iterator[None]:
    """Mixture of experts, data parallel: shared gradients are all-reduced among all, an expert's among replicas."""
    size, rank = process.size, process.rank
    experts = next(group for group in expert_groups(size.ranks) if rank in group.ranks)
    of_all = Communicator(process, world(size.ranks), REDUCE_STREAM)
    of_shared = Buckets(of_all, [size.hidden] * size.layers)
    of_experts = replica_buckets(process, len(experts.ranks), EXPERTS, size.layers)
    yield from _mixture(process, Communicator(process, experts, EXCHANGE_STREAM), of_shared, of_experts)


def _mixture(
    process: Process,
    communicator: Communicator,
    of_shared: Buckets | None = None,
    of_experts: Buckets | None = None,
    *,
    is_uneven: bool = False,
) -> Iterator[None]:
    """Gradients of what is shared, and of the experts, are reduced where there are buckets for them."""
    size, ranks = process.size, len(communicator.group.ranks)
    for step in steps(process):
        x = batch(process)
        for layer in range(size.layers):
            there = _spread(ranks, x.shape[0], layer) if is_uneven else ()
            back = tuple(zip(*there, strict=True))
            dispatched = exchange(process, communicator, f"dispatch {layer}", x, there)
            hook = of_shared.layer(layer) if of_shared else None
            shared = linear(process, f"shared.{layer}", x, size.hidden, hook)
            received = dispatched()
            hook = of_experts.layer(layer) if of_experts else None
            expert = linear(process, f"experts.{layer}", received, size.hidden, hook)
            combined = exchange(process, communicator, f"combine {layer}", expert, back)
            shared = relu(process, f"shared relu {layer}", shared)
            x = add(process, f"sum {layer}", shared, combined())
        train(process, step, mse_loss(process, x, batch(process, "target")))
        yield


def halo(process: Process) -> Iterator[None]:
    """Neighbours swap borders by a send and a receive in one kernel, and compute the inner part meanwhile."""
    main, size = process.main, process.size
    communicator = Communicator(process, world(size.ranks), EXCHANGE_STREAM)
    for step in steps(process):
        x = batch(process)
        for layer in range(size.layers):
            # now with the one neighbour, now with the other
            peer = process.rank + 1 if process.rank % 2 == layer % 2 else process.rank - 1
            x = linear_relu(process, f"border.{layer}", f"relu {layer}", x, size.hidden)
            border = process.tensor(f"border of {layer}", *x.shape)
            swap = communicator.swap(main, x, border, peer) if 0 <= peer < size.ranks else None
            x = linear(process, f"inner.{layer}", x, size.hidden)
            if swap:
                swap.wait(main)
                x = add(process, f"sum {layer}", x, border)
        loss = mse_loss(process, x, batch(process, "target"))
        process.tape.clear()
        if step % 2:
            item(process, loss)
        yield


def dlrm(process: Process) -> Iterator[None]:
    """Recommendation: embeddings by all-to-all beside the bottom layers, data-parallel top and bottom by all-reduce."""
    size = process.size
    exchanges = Communicator(process, world(size.ranks, *EXCHANGE), EXCHANGE_STREAM)
    reductions = Communicator(process, world(size.ranks), REDUCE_STREAM)
    bottom = [size.hidden] * size.layers
    buckets = Buckets(reductions, [*bottom, 2 * size.hidden, *bottom])
    for step in steps(process):
        looked_up = embedding(process, "tables", process.tensor("indices", size.tokens, dtype="long int"), size.hidden)
        exchanged = exchange(process, exchanges, "pooled", looked_up)
        x = batch(process)
        for layer in range(size.layers):
            hook = buckets.layer(layer)
            x = linear_relu(process, f"bottom.{layer}", f"bottom relu {layer}", x, size.hidden, hook)
        x = concatenate(process, "interaction", x, exchanged())
        for layer in range(size.layers, 2 * size.layers + 1):
            x = linear_relu(process, f"top.{layer}", f"top relu {layer}", x, size.hidden, buckets.layer(layer))
        train(process, step, mse_loss(process, x, batch(process, "target")))
        yield


def _one_group(ranks: int) -> tuple[Group, ...]:
    return (world(ranks),)


class Preset(NamedTuple):
    """A job's program, its default size, its host threads, and its process groups for a number of ranks."""

    program: Callable[[Process], Iterator[None]]
    size: Size
    threads: tuple[str, ...] = (MAIN, AUTOGRAD)
    groups: Callable[[int], tuple[Group, ...]] = lambda _: ()
    replicas_of: int = 1
    """How many ranks a replica of the model is spread over."""


PRESETS = {
    "simple": Preset(simple, Size()),
    "hostbound": Preset(hostbound, Size(layers=8, tokens=64, hidden=64)),
    "event_sync": Preset(event_sync, Size(steps=4, layers=8, tokens=1536, hidden=1024)),
    "towers": Preset(towers, Size(tokens=1024, hidden=1024), threads=(MAIN, AUTOGRAD, SECOND_AUTOGRAD)),
    "ddp": Preset(ddp, Size(ranks=2), groups=_one_group),
    "moe": Preset(moe, Size(ranks=4), groups=lambda ranks: (world(ranks), *expert_groups(ranks))),
    "uneven": Preset(uneven, Size(ranks=4, layers=2), groups=_one_group),
    "pipeline": Preset(pipeline, Size(ranks=2), groups=_one_group),
    "halo": Preset(halo, Size(ranks=4), groups=_one_group),
    "dlrm": Preset(dlrm, Size(ranks=4), groups=lambda ranks: (world(ranks), world(ranks, *EXCHANGE))),
    "sharded": Preset(sharded, Size(ranks=2), groups=_one_group),
    "pipeline_dp": Preset(
        pipeline_dp,
        Size(ranks=4, layers=6),
        groups=lambda ranks: (world(ranks), *replica_groups(ranks, STAGES, REPLICAS)),
        replicas_of=STAGES,
    ),
    "moe_dp": Preset(
        moe_dp,
        Size(ranks=4, layers=3),
        groups=lambda ranks: (world(ranks), *expert_groups(ranks), *replica_groups(ranks, 2, EXPERTS)),
        replicas_of=2,
    ),
}


def build_job(
    name: str,
    *,
    presets: Mapping[str, Preset] = PRESETS,
    seed: int = 0,
    machine: Machine = DEFAULT,
    **sizes: int | None,
) -> Job:
    """Returns a job of PRESETS, or of another table, on a machine; its own sizes (see Size) where none are given.

    Raises ValueError for an unknown name or a size that the job cannot have.
    """
    if name not in presets:
        raise ValueError(f"{name}: no such job, there are {', '.join(presets)}")
    preset = presets[name]
    size = preset.size._replace(**{key: value for key, value in sizes.items() if value is not None})
    if too_small := [f"{key} {value}" for key, value in size._asdict().items() if value < 1]:
        raise ValueError(f"{name}: {', '.join(too_small)}: give 1 or more")
    if preset.size.ranks > 1 and size.ranks < 2:
        raise ValueError(f"{name}: its ranks communicate, give it at least 2")
    if size.ranks % preset.replicas_of:
        raise ValueError(f"{name}: a replica is {preset.replicas_of} ranks, give it a multiple of them")

    def program(rank: int) -> Iterator[Step]:
        process = Process(rank, seed, size, preset.threads, machine)
        for _ in preset.program(process):
            yield process.take()
        yield process.take()

    return Job(name, seed, size.ranks, preset.threads, preset.groups(size.ranks), program, machine)
