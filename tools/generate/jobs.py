"""The jobs by name, how to build one, and the programs whose ranks exchange gradients, tokens, borders or embeddings.

A program writes what one rank does and yields after each step. Every one has waits that cost nothing in the base run
and hold the run up once durations change.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .job import Group, Job, Step, Tensor
from .layers import accumulate_into, add, concatenate, embedding, item, linear, linear_relu, mse_loss, relu
from .machine import DEFAULT, Machine
from .nccl import (
    Buckets,
    Communicator,
    Rows,
    Work,
    expert_groups,
    hook_of,
    layer_buckets,
    replica_buckets,
    replica_groups,
    second_world,
    world,
)
from .programs import (
    REPLICAS,
    STAGES,
    batch,
    event_sync,
    hostbound,
    pipeline,
    pipeline_dp,
    sharded,
    simple,
    steps,
    towers,
    train,
)
from .script import AUTOGRAD, MAIN, SECOND_AUTOGRAD, Process, Script, Size

REDUCE_STREAM, EXCHANGE_STREAM = 24, 28
EXPERTS = "expert_data_parallel"
"""How groups of an expert's replicas are described."""
Program = Callable[[Process], Iterator[None]]
"""Writes one rank's program and yields after each step."""


def ddp(process: Process) -> Iterator[None]:
    """Data parallel: gradients are all-reduced in buckets while backward computes the next ones."""
    size = process.size
    communicator = Communicator(process, world(size.ranks), REDUCE_STREAM)
    buckets = layer_buckets(communicator, size.layers)
    for step in steps(process):
        x = batch(process)
        with process.main.annotation("DistributedDataParallel.forward"):
            for layer in range(size.layers):
                x = linear_relu(process, f"layers.{layer}", f"relu {layer}", x, size.hidden, buckets.layer(layer))
        train(process, step, mse_loss(process, x, batch(process, "target")), [buckets])
        yield


class Exchange:
    """A differentiable all-to-all in two halves: what lies between request and wait runs beside it, in backward too.

    `rows` are those that each member sends to each, equally many where they are not given.
    """

    def __init__(
        self, process: Process, communicator: Communicator, name: str, sent: Tensor, rows: tuple[Rows, ...] = ()
    ) -> None:
        self._process, self._communicator, self._sent = process, communicator, sent
        self._sent_rows = rows[communicator.group_rank] if rows else ()
        self._received_rows = tuple(row[communicator.group_rank] for row in rows)
        arrived = sum(self._received_rows) if rows else sent.shape[0]
        self._received = process.tensor(f"{name}.received", arrived, *sent.shape[1:])
        self._returned = process.tensor(f"{name}.returned", *sent.shape)

    def request(self) -> None:
        """Begins the exchange on the main thread, and writes to the tape how backward ends its own."""
        process, sent, received = self._process, self._sent, self._received

        def body(script: Script) -> None:
            self._back.wait(script)
            accumulate_into(script, process.gradient(sent), self._returned)

        with process.main.op("All2All_Req", (sent,), (received,), sequence=process.sequence):
            process.differentiable("All2All_ReqBackward", (process.gradient(sent),), body)
            rows = self._sent_rows, self._received_rows
            self._forth = self._communicator.all_to_all(process.main, received, sent, rows)

    def wait(self) -> Tensor:
        """Waits for the rows and returns them; writes to the tape how backward begins its own exchange."""
        process, received = self._process, self._received
        gradient = process.gradient(received)

        def body(script: Script) -> None:
            rows = self._received_rows, self._sent_rows
            self._back: Work = self._communicator.all_to_all(script, self._returned, gradient, rows)

        with process.main.op("All2All_Wait", (received,), (received,), sequence=process.sequence):
            process.differentiable("All2All_WaitBackward", (gradient,), body)
            self._forth.wait(process.main)
        return received


def moe(process: Process) -> Iterator[None]:
    """Mixture of experts: tokens go to their experts and back by all-to-all, beside a shared expert."""
    group = next(group for group in expert_groups(process.size.ranks) if process.rank in group.ranks)
    yield from _mixture(process, Communicator(process, group, EXCHANGE_STREAM))


