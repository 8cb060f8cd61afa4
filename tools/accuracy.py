"""How right execution graphs are on jobs with known truth: simulated jobs in, markdown tables out.

Every job is simulated, traced, linked and converted; the graphs then answer what-if questions that the simulator answers
too, and their dependencies are held against those that the run had. Exit 1 if an answer is further off than allowed.
"""

import argparse
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, NoReturn

from ..schema.command import command_parser, print_json, progress, run_command, usage_error
from .dependency_accuracy import Tally, dependency_accuracy
from .generate import PRESETS, build_job, simulate
from .generate.identity import identify
from .what_if_accuracy import CHANGES, VARIANTS, Answer, Variant, answers, graphs_of, true_outcomes

NAME = "python -m execgraph.tools.accuracy"
RANKS = (2, 4)
STEPS = 4
"""So many that waits at the end of one step hold up the next ones."""
KINDS = list(dict.fromkeys(change.kind for change in CHANGES))
log = logging.getLogger("execgraph")


class Subject(NamedTuple):
    """A job to measure."""

    job: str
    ranks: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.job}, {self.ranks} ranks" if self.ranks > 1 else self.job


class Result(NamedTuple):
    """How right the graphs of one variant of a job's traces are."""

    subject: Subject
    variant: Variant
    answers: list[Answer]
    tallies: dict[str, Tally]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    parser = command_parser(
        NAME,
        "Measures on simulated jobs how well execution graphs answer what-if questions and recover dependencies.",
        f"{NAME} --jobs ddp moe --seeds 5",
    )
    parser.add_argument(
        "--jobs", nargs="+", choices=PRESETS, default=list(PRESETS), metavar="NAME",
        help=f"the jobs to measure (default: all: {', '.join(PRESETS)})",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="measure each with seeds 0 to N-1 (default: 3)"
    )
    parser.add_argument("--json", action="store_true", help="print every figure as one JSON object on stdout")
    arguments = parser.parse_args(argv)
    if arguments.seeds < 1:
        usage_error(parser, "--seeds: at least 1")
    run_command(_measure, arguments, NAME)


def subjects(jobs: Sequence[str], seeds: int) -> list[Subject]:
    """Every job with every seed; those whose ranks communicate with several numbers of ranks."""
    sizes = {job: RANKS if PRESETS[job].size.ranks > 1 else (1,) for job in jobs}
    return [Subject(job, ranks, seed) for job in sizes for ranks in sizes[job] for seed in range(seeds)]


def measure(subject: Subject) -> Iterator[Result]:
    """Simulates the job under all changes, and measures the graphs of each variant of its traces.

    Raises DataError where a graph cannot be made or is not of the run.
    """
    job = build_job(subject.job, ranks=subject.ranks, steps=STEPS, seed=subject.seed)
    run = simulate(job)
    outcomes = true_outcomes(job)
    for variant in VARIANTS:
        graphs = graphs_of(run, variant)
        tallies: defaultdict[str, Tally] = defaultdict(Tally)
        for rank, graph in zip(run.ranks, graphs, strict=True):
            for kind, tally in dependency_accuracy(rank, identify(job, rank.rank).tids, graph).items():
                tallies[kind] += tally
        yield Result(subject, variant, list(answers(graphs, outcomes)), tallies)


def _measure(arguments: argparse.Namespace) -> int:
    chosen = progress(subjects(arguments.jobs, arguments.seeds), "measuring", unit="job")
    results = [result for subject in chosen for result in measure(subject)]
    wrong = [
        (result, answer) for result in results for answer in result.answers
        if abs(answer.error_pct) > result.variant.bound_pct
    ]  # fmt: skip
    if arguments.json:
        print_json({"what_if": [*_answers(results)], "dependencies": [*_tallies(results)], "wrong": len(wrong)})
    else:
        print("\n".join([*_what_if_tables(results), *_dependency_table(results)]))
    for result, answer in wrong:
        log.error(
            "%s, seed %d, %s: %s is %+.2f %% off", result.subject.name, result.subject.seed, result.variant.name,
            answer.change.text or answer.change.kind, answer.error_pct,
        )  # fmt: skip
    return 1 if wrong else 0


def _what_if_tables(results: list[Result]) -> Iterator[str]:
    """Per variant a table of the largest errors in %: a job per row, a kind of question per column."""
    for variant in VARIANTS:
        given: defaultdict[str, list[Answer]] = defaultdict(list)
        for result in results:
            if result.variant is variant:
                given[result.subject.name] += result.answers
        yield f"Largest error of the makespan in %, {variant.name} (allowed: {variant.bound_pct:g})\n"
        rows = [[job, *map(_number, _worst_errors(of))] for job, of in given.items()]
        yield from _table(["job", *KINDS, "any", "any start"], rows)


def _worst_errors(given: list[Answer]) -> list[float | None]:
    """The columns of a job: per kind of question, over all, and how far any activity's start is off."""
    kinds = [max((abs(one.error_pct) for one in given if one.change.kind == kind), default=None) for kind in KINDS]
    return [*kinds, max(abs(one.error_pct) for one in given), max(one.start_error_pct for one in given)]


def _dependency_table(results: list[Result]) -> Iterator[str]:
    yield "Dependencies recovered, all jobs\n"
    total: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
    for result in results:
        for kind, tally in result.tallies.items():
            total[result.variant.name, kind] += tally
    yield from _table(
        ["traces", "dependencies", "in the graph", "false", "precision %", "true", "missing", "recall %"],
        [
            [
                *of, str(one.edges), str(one.false), _number(one.precision_pct),
                str(one.needed), str(one.missing), _number(one.recall_pct),
            ]
            for of, one in total.items() if one.edges or one.needed
        ],
    )  # fmt: skip


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    numbers = [all(row[column][:1] in "0123456789–" for row in rows) for column in range(len(head))]
    for row in (head, ["---:" if right else "---" for right in numbers], *rows):
        yield f"| {' | '.join(row)} |"
    yield ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _answers(results: list[Result]) -> Iterator[dict[str, Any]]:
    for result in results:
        of = {**result.subject._asdict(), "traces": result.variant.name, "allowed_pct": result.variant.bound_pct}
        for answer in result.answers:
            times = {"true_us": answer.true.makespan_ns / 1000, "replayed_us": answer.replayed.makespan_ns / 1000}
            errors = {"error_pct": answer.error_pct, "start_error_pct": answer.start_error_pct}
            yield {**of, "scale": answer.change.specs, **times, **errors}


def _tallies(results: list[Result]) -> Iterator[dict[str, Any]]:
    for result in results:
        for kind, tally in result.tallies.items():
            of = {**result.subject._asdict(), "traces": result.variant.name, "dependencies": kind}
            yield {**of, **asdict(tally)}


if __name__ == "__main__":
    main()
