"""DistributedDataParallel's reducer, which all-reduces gradients a bucket at a time while backward goes on."""

from collections.abc import Sequence

from .instructions import Activity, Tensor
from .layers import OnGradient
from .nccl import Communicator, Work, replica_groups
from .program_process import COMPUTE, Process, stream_us
from .script import Script

REPLICAS_STREAM = 32
SCALE = Activity(
    "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, MulFunctor<float> > >"
)


LAYERS_PER_BUCKET = 2


class Buckets:
    """Gradient buckets, each shared by LAYERS_PER_BUCKET layers of `inputs` × `outputs` weights and their biases."""

    def __init__(self, communicator: Communicator, shapes: list[tuple[int, int]]) -> None:
        self._communicator, self._process = communicator, communicator.process
        self._shapes = shapes
        self._works: list[Work] = []
        self._filled: dict[int, int] = {}
        self.views: dict[Tensor, Tensor] = {}
        """By parameter the gradient that the optimizer takes."""

    def layer(self, number: int) -> OnGradient:
        """Returns the hook for the parameters of a layer."""
        bucket = number // LAYERS_PER_BUCKET
        members = self._shapes[bucket * LAYERS_PER_BUCKET : (bucket + 1) * LAYERS_PER_BUCKET]
        size = sum((inputs + 1) * outputs for inputs, outputs in members)
        flat = self._process.tensor(f"bucket {self._communicator.stream} {bucket}", size)

        def on_gradient(script: Script, parameter: Tensor, gradient: Tensor) -> None:
            offset = self._filled.get(bucket, 0)
            self._filled[bucket] = offset + parameter.numel
            self._scale(script, parameter, gradient, flat, offset)
            if self._filled[bucket] == flat.numel:
                self._works.append(self._communicator.all_reduce(script, flat))

        return on_gradient

    def _scale(self, script: Script, parameter: Tensor, gradient: Tensor, bucket: Tensor, offset: int) -> None:
        view = self._process.view(f"bucket view {parameter.id}", bucket, *parameter.shape, offset=offset)
        self.views[parameter] = view
        with (
            script.op("torch::distributed::reducer::mul_out", (view, gradient, 0.5), (view,)),
            script.op("aten::mul", (gradient, 0.5, view), (view,), own_us=8.0),
        ):
            script.launch(SCALE, COMPUTE, stream_us((gradient, view)))

    def finish(self, script: Script) -> None:
        """At the end of backward: the compute stream waits for every bucket."""
        for work in self._works:
            work.wait(script)
        self._works.clear()
        self._filled.clear()


def layer_buckets(communicator: Communicator, layers: int) -> Buckets:
    """Returns the buckets of so many layers of the job's width."""
    width = communicator.process.size.hidden
    return Buckets(communicator, [(width, width)] * layers)


def replica_buckets(process: Process, of: int, description: str, layers: int) -> list[Buckets]:
    """Returns the buckets that a rank shares with its replicas, one in every `of` ranks; none without replicas."""
    group = replica_groups(process.size.ranks, of, description)[process.rank % of]
    return [layer_buckets(Communicator(process, group, REPLICAS_STREAM), layers)] if len(group.ranks) > 1 else []


def hook_of(buckets: Buckets | None, layer: int) -> OnGradient | None:
    """Returns the hook for the parameters of a layer, where there are buckets."""
    return buckets.layer(layer) if buckets else None


def finish_all(buckets: Sequence[Buckets], script: Script) -> None:
    """At the end of backward: the compute stream waits for the buckets of each group."""
    for of_group in buckets:
        of_group.finish(script)


def views_of(buckets: Sequence[Buckets]) -> dict[Tensor, Tensor]:
    """Returns the gradients that the optimizer takes, by parameter."""
    return {parameter: view for of_group in buckets for parameter, view in of_group.views.items()}
