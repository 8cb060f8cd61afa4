"""Synthetic training jobs with known truth: built, simulated by CUDA's rules, written as the profiler would.

    job = build_job("ddp", ranks=2, steps=2, layers=4, seed=1, machine=draw_machine(1))
    run = simulate(job)
    write_traces(run, "out", sync_records=True)
    changed = simulate(job, {"class:communication": 2.0})

Jobs of other programs are built from a table of one's own, presets=PRESETS | {"mine": Preset(...)}. A program gets the
`Process` that it is written for, and writes what the host threads of a rank do with kernels, layers and collectives.
"""

from . import instructions as instructions, layers as layers, record as record, simulation as simulation
from .files import makespans_of as makespans_of, sized_job as sized_job, write_traces as write_traces
from .job import MEMORY as MEMORY, Activity as Activity, Job as Job, Tensor as Tensor
from .jobs import (
    PRESETS as PRESETS,
    Preset as Preset,
    batch as batch,
    build_job as build_job,
    model as model,
    steps as steps,
)
from .layers import backward as backward, item as item, sgd_step as sgd_step
from .machine import DEFAULT as DEFAULT, Machine as Machine, draw_machine as draw_machine, scale_of as scale_of
from .nccl import BYTES_PER_US as BYTES_PER_US, Communicator as Communicator, Work as Work, world as world
from .record import RankRun as RankRun, Run as Run, Table as Table, as_numpy as as_numpy, is_recorded as is_recorded
from .script import (
    AUTOGRAD as AUTOGRAD,
    COMPUTE as COMPUTE,
    DEVICE_TO_HOST as DEVICE_TO_HOST,
    MAIN as MAIN,
    Process as Process,
    Script as Script,
    Size as Size,
    gemm_us as gemm_us,
    size_bytes as size_bytes,
    stream_us as stream_us,
)
from .simulation import simulate as simulate
