"""The command trace-generate: writes the traces of a synthetic training job, and the truth about it.

For each rank it writes a host and a device trace as the PyTorch profiler does, and truth.json.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import NoReturn

from ...schema.errors import Audience, said_to
from ..command import print_json, run_command, step
from ..command_parser import CommandParser, Inputs, Output
from ..generate import PRESETS, Run, makespans_of, scale_of, simulate, sized_job, write_traces

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
        sizes = ("ranks", "steps", "layers", "size_mb", "seed", "machine_seed", "stacks")
        arguments.job = sized_job(arguments.inputs[0], **{name: getattr(arguments, name) for name in sizes})
    except ValueError as error:
        parser.error(str(error))
    run_command(_generate, arguments, NAME)


def _generate(arguments: argparse.Namespace) -> None:
    with step("simulate"):
        run = simulate(arguments.job)
        makespans = makespans_of(run.job, arguments.scalings)
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
