"""Synthetic training jobs with known truth: a job is built, simulated under CUDA semantics, and written as the
profiler would.

job = build_job("ddp", ranks=2, steps=2, layers=4, seed=1, machine=draw_machine(1))
run = simulate(job)
write_traces(run, "out", sync_records=True)
changed = simulate(job, {"class:communication": 2.0})
changed.makespan_ns
"""

from .job import Job
from .machine import DEFAULT, Machine, Stalls, draw_machine
from .programs import NAMED, PRESETS, RANDOM, build_job
from .simulation import Edges, RankRun, Run, as_numpy, scale_of, simulate
from .writing import RankFiles, Rows, correlation, identify, shown, write_traces

__all__ = [
    "DEFAULT",
    "NAMED",
    "PRESETS",
    "RANDOM",
    "Edges",
    "Job",
    "Machine",
    "RankFiles",
    "RankRun",
    "Rows",
    "Run",
    "Stalls",
    "as_numpy",
    "build_job",
    "correlation",
    "draw_machine",
    "identify",
    "scale_of",
    "shown",
    "simulate",
    "write_traces",
]
