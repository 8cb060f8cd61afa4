"""Asks what changes of real jobs bring, really changes the jobs, and prints both; needs PyTorch, and no GPU.

    python -m benchmarks.accuracy.changed_jobs

Each job is recorded on this machine's CPU. What the recording predicts for the run without a profiler is held against
the changed job, which is timed in turns with the unchanged one, without a profiler. Use an idle machine.
"""

import argparse
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, NoReturn

import execgraph
from execgraph.schema.errors import DataError, WrongUsage, require
from execgraph.tools.command import progress, run_command
from execgraph.tools.command_parser import CommandParser

from .changed_jobs_timing import MODULE, Effort, Timed, run_one, timed
from .tables import markdown

NAME = f"python -m {MODULE}"
WITHIN, WORST = 3.0, 6.0
"""So many points of the unchanged step most answers, and all of them, should be off at most."""
SHARE_PCT, IN_RANGE_PCT = 90, 95
"""The share of the answers that should be as near as WITHIN, and that should hold the truth in their range."""
ONE_FIGURE = 1.0
"""An answer of one figure holds what is at most so many points from it."""
HEAD = ["job", "change", "asked", "predicted %", "true %", "off by points", "in range"]
log = logging.getLogger("execgraph")


class Answer(NamedTuple):
    """What a change is predicted to do to a step, in % of the unchanged one, and between what that lies.

    Where the run without a profiler is not known, it `is_recorded`: the answer is about the recording.
    """

    percent: float
    range: tuple[float, float] | None = None
    is_recorded: bool = False

    @property
    def text(self) -> str:
        """The answer in one cell of a table."""
        between = f" ({self.range[0]:+.1f} to {self.range[1]:+.1f})" if self.range else ""
        return f"{self.percent:+.1f}{between}{' of the recording' if self.is_recorded else ''}"

    def holds(self, percent: float) -> bool:
        """Whether the change is in the range of the answer."""
        low, high = self.range or (self.percent - ONE_FIGURE, self.percent + ONE_FIGURE)
        return low <= percent <= high


class Result(NamedTuple):
    """The answer to what was `asked`, or why it was refused, and by how many % a step became longer, by round."""

    job: str
    change: str
    asked: str
    answer: Answer | str
    percents: list[float]

    @property
    def true(self) -> float:
        """By how many % a step changed."""
        return median(self.percents)

    @property
    def error(self) -> float | None:
        """How far the answer is off, in points of the unchanged step."""
        return None if isinstance(self.answer, str) else self.answer.percent - self.true

    @property
    def row(self) -> list[str]:
        """The cells of a table."""
        true = f"{self.true:+.1f} ({min(self.percents):+.1f} to {max(self.percents):+.1f})"
        if isinstance(self.answer, str):
            answer, error, holds = "refused", "–", "–"
        else:
            answer, error = self.answer.text, f"{self.answer.percent - self.true:+.1f}"
            holds = "yes" if self.answer.holds(self.true) else "no"
        return [self.job, self.change, self.asked, answer, true, error, holds]


def percents(rounds: Sequence[tuple[float, float]]) -> list[float]:
    """Returns by how many % a step changed in each round, from how long it took without and with the change."""
    return [100 * (changed / base - 1) for base, changed in rounds]


def summary(results: Sequence[Result]) -> str:
    """Returns how many answers are near the truth, which is the furthest off, and how many ranges hold the truth."""
    if not results:
        return "No job could be measured."
    errors = {abs(result.error): result for result in results if result.error is not None}
    refused = [result for result in results if isinstance(result.answer, str)]
    near = sum(result.error is not None and abs(result.error) <= WITHIN for result in results)
    hold = sum(isinstance(result.answer, Answer) and result.answer.holds(result.true) for result in results)
    lines = [
        f"- Within {WITHIN:g} points of the unchanged step: {_share(near, results)} (goal: {SHARE_PCT} %).",
        f"- Truth in the range: {_share(hold, results)} (goal: {IN_RANGE_PCT} %). A figure without a range holds what is "
        f"at most {ONE_FIGURE:g} point away.",
    ]
    if errors:
        worst = errors[max(errors)]
        lines.append(f"- Worst: {max(errors):.1f} points, {worst.job}, {worst.change} (goal: {WORST:g}).")
    spread = median(max(result.percents) - min(result.percents) for result in results)
    noisy = "; the machine was too busy for these figures to mean much" if spread > WITHIN else ""
    lines.append(f"- The truth differs by {spread:.1f} points between rounds (median of the changes){noisy}.")
    if refused:
        lines.append(f"- Refused, and counted as wrong: {_share(len(refused), results)}.")
    return "\n".join([*lines, *(f"  - {result.job}, {result.change}: {result.answer}" for result in refused)])


def _share(count: int, results: Sequence[Result]) -> str:
    return f"{100 * count / len(results):.0f} % ({count} of {len(results)})"


def ask(graphs: Any, scale: Mapping[str, float]) -> Answer | str:
    """Returns what the graphs of a job predict without a profiler, or why they refuse."""
    try:
        recorded = execgraph.what_if(graphs, scale)
        answer = recorded.without_profiler
    except (DataError, ValueError) as error:
        return str(error)
    (before, after), waits = answer or recorded, (answer or recorded).after.range

    def percent(makespan: float) -> float:
        return 100 * (makespan / before.makespan_ns - 1)

    between = None if waits is None or waits.is_clear else (percent(waits.low_ns), percent(waits.high_ns))
    return Answer(percent(after.makespan_ns), between, is_recorded=answer is None)


def results_of(name: str, ranks: int, effort: Effort) -> Iterator[Result]:
    """Records a job, changes it and asks, in the order of its changes."""
    with tempfile.TemporaryDirectory() as folder:
        outcome: dict[str, Timed] = timed(name, folder, ranks, effort)
        graphs = execgraph.build(folder)
        for change, (scale, rounds) in outcome.items():
            asked = " ".join(f"`{selector}={factor:.3g}`" for selector, factor in scale.items())
            yield Result(name, change, asked, ask(graphs, scale), percents(rounds))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Measures and prints the table, and exits: 0, 1 where a job failed, 2 for wrong usage."""
    description = "Predicts what changes of real jobs bring, really changes them, and compares; needs PyTorch."
    parser = CommandParser(NAME, description, f"{NAME} --jobs sleep 'late rank' --quick", reads=False)
    parser.add_argument("--jobs", nargs="+", metavar="NAME", help="the jobs to run (default: all)")
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="how often base and changed steps take turns (default: 7)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="write the table to this file, too")
    parser.add_argument("--quick", action="store_true", help="take two rounds of few steps, to see that all works")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    run_command(_run, arguments, NAME, parser.error)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.one:
        name, folder, *counts = arguments.one
        run_one(name, folder, Effort(*map(int, counts)))
    require("torch")
    from .changed_jobs_programs import JOBS

    chosen = arguments.jobs or list(JOBS)
    if unknown := [name for name in chosen if name not in JOBS]:
        raise WrongUsage(f"--jobs: there is no {unknown[0]!r}, only {', '.join(JOBS)}")
    effort = Effort(2, 5, 10) if arguments.quick else Effort(arguments.rounds, 20, 20)
    results, failed = list[Result](), 0
    for name in progress(chosen, "measuring", total=len(chosen), unit="job"):
        try:
            results += results_of(name, JOBS[name].ranks, effort)
        except DataError as error:
            log.error("%s", error)
            failed += 1
    table = "\n".join([*markdown(HEAD, [result.row for result in results]), summary(results)])
    print(table)
    if arguments.out:
        arguments.out.write_text(table + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    main()
