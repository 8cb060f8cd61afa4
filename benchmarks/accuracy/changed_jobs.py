"""Asks what changes of real jobs bring, really changes the jobs, and prints both; needs PyTorch, and no GPU.

    python -m benchmarks.accuracy.changed_jobs
    python -m benchmarks.accuracy.changed_jobs --device cuda --keep captures --minutes 7
    python -m benchmarks.accuracy.changed_jobs --again captures

Each job is recorded on this machine's CPU, or with `--device cuda` others on its GPU. What the recording predicts for
the run without a profiler is held against the changed job, which is timed in turns with the unchanged one, without a
profiler. Use an idle machine. What was kept can be asked again elsewhere, without PyTorch.
"""

import argparse
import logging
import math
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, NamedTuple, NoReturn

import execgraph
from execgraph.schema.errors import DataError, WrongUsage, require
from execgraph.tools.analyses import Finding, Gain
from execgraph.tools.command import progress, run_command
from execgraph.tools.command_parser import CommandParser

from .changed_jobs_timing import FINDING, MODULE, TRACES, TRUTH, Effort, jobs_of, outcome, run_one, time_job
from .tables import markdown

NAME = f"python -m {MODULE}"
WITHIN, WORST, GPU_WITHIN = 3.0, 6.0, 5.0
"""So many points of the unchanged step most answers, and all of them, should be off at most; and most about a GPU."""
SHARE_PCT, IN_RANGE_PCT = 90, 95
"""The share of the answers that should be as near as WITHIN, and that should hold the truth in their range."""
ONE_FIGURE = 1.0
"""An answer of one figure holds what is at most so many points from it."""
HEAD = ["job", "change", "asked", "predicted %", "true %", "off by points", "in range"]
Measured = tuple[str, Path | DataError | None]
"""The name of a job, and the folder that it was recorded to, or why it was not."""
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


