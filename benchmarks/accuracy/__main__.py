"""Measures how right execution graphs are on simulated jobs with known truth; writes markdown tables.

Every job is simulated, traced, linked and converted; the graphs then answer what-if questions that the simulator
answers too, and their dependencies are held against those that the run had. Exit 1 if more answers are further off than
allowed.
"""

import argparse
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from execgraph.schema.errors import DataError
from execgraph.tools.command import print_json, progress, run_command
from execgraph.tools.command_parser import CommandParser
from execgraph.tools.workers import in_processes

from ..programs import NAMED
from .measuring import measure, subjects
from .tables import Group, Result, Subject, dependency_tables, group_tables, groups, job_tables

NAME = "python -m benchmarks.accuracy"
WORST = 5
"""So many cases are named of a group that is not as right as it has to be."""
log = logging.getLogger("execgraph")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Measures and prints the tables, and exits: 0, 1 where answers are further off than allowed, 2 for wrong usage."""
    parser = CommandParser(
        NAME,
        "Measures on simulated jobs, named ones and random programs, each on the default machine and on machines that "
        "are drawn,\n"
        "how well execution graphs answer what-if questions and recover dependencies.",
        f"{NAME} --jobs ddp moe --seeds 5 --random 100",
        reads=False,
    )
    parser.add_argument(
        "--jobs", nargs="*", choices=NAMED, default=list(NAMED), metavar="NAME",
        help=f"the named jobs to measure (default: all: {', '.join(NAMED)})",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="measure each with seeds 0 to N-1 (default: 3)"
    )
    parser.add_argument(
        "--random", type=int, default=40, metavar="N", help="and the random programs 0 to N-1 (default: 40)"
    )
    parser.add_argument("--json", action="store_true", help="print every figure as one JSON object on stdout")
    arguments = parser.parse_args(argv)
    if arguments.seeds < 1:
        parser.error("--seeds: at least 1")
    if arguments.random < 0 or not (arguments.random or arguments.jobs):
        parser.error("--random: at least 0, and at least 1 where there are no --jobs")
    run_command(_measure, arguments, NAME)


def _measure(arguments: argparse.Namespace) -> int:
    results = _measured(subjects(arguments.jobs, arguments.seeds, arguments.random))
    measured = groups(results)
    if arguments.json:
        print_json(_figures(results, measured))
    else:
        print("\n".join([*group_tables(measured), *job_tables(results), *dependency_tables(results)]))
    wrong = [group for group in measured if not group.holds]
    for group in wrong:
        log.error("%s, %s: further off than allowed, most of all", group.name, group.variant.name)
        for case in group.worst(WORST):
            log.error("  %s", case)
    return 1 if wrong else 0


def _measured(chosen: list[Subject]) -> list[Result]:
    """Returns the results in the order of the subjects, measured by as many processes as there are cores."""
    results_of: dict[Subject, list[Result]] = {}
    running = in_processes(measure, chosen, os.cpu_count() or 1)
    for subject, outcome in progress(running, "measuring", total=len(chosen), unit="job"):
        if isinstance(outcome, DataError):
            raise DataError(f"{subject}: {outcome}") from outcome
        if isinstance(outcome, Exception):
            raise outcome
        results_of[subject] = outcome
    return [result for subject in chosen for result in results_of[subject]]


def _figures(results: Sequence[Result], measured: Sequence[Group]) -> dict[str, Any]:
    return {
        "groups": [*map(_group, measured)],
        "what_if": [*_answers(results)],
        "dependencies": [*_tallies(results)],
        "wrong": sum(not group.holds for group in measured),
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "traces": group.variant.name,
        "cases": len(group.changed),
        "within_1_pct": group.within(1),
        "within_3_pct": group.within(3),
        "median_pct": group.percentile(50),
        "p95_pct": group.percentile(95),
        "worst_pct": group.percentile(100),
        "as_measured_pct": group.as_measured_pct,
        "range_pct": group.range_pct,
        "in_range_pct": group.in_range_pct,
        "found_pct": group.found_pct,
        "allowed": group.variant.allowed._asdict(),
        "holds": group.holds,
    }


def _answers(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    for result in results:
        of = {**result.subject._asdict(), "traces": result.variant.name}
        for answer in result.answers:
            times = {"true_us": answer.true_ns / 1000, "replayed_us": answer.replayed_ns / 1000}
            errors = {"error_pct": answer.error_pct, "start_error_pct": answer.start_error_pct}
            yield {**of, "scale": answer.change.specs, **times, **errors}


def _tallies(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    for result in results:
        for kind, tally in result.tallies.items():
            of = {**result.subject._asdict(), "traces": result.variant.name, "dependencies": kind}
            yield {**of, **asdict(tally)}


if __name__ == "__main__":
    main()
