"""Diagnoses files and folders: every process that was traced, what is in its files, and all findings, also as text.

A rule says what is wrong or odd in the traces of one process, why that is likely so, and what to do about it; compared
with the other processes of the job, also what some of them lack that others have. What is wrong with many processes is
one line for each kind.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ...converter.ranks import Calls, clock_contradictions, match
from ...linker.match import BY_NAME_ORDER, SMALLEST_AGREEMENT
from ...linker.readers import OWN_FILES, merged_ranks
from ...schema.columns import format_counts
from ...schema.errors import DataError, Remedy
from ...schema.progress import Progress, unwatched
from ...schema.reasons import Reason
from ..recognise import BARE_NUMBER, RANK_IN_NAME, InputKind, Trace, why_two_jobs
from ..sync_records_advice import SETTING
from ..terminal import NAMES_SHOWN, absent_ranks, list_counts, ranges
from ..trace_files import TraceFiles, assign_ranks, find_traces, hosts_of
from ..workers import in_processes
from .cross_rank import FEWER, compare_ranks, mark_of, usual_steps, why_no_job
from .inspection import Exchanged, Inspection, communicated, inspect

WRONG, NOTE = "wrong", "note"
BEFORE_RECORD_FUNCTION_IDS = ("1.0.1", "1.0.2", "1.0.3", "1.0.4")
RANK_SPELT = [pattern for pattern in RANK_IN_NAME if pattern is not BARE_NUMBER]
FOR_RANKS = "a rank lacks rows, or names a wrong size or peer, or ranks are of different runs or steps"
FOR_CLOCKS = "a rank's clock, or its durations, may be wrong, such as in other units, or ranks are of different runs"
Key = tuple[str, int | None]
"""A process, by its device trace and rank."""
WORTH_PROCESSES = 32 << 20
"""So many bytes make up for starting processes."""


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
    advice = "what can be read is used: copy or record it again" if process.damaged else ""
    for note in process.notes:
        yield Finding(WRONG if process.damaged else NOTE, [process.name], _without_folders(process, note), advice)
    if process.uneven_steps:
        yield Finding(NOTE, [process.name], _without_folders(process, process.uneven_steps), "")
    for contradiction in process.contradictions or ():
        what = _without_folders(process, f"{contradiction.path}: {contradiction.what}; {contradiction.meaning}")
        yield Finding(WRONG, [process.name], what, contradiction.advice)
    if process.merged:
        what = f"several ranks, processes or recordings in one file ({'; '.join(process.merged)})"
        advice = f"give it to {Remedy.BUILD} alone" if process.merged_ranks else OWN_FILES
        yield Finding(NOTE if process.merged_ranks else WRONG, [process.name], what, advice)
        return
    if process.merged_ranks and process.rank == process.merged_ranks[0] < process.merged_ranks[-1]:
        what = f"ranks {ranges(process.merged_ranks)} are in one file"
        advice = f"{Remedy.BUILD} builds all of them, {Remedy.LINK_RANK} takes one out"
        yield Finding(NOTE, [msgspec.structs.replace(process, rank=None).name], what, advice)
    for severity, what, advice, *counts in (*_not_of_one_process(process), *_not_recorded(process)):
        yield Finding(severity, [process.name], what, advice, counts)


def _not_of_one_process(process: Inspection) -> Iterator[tuple[str, str, str]]:
    """Yields whose traces the two files are, if not those of one process, as severity, what and advice."""
    device, host = _file(process.device), _file(process.host)
    named, named_host = rank_named(device), rank_named(host)
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
        yield WRONG, "a host trace without a device trace", advice
    elif not host:
        advice = "the graph will have no tensors and no data dependencies: record a host trace with it"
        yield NOTE, "a device trace without a host trace", f"{advice} (ExecutionTraceObserver)"


def _not_recorded(process: Inspection) -> Iterator[tuple[str, str, str] | tuple[str, str, str, int]]:
    """Yields what a process did not record, as severity, what, advice and, where it can be counted, how often."""
    # a host trace shows whether the job used a device, which contradicts a device trace without calls
    is_unknown = bool(process.device and (process.calls or not process.host) and not process.activities)
    if is_unknown and not process.dropped[Reason.LAUNCHES_WITHOUT_ACTIVITY]:
        advice = "if the job used GPUs, add the device to the profiler's activities (ProfilerActivity.CUDA)"
        yield NOTE, "no device activity", advice
    # a contradiction says which launch calls were lost
    if count := process.dropped[Reason.ACTIVITIES_WITHOUT_CALL] - process.dropped[Reason.LAUNCHES_NOT_RECORDED]:
        advice = "no runtime call was recorded: only streams order the activities; record API calls too"
        if process.calls:
            advice = (
                "they were queued before recording began, or their calls were not recorded, and keep their measured "
                "start; record one more warm-up step"
            )
        yield NOTE, "activities without a launch call", advice, count
    if process.waits_without_record:
        advice = f"what waits were for is inferred from the order and times of calls; {SETTING} records it"
        yield NOTE, "synchronisation records are off", advice
    if process.matched_by == BY_NAME_ORDER:
        is_old = process.versions.get("host schema", "").startswith(BEFORE_RECORD_FUNCTION_IDS)
        window = "the host trace was not being recorded when the profiler's window began"
        cause = "PyTorch before 2.4 records none" if is_old else window
        yield NOTE, "record-function ids are absent or 0", f"{cause}; ops are matched by the order of their names"
    if count := process.collectives_without_kernel:
        advice = "graphs hold no collective then: record again, unless their groups have one rank"
        yield NOTE, f"{count:,} calls of collectives launched no kernel that communicates", advice
    if process.alignment_count > 1:
        # the host trace is shorter, and could be several parts of the device trace
        advice = "the first is taken; record both over the same steps"
        yield NOTE, "the host trace fits the device trace at several positions", advice, process.alignment_count
    if count := process.dropped.of(Reason.UNKNOWN_CATEGORY, Reason.UNKNOWN_OP_TYPE):
        yield NOTE, "rows of unknown categories", "they are left out; see the counts below", count


def _without_folders(process: Inspection, text: str) -> str:
    """Returns the text with the process's files by their names alone."""
    for path in process.files:
        text = text.replace(path, _file(path))
    return text


