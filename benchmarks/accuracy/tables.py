"""Tables of the errors of answers by job and group, and of which dependencies are right, in markdown.

A group is a kind of job on a kind of machine. What is allowed of a variant of the traces holds for each group by
itself.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from execgraph.tools.generate import DEFAULT, Machine, draw_machine

from ..programs import RANDOM
from .dependencies import HELD_UP, Tally
from .what_if import BASE, CHANGES, ON_FULL_DEVICES, Allowed, Answer, Variant

KINDS = list(dict.fromkeys(change.kind for change in CHANGES))


class Subject(NamedTuple):
    """A job to measure, on the default machine or on one that was drawn."""

    job: str
    ranks: int
    seed: int
    machine_seed: int | None = None

    @property
    def name(self) -> str:
        """The job, and of several ranks how many."""
        return f"{self.job}, {self.ranks} ranks" if self.ranks > 1 else self.job

    @property
    def machine(self) -> Machine:
        """The default machine, or the one that is drawn with the seed."""
        return DEFAULT if self.machine_seed is None else draw_machine(self.machine_seed)

    @property
    def group(self) -> str:
        """The kind of job on the kind of machine, as tables name it."""
        jobs = "random programs" if self.job == RANDOM else "named jobs"
        drawn = "crowded machines drawn per job" if self.machine.at_once else "machines drawn per job"
        return f"{jobs} on {'the default machine' if self.machine_seed is None else drawn}"

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}, {self.machine.name}"


class Result(NamedTuple):
    """How right the graphs of one variant of a job's traces are."""

    subject: Subject
    variant: Variant
    answers: list[Answer]
    tallies: dict[str, Tally]


class Case(NamedTuple):
    """One question to one job's graphs."""

    subject: Subject
    answer: Answer

    @property
    def error_pct(self) -> float:
        """How far the answer is off, in % of the true makespan, never negative."""
        return abs(self.answer.error_pct)

    def __str__(self) -> str:
        return f"{self.subject}: {self.answer.change.text or BASE} is {self.answer.error_pct:+.2f} % off"


class Group(NamedTuple):
    """All changed cases of a group of jobs with one variant of traces, the unchanged ones, and the dependencies by
    kind.
    """

    name: str
    variant: Variant
    changed: list[Case]
    as_measured: list[Case]
    tallies: defaultdict[str, Tally]

    def within(self, pct: float) -> float:
        """Returns how many of a hundred answers are off by no more."""
        return 100 * sum(case.error_pct <= pct for case in self.changed) / len(self.changed)

    def percentile(self, share: float) -> float:
        """Returns the error that so many of a hundred answers do not exceed."""
        return float(np.percentile([case.error_pct for case in self.changed], share))

    @property
    def as_measured_pct(self) -> float | None:
        """The largest error without a change."""
        return max((case.error_pct for case in self.as_measured), default=None)

    @property
    def range_pct(self) -> float:
        """How many of a hundred answers are shown as ranges."""
        return 100 * sum(case.answer.is_range for case in self.changed) / len(self.changed)

    @property
    def in_range_pct(self) -> float:
        """How many of a hundred answers hold the truth: in their range, or within 1 % of their single figure."""
        return 100 * sum(case.answer.holds_truth for case in self.changed) / len(self.changed)

    @property
    def found_pct(self) -> float | None:
        """How many of a hundred waits that held something up in the run are in the graphs; None without any."""
        return sum((self.tallies[kind] for kind in HELD_UP), Tally()).recall_pct

    @property
    def allowed(self) -> Allowed:
        """The share that must be close; smaller on full devices, where ties within a µs decide the order."""
        crowded = self.changed[0].subject.machine.at_once is not None
        return ON_FULL_DEVICES[self.variant.allowed] if crowded else self.variant.allowed

    @property
    def holds(self) -> bool:
        """Whether it is as right as it has to be."""
        allowed, found_pct = self.allowed, self.found_pct
        return (
            self.within(allowed.within_pct) >= allowed.share_pct
            and self.percentile(100) <= allowed.worst_pct
            and self.in_range_pct >= allowed.in_range_pct
            and (found_pct is None or found_pct >= allowed.found_pct)
        )

    def worst(self, count: int) -> list[Case]:
        """Returns the cases that are further off than allowed, the worst first, at most `count`."""
        off = (case for case in self.changed if case.error_pct > self.allowed.within_pct)
        return sorted(off, key=lambda case: -case.error_pct)[:count]


