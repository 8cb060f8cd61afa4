"""What jobs do: the programs of their host threads, written instruction by instruction.

A program gets the `Process` that it is written for, and writes what the host threads of a rank do with kernels, layers
and collectives; a `Preset` makes a job of it, which `build_job` builds from any table of them.
"""

from ..instructions import MEMORY as MEMORY, Activity as Activity, GraphNode as GraphNode, Tensor as Tensor
from .jobs import PRESETS as PRESETS, Preset as Preset, build_job as build_job
from .layers import (
    ADD as ADD,
    CLAMP as CLAMP,
    FILL as FILL,
    GEMM as GEMM,
    GEMM_BACKWARD as GEMM_BACKWARD,
    GEMM_WEIGHT as GEMM_WEIGHT,
    MSE as MSE,
    REDUCE as REDUCE,
    THRESHOLD as THRESHOLD,
    backward as backward,
    item as item,
    sgd_step as sgd_step,
)
from .nccl import BYTES_PER_US as BYTES_PER_US, Communicator as Communicator, Work as Work, world as world
from .process import (
    AUTOGRAD as AUTOGRAD,
    COMPUTE as COMPUTE,
    MAIN as MAIN,
    Process as Process,
    Size as Size,
    gemm_us as gemm_us,
    size_bytes as size_bytes,
    stream_us as stream_us,
)
from .script import DEVICE_TO_HOST as DEVICE_TO_HOST, Script as Script
from .single_device_jobs import SIDE_STREAM as SIDE_STREAM, batch as batch, model as model, steps as steps
