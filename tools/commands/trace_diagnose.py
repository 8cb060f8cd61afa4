"""The command trace-diagnose: what traces hold, what is wrong with them, why, and what to do, before any linking."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ...schema.counts import to_builtins
from ...schema.errors import Audience, said_to
from ..command import print_json, progress, run_command
from ..command_parser import CommandParser, Inputs
from ..terminal import print_text

NAME = "trace-diagnose"


@said_to(Audience.TERMINAL)
def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-diagnose and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Says what each process recorded, whether host and device traces belong together, what some ranks lack, what a "
        "graph\n"
        "would lack and why, and what to do about it. With -v it also lists the longest kernels of every process.",
        f"{NAME} traces --strict",
        Inputs("FILE_OR_DIR", "traces, or folders with them", ("--input", "--input-dir")),
    )
    run_command(_run, parser.parse_args(arguments), NAME)


def _run(options: argparse.Namespace) -> int:

    from ..job import diagnose, in_parallel_if_large, report

    diagnosis = diagnose([Path(path) for path in options.inputs], in_parallel_if_large, progress)
    if options.json:
        print_json(to_builtins(diagnosis) | {"wrong": diagnosis.wrong})
    else:
        print_text(report(diagnosis, options.verbose))
    return int(options.strict and diagnosis.wrong > 0)