def _key(process: Inspection) -> Key:
    return process.device, process.rank


def _file(path: str) -> str:
    return Path(path).name


def rank_named(path: str) -> int | None:
    """Returns the rank that a file's name spells out; a bare number may be anything."""
    matches = (pattern.search(_file(path)) for pattern in RANK_SPELT)
    return next((int(rank.group(1)) for rank in matches if rank), None)


def compare(
    processes: Sequence[Inspection], times: Mapping[str, int | None], exchanged: Mapping[Key, Exchanged]
) -> tuple[list[Finding], bool]:
    """Returns what processes with device traces do not have in common, and whether they are of different runs, also by
    the times of each trace: then only that. `exchanged` is what each process communicated.
    """
    recorded = [process for process in processes if process.device and not process.error and not process.merged]
    communicating = {process.device for process in recorded if process.collectives}
    pids = (next(iter(process.processes), None) for process in recorded)
    traces = [
        Trace(p.device, InputKind.DEVICE, pid, p.rank, p.records_rank, recorded_ns=times.get(p.device))
        for p, pid in zip(recorded, pids, strict=True)
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
            what = "neither the file nor its name says the rank"
            advice = f"name it …rank<N>, or link it by {Remedy.LINK_RANK}"
            findings.append(Finding(NOTE, [process.name], what, advice))
    else:
        findings += _asymmetry(recorded)
        # what records no rank may be numbered
        keys = {trace.rank: [(trace.name, rank) for rank in (trace.rank, None)] for trace in ranks.traces}
        of_rank = {
            rank: key for rank, either in keys.items() for key in either if rank is not None and key in exchanged
        }
        by_key = {_key(process): process for process in recorded}
        comms = {rank: exchanged[key].comms for rank, key in of_rank.items()}
        calls = match([exchanged[key].calls for key in of_rank.values()] or [Calls.of([])])
        lines, _ = compare_ranks(comms, -1, lambda rank: communicated(by_key[of_rank[rank]]))
        findings += [Finding(WRONG, [], f"ranks disagree: {line}", FOR_RANKS) for line in lines]
        lines = clock_contradictions(calls, [*of_rank])
        findings += [Finding(WRONG, [], f"ranks disagree: {line}", FOR_CLOCKS) for line in lines]
        findings += [Finding(NOTE, [], line, "") for line in (*calls.decisions, *why_no_job(comms))]
    if jobs := why_two_jobs((each.rank, each.world_size or 0) for each in recorded if each.rank is not None):
        return [*findings, Finding(WRONG, [], jobs, "give the traces of one job")], False
    world = max((process.world_size or 0 for process in recorded), default=0)
    absent = absent_ranks((process.rank for process in recorded if process.rank is not None), world)
    if absent and any(process.records_rank for process in recorded):
        runs = [f"rank{'s' * (count > 1)} {run}" for run, count in absent.items()]
        what, advice = (
            f"absent from a job of {world} ranks",
            "their graphs will be missing, and time spent waiting for them stays in the graphs of the others",
        )
        findings.append(Finding(NOTE, runs, what, advice))
    return findings, False


def most_kernels(processes: Sequence[Inspection]) -> Inspection:
    """Returns the process that launched most kernels."""
    return max((process for process in processes if not process.merged), key=_launched, default=Inspection())


def _launched(process: Inspection) -> int:
    """Returns how many kernels were launched while it recorded."""
    return process.kernels - process.dropped[Reason.ACTIVITIES_WITHOUT_CALL] if process.calls else process.kernels


def mark_among(process: Inspection, most: Inspection) -> str:
    """Returns how far its kernels are fewer than `most`; no note where its ops are as much fewer, as of a pipeline."""
    mark, of_ops = mark_of(process.kernels, _launched(most)), process.ops / (most.ops or 1)
    return "" if mark == FEWER and not mark_of(process.kernels, int(of_ops * _launched(most))) else mark


def _asymmetry(processes: Sequence[Inspection]) -> Iterator[Finding]:
    """Yields processes that recorded fewer kernels or other steps than the rest."""
    largest, steps = most_kernels(processes), usual_steps(process.steps for process in processes)
    first = usual_steps(process.first_step for process in processes)
    for process in processes:
        if mark := mark_among(process, largest):
            few = "fewer than others" if mark == FEWER else mark
            what = f"{few}: {process.kernels} kernels where another rank has {_launched(largest)}"
            advice = "was it stopped, idle, or traced over fewer steps, or does it do other work than that rank?"
            yield Finding(NOTE if mark == FEWER else WRONG, [process.name], what, advice)
    for process in processes:
        if process.steps != steps:
            what = f"{process.steps} steps, other ranks have {steps}"
            yield Finding(NOTE, [process.name], what, "trace the same steps on all ranks")
        elif process.first_step != first:
            what = f"its steps begin with {process.first_step}, those of other ranks with {first}"
            yield Finding(NOTE, [process.name], what, "trace the same steps on all ranks")


def in_words(finding: Finding) -> str:
    """Returns one line: where, how many, what, and what to do, where that is not part of it."""
    location = f"{process_names(finding.where)}: " if finding.where else ""
    count = f" ({amount(finding.counts)})" if finding.counts else ""
    return f"{location}{finding.what}{count}" + (f"; {finding.advice}" if finding.advice else "")


def amount(counts: list[int]) -> str:
    """Counts of several processes: how many each, or in all.

    >>> amount([64]), amount([64, 64]), amount([1, 2])
    ('64', '64 each', '3 in all')
    """
    if len(counts) == 1:
        return str(counts[0])
    return f"{counts[0]} each" if len(set(counts)) == 1 else f"{sum(counts)} in all"


def process_names(where: list[str]) -> str:
    """Returns the processes of a finding, ranks in short.

    >>> process_names(["rank 0", "rank 1", "rank 2", "other.json"])
    'ranks 0-2, other.json'
    """
    numbers = [re.fullmatch(r"rank (\d+)", name) for name in where]
    listed = sorted({int(match.group(1)) for match in numbers if match})
    ranks = [] if not listed else [f"rank {listed[0]}" if len(listed) == 1 else f"ranks {ranges(listed)}"]
    unnumbered = [name for name, match in zip(where, numbers, strict=True) if not match]
    more = [f"{len(unnumbered) - NAMES_SHOWN} more"] if len(unnumbered) > NAMES_SHOWN else []
    return ", ".join(ranks + unnumbered[:NAMES_SHOWN] + more)


class Diagnosis(msgspec.Struct):
    """The processes by rank, the findings with what is wrong first, how many other files there were, by kind, and
    whether the processes are of different runs: they are not compared then.

    >>> import execgraph as eg
    >>> eg.diagnose("tests/data/training/device_rank0.json.gz").findings[0].what
    'a device trace without a host trace'
    """

    processes: list[Inspection]
    findings: list[Finding]
    skipped: dict[str, int] = {}
    of_several_runs: bool = False

    @property
    def wrong(self) -> int:
        """How many findings are of something wrong."""
        return sum(finding.severity == WRONG for finding in self.findings)

    def __repr__(self) -> str:
        counts = {"wrong": self.wrong, "notes": len(self.findings) - self.wrong}
        processes = f"{len(self.processes)} process{'es' * (len(self.processes) != 1)}"
        title = f"Diagnosis of {processes}: {format_counts(counts) or 'nothing to note'}"
        return "\n".join([title, *(f"  {finding.severity:<6} {in_words(finding)}" for finding in self.findings)])


def diagnose(paths: Sequence[Path], jobs: int = 0, progress: Progress = unwatched) -> Diagnosis:
    """Reads every trace among the files and folders once, in up to `jobs` processes where the files are large enough to
    make up for starting these. Raises DataError when there is none.
    """
    files = find_traces(paths, progress=progress)
    if files.devices:
        # a merged trace among those that it was merged of is no process of its own, unless it was asked for by name
        named = {str(path) for path in paths}
        if skipped := sum(trace.name not in named for trace in files.merged):
            files.skipped[InputKind.MERGED.plural] = skipped
        files.merged = [trace for trace in files.merged if trace.name in named]
    if alone := {trace.name for trace in files.details} - {device.detail for device in files.devices}:
        files.skipped["detail traces without the device trace of their process"] = len(alone)
    processes = _processes(files)
    if not processes and not files.failures:
        raise DataError(f"{', '.join(map(str, paths))}: no traces there{list_counts(', but ', files.skipped)}")
    size = sum(Path(path).stat().st_size for process in processes for path in process.files)
    exchanged = dict[Key, Exchanged]()
    outcomes = in_processes(inspect, processes, jobs if size >= WORTH_PROCESSES else 0)
    for process, outcome in progress(outcomes, "looking into traces", len(processes), "process"):
        inspected = msgspec.structs.replace(process, error=str(outcome))
        if isinstance(outcome, tuple):
            inspected, communicated_by = outcome
            exchanged |= {_key(inspected): communicated_by} if communicated_by else {}
        processes[processes.index(process)] = inspected
    findings = [Finding(WRONG, [], line, "") for line in files.failures]
    findings += [finding for process in processes for finding in findings_of(process)]
    times = {trace.name: trace.recorded_ns for trace in files.devices}
    compared, of_several_runs = compare(processes, times, exchanged)
    # that they are of different runs comes first: nothing else counts before that
    findings = compared + findings if of_several_runs else findings + compared
    merged: dict[tuple[str, str, str], Finding] = {}
    for severity, where, what, advice, counts in map(msgspec.structs.astuple, findings):
        equal = merged.setdefault((severity, what, advice), Finding(severity, [], what, advice))
        equal.where.extend(where)
        equal.counts.extend(counts)
    in_order = sorted(merged.values(), key=lambda finding: finding.severity != WRONG)
    return Diagnosis(processes, in_order, files.skipped, of_several_runs)


def _processes(files: TraceFiles) -> list[Inspection]:
    """Returns pairs by process, then pairs by rank or because each is the only one left, which the findings judge."""
    host_of = hosts_of(files.devices, files.hosts)
    devices = [trace for trace in files.devices if trace.name not in host_of]
    hosts = [trace for trace in files.hosts if trace.name not in set(host_of.values())]
    for device in devices:
        same = [host for host in hosts if host.rank == device.rank and host.rank is not None]
        candidates = hosts if len(hosts) == len(devices) == 1 else same
        if len(candidates) == 1:
            host_of[device.name] = candidates[0].name
    lonely = [host for host in hosts if host.name not in set(host_of.values())]
    processes = [Inspection("", host.name, rank=host.rank) for host in lonely]
    if len(files.merged) == 1 and not files.devices:
        name = files.merged[0].name
        with suppress(DataError):  # which inspecting it says
            ranks = merged_ranks(name)
            of_ranks = [Inspection(name, rank=rank, records_rank=True, merged_ranks=ranks) for rank in ranks]
            return of_ranks + processes
    for device in (*files.devices, *files.merged):
        process = Inspection(device.name, host_of.get(device.name, ""), rank=device.rank)
        process.records_rank, process.detail = device.records_rank, device.detail or msgspec.UNSET
        processes.append(process)
    return sorted(processes, key=lambda each: (each.rank is None, each.rank or 0, each.device, each.host))
