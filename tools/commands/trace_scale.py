"""The command trace-scale: the graphs of the same program with more ranks, or fewer."""

import argparse
import os
import time
from pathlib import Path

from ...schema.errors import WrongUsage
from ..command import log, log_notes, print_json, progress
from ..command_parser import Inputs, Output, command
from ..terminal import print_text, summary_line
from ..workers import runner


@command(
    "trace-scale",
    "Makes graphs of the same program on more ranks, or fewer, from the graphs of a traced job. Copies of the job join "
    "its\ndata-parallel groups. Members wait for each other in a collective as they did. Its transfer takes the latency "
    "of each\nlink and a time for each byte, fitted to the job's collectives.",
    "graphs -o graphs-64 --data-parallel 16",
    Inputs(
        "GRAPHS", "the folder with the graphs of the ranks, as trace-build writes them", ("--input-dir",), max_count=1
    ),
    Output("OUT", "the folder for the new graphs; it must be new or empty", ("--output-dir",), Path),
)
def main(options: argparse.Namespace) -> None:
    """Writes the graphs of the scaled job, and says how a simulator runs them."""
    import msgspec

    from ...converter.scaling import Growth
    from ...schema.comm_groups import ASTRA_SIM_FILES, check_simulators_read
    from ..job import SCALE_REPORT, lines, network_text, poor_fit, scale, simulation_of, simulator_command

    if options.data_parallel is None and not options.remove_ranks:
        raise WrongUsage("nothing to scale; give --data-parallel, --remove-ranks or both")
    source = Path(options.inputs[0])
    if (source / ASTRA_SIM_FILES).is_dir():
        check_simulators_read(options.output)
    begun = time.monotonic()
    network = options.bandwidth_gib_s, options.latency_ns
    growth = Growth(options.data_parallel or 1, options.remove_ranks, tuple(options.groups), *network)
    report = scale(source, options.output, growth, runner(options.jobs or os.cpu_count() or 1), progress)
    if options.json:
        print_json(msgspec.to_builtins(report))
    else:
        print_text("\n".join(lines(report)))
    log_notes(options.prog, report.notes)
    log.info(f"{time.monotonic() - begun:.1f} s; see {options.output / SCALE_REPORT}")
    if report.network:
        simulation, fitted = simulation_of(growth), report.network
        log.info(summary_line("network", network_text(fitted, simulation, report.scaled_ranks)))
        if warning := poor_fit(fitted, simulation, lacks_members=bool(report.stand_ins)):
            log.warning(f"{options.prog}: warning: {warning}; give --latency and --bandwidth")
        log.info(summary_line("simulate", simulator_command(options.output, report.scaled_ranks)))