def summary(results: Sequence[Result], within: float = WITHIN) -> str:
    """Returns how many answers are near the truth, which is the furthest off, and how many ranges hold the truth."""
    if not results:
        return "No job could be measured."
    errors = {abs(result.error): result for result in results if result.error is not None}
    refused = [result for result in results if isinstance(result.answer, str)]
    near = sum(result.error is not None and abs(result.error) <= within for result in results)
    hold = sum(isinstance(result.answer, Answer) and result.answer.holds(result.true) for result in results)
    lines = [
        f"- Within {within:g} points of the unchanged step: {_share(near, results)} (goal: {SHARE_PCT} %).",
        f"- Truth in the range: {_share(hold, results)} (goal: {IN_RANGE_PCT} %). A figure without a range holds what is "
        f"at most {ONE_FIGURE:g} point away.",
    ]
    ranges = [answer.range for result in results if isinstance(answer := result.answer, Answer) and answer.range]
    if widths := sorted(high - low for low, high in ranges):
        nine_in_ten = widths[(9 * len(widths) - 1) // 10]
        lines.append(f"- Ranges are {median(widths):.0f} points wide (median; nine in ten at most {nine_in_ten:.0f}).")
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
        before, after = execgraph.what_if(graphs, scale)
    except (DataError, ValueError) as error:
        return str(error)
    waits = after.range

    def percent(makespan: float) -> float:
        return 100 * (makespan / before.makespan_ns - 1)

    between = None if waits is None or waits.is_clear else (percent(waits.low_ns), percent(waits.high_ns))
    return Answer(percent(after.makespan_ns), between, is_recorded=before.work.unprofiled is None)


def ask_finding(traces: str, graphs: Any, what: str) -> Answer:
    """Returns how much shorter a step becomes by what a report says that a finding costs; 0 where it finds no such."""
    gains = (finding.gain for finding in _findings(traces) if finding.what is type(finding.what)[what])
    gain = next((gain for gain in gains if gain), Gain(0, 0))
    known = ask(graphs, {"class:host": 1.0})
    between = None
    if gain.us and gain.least_us is not None and gain.most_us is not None:
        between = (-gain.pct * gain.most_us / gain.us, -gain.pct * gain.least_us / gain.us)
    return Answer(-gain.pct, between, is_recorded=isinstance(known, str) or known.is_recorded)


@cache
def _findings(traces: str) -> Sequence[Finding]:
    return execgraph.report(traces).findings


def results_of(folder: Path) -> list[Result]:
    """Returns the answers about a job that was recorded to the folder, in the order of its changes."""
    traces, results = str(folder / TRACES), list[Result]()
    graphs = execgraph.build(traces)
    for change, (scale, rounds) in outcome(folder).items():
        what = next(iter(scale))
        if what.startswith(FINDING):
            asked = f"`{what}`"
            answer: Answer | str = ask_finding(traces, graphs, what.removeprefix(FINDING))
        else:
            asked = " ".join(f"`{selector}={factor:.3g}`" for selector, factor in scale.items())
            answer = ask(graphs, scale)
        results.append(Result(folder.name, change, asked, answer, percents(rounds)))
    return results


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Measures and prints the table, and exits: 0, 1 where a job failed, 2 for wrong usage."""
    description = "Predicts what changes of real jobs bring, really changes them, and compares; needs PyTorch."
    parser = CommandParser(NAME, description, f"{NAME} --jobs sleep 'late rank' --quick", reads=False)
    parser.add_argument("--jobs", nargs="+", metavar="NAME", help="the jobs to run (default: all)")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="", help="run the jobs for one GPU, there or smaller on the CPU"
    )
    parser.add_argument(
        "--rounds", type=int, default=11, metavar="N", help="how often base and changed steps take turns (default: 11)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="write the table to this file, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what was recorded and measured in this folder")
    parser.add_argument("--again", type=Path, metavar="DIR", help="run no job; ask again about what was kept here")
    parser.add_argument("--limit", type=int, default=900, metavar="S", help="end a job after so long (default: 900)")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="begin no job after so long")
    parser.add_argument("--quick", action="store_true", help="take two rounds of few steps, to see that all works")
    parser.add_argument("--one", nargs=7, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    run_command(_run, arguments, NAME, parser.error)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.one:
        name, folder, *counts, device = arguments.one
        rounds, steps, wait, limit_s = map(int, counts)
        run_one(name, folder, Effort(rounds, steps, wait, limit_s, device))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as asking:
        measured = _kept(arguments) if arguments.again else _measured(arguments, arguments.keep or Path(folder))
        return _print_results(measured, asking, arguments)


def _print_results(measured: Iterator[Measured], asking: Executor, arguments: argparse.Namespace) -> int:
    """Prints and writes what is known, as it comes. A GPU's next job runs while the last one is asked about."""
    results, failed, lines, answers = list[Result](), 0, list[str](), deque[tuple[str, Future[list[Result]]]]()
    for name, folder in chain(measured, [("", None)]):
        if isinstance(folder, Path):
            answers.append((name, asking.submit(results_of, folder)))
        elif folder:
            log.error("%s", folder)
            failed += 1
        while answers and (answers[0][1].done() or arguments.device != "cuda" or not folder):
            asked, answer = answers.popleft()
            try:
                results += answer.result()
            except Exception as error:  # whatever it is, the other jobs go on
                log.error("job %r cannot be asked about: %r", asked, error)
                failed += 1
        printed, lines = len(lines), [*markdown(HEAD, [result.row for result in results])] if results else []
        said = summary(results, GPU_WITHIN if arguments.device else WITHIN)
        if arguments.out:
            arguments.out.write_text("\n".join([*lines, said, ""]))
        if new := lines[max(printed - 1, 0) : -1]:  # the last line is empty
            print("\n".join(new), flush=True)
    print(f"\n{said}")
    return 1 if failed else 0


def _kept(arguments: argparse.Namespace) -> Iterator[Measured]:
    """Yields the jobs that were kept in a folder."""
    folders = sorted(path.parent for path in arguments.again.glob(f"*/{TRUTH}"))
    if not folders:
        raise DataError(f"{arguments.again}: holds no job that was kept")
    yield from ((folder.name, folder) for folder in folders if folder.name in (arguments.jobs or [folder.name]))


def _measured(arguments: argparse.Namespace, keep: Path) -> Iterator[Measured]:
    """Yields the name of each job, and the folder that it was recorded to, or why it was not."""
    require("torch")
    if arguments.device == "cuda":
        _check_cuda()
    jobs, left_out = jobs_of(arguments.device)
    chosen = arguments.jobs or list(jobs)
    if unknown := [name for name in chosen if name not in jobs]:
        raise WrongUsage(f"--jobs: there is no {unknown[0]!r}, only {', '.join(jobs)}")
    if left_out:
        log.warning("left out without CUDA: %s", "; ".join(left_out))
    rounds, steps, wait = (2, 5, 10) if arguments.quick else (arguments.rounds, 20, 40)
    effort = Effort(rounds, steps, wait, arguments.limit, arguments.device)
    end = monotonic() + 60 * arguments.minutes
    for name in progress(chosen, "measuring", total=len(chosen), unit="job"):
        try:
            if monotonic() > end:
                raise DataError(f"job {name!r} was left out: {arguments.minutes:g} minutes are over")
            time_job(name, keep / name, jobs[name].ranks, effort)
            yield name, keep / name
        except DataError as error:
            yield name, error


def _check_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise DataError(f"--device cuda: PyTorch {torch.__version__} finds no GPU")


if __name__ == "__main__":
    main()
