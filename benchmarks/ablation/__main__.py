"""What each rule of the graph is for: what leaving it out costs on real traces and simulated jobs, as markdown.

On runs as they were measured some rules change nothing, as what they order happened in that order; changed runs show
them.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from execgraph.converter.convert import convert
from execgraph.converter.dependencies import RULES
from execgraph.converter.options import Options
from execgraph.tools.command import progress, run_command
from execgraph.tools.command_parser import CommandParser
from execgraph.tools.generate import simulate

from ..accuracy import VARIANTS, answers, linked_of, markdown, true_outcomes
from ..programs import NAMED, RANDOM, build_job, ranks_of
from .measured_runs import HEAD, MeasuredRun, measured_runs

NAME = "python -m benchmarks.ablation"
STEPS = 4


class Ablation(NamedTuple):
    """A way to convert without something, and what that is."""

    without: str
    options: Options


def ablations() -> list[Ablation]:
    """Returns the whole graph, and the graph without each of its rules, and without delays."""
    rules = [rule.__name__ for rule in RULES]
    return [
        Ablation("nothing", Options()),
        *(Ablation(rule.replace("_", " ").replace("handoff", "hand-off"), Options(left_out=(rule,))) for rule in rules),
        Ablation("edges from timing", Options(inferred=False)),
        Ablation("delays", Options(delays=False)),
    ]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Measures and prints the tables, and exits: 0, 1 for bad input, 2 for wrong usage."""
    parser = CommandParser(
        NAME,
        "Measures what each rule of the graph is for: how far replays and what-if answers are off without it.",
        f"{NAME} --traces captures --random 8",
    )
    parser.add_argument("--traces", metavar="DIR", type=Path, help="real traces, found in DIR and below")
    parser.add_argument(
        "--random", type=int, default=8, metavar="N", help="random programs beside the named jobs (default: 8)"
    )
    run_command(_measure, parser.parse_args(argv), NAME)


def _measure(arguments: argparse.Namespace) -> None:
    runs = list(progress(measured_runs(arguments.traces), "linking", unit="trace")) if arguments.traces else []
    if runs:
        print("Replay of every real trace\n", *markdown(HEAD, [run.row() for run in runs]), sep="\n")
    tried = ablations()
    changed = _answers(arguments.random, tried)
    head = [
        "without",
        "real traces, worst %",
        "simulated, as measured, worst %",
        "changed, within 1 %",
        "p95 %",
        "worst %",
    ]
    rows = [_row(ablation, runs, *changed[ablation.without]) for ablation in progress(tried, "replaying", unit="rule")]
    print("What leaving a rule out costs\n", *markdown(head, rows), sep="\n")


def _row(ablation: Ablation, runs: Sequence[MeasuredRun], base: list[float], changed: list[float]) -> list[str]:
    real = max((abs(run.error_pct(ablation.options)) for run in runs), default=None)
    within = 100 * sum(error <= 1 for error in changed) / len(changed)
    figures = (real, max(base), within, float(np.quantile(changed, 0.95)), max(changed))
    return [ablation.without, *("–" if figure is None else f"{figure:.2f}" for figure in figures)]


def _answers(programs: int, tried: Sequence[Ablation]) -> dict[str, tuple[list[float], list[float]]]:
    """Returns for each ablation the errors (%) of the measured jobs and of the changed ones."""
    errors: dict[str, tuple[list[float], list[float]]] = {ablation.without: ([], []) for ablation in tried}
    for name, seed in progress([*_jobs(programs)], "simulating", unit="job"):
        job = build_job(name, steps=STEPS, seed=seed, ranks=min(2, ranks_of(name, seed)))
        linked, outcomes = linked_of(simulate(job), VARIANTS[0]), true_outcomes(job)
        for ablation in tried:
            base, *changed = answers([convert(of_rank, ablation.options) for of_rank in linked], outcomes)
            errors[ablation.without][0].append(abs(base.error_pct))
            errors[ablation.without][1].extend(abs(answer.error_pct) for answer in changed)
    return errors


def _jobs(programs: int) -> Iterator[tuple[str, int]]:
    yield from ((name, 0) for name in NAMED)
    yield from ((RANDOM, seed) for seed in range(programs))


if __name__ == "__main__":
    main()