def uneven(process: Process) -> Iterator[None]:
    """Mixture of experts with uneven load: every rank sends every other as many tokens as it has for it."""
    yield from _mixture(process, Communicator(process, world(process.size.ranks), EXCHANGE_STREAM), _spread)


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
    buckets = [layer_buckets(of_all, size.layers), *replica_buckets(process, len(experts.ranks), EXPERTS, size.layers)]
    yield from _mixture(process, Communicator(process, experts, EXCHANGE_STREAM), buckets=buckets)


def _mixture(
    process: Process,
    communicator: Communicator,
    spread: Callable[[int, int, int], tuple[Rows, ...]] | None = None,
    buckets: Sequence[Buckets] = (),
) -> Iterator[None]:
    """`buckets` are those of the gradients of what is shared, and of the experts, where these are reduced."""
    size, ranks = process.size, len(communicator.group.ranks)
    of_shared, of_experts = [*buckets, None, None][:2]
    for step in steps(process):
        x = batch(process)
        for layer in range(size.layers):
            there = spread(ranks, x.shape[0], layer) if spread else ()
            back = tuple(zip(*there, strict=True))
            dispatch = Exchange(process, communicator, f"dispatch {layer}", x, there)
            dispatch.request()
            shared = linear(process, f"shared.{layer}", x, size.hidden, hook_of(of_shared, layer))
            expert = linear(process, f"experts.{layer}", dispatch.wait(), size.hidden, hook_of(of_experts, layer))
            combine = Exchange(process, communicator, f"combine {layer}", expert, back)
            combine.request()
            shared = relu(process, f"shared relu {layer}", shared)
            x = add(process, f"sum {layer}", shared, combine.wait())
        train(process, step, mse_loss(process, x, batch(process, "target")), buckets)
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
    exchanges = Communicator(process, second_world(size.ranks), EXCHANGE_STREAM)
    reductions = Communicator(process, world(size.ranks), REDUCE_STREAM)
    shapes = [*[(size.hidden, size.hidden)] * size.layers, (2 * size.hidden, size.hidden)]
    buckets = Buckets(reductions, [*shapes, *[(size.hidden, size.hidden)] * size.layers])
    for step in steps(process):
        looked_up = embedding(process, "tables", process.tensor("indices", size.tokens, dtype="long int"), size.hidden)
        exchange = Exchange(process, exchanges, "pooled", looked_up)
        exchange.request()
        x = batch(process)
        for layer in range(size.layers):
            hook = buckets.layer(layer)
            x = linear_relu(process, f"bottom.{layer}", f"bottom relu {layer}", x, size.hidden, hook)
        x = concatenate(process, "interaction", x, exchange.wait())
        for layer in range(size.layers, 2 * size.layers + 1):
            x = linear_relu(process, f"top.{layer}", f"top relu {layer}", x, size.hidden, buckets.layer(layer))
        train(process, step, mse_loss(process, x, batch(process, "target")), [buckets])
        yield


def _one_group(ranks: int) -> tuple[Group, ...]:
    return (world(ranks),)


class Preset(NamedTuple):
    """A job's program, its default size, its host threads, and its process groups for a number of ranks."""

    program: Program
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
    "dlrm": Preset(dlrm, Size(ranks=4), groups=lambda ranks: (world(ranks), second_world(ranks))),
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
    ranks: int | None = None,
    steps: int | None = None,
    layers: int | None = None,
    tokens: int | None = None,
    hidden: int | None = None,
    seed: int = 0,
    machine: Machine = DEFAULT,
) -> Job:
    """Yields a job of PRESETS, or of another table, on a machine, with its own size where none is given.

    Raises ValueError for an unknown name or a size that the job cannot have.
    """
    if name not in presets:
        raise ValueError(f"{name}: no such job, there are {', '.join(presets)}")
    preset = presets[name]
    sizes = {"ranks": ranks, "steps": steps, "layers": layers, "tokens": tokens, "hidden": hidden}
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
