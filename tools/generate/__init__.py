"""Synthetic training jobs with known truth: built, simulated by CUDA's rules, written as the profiler would.

job = build_job("ddp", ranks=2, steps=2, layers=4, seed=1, machine=draw_machine(1)) run = simulate(job)
write_traces(run, "out", sync_records=True) changed = simulate(job, {"class:communication": 2.0}) changed.makespan_ns

Jobs of other programs are built from a table of one's own, presets=PRESETS | {"mine": Preset(...)}; `programs` has what
they are written with.

What jobs do: the programs of their host threads, written instruction by instruction.

A program gets the `Process` that it is written for, and writes what the host threads of a rank do with kernels, layers
and collectives; a `Preset` makes a job of it, which `build_job` builds from any table of them.

A job in, what ran when out: host threads, streams, events, collectives.

A simulated run in, the files that the profiler would have written out.
"""

from .chrome import Rows as Rows
from .device import QUEUE_LIMIT as QUEUE_LIMIT
from .engine import simulate as simulate
from .files import write_traces as write_traces
from .identity import correlation as correlation, identify as identify
from .instructions import MEMORY as MEMORY, Activity as Activity, GraphNode as GraphNode, Tensor as Tensor
from .job import Job as Job
from .jobs_by_name import PRESETS as PRESETS, Preset as Preset, build_job as build_job
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
from .machine import DEFAULT as DEFAULT, Machine as Machine, Stalls as Stalls, draw_machine as draw_machine
from .nccl import BYTES_PER_US as BYTES_PER_US, Communicator as Communicator, Work as Work, world as world
from .program_process import (
    AUTOGRAD as AUTOGRAD,
    COMPUTE as COMPUTE,
    MAIN as MAIN,
    Process as Process,
    Size as Size,
    gemm_us as gemm_us,
    size_bytes as size_bytes,
    stream_us as stream_us,
)
from .record import (
    EVENT_SYNC as EVENT_SYNC,
    NONE as NONE,
    STREAM_SYNC as STREAM_SYNC,
    STREAM_WAIT as STREAM_WAIT,
    SYNC_KINDS as SYNC_KINDS,
    Edges as Edges,
    RankRun as RankRun,
    Run as Run,
    as_numpy as as_numpy,
)
from .recorded_activities import is_recorded as is_recorded
from .scaling import scale_of as scale_of
from .script import DEVICE_TO_HOST as DEVICE_TO_HOST, Script as Script
from .single_device_jobs import SIDE_STREAM as SIDE_STREAM, batch as batch, model as model, steps as steps
from .sized_job import sized_job as sized_job
