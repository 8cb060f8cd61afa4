"""Compares the processes of a job: what some of them lack that others have."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...schema.errors import DataError
from ..input_ranks import AssignedRanks, assign_ranks
from ..rank_rows import absent_ranks, ranges
from ..trace_files import Trace
from .cross_rank import mark_of
from .diagnosis_findings import NOTE, WRONG, Finding, no_rank
from .inspection import GroupCount, Inspection

MARKED = {"note": "fewer than others"}


class Comparison(NamedTuple):
    """What processes do not have in common, or, of different runs, only that they are."""

    findings: list[Finding]
    of_several_runs: bool


def compare(processes: Sequence[Inspection]) -> Comparison:
    """Returns what processes with device traces do not have in common. Linear in their groups' members."""
    recorded = [process for process in processes if process.device and not process.error and not process.merged]
    try:
        ranks = _ranks(recorded)
    except DataError as error:
        return Comparison([Finding(WRONG, [], str(error), "")], of_several_runs=True)
    findings = [Finding(WRONG, [], line, "") for line in ranks.failures]
    if ranks.of_several_runs:
        return Comparison(findings, of_several_runs=True)
    findings += [Finding(NOTE, [], line, "name it …rank<N>.json if it is of another") for line in ranks.notes]
    if len(recorded) == 1:
        findings += filter(None, map(no_rank, recorded))
    else:
        for rule in (_fewer_kernels, _other_steps, _missing_collectives):
            findings += rule(recorded) if recorded else ()
    return Comparison([*findings, *_absent_ranks(recorded)], of_several_runs=False)


def most_kernels(processes: Sequence[Inspection]) -> int:
    """Returns the kernels of the process that has most."""
    return max((process.kernels for process in processes if not process.merged), default=0)


def _fewer_kernels(processes: Sequence[Inspection]) -> Iterator[Finding]:
    largest = most_kernels(processes)
    for process in processes:
        mark = mark_of(process.kernels, largest)
        if mark:
            what = f"{MARKED.get(mark, mark)}: {process.kernels} kernels where another rank has {largest}"
            advice = "was it stopped, idle, or traced over fewer steps?"
            yield Finding(NOTE if mark == "note" else WRONG, [process.name], what, advice)


def _other_steps(processes: Sequence[Inspection]) -> Iterator[Finding]:
    step_counts = Counter(process.steps for process in processes)
    usual_steps = step_counts.most_common(1)[0][0]
    for process in processes:
        if process.steps != usual_steps:
            what = f"{process.steps} steps, other ranks have {usual_steps}"
            yield Finding(NOTE, [process.name], what, "trace the same steps on all ranks")


def _missing_collectives(processes: Sequence[Inspection]) -> Iterator[Finding]:
    """Yields groups whose members here recorded different numbers of collectives, or different ones."""
    here = {process.rank: process for process in processes if process.rank is not None}
    groups: dict[tuple[int, ...], dict[int, GroupCount]] = defaultdict(dict)
    for rank, process in here.items():
        for group in process.groups:
            groups[tuple(group.ranks)][rank] = group
    for members, counts in sorted(groups.items()):
        fullest = max(counts.values(), key=lambda group: group.count)
        for rank in filter(here.__contains__, members):
            recorded = counts.get(rank, GroupCount([], 0))
            if (recorded.count, recorded.first, recorded.last) != (fullest.count, fullest.first, fullest.last):
                what = (
                    f"{_collectives(recorded)} of group {ranges(sorted(members))}, where another member recorded "
                    f"{_collectives(fullest)}"
                )
                advice = "a simulator would hang on the rest: trace the same steps on all ranks"
                yield Finding(WRONG, [here[rank].name], what, advice)


def _collectives(group: GroupCount) -> str:
    numbers = f" (numbers {group.first} to {group.last})" if group.first >= 0 else ""
    return f"{group.count} collectives{numbers}"


def _ranks(processes: Sequence[Inspection]) -> AssignedRanks:
    """Returns the ranks of the device traces. Raises DataError if they are of different jobs."""
    communicating = {process.device for process in processes if process.collectives}
    traces = [
        Trace(process.device, next(iter(process.processes), None), process.rank, process.records_rank)
        for process in processes
    ]
    return assign_ranks(traces, lambda trace: trace.name in communicating)


def _absent_ranks(processes: Sequence[Inspection]) -> Iterator[Finding]:
    world = max((process.world_size or 0 for process in processes), default=0)
    absent = absent_ranks((process.rank for process in processes if process.rank is not None), world)
    if absent and any(process.records_rank for process in processes):
        runs = [f"rank{'s' * (count > 1)} {run}" for run, count in absent.items()]
        yield Finding(NOTE, runs, f"absent from a job of {world} ranks", "only these ranks' graphs will be missing")
