"""The command trace-generate: writes the traces of a synthetic training job, and the truth about it."""

import argparse
from dataclasses import asdict

from ...schema.errors import WrongUsage
from ..command import log, print_json, step
from ..command_parser import Inputs, Output, command
from ..generate import DEFAULT, PRESETS, Factors, makespans_of, simulate, sized_job, write_traces

SIZES = ("ranks", "steps", "layers", "size_mb", "seed", "machine_seed", "stacks")
JOBS = "\n".join(f"  {name:<14} {(preset.program.__doc__ or '').strip()}" for name, preset in PRESETS.items())


@command(
    "trace-generate",
    "Simulates a training job on CUDA devices and writes the traces that the PyTorch profiler would have written.\n"
    "Also writes the truth: what waited for what, and how long the job takes when durations change.\n\n"
    f"jobs:\n{JOBS}",
    "ddp --ranks 2 --steps 3 -o traces --scale class:communication=2",
    Inputs("JOB", "one of the jobs above", ("--job",), max_count=1, choices=PRESETS, title="the job"),
    Output("DIR", "the folder for the traces", ("--output-dir",)),
    reads=False,
)
def main(options: argparse.Namespace) -> None:
    """Simulates a job and writes its traces."""
    changes = {" ".join(specs): specs for specs in options.changes}
    try:
        for specs in changes.values():
            Factors(specs)  # refuses them before anything is simulated
        job = sized_job(options.inputs[0], **{name: getattr(options, name) for name in SIZES})
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    with step("simulate"):
        run = simulate(job)
        makespans = makespans_of(run.job, changes)
    with step("write traces"):
        settings = {name: getattr(options, name) for name in ("sync_records", "stacks", "compress")}
        files = write_traces(run, options.output, makespans=makespans, **settings)
    if options.json:
        figures = {"ranks": job.ranks, "events": run.events, "makespan_ns": run.makespan_ns, "makespans_ns": makespans}
        names = {"job": job.name, "seed": job.seed, "machine": asdict(job.machine)}
        print_json({**names, **figures, "files": [[str(path) for path in pair] for pair in files]})
    log.info(f"{job.name}: {job.ranks} ranks, {run.events} events, makespan {run.makespan_ns / 1e3:.1f} µs")
    log.info(f"{job.machine.name}; truth.json has its figures" if job.machine != DEFAULT else job.machine.name)
    for text, makespan_ns in makespans.items():
        log.info(f"{text}: makespan {makespan_ns / 1e3:.1f} µs")
    log.info(f"written to {options.output}")
