"""Synthetic training jobs with known truth: built, simulated by CUDA's rules, written as the profiler would.

job = build_job("ddp", ranks=2, steps=2, layers=4, seed=1, machine=draw_machine(1)) run = simulate(job)
write_traces(run, "out", sync_records=True) changed = simulate(job, {"class:communication": 2.0}) changed.makespan_ns

Jobs of other programs are built from a table of one's own, presets=PRESETS | {"mine": Preset(...)}; `programs` has what
they are written with.
"""

from .job import Job as Job
from .machine import DEFAULT as DEFAULT, Machine as Machine, Stalls as Stalls, draw_machine as draw_machine
from .programs import PRESETS as PRESETS, Preset as Preset, build_job as build_job
from .simulation import (
    Edges as Edges,
    RankRun as RankRun,
    Run as Run,
    as_numpy as as_numpy,
    scale_of as scale_of,
    simulate as simulate,
)
from .sized_job import sized_job as sized_job
from .writing import (
    Rows as Rows,
    correlation as correlation,
    identify as identify,
    is_recorded as is_recorded,
    write_traces as write_traces,
)
