"""Jobs whose layers are split over ranks: generators of one rank's program that yield after each step."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from .buckets import Buckets, finish_all, hook_of, replica_buckets, views_of
from .instructions import Tensor
from .layers import backward, linear, mse_loss, relu, sgd_step
from .nccl import Communicator, world
from .program_process import Process
from .single_device_jobs import steps

UPSTREAM, DOWNSTREAM = 24, 28
MICRO_BATCHES = 4
STAGES = 2
"""Of a pipeline that has replicas."""
REPLICAS = "data_parallel"
"""How groups of a stage's replicas are described."""


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
    size, rank, group = process.size, process.rank, world(process.size.ranks)
    before, after = Communicator(process, group, UPSTREAM), Communicator(process, group, DOWNSTREAM)
    for _ in steps(process):
        tapes, sent = [], []
        for micro in range(MICRO_BATCHES):
            x = process.tensor(f"input {micro}", size.tokens // MICRO_BATCHES or 1, size.hidden)
            if stage.number > 0:
                before.receive(process.main, x, rank - 1).wait(process.main)
            last = micro == MICRO_BATCHES - 1
            y = _stage(process, stage, x, micro, buckets if last else [])
            if not stage.is_last:
                sent.append(after.send(process.main, y, rank + 1))
            tapes.append((process.tape, x, y))
            process.tape = []
        for micro, (tape, x, y) in enumerate(tapes, 1):
            process.tape = tape
            if not stage.is_last:
                after.receive(process.main, process.gradient(y), rank + 1).wait(process.main)
            backward(process, y, partial(finish_all, buckets) if micro == MICRO_BATCHES else None)
            if stage.number > 0:
                sent.append(before.send(process.main, process.gradient(x), rank - 1))
        for work in sent:
            work.wait(process.main)
        sgd_step(process, views_of(buckets))
        yield


def _stage(process: Process, stage: Stage, x: Tensor, micro: int, buckets: Sequence[Buckets]) -> Tensor:
    """This rank's share of the layers for one micro-batch; the last stage's ends in the loss."""
    width = process.size.hidden
    for index, layer in enumerate(stage.layers(process.size.layers)):
        on_gradient = hook_of(next(iter(buckets), None), index)
        y = linear(process, f"layers.{layer}", x, width, on_gradient, result=f"layers.{layer} of {micro}")
        x = relu(process, f"relu {layer} of {micro}", y)
    return mse_loss(process, x, process.tensor("target", *x.shape)) if stage.is_last else x
