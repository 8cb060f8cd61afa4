"""The command trace-diagnose: what traces hold, what is wrong with them, why, and what to do, before any linking."""

import argparse
import os
from pathlib import Path

from ...schema.reasons import to_builtins
from ..command import print_json, progress
from ..command_parser import Inputs, command
from ..terminal import print_text


@command(
    "trace-diagnose",
    "Says what each process recorded, whether host and device traces belong together, what some ranks lack, what a "
    "graph\nwould lack and why, and what to do about it. With --strict it ends with 1 if something is wrong, for scripts; with\n"
    "-v it also lists the longest kernels of every process.",
    "traces --strict",
    Inputs("TRACES", "traces, or folders with them", ("--input", "--input-dir")),
)
def main(options: argparse.Namespace) -> int:
    """Diagnoses traces; returns 1 where something is wrong with them, with --strict."""
    from ..job import diagnose, report

    diagnosis = diagnose([Path(path) for path in options.inputs], os.cpu_count() or 1, progress)
    if options.json:
        print_json(to_builtins(diagnosis) | {"wrong": diagnosis.wrong})
    else:
        print_text(report(diagnosis, options.verbose))
    return int(options.strict and diagnosis.wrong > 0)
