"""Fully sharded data parallel: a rank holds a shard of each layer and gathers a layer only while it uses it.

As FullyShardedDataParallel runs it: the next layer is gathered while one computes, and the gradients of a layer go out
as shards.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .instructions import Tensor
from .layers import CAT, OnGradient, backward, item, linear, mse_loss, relu, sgd_step
from .nccl import Communicator, Work, world
from .program_process import COMPUTE, Process, stream_us
from .script import Script
from .single_device_jobs import batch, steps

STREAM = 24
HEAD = 4
"""The last layer is so many times narrower than the others."""


class Unit(NamedTuple):
    """A layer's parameters as one tensor padded to whole shards, this rank's shard, and the gradients of both."""

    whole: Tensor
    shard: Tensor
    gradients: Tensor
    shard_gradients: Tensor


class Shards:
    """The units of a process, from the first layer to the last, and what of their communication is under way."""

    def __init__(self, communicator: Communicator, shapes: list[tuple[int, int]]) -> None:
        self._communicator, self._process = communicator, communicator.process
        self._units = [self._unit(layer, *shape) for layer, shape in enumerate(shapes)]
        self._gathering: dict[int, Work] = {}
        self._scattering: list[Work] = []
        self._filled: dict[int, list[Tensor]] = {}

    def _unit(self, layer: int, inputs: int, outputs: int) -> Unit:
        process, ranks = self._process, len(self._communicator.group.ranks)
        shard_size = -(-(inputs + 1) * outputs // ranks)
        full = process.tensor(f"unit {layer}", shard_size * ranks)
        process.view(f"layers.{layer}.weight", full, outputs, inputs)
        process.view(f"layers.{layer}.bias", full, outputs, offset=inputs * outputs)
        shard = process.tensor(f"shard {layer}", shard_size)
        gradients = process.tensor(f"gradients {layer}", shard_size * ranks)
        return Unit(full, shard, gradients, process.tensor(f"shard of gradients {layer}", shard_size))

    def gather(self, script: Script, layer: int) -> None:
        """Begins to gather a layer, if it is there and not on its way."""
        if 0 <= layer < len(self._units) and layer not in self._gathering:
            unit = self._units[layer]
            self._gathering[layer] = self._communicator.all_gather(script, unit.whole, unit.shard)

    def use(self, script: Script, layer: int, following: int) -> None:
        """What is computed from now on has the layer; the one that is used next is on its way."""
        self.gather(script, layer)
        self.gather(script, following)
        self._gathering.pop(layer).wait(script)

    def on_gradient(self, layer: int) -> OnGradient:
        """Returns the hook for a layer's parameters: with the gradients of both, they are reduced and scattered."""

        def hook(script: Script, parameter: Tensor, gradient: Tensor) -> None:
            gradients_ready = self._filled.setdefault(layer, [])
            gradients_ready.append(gradient)
            if len(gradients_ready) == 2:
                self._scatter(script, self._units[layer], tuple(self._filled.pop(layer)))

        return hook

    def _scatter(self, script: Script, unit: Unit, gradients: tuple[Tensor, ...]) -> None:
        with script.op("aten::cat", (gradients, 0), (unit.gradients,), own_us=10.0):
            script.launch(CAT, COMPUTE, stream_us((*gradients, unit.gradients)))
        work = self._communicator.reduce_scatter(script, unit.shard_gradients, unit.gradients)
        self._scattering.append(work)

    def finish(self, script: Script) -> None:
        """At the end of backward: the compute stream waits for every shard of gradients."""
        for work in self._scattering:
            work.wait(script)
        self._scattering.clear()

    @property
    def parameters(self) -> list[tuple[Tensor, Tensor]]:
        """What the optimizer steps: this rank's shards and their gradients."""
        return [(unit.shard, unit.shard_gradients) for unit in self._units]


def sharded(process: Process) -> Iterator[None]:
    """Sharded data parallel: layers are all-gathered before use, gradients reduce-scattered after, prefetched."""
    size = process.size
    widths = [*[size.hidden] * size.layers, max(1, size.hidden // HEAD)]
    shards = Shards(Communicator(process, world(size.ranks), STREAM), [(size.hidden, width) for width in widths])
    for step in steps(process):
        x = batch(process)
        for layer, width in enumerate(widths):
            with process.main.annotation("FullyShardedDataParallel.forward"):
                shards.use(process.main, layer, layer + 1)
                x = linear(process, f"layers.{layer}", x, width, shards.on_gradient(layer))
                _gather_before_backward(process, shards, layer, x)
                x = relu(process, f"relu {layer}", x)
        loss = mse_loss(process, x, process.tensor("target", *x.shape))
        backward(process, loss, shards.finish)
        process.parameters = shards.parameters
        sgd_step(process)
        if step % 2:
            item(process, loss)
        yield


def _gather_before_backward(process: Process, shards: Shards, layer: int, y: Tensor) -> None:
    """Puts on the tape that the layer is gathered again before its backward, and the one before it beside that."""

    def body(script: Script) -> None:
        shards.use(script, layer, layer - 1)

    process.differentiable("PreBackwardFunctionBackward", (process.gradient(y),), body)