def groups(results: Sequence[Result]) -> list[Group]:
    """Returns the groups in the order in which they were measured, with each variant that gave answers."""
    by_key: dict[tuple[str, Variant], Group] = {}
    for result in results:
        key = result.subject.group, result.variant
        group = by_key.setdefault(key, Group(*key, [], [], defaultdict(Tally)))
        for kind, tally in result.tallies.items():
            group.tallies[kind] += tally
        for answer in result.answers:
            of_kind = group.as_measured if answer.change.kind == BASE else group.changed
            of_kind.append(Case(result.subject, answer))
    return [group for group in by_key.values() if group.changed]


def group_tables(measured: Sequence[Group]) -> Iterator[str]:
    """Yields per group a table of its errors, a variant per row."""
    head = ["traces", "cases", "within 1 %", "within 3 %", "median", "p95", "worst", "as measured"]
    head += ["ranges", "truth in range", "waits that held up, found", "allowed"]
    for name, same_name in _by_name(measured).items():
        yield f"Error of the makespan in %, {name}\n"
        yield from markdown(head, [_group_row(group) for group in same_name])


def _by_name(measured: Sequence[Group]) -> dict[str, list[Group]]:
    by_name: defaultdict[str, list[Group]] = defaultdict(list)
    for group in measured:
        by_name[group.name].append(group)
    return by_name


def _group_row(group: Group) -> list[str]:
    allowed, shares = group.allowed, [f"{group.within(pct):.1f} %" for pct in (1, 3)]
    figures = [*map(group.percentile, (50, 95, 100)), group.as_measured_pct]
    ranges = [f"{pct:.1f} %" for pct in (group.range_pct, group.in_range_pct)]
    found = "–" if group.found_pct is None else f"{group.found_pct:.2f} %"
    bounds = f"{allowed.share_pct:g} % within {allowed.within_pct:g}, all within {allowed.worst_pct:g}"
    return [group.variant.name, str(len(group.changed)), *shares, *map(_number, figures), *ranges, found, bounds]


def job_tables(results: Sequence[Result]) -> Iterator[str]:
    """Yields a table of the largest errors per group and variant: a row per job, a column per kind of question."""
    answers_of: defaultdict[tuple[str, Variant], defaultdict[str, list[Answer]]]
    answers_of = defaultdict(lambda: defaultdict(list))
    for result in results:
        if result.subject.job != RANDOM:
            answers_of[result.subject.group, result.variant][result.subject.name] += result.answers
    for (group, variant), answers_of_job in answers_of.items():
        yield f"Largest error of the makespan in %, {group}, {variant.name}\n"
        rows = [[job, *map(_number, _worst_errors(answers))] for job, answers in answers_of_job.items()]
        yield from markdown(["job", *KINDS, "any", "any start"], rows)


def _worst_errors(answers: list[Answer]) -> list[float | None]:
    """Returns the columns of a job: per kind of question, over all, and how far any activity's start is off."""
    kinds = [
        max((abs(answer.error_pct) for answer in answers if answer.change.kind == kind), default=None) for kind in KINDS
    ]
    return [*kinds, max(abs(answer.error_pct) for answer in answers), max(answer.start_error_pct for answer in answers)]


def dependency_tables(results: Sequence[Result]) -> Iterator[str]:
    """Yields per group which of the dependencies between activities, waits of the host and threads the graphs hold."""
    total: defaultdict[str, defaultdict[tuple[str, str], Tally]] = defaultdict(lambda: defaultdict(Tally))
    for result in results:
        for kind, tally in result.tallies.items():
            total[result.subject.group][result.variant.name, kind] += tally
    for group, tallies in total.items():
        yield f"Dependencies recovered, {group}\n"
        yield from markdown(
            ["traces", "dependencies", "in the graph", "false", "precision %", "true", "missing", "recall %"],
            [[*of, *_tally_row(tally)] for of, tally in tallies.items() if tally.edges or tally.needed],
        )


def _tally_row(tally: Tally) -> list[str]:
    figures = [str(tally.edges), str(tally.false), _number(tally.precision_pct)]
    return [*figures, str(tally.needed), str(tally.missing), _number(tally.recall_pct)]


def markdown(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yields a table, its columns of numbers to the right."""
    numbers = [all(row[column][:1] in "0123456789–+-" for row in rows) for column in range(len(head))]
    for row in (head, ["---:" if right else "---" for right in numbers], *rows):
        yield f"| {' | '.join(row)} |"
    yield ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
