"""What is wrong or odd in the traces of one process, why that is likely so, and what to do about it: a rule each.

Compared with the other processes of the job, also what some of them lack that others have.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ...linker.match import BY_RECORD_FUNCTION, SMALLEST_AGREEMENT
from ...schema.errors import DataError, Remedy
from ...schema.reasons import Reason
from ..recognise import BARE_NUMBER, RANK_IN_NAME, InputKind, Trace
from ..sync_records_advice import SETTING
from ..terminal import absent_ranks, ranges
from ..trace_files import assign_ranks
from .cross_rank import mark_of, usual_steps
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
    if process.merged:
        what = f"several ranks merged into one file ({'; '.join(process.merged)})"
        yield Finding(WRONG, [process.name], what, f"use each rank's own file, or {Remedy.LINK_RANK} to take one out")
        return
    for severity, what, advice, *counts in (*_not_of_one_process(process), *_not_recorded(process)):
        yield Finding(severity, [process.name], what, advice, counts)


def _not_of_one_process(process: Inspection) -> Iterator[tuple[str, str, str]]:
    """Yields whose traces the two files are, if not those of one process, as severity, what and advice."""
    device, host = _file(process.device), _file(process.host)
    named, named_host = _rank_named(device), _rank_named(host)
    ranks = {named, named_host, process.rank if process.records_rank else None} - {None}
    beyond = process.rank is not None and process.world_size is not None and process.rank >= process.world_size
    # ops have the same names on all ranks of a job, so only process and rank show swapped files
    if process.host_process is not None and process.processes and process.host_process not in process.processes:
        recorded, pct = ", ".join(map(str, process.processes[:4])), f"{process.agreement_pct:g} %"
        what = f"{host} is of process {process.host_process}, {device} of {recorded}, though {pct} of their ops have"
        yield WRONG, f"{what} the same names", "they are of different ranks or runs: pair files by process"
    elif process.matched_by:
        if process.agreement_pct < 100 * SMALLEST_AGREEMENT:
            what = f"{process.agreement_pct:g} % of the ops of {host} and {device} agree (by {process.matched_by})"
            yield WRONG, what, "they are not of one run: record both in one go"
        if len(ranks) > 1 and not beyond:
            named_ranks = " and ".join(sorted(map(str, ranks)))
            what = f"{device} and {host} are of one process, but named as of ranks {named_ranks}"
            yield WRONG, what, "their names are swapped: rename them, or pair files by process"
    if process.records_rank and named not in (None, process.rank) and not process.matched_by:
        what = f"{device} is of rank {process.rank}, but named as of rank {named}"
        yield NOTE, what, "the recorded rank counts"
    if not device:
        advice = "a host trace alone has no times: record the device trace with it"
        yield NOTE, "a host trace without a device trace", advice
    elif not host:
        advice = "the graph will have no tensors and no data dependencies: record a host trace with it"
        yield NOTE, "a device trace without a host trace", f"{advice} (ExecutionTraceObserver)"


def _not_recorded(process: Inspection) -> Iterator[tuple[str, str, str] | tuple[str, str, str, int]]:
    """Yields what a process did not record, as severity, what, advice and, where it can be counted, how often."""
    if process.device and not process.activities:
        advice = "if the job used GPUs, add the device to the profiler's activities (ProfilerActivity.CUDA)"
        yield NOTE, "no device activity", advice
    if count := process.dropped[Reason.ACTIVITIES_WITHOUT_CALL]:
        if process.calls:
            severity = WRONG if count > MOST_WITHOUT_CALL * process.activities else NOTE
            advice = (
                "they were queued before recording began, or launched by driver calls that are not recorded; they keep "
                "their measured start; record one more warm-up step"
            )
        else:
            severity = NOTE
            advice = "no runtime call was recorded: only streams order the activities; record API calls too"
        yield severity, "activities without a launch call", advice, count
    if count := process.graph_launches_alone:
        advice = (
            "the profiler did not record what the graphs ran: start it before they are captured, update CUPTI or "
            "roctracer (rocm-trace-lite: RTL_MODE=full), or record without graphs"
        )
        yield WRONG, "graph launches whose kernels are not recorded", advice, count
    if process.waits_without_record:
        advice = f"what waits were for is inferred from the order and times of calls; {SETTING} records it"
        yield NOTE, "synchronisation records are off", advice
    if process.matched_by not in ("", BY_RECORD_FUNCTION):
        is_old = process.versions.get("host schema", "").startswith(BEFORE_RECORD_FUNCTION_IDS)
        window = "the host trace was not being recorded when the profiler's window began"
        cause = "PyTorch before 2.4 records none" if is_old else window
        yield NOTE, "record-function ids are absent or 0", f"{cause}; ops are matched by the order of their names"
    if count := process.collectives_without_kernel:
        # as those of a group of one rank do
        advice = (
            "nothing to do if their groups have one rank: such a collective is a copy; graphs hold no collective then"
        )
        yield NOTE, f"its {count:,} calls of collectives launched no kernel that communicates", advice
    if process.alignment_count > 1:
        # the host trace is shorter, and could be several parts of the device trace
        advice = "the first is taken; record both over the same steps"
        yield NOTE, "the host trace fits the device trace at several positions", advice, process.alignment_count
    if count := process.dropped.of(Reason.UNKNOWN_CATEGORY, Reason.UNKNOWN_OP_TYPE):
        yield NOTE, "rows of unknown categories", "they are left out; see the counts below", count


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


def compare(processes: Sequence[Inspection]) -> tuple[list[Finding], bool]:
    """Returns what processes with device traces do not have in common, and whether they are of different runs: then
    only that. Linear in their groups' members.
    """
    recorded = [process for process in processes if process.device and not process.error and not process.merged]
    communicating = {process.device for process in recorded if process.collectives}
    traces = [
        Trace(p.device, InputKind.DEVICE, next(iter(p.processes), None), p.rank, p.records_rank) for p in recorded
    ]
    try:
        ranks = assign_ranks(traces, lambda trace: trace.name in communicating)
    except DataError as error:
        return [Finding(WRONG, [], str(error), "")], True
    findings = [Finding(WRONG, [], line, "") for line in ranks.failures]
    if ranks.of_several_runs:
        return findings, True
    findings += [Finding(NOTE, [], line, "name it …rank<N>.json if it is of another") for line in ranks.notes]
    if len(recorded) == 1:
        [process] = recorded
        if process.rank is None:
            what, advice = "neither the file nor its name says the rank", f"name it …rank<N>, or pass {Remedy.RANK}"
            findings.append(Finding(NOTE, [process.name], what, advice))
    else:
        findings += [*_asymmetry(recorded), *_missing_collectives(recorded)]
    world = max((process.world_size or 0 for process in recorded), default=0)
    absent = absent_ranks((process.rank for process in recorded if process.rank is not None), world)
    if absent and any(process.records_rank for process in recorded):
        runs = [f"rank{'s' * (count > 1)} {run}" for run, count in absent.items()]
        what, advice = f"absent from a job of {world} ranks", "only these ranks' graphs will be missing"
        findings.append(Finding(NOTE, runs, what, advice))
    return findings, False


def most_kernels(processes: Sequence[Inspection]) -> int:
    """Returns the kernels of the process that has most."""
    return max((process.kernels for process in processes if not process.merged), default=0)


def _asymmetry(processes: Sequence[Inspection]) -> Iterator[Finding]:
    """Yields processes that recorded fewer kernels or other steps than the rest."""
    largest, steps = most_kernels(processes), usual_steps(process.steps for process in processes)
    for process in processes:
        if mark := mark_of(process.kernels, largest):
            what = f"{MARKED.get(mark, mark)}: {process.kernels} kernels where another rank has {largest}"
            advice = "was it stopped, idle, or traced over fewer steps?"
            yield Finding(NOTE if mark == "note" else WRONG, [process.name], what, advice)
    for process in processes:
        if process.steps != steps:
            what = f"{process.steps} steps, other ranks have {steps}"
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
