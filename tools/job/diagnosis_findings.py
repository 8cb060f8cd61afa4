"""What is wrong or odd in the traces of one process, why that is likely so, and what to do about it: a rule each.

Compared with the other processes of the job, also what some of them lack that others have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...linker.match import BY_RECORD_FUNCTION, SMALLEST_AGREEMENT
from ...schema.errors import DataError, Remedy
from ...schema.reasons import Reason
from ..sync_records_advice import SETTING
from ..terminal import absent_ranks, ranges
from ..trace_files import BARE_NUMBER, RANK_IN_NAME, AssignedRanks, Trace, assign_ranks
from .cross_rank import mark_of
from .inspection import GroupCount, Inspection

WRONG, NOTE = "wrong", "note"
BEFORE_RECORD_FUNCTION_IDS = ("1.0.1", "1.0.2", "1.0.3", "1.0.4")
MOST_WITHOUT_CALL = 0.5
RANK_SPELT = [pattern for pattern in RANK_IN_NAME if pattern is not BARE_NUMBER]
MARKED = {"note": "fewer than others"}


class Finding(msgspec.Struct, frozen=True):
    """`what` was found in the traces of `where`, in each so many times as `counts` says where it can be counted."""

    severity: str
    where: list[str]
    what: str
    advice: str
    counts: list[int] = []


def findings_of(process: Inspection) -> Iterator[Finding]:
    """Yields what the rules find in one process; only that, if its files cannot be read or are of several ranks."""
    if process.error:
        yield Finding(WRONG, [process.name], process.error, "record it again, or leave the file out")
        return
    advice = "what can be read is used: copy or record it again" if process.damaged else "nothing to do"
    for note in process.notes:
        yield Finding(WRONG if process.damaged else NOTE, [process.name], _without_folders(process, note), advice)
    for contradiction in process.contradictions or ():
        what = _without_folders(process, f"{contradiction.path}: {contradiction.what}; {contradiction.meaning}")
        yield Finding(WRONG, [process.name], what, contradiction.advice)
    for rule in (merged_ranks,) if process.merged else RULES:
        finding = rule(process)
        if finding:
            yield finding


def merged_ranks(process: Inspection) -> Finding:
    """Finds a device trace that holds several ranks."""
    what = f"several ranks merged into one file ({'; '.join(process.merged)})"
    return Finding(WRONG, [process.name], what, f"use each rank's own file, or {Remedy.LINK_RANK} to take one out")


def other_process(process: Inspection) -> Finding | None:
    """Finds swapped files: ops have the same names on all ranks of a job, so only process and rank show it."""
    if process.host_process is None or not process.processes or process.host_process in process.processes:
        return None
    recorded = ", ".join(map(str, process.processes[:4]))
    what = (
        f"{_file(process.host)} is of process {process.host_process}, {_file(process.device)} of {recorded}, though "
        f"{process.agreement_pct:g} % of their ops have the same names"
    )
    return Finding(WRONG, [process.name], what, "they are of different ranks or runs: pair files by process")


def other_run(process: Inspection) -> Finding | None:
    """Finds files of one process of which too few ops agree."""
    if not process.matched_by or process.agreement_pct >= 100 * SMALLEST_AGREEMENT or other_process(process):
        return None
    what = (
        f"{process.agreement_pct:g} % of the ops of {_file(process.host)} and {_file(process.device)} agree (by "
        f"{process.matched_by})"
    )
    return Finding(WRONG, [process.name], what, "they are not of one run: record both in one go")


def swapped_names(process: Inspection) -> Finding | None:
    """Finds files of one process whose names are of different ranks."""
    named = {_rank_named(process.device), _rank_named(process.host)} - {None}
    ranks = named | ({process.rank} if process.records_rank else set())
    beyond = process.rank is not None and process.world_size is not None and process.rank >= process.world_size
    if len(ranks) < 2 or not process.matched_by or beyond or other_process(process):
        return None
    what = (
        f"{_file(process.device)} and {_file(process.host)} are of one process, but named as of ranks "
        f"{' and '.join(sorted(map(str, ranks)))}"
    )
    return Finding(WRONG, [process.name], what, "their names are swapped: rename them, or pair files by process")


def misnamed_rank(process: Inspection) -> Finding | None:
    """Finds a device trace without a host trace that records another rank than its name says."""
    named = _rank_named(process.device)
    if not process.records_rank or named in (None, process.rank) or process.matched_by:
        return None
    what = f"{_file(process.device)} is of rank {process.rank}, but named as of rank {named}"
    return Finding(NOTE, [process.name], what, "the recorded rank counts")


def no_partner(process: Inspection) -> Finding | None:
    """Finds that one of the two traces is missing."""
    if process.device and process.host:
        return None
    if process.host:
        advice = "a host trace alone has no times: record the device trace with it"
        return Finding(NOTE, [process.name], "a host trace without a device trace", advice)
    advice = (
        "the graph will have no tensors and no data dependencies: record a host trace with it (ExecutionTraceObserver)"
    )
    return Finding(NOTE, [process.name], "a device trace without a host trace", advice)


def no_rank(process: Inspection) -> Finding | None:
    """Neither the device trace nor its name tells the rank."""
    if process.rank is not None or not process.device:
        return None
    return Finding(
        NOTE, [process.name], "neither the file nor its name says the rank", f"name it …rank<N>, or pass {Remedy.RANK}"
    )


def no_activities(process: Inspection) -> Finding | None:
    """Finds a device trace in which nothing ran on a device."""
    if not process.device or process.activities:
        return None
    advice = "if the job used GPUs, add the device to the profiler's activities (ProfilerActivity.CUDA)"
    return Finding(NOTE, [process.name], "no device activity", advice)


def activities_without_call(process: Inspection) -> Finding | None:
    """Finds activities whose launch was not recorded: wrong if they are more than half."""
    count = process.dropped[Reason.ACTIVITIES_WITHOUT_CALL]
    if not count:
        return None
    if not process.calls:
        advice = "no runtime call was recorded: only streams order the activities; record API calls too"
        return Finding(NOTE, [process.name], "activities without a launch call", advice, [count])
    advice = (
        "they were queued before recording began, or launched by driver calls that are not recorded; they keep their "
        "measured start; record one more warm-up step"
    )
    severity = WRONG if count > MOST_WITHOUT_CALL * process.activities else NOTE
    return Finding(severity, [process.name], "activities without a launch call", advice, [count])


def graphs_not_recorded(process: Inspection) -> Finding | None:
    """Graphs were launched, but what they ran is not in the trace."""
    if not process.graph_launches_alone:
        return None
    advice = (
        "the profiler did not record what the graphs ran: start it before they are captured, update CUPTI or "
        "roctracer (rocm-trace-lite: RTL_MODE=full), or record without graphs"
    )
    what = "graph launches whose kernels are not recorded"
    return Finding(WRONG, [process.name], what, advice, [process.graph_launches_alone])


def no_sync_records(process: Inspection) -> Finding | None:
    """Finds a CUDA trace with waits and activities, but without cuda_sync rows."""
    if not process.waits_without_record:
        return None
    advice = f"what waits were for is inferred from the order and times of calls; {SETTING} records it"
    return Finding(NOTE, [process.name], "synchronisation records are off", advice)


def no_record_function_ids(process: Inspection) -> Finding | None:
    """Finds that two files had to be matched by the names of their ops."""
    if not process.matched_by or process.matched_by == BY_RECORD_FUNCTION:
        return None
    old = process.versions.get("host schema", "").startswith(BEFORE_RECORD_FUNCTION_IDS)
    cause = (
        "PyTorch before 2.4 records none"
        if old
        else "the host trace was not being recorded when the profiler's window began"
    )
    what = "record-function ids are absent or 0"
    return Finding(NOTE, [process.name], what, f"{cause}; ops are matched by the order of their names")


def several_alignments(process: Inspection) -> Finding | None:
    """Finds a host trace that is shorter than the device trace and could be several parts of it."""
    if process.alignment_count < 2:
        return None
    what = "the host trace fits the device trace at several positions"
    return Finding(
        NOTE, [process.name], what, "the first is taken; record both over the same steps", [process.alignment_count]
    )


def unknown_categories(process: Inspection) -> Finding | None:
    """Finds rows of categories that are none of the known ones."""
    count = process.dropped.of(Reason.UNKNOWN_CATEGORY, Reason.UNKNOWN_OP_TYPE)
    if not count:
        return None
    return Finding(
        NOTE, [process.name], "rows of unknown categories", "they are left out; see the counts below", [count]
    )


def collectives_without_kernel(process: Inspection) -> Finding | None:
    """Finds collectives that launched no kernel, as those of a group of one rank do: graphs hold none of them."""
    if not process.collectives_without_kernel:
        return None
    what = f"its {process.collectives_without_kernel:,} calls of collectives launched no kernel that communicates"
    advice = "nothing to do if their groups have one rank: such a collective is a copy; graphs hold no collective then"
    return Finding(NOTE, [process.name], what, advice)


RULES: tuple[Callable[[Inspection], Finding | None], ...] = (
    other_process,
    other_run,
    swapped_names,
    misnamed_rank,
    no_partner,
    no_activities,
    activities_without_call,
    graphs_not_recorded,
    no_sync_records,
    no_record_function_ids,
    collectives_without_kernel,
    several_alignments,
    unknown_categories,
)


def _without_folders(process: Inspection, text: str) -> str:
    """Returns the text with the process's files by their names alone."""
    for path in filter(None, (process.device, process.host)):
        text = text.replace(path, _file(path))
    return text


def _file(path: str) -> str:
    return Path(path).name


def _rank_named(path: str) -> int | None:
    """Returns the rank that a file's name spells out; a bare number may be anything."""
    matches = (pattern.search(_file(path)) for pattern in RANK_SPELT)
    return next((int(rank.group(1)) for rank in matches if rank), None)


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
