"""The command trace-scale: the graphs of the same program with more ranks, or fewer."""

import argparse
import logging
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ...schema.errors import Audience, DataError, said_to
from ..command import print_json, progress, run_command
from ..command_parser import CommandParser, Inputs, Output
from ..options import REFUSED
from ..terminal import print_text, summary_line
from ..workers import in_processes

if TYPE_CHECKING:
    from ...converter.scaling import Growth
    from ..job import ScaleReport

NAME = "trace-scale"
log = logging.getLogger("execgraph")


@said_to(Audience.TERMINAL)
def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-scale and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Makes graphs of the same program on more ranks, or fewer, from the graphs of a traced job. Copies of the job "
        "join its\n"
        "data-parallel groups. Members wait for each other in a collective as they did. Its transfer takes a latency "
        "for each\n"
        "step and a time for each byte, fitted to the job's collectives.",
        f"{NAME} graphs -o graphs-64 --data-parallel 16",
        Inputs(
            "GRAPHS",
            "the folder with the graphs of the ranks, as trace-build writes them",
            ("--input-dir",),
            max_count=1,
        ),
        Output("OUT", "the folder for the new graphs; it must be new or empty", ("--output-dir",), Path),
    )
    arguments = parser.parse_args(argv)
    asked = [name for name in REFUSED if getattr(arguments, name.removeprefix("--").replace("-", "_")) is not None]
    if not asked and arguments.data_parallel is None and not arguments.remove_ranks:
        parser.error("nothing to scale; give --data-parallel, --remove-ranks or both")
    arguments.refused = asked
    run_command(_run, arguments, NAME)


def _run(arguments: argparse.Namespace) -> None:
    import msgspec

    from ...converter.scaling import Growth
    from ...schema.comm_groups import ASTRA_SIM_FILES, check_simulators_read
    from ..job import SCALE_REPORT, lines, scale

    for name in arguments.refused:
        raise DataError(f"{name}: {REFUSED[name]}; that is another program: trace that one")
    if Path(arguments.inputs[0], ASTRA_SIM_FILES).is_dir():
        check_simulators_read(arguments.output)
    begun = time.monotonic()
    growth = Growth(
        arguments.data_parallel or 1,
        arguments.remove_ranks,
        tuple(arguments.groups),
        arguments.bandwidth_gib_s,
        arguments.latency_ns,
    )
    run = partial(in_processes, jobs=arguments.jobs or os.cpu_count() or 1)
    report = scale(Path(arguments.inputs[0]), arguments.output, growth, run, progress)
    if arguments.json:
        print_json(msgspec.to_builtins(report))
    else:
        print_text("\n".join(lines(report)))
    for note in report.notes:
        log.warning(f"{NAME}: note: {note}")
    log.info(f"{time.monotonic() - begun:.1f} s; see {arguments.output / SCALE_REPORT}")
    if report.network:
        _print_simulation(arguments.output, report, growth)


def _print_simulation(output: Path, report: "ScaleReport", growth: "Growth") -> None:
    """Prints the network in the simulator's configuration and the command that simulates the scaled job."""
    from ..job import network_text, poor_fit, simulation_of, simulator_command

    simulation, fitted = simulation_of(growth), report.network
    log.info(summary_line("network", network_text(fitted, simulation, report.scaled_ranks)))
    if warning := poor_fit(fitted, simulation, lacks_members=bool(report.stand_ins)):
        log.warning(f"{NAME}: warning: {warning}; give --latency and --bandwidth")
    log.info(summary_line("simulate", simulator_command(output, report.scaled_ranks)))
