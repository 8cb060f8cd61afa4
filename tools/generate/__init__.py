"""Synthetic training jobs with known truth: a job is built, simulated under CUDA semantics, and written as the
profiler would.

job = build_job("ddp", ranks=2, steps=2, layers=4, seed=1, machine=draw_machine(1))
run = simulate(job)
write_traces(run, "out", sync_records=True)
changed = simulate(job, {"class:communication": 2.0})
changed.makespan_ns
"""

from .engine import simulate
from .files import RankFiles, write_traces
from .job import Job
from .jobs import NAMED, PRESETS, RANDOM, build_job
from .machine import DEFAULT, Machine, draw_machine
from .record import RankRun, Run
from .scaling import scale_of

__all__ = [
    "DEFAULT",
    "NAMED",
    "PRESETS",
    "RANDOM",
    "Job",
    "Machine",
    "RankFiles",
    "RankRun",
    "Run",
    "build_job",
    "draw_machine",
    "scale_of",
    "simulate",
    "write_traces",
]
