"""The jobs by name, their programs, and how to build one.

A program writes what one rank does and yields after each step. Every one has waits that cost nothing in the base run
and hold the run up once durations change.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from . import layers, nccl
from .job import STEP, Group, Job, Step, Tensor
from .layers import Hooks, no_hooks
from .machine import DEFAULT, Machine
from .nccl import Communicator, world
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


def batch(process: Process, name: str = "batch") -> Tensor:
    """Returns a batch of the job's size: tokens × hidden."""
    return process.tensor(name, process.size.tokens, process.size.hidden)


def model(process: Process, x: Tensor) -> Tensor:
    """Returns a stack of linear layers with ReLU between, and the loss."""
    with process.main.annotation("## forward ##"):
        return layers.mse_loss(process, layers.stack(process, "layers", x, range(process.size.layers)))


def train(process: Process, step: int, loss: Tensor, parameters: list[tuple[Tensor, Tensor]] | None = None) -> None:
    """Goes back from the loss and steps, `parameters` where the optimizer has others; looks at every second loss."""
    layers.backward(process, loss)
    process.parameters = parameters or process.parameters
    layers.sgd_step(process)
    if step % 2:
        layers.item(process, loss)


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
        layers.backward(process, loss)
        layers.sgd_step(process)
        yield


def towers(process: Process) -> Iterator[None]:
    """Two models on streams of their own, whose backward passes run at once, on an autograd thread each."""
    main, depth = process.main, process.size.layers
    for step in steps(process):
        main.record("stepped", COMPUTE)
        main.wait(SIDE_STREAM, "stepped")
        tapes = {}
        for stream, thread, many in ((COMPUTE, AUTOGRAD, depth), (SIDE_STREAM, SECOND_AUTOGRAD, 1 + depth // 2)):
            process.compute = stream
            x = layers.stack(process, thread, batch(process, thread), range(many))
            loss = layers.mse_loss(process, x, f"{thread}.loss")
            layers.seed(process, loss, stream)
            tapes[thread], process.tape = process.tape, []
        process.compute = COMPUTE
        for thread, tape in tapes.items():
            process.tape = tape
            layers.begin_backward(process, thread)
        for thread in tapes:
            layers.end_backward(process, thread)
        main.record("second done", SIDE_STREAM)
        main.wait(COMPUTE, "second done")
        layers.sgd_step(process)
        if step % 2:
            layers.item(process, loss)
        yield


def pipeline(process: Process) -> Iterator[None]:
    """Pipeline parallel: the layers are split over the ranks, which send activations on and gradients back."""
    return _pipelined(process, process.size.ranks)


def pipeline_dp(process: Process) -> Iterator[None]:
    """Pipeline of two stages, data parallel: replicas all-reduce their gradients with the last micro-batch."""
    return _pipelined(process, STAGES)


def _pipelined(process: Process, stages: int) -> Iterator[None]:
    size, rank, group, main = process.size, process.rank, process.groups[0], process.main
    stage = rank % stages
    is_last = stage == stages - 1
    numbers = range(stage * size.layers // stages, (stage + 1) * size.layers // stages)
    of_replicas = nccl.replica_buckets(process, len(numbers)) if stages < size.ranks else no_hooks
    before, after = Communicator(process, group, UPSTREAM), Communicator(process, group, DOWNSTREAM)
    for _ in steps(process):
        tapes, sent = [], []
        for micro in range(MICRO_BATCHES):
            x = y = process.tensor(f"input {micro}", size.tokens // MICRO_BATCHES or 1, size.hidden)
            if stage > 0:
                before.message(main, "recv", x, rank - 1).wait(main)
            hooks = of_replicas if micro == MICRO_BATCHES - 1 else no_hooks
            for index, layer in enumerate(numbers):
                name = f"layers.{layer}"
                y = layers.linear(process, name, y, size.hidden, hooks(index), f"{name} of {micro}")
                y = layers.relu(process, f"relu {layer} of {micro}", y)
            if is_last:
                y = layers.mse_loss(process, y)
            else:
                sent.append(after.message(main, "send", y, rank + 1))
            tapes.append((process.tape, x, y))
            process.tape = []
        for process.tape, x, y in tapes:
            if not is_last:
                after.message(main, "recv", process.gradient(y), rank + 1).wait(main)
            layers.backward(process, y)
            if stage > 0:
                sent.append(before.message(main, "send", process.gradient(x), rank - 1))
        for work in sent:
            work.wait(main)
        layers.sgd_step(process)
        yield


def sharded(process: Process) -> Iterator[None]:
    """Sharded data parallel: layers are all-gathered before use, gradients reduce-scattered after, prefetched."""
    size = process.size
    widths = [*[size.hidden] * size.layers, max(1, size.hidden // HEAD)]
    communicator = Communicator(process, process.groups[0], SIDE_STREAM)
    shards = nccl.Shards(communicator, [(size.hidden, width) for width in widths])
    for step in steps(process):
        x = batch(process)
        for layer, width in enumerate(widths):
            with process.main.annotation("FullyShardedDataParallel.forward"):
                shards.use(process.main, layer, layer + 1)
                x = layers.linear(process, f"layers.{layer}", x, width, shards.on_gradient(layer))
                # before its backward the layer is gathered again, and the one before it beside that
                gather = partial(shards.use, layer=layer, following=layer - 1)
                process.differentiable("PreBackwardFunctionBackward", (process.gradient(x),), gather)
                x = layers.relu(process, f"relu {layer}", x)
        loss = layers.mse_loss(process, x)
        train(process, step, loss, [(shard, gradients) for _, shard, _, gradients in shards.units])
        yield


def ddp(process: Process) -> Iterator[None]:
    """Data parallel: gradients are all-reduced in buckets while backward computes the next ones."""
    size = process.size
    hooks = nccl.buckets(Communicator(process, process.groups[0], REDUCE_STREAM), [size.hidden] * size.layers)
    for step in steps(process):
        x = batch(process)
        with process.main.annotation("DistributedDataParallel.forward"):
            x = layers.stack(process, "layers", x, range(size.layers), hooks)
        train(process, step, layers.mse_loss(process, x))
        yield


def moe(process: Process) -> Iterator[None]:
    """Mixture of experts: tokens go to their experts and back by all-to-all, beside a shared expert."""
    return _mixture(process, process.groups[1])


def uneven(process: Process) -> Iterator[None]:
    """Mixture of experts with uneven load: every rank sends every other as many tokens as it has for it."""
    return _mixture(process, process.groups[0], is_uneven=True)


def moe_dp(process: Process) -> Iterator[None]:
    """Mixture of experts, data parallel: shared gradients are all-reduced among all, an expert's among replicas."""
    widths = [process.size.hidden] * process.size.layers
    of_shared = nccl.buckets(Communicator(process, process.groups[0], REDUCE_STREAM), widths)
    return _mixture(process, process.groups[1], of_shared, nccl.replica_buckets(process, len(widths)))


def _spread(ranks: int, tokens: int, layer: int) -> tuple[nccl.Rows, ...]:
    """Returns how many of its tokens each rank sends to each."""
    weights = [[1 + (5 * source + 3 * target + layer) % 7 for target in range(ranks)] for source in range(ranks)]
    shares = [[tokens * weight // sum(row) for weight in row] for row in weights]
    return tuple((tokens - sum(row[1:]), *row[1:]) for row in shares)


def _mixture(
    process: Process,
    experts: Group,
    of_shared: Hooks = no_hooks,
    of_experts: Hooks = no_hooks,
    *,
    is_uneven: bool = False,
) -> Iterator[None]:
    """Gradients of what is shared, and of the experts, are reduced where there are buckets for them."""
    size, communicator = process.size, Communicator(process, experts, EXCHANGE_STREAM)
    for step in steps(process):
        x = batch(process)
        for layer in range(size.layers):
            there = _spread(len(experts.ranks), x.shape[0], layer) if is_uneven else ()
            back = tuple(zip(*there, strict=True))
            dispatched = nccl.exchange(process, communicator, f"dispatch {layer}", x, there)
            shared = layers.linear(process, f"shared.{layer}", x, size.hidden, of_shared(layer))
            expert = layers.linear(process, f"experts.{layer}", dispatched(), size.hidden, of_experts(layer))
            combined = nccl.exchange(process, communicator, f"combine {layer}", expert, back)
            shared = layers.relu(process, f"shared relu {layer}", shared)
            x = layers.add(process, f"sum {layer}", shared, combined())
        train(process, step, layers.mse_loss(process, x))
        yield


def halo(process: Process) -> Iterator[None]:
    """Neighbours swap borders by a send and a receive in one kernel, and compute the inner part meanwhile."""
    main, size = process.main, process.size
    communicator = Communicator(process, process.groups[0], EXCHANGE_STREAM)
    for step in steps(process):
        x = batch(process)
        for layer in range(size.layers):
            # now with the one neighbour, now with the other
            peer = process.rank + 1 if process.rank % 2 == layer % 2 else process.rank - 1
            x = layers.stack(process, "border", x, range(layer, layer + 1))
            border = process.tensor(f"border of {layer}", *x.shape)
            swap = communicator.swap(main, x, border, peer) if 0 <= peer < size.ranks else None
            x = layers.linear(process, f"inner.{layer}", x, size.hidden)
            if swap:
                swap.wait(main)
                x = layers.add(process, f"sum {layer}", x, border)
        loss = layers.mse_loss(process, x)
        process.tape.clear()
        if step % 2:
            layers.item(process, loss)
        yield


def dlrm(process: Process) -> Iterator[None]:
    """Recommendation: embeddings by all-to-all beside the bottom layers, data-parallel top and bottom by all-reduce."""
    size, (everyone, exchanging) = process.size, process.groups
    exchanges = Communicator(process, exchanging, EXCHANGE_STREAM)
    bottom = [size.hidden] * size.layers
    hooks = nccl.buckets(Communicator(process, everyone, REDUCE_STREAM), [*bottom, 2 * size.hidden, *bottom])
    for step in steps(process):
        indices = process.tensor("indices", size.tokens, dtype="long int")
        looked_up = layers.embedding(process, "tables", indices, size.hidden)
        exchanged = nccl.exchange(process, exchanges, "pooled", looked_up)
        x = layers.stack(process, "bottom", batch(process), range(size.layers), hooks)
        x = layers.concatenate(process, "interaction", x, exchanged())
        x = layers.stack(process, "top", x, range(size.layers, 2 * size.layers + 1), hooks)
        train(process, step, layers.mse_loss(process, x))
        yield


def _everyone(ranks: int) -> tuple[Group, ...]:
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
    "ddp": Preset(ddp, Size(ranks=2), groups=_everyone),
    "moe": Preset(moe, Size(ranks=4), groups=lambda ranks: (world(ranks), *nccl.expert_groups(ranks))),
    "uneven": Preset(uneven, Size(ranks=4, layers=2), groups=_everyone),
    "pipeline": Preset(pipeline, Size(ranks=2), groups=_everyone),
    "halo": Preset(halo, Size(ranks=4), groups=_everyone),
    "dlrm": Preset(dlrm, Size(ranks=4), groups=lambda ranks: (world(ranks), world(ranks, *EXCHANGE))),
    "sharded": Preset(sharded, Size(ranks=2), groups=_everyone),
    "pipeline_dp": Preset(
        pipeline_dp,
        Size(ranks=4, layers=6),
        groups=lambda ranks: (world(ranks), *nccl.replica_groups(ranks, STAGES, REPLICAS)),
        replicas_of=STAGES,
    ),
    "moe_dp": Preset(
        moe_dp,
        Size(ranks=4, layers=3),
        groups=lambda ranks: (world(ranks), *nccl.expert_groups(ranks), *nccl.replica_groups(ranks, 2, EXPERTS)),
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
    """Returns a job of PRESETS, or another table, by default of its own size; raises ValueError if there is none."""
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
        process = Process(job, rank, size)
        for _ in preset.program(process):
            yield process.take()
        yield process.take()

    job = Job(name, seed, size.ranks, preset.threads, preset.groups(size.ranks), program, machine)
    return job
