"""Synthetic training jobs with known truth: built, simulated by CUDA's rules, written as the profiler would.

    job = build_job("ddp", ranks=2, steps=2, layers=4, seed=1, machine=draw_machine(1))
    run = simulate(job)
    write_traces(run, "out", sync_records=True)
    changed = simulate(job, {"class:communication": 2.0})

Jobs of other programs are built from a table of one's own, presets=PRESETS | {"mine": Preset(...)}.
"""

from . import instructions as instructions, layers as layers, record as record, simulation as simulation
from .files import makespans_of, sized_job, write_traces
from .job import MEMORY, Activity, Job, Tensor
from .jobs import PRESETS, Preset, batch, build_job, model, steps
from .layers import backward, item, sgd_step
from .machine import DEFAULT, Factors, Machine, draw_machine
from .nccl import BYTES_PER_US, Communicator, Work, world
from .record import RankRun, Run, Table, as_numpy, is_recorded
from .script import AUTOGRAD, COMPUTE, DEVICE_TO_HOST, MAIN, Process, Script, Size, gemm_us, size_bytes, stream_us
from .simulation import simulate
