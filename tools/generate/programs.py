"""Programs of one device, of pipelines and of sharded models: each writes what a rank does and yields after each step.

Every program has waits that cost nothing in the base run and hold the run up once durations change.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from .job import Tensor
from .layers import (
    CAT,
    OnGradient,
    backward,
    begin_backward,
    end_backward,
    item,
    linear,
    linear_relu,
    mse_loss,
    relu,
    seed,
    sgd_step,
)
from .nccl import Buckets, Communicator, Work, hook_of, replica_buckets, world
from .script import AUTOGRAD, COMPUTE, SECOND_AUTOGRAD, Process, Script, stream_us

SIDE_STREAM = UPSTREAM = 24
DOWNSTREAM = 28
MICRO_BATCHES = 4
STAGES = 2
"""Of a pipeline that has replicas."""
REPLICAS = "data_parallel"
"""How groups of a stage's replicas are described."""
HEAD = 4
"""The last layer is so many times narrower than the others."""


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
            x = linear_relu(process, f"layers.{layer}", f"layers.{layer}.relu", x, size.hidden)
        return mse_loss(process, x, process.tensor("target", *x.shape))


def train(process: Process, step: int, loss: Tensor, buckets: Sequence[Buckets] = ()) -> None:
    """Goes back from the loss, with the gradients in the buckets, and steps; looks at every second loss."""
    backward(process, loss, [of_group.finish for of_group in buckets])
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


class Stage(NamedTuple):
    """A rank's position in its pipeline: its stage, and the number of stages."""

    number: int
    stages: int

    def layers(self, of: int) -> range:
        """Returns its share of so many layers."""
        return range(self.number * of // self.stages, (self.number + 1) * of // self.stages)

    @property
    def is_last(self) -> bool:
        """Whether it ends in the loss."""
        return self.number == self.stages - 1


def pipeline(process: Process) -> Iterator[None]:
    """Pipeline parallel: the layers are split over the ranks, which send activations on and gradients back."""
    yield from _pipelined(process, Stage(process.rank, process.size.ranks), [])


def pipeline_dp(process: Process) -> Iterator[None]:
    """Pipeline of two stages, data parallel: replicas all-reduce their gradients with the last micro-batch."""
    stage = Stage(process.rank % STAGES, STAGES)
    layers = len(stage.layers(process.size.layers))
    yield from _pipelined(process, stage, replica_buckets(process, STAGES, REPLICAS, layers))


def _pipelined(process: Process, stage: Stage, buckets: Sequence[Buckets]) -> Iterator[None]:
    size, rank, group, main = process.size, process.rank, world(process.size.ranks), process.main
    before, after = Communicator(process, group, UPSTREAM), Communicator(process, group, DOWNSTREAM)
    for _ in steps(process):
        tapes, sent = [], []
        for micro in range(MICRO_BATCHES):
            x = y = process.tensor(f"input {micro}", size.tokens // MICRO_BATCHES or 1, size.hidden)
            if stage.number > 0:
                before.receive(main, x, rank - 1).wait(main)
            reduced = buckets[0] if buckets and micro == MICRO_BATCHES - 1 else None
            for index, layer in enumerate(stage.layers(size.layers)):
                result = f"layers.{layer} of {micro}"
                y = linear(process, f"layers.{layer}", y, size.hidden, hook_of(reduced, index), result=result)
                y = relu(process, f"relu {layer} of {micro}", y)
            if stage.is_last:
                y = mse_loss(process, y, process.tensor("target", *y.shape))
            else:
                sent.append(after.send(main, y, rank + 1))
            tapes.append((process.tape, x, y))
            process.tape = []
        for micro, (process.tape, x, y) in enumerate(tapes, 1):
            if not stage.is_last:
                after.receive(main, process.gradient(y), rank + 1).wait(main)
            backward(process, y, [of_group.finish for of_group in buckets if micro == MICRO_BATCHES])
            if stage.number > 0:
                sent.append(before.send(main, process.gradient(x), rank - 1))
        for work in sent:
            work.wait(main)
        sgd_step(process)
        yield


class Unit(NamedTuple):
    """A layer's parameters as one tensor padded to whole shards, this rank's shard, and the gradients of both."""

    whole: Tensor
    shard: Tensor
    gradients: Tensor
    shard_gradients: Tensor


class Shards:
    """The units of a process, from the first layer to the last, and what of their communication is under way."""

    def __init__(self, communicator: Communicator, shapes: list[tuple[int, int]]) -> None:
        self._communicator = communicator
        self.units = [self._unit(layer, *shape) for layer, shape in enumerate(shapes)]
        self._gathering: dict[int, Work] = {}
        self._scattering: list[Work] = []
        self._filled: dict[int, list[Tensor]] = {}

    def _unit(self, layer: int, inputs: int, outputs: int) -> Unit:
        process, ranks = self._communicator.process, len(self._communicator.group.ranks)
        shard_size = -(-(inputs + 1) * outputs // ranks)
        full = process.tensor(f"unit {layer}", shard_size * ranks)
        process.view(f"layers.{layer}.weight", full, outputs, inputs)
        process.view(f"layers.{layer}.bias", full, outputs, offset=inputs * outputs)
        shard = process.tensor(f"shard {layer}", shard_size)
        gradients = process.tensor(f"gradients {layer}", shard_size * ranks)
        return Unit(full, shard, gradients, process.tensor(f"shard of gradients {layer}", shard_size))

    def use(self, script: Script, layer: int, following: int) -> None:
        """What is computed from now on has the layer; the one that is used next is on its way."""
        for number in (layer, following):
            if 0 <= number < len(self.units) and number not in self._gathering:
                unit = self.units[number]
                self._gathering[number] = self._communicator.all_gather(script, unit.whole, unit.shard)
        self._gathering.pop(layer).wait(script)

    def on_gradient(self, layer: int) -> OnGradient:
        """Returns the hook for a layer's parameters: with the gradients of both, they are reduced and scattered."""
        unit = self.units[layer]

        def hook(script: Script, parameter: Tensor, gradient: Tensor) -> None:
            self._filled.setdefault(layer, []).append(gradient)
            if len(self._filled[layer]) < 2:
                return
            gradients = tuple(self._filled.pop(layer))
            with script.op("aten::cat", (gradients, 0), (unit.gradients,), own_us=10.0):
                script.launch(CAT, COMPUTE, stream_us(*gradients, unit.gradients))
            self._scattering.append(self._communicator.reduce_scatter(script, unit.shard_gradients, unit.gradients))

        return hook

    def finish(self, script: Script) -> None:
        """At the end of backward: the compute stream waits for every shard of gradients."""
        for work in self._scattering:
            work.wait(script)
        self._scattering.clear()


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
        backward(process, loss, [shards.finish])
        process.parameters = [(unit.shard, unit.shard_gradients) for unit in shards.units]
        sgd_step(process)
        if step % 2:
            item(process, loss)
        yield
