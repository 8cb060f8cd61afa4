"""The command trace-generate: writes the traces of a synthetic training job, and the truth about it.

For each rank it writes a host and a device trace as the PyTorch profiler does, and truth.json.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import NoReturn

from ...schema.errors import Audience, said_to
from ..command import print_json, run_command, step
from ..command_parser import CommandParser, Inputs, Output
from ..generate import DEFAULT, PRESETS, Job, Run, build_job, draw_machine, scale_of, simulate, sized_job, write_traces

NAME = "trace-generate"
log = logging.getLogger("execgraph")


@said_to(Audience.TERMINAL)
def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-generate and ends the process: 0 done, 1 nothing written, 2 wrong usage."""
    jobs = "\n".join(f"  {name:<14} {(preset.program.__doc__ or '').strip()}" for name, preset in PRESETS.items())
    parser = CommandParser(
        NAME,
        "Simulates a training job on CUDA devices and writes the traces that the PyTorch profiler would have written.\n"
        "Also writes the truth: what waited for what, and how long the job takes when durations change.\n\n"
        f"jobs:\n{jobs}",
        f"{NAME} ddp --ranks 2 --steps 3 -o traces --scale class:communication=2",
        Inputs("JOB", "one of the jobs above", ("--job",), max_count=1, choices=PRESETS, title="the job"),
        Output("DIR", "the folder for the traces", ("--output-dir",)),
        reads=False,
    )
    arguments = parser.parse_args(argv)
    try:
        arguments.scalings = {" ".join(specs): scale_of(specs) for specs in arguments.changes}
        arguments.simulated_job = _job(arguments)
    except ValueError as error:
        parser.error(str(error))
    run_command(_generate, arguments, NAME)


def _job(arguments: argparse.Namespace) -> Job:
    size = {name: getattr(arguments, name) for name in ("ranks", "steps", "layers")}
    machine = DEFAULT if arguments.machine_seed is None else draw_machine(arguments.machine_seed)
    job = partial(build_job, arguments.inputs[0], seed=arguments.seed, machine=machine, **size)
    if arguments.size_mb is None:
        return job()
    return sized_job(lambda steps: job(steps=steps), arguments.size_mb, stacks=arguments.stacks)


def _generate(arguments: argparse.Namespace) -> None:
    with step("simulate"):
        run = simulate(arguments.simulated_job)
        makespans = {
            text: simulate(run.job, factors, refuse_unused=True).makespan_ns
            for text, factors in arguments.scalings.items()
        }
    with step("write traces"):
        files = write_traces(
            run,
            arguments.output,
            sync_records=arguments.sync_records,
            stacks=arguments.stacks,
            compress=arguments.compress,
            makespans=makespans,
        )
    if arguments.json:
        print_json(_summary(run, makespans) | {"files": [[str(path) for path in pair] for pair in files]})
    log.info(
        "%s: %d ranks, %d events, makespan %.1f µs", run.job.name, run.job.ranks, run.events, run.makespan_ns / 1e3
    )
    log.info("%s", run.job.machine.text)
    for text, makespan_ns in makespans.items():
        log.info("%s: makespan %.1f µs", text, makespan_ns / 1e3)
    log.info("written to %s", arguments.output)


def _summary(run: Run, makespans: dict[str, int]) -> dict[str, object]:
    return {
        "job": run.job.name,
        "seed": run.job.seed,
        "machine": asdict(run.job.machine),
        "ranks": run.job.ranks,
        "events": run.events,
        "makespan_ns": run.makespan_ns,
        "makespans_ns": makespans,
    }
