"""Which jobs are measured, and how: a job in, its answers and dependencies by each variant of its traces out."""

from collections import defaultdict
from collections.abc import Sequence

from execgraph.tools.generate import simulate

from ..programs import JOBS, NAMED, RANDOM, build_job, ranks_of
from .dependencies import Tally, dependency_accuracy
from .tables import Result, Subject
from .what_if import VARIANTS, answers, graphs_of, true_outcomes

RANKS = (2, 4)
STEPS = 4
"""So many that waits at the end of one step hold up the next ones."""


def subjects(jobs: Sequence[str], seeds: int, programs: int) -> list[Subject]:
    """Returns every job with every seed and number of ranks, and random programs, each on two machines."""
    sizes = {job: RANKS if JOBS[job].size.ranks > 1 else (1,) for job in jobs}
    named = [Subject(job, ranks, seed) for job in sizes for ranks in sizes[job] for seed in range(seeds)]
    random = [Subject(RANDOM, ranks_of(RANDOM, seed), seed) for seed in range(programs)]
    return [subject for kind in (named, random) for subject in (*kind, *map(_on_drawn_machine, kind))]


def _on_drawn_machine(subject: Subject) -> Subject:
    """Returns the machine of a subject is the same, whatever else is measured; hardly two share one."""
    of_job = 0 if subject.job == RANDOM else 1000 * (1 + NAMED.index(subject.job)) + 100 * subject.ranks
    return subject._replace(machine_seed=of_job + subject.seed)


def measure(subject: Subject) -> list[Result]:
    """Simulates the job under all changes, and measures the graphs of each variant of its traces.

    Raises DataError where a graph cannot be made or is not of the run.
    """
    job = build_job(subject.job, ranks=subject.ranks, steps=STEPS, seed=subject.seed, machine=subject.machine)
    run = simulate(job)
    outcomes = true_outcomes(job)
    results = []
    for variant in VARIANTS:
        graphs = graphs_of(run, variant)
        tallies: defaultdict[str, Tally] = defaultdict(Tally)
        for rank, graph in zip(run.ranks, graphs, strict=True):
            for kind, tally in dependency_accuracy(job, rank, graph).items():
                tallies[kind] += tally
        results.append(Result(subject, variant, list(answers(graphs, outcomes)), dict(tallies)))
    return results
