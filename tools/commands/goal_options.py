"""The options of trace-build for a job in GOAL, and what is said of the file."""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from ...schema.arguments import GOAL, Algorithm, Simulator
from ..summary_lines import summary_line

if TYPE_CHECKING:
    from ...converter.targets import GoalOptions, GoalReport

OPTIONS: dict[str, dict[str, Any]] = {
    "algorithm": {
        "choices": get_args(Algorithm),
        "help": "all-reduces and all-gathers by ring, or by recursive doubling if they have 2^n members (ring)",
    },
    "chunk": {"type": int, "metavar": "BYTES", "help": "the longest message (524288)"},
    "gpus-per-node": {
        "type": int,
        "metavar": "N",
        "help": "how many ranks share a node; messages within it take nic 1 (1)",
    },
    "measured-communication": {
        "action": "store_true",
        "default": None,
        "help": "collectives and messages wait for all members, and then take their measured time",
    },
    "simulator": {
        "choices": get_args(Simulator),
        "help": "which simulator runs it; it decides how cpus wait for each other (loggopsim)",
    },
}
FIELDS = {"chunk": "chunk_bytes"}
"""Where the field has another name."""


def add_goal_options(parser: argparse.ArgumentParser) -> None:
    """Adds them, as a group; none has a default, so that it shows which were given."""
    group = parser.add_argument_group("for --target goal", "OUT/job.goal gets the whole job, for LogGOPSim and ATLAHS")
    for name, facts in OPTIONS.items():
        group.add_argument(f"--{name}", **facts)


def goal_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> "GoalOptions":
    """Returns how to write the file; wrong usage for options of it without it, and for numbers that make no sense."""
    from ...converter.targets import GoalOptions

    values = {name: getattr(options, name.replace("-", "_")) for name in OPTIONS}
    values = {name: value for name, value in values.items() if value is not None}
    if values and options.target != GOAL:
        parser.error(f"--{next(iter(values))} is for --target {GOAL}")
    for name, value in values.items():
        if isinstance(value, int) and value < 1:
            parser.error(f"--{name} is {value}, not 1 or more")
    return GoalOptions(**{FIELDS.get(name, name.replace("-", "_")): value for name, value in values.items()})


def goal_lines(report: "GoalReport") -> Iterator[str]:
    """Yields what the file holds, a line each."""
    from ..job import fit_error_text

    operations = Counter[str]()
    for rank in report.ranks:
        operations.update(rank.operations)
    counts = ", ".join(f"{count} {verb}" for verb, count in sorted(operations.items()))
    yield summary_line("goal", f"{len(report.ranks)} ranks: {counts}; {report.bytes_sent} bytes to other ranks")
    for what, count in report.communication.items():
        yield summary_line("goal", f"{what}: {count}")
    if fit := report.network:
        yield summary_line(
            "network",
            f"{fit.latency_ns:,} ns a message, {fit.ns_per_byte:g} ns a byte, fitted to {fit.transfers} collectives "
            f"and messages, {fit_error_text(fit.fit_error_pct)}",
        )
        yield summary_line(
            "simulate",
            f"LogGOPSim of ATLAHS: -f JOB.bin -L {fit.latency_ns} -o 0 -g 0 -G {fit.ns_per_byte:g} -O 0 -S 1",
        )
