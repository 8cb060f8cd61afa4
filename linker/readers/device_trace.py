"""Reads a device trace into columns, in file order, and takes one rank's rows out of a merged one. A sign of that is
one correlation launched by several processes; one process that drives several devices is none.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from ...schema.arguments import InputFile, path_of
from ...schema.columns import Bool, Categorical, Int64, isin
from ...schema.comm_groups import INT32_MAX
from ...schema.device_peaks import named_by_size
from ...schema.errors import Damage, DataError, Remedy, RequestError
from ...schema.json_stream import ArrayReader, decode, kind_of_text
from ...schema.linked import FOREVER, LARGEST_ID, LONGEST_RECORDING, DeviceFile, MergedRank, identity, integer, kineto
from ...schema.machine import AGREEING
from ...schema.progress import OnProgress, unseen
from ...schema.reasons import Counts, Reason, reason_called
from .cupti_rows import with_dependencies
from .device_events import DeviceEvents, notes_on_times, tables_of, unpadded
from .device_rows import PYTHON, DeviceTrace, Role, select, skip_categories, unmarked_steps
from .formats import open_trace
from .repeated_rows import in_order

DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:')
RENAMING = b'_raw"'
RENAMED = re.compile(rb'"(?:pid|correlation|External id|id)_raw"\s*:')
HOST_OP = re.compile(rb'"cat"\s*:\s*"cpu_op"[^{}]*?"pid"\s*:\s*(\d+)')
HOST_NODES = re.compile(rb'"nodes"\s*:\s*\[')
RANK = re.compile(r"\brank[ _:=#-]*(\d+)", re.IGNORECASE)
REPEATED = 0.1
"""Share of correlations on several calls, one after the other, above which a file holds copies."""
LONGEST_REASON = 100
OWN_FILES = "link each rank's own file"
TIMES = ("start", "end")
IDS = ("correlation", "record_correlation")


def described(top: DeviceFile) -> dict[str, Any]:
    """Returns what the top level of a file says of its process, as members of `DeviceTrace`, without invalid values."""
    distributed = top.distributed or kineto.DistributedInfo()
    rank, world = integer(distributed.rank, -1), integer(distributed.world_size, -1)
    base_time = integer(top.base_time, 0)
    mean, wait = map(_nanoseconds, (top.step_without_profiler, top.data_wait_without_profiler))
    measured = _measured(top)
    step = measured.pop("step_without_profiler_ns", mean)
    devices = [[device.get(name) for name in ("id", "name", "numSms")] for device in _objects(top.devices)]
    return {
        "rank": rank if 0 <= rank <= INT32_MAX else None, "world_size": world if 0 < world <= INT32_MAX else None,
        "base_time_ns": base_time if 0 <= base_time < FOREVER else 0, "groups": _objects(distributed.pg_config),
        "device_names": {
            integer(number, -1): named_by_size(name, integer(multiprocessors, 0))
            for number, name, multiprocessors in devices
            if integer(number, -1) >= 0 and isinstance(name, str) and name
        },
        "step_without_profiler_ns": step if step > 0 else -1,
        "data_wait_without_profiler_ns": wait if wait <= mean else -1, "measured": measured,
        "window": top.window if isinstance(top.window, str) else "",
    }  # fmt: skip


def _measured(top: DeviceFile) -> dict[str, int]:
    """Returns what was measured beside the recording, by its name in linked traces and graphs."""
    given = {kineto.STEPS_WITHOUT_PROFILER: top.steps_without_profiler, kineto.RECORDING_COST: top.recording_cost}
    measured = {kineto.RECORDED_ALONE: 1} if top.window == "device" else {}
    for key, names in kineto.MEASURED.items():
        values = given[key] if isinstance(given[key], dict) else {}
        for member, name in names.items():
            value = _nanoseconds(values.get(member))
            if value > 0:
                measured[name] = value if name.endswith("_ns") else value // 1000
    return measured


def _objects(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _nanoseconds(time_us: Any) -> int:
    is_time = isinstance(time_us, int | float) and 0 <= time_us < LONGEST_RECORDING / 1000
    return round(time_us * 1000) if is_time else -1


def within_a_recording(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace without rows that were not timed, which are counted; DataError where most of them were not."""
    work = np.concatenate((device.ops.start, device.activities.start))
    if not len(work):
        return device
    middle = int(np.sort(work[work != 0] if work.any() else work)[np.count_nonzero(work) // 2])
    if device.recording_start is not None and abs(device.recording_start - middle) > LONGEST_RECORDING:
        device = replace(device, recording_start=None)
    names = ("ops", "calls", "activities", "syncs", "queue_events", *(["python"] if device.python is not None else []))
    near = {name: np.abs(getattr(device, name).start - middle) <= LONGEST_RECORDING for name in names}
    far = sum(int((~rows).sum()) for rows in near.values())
    untimed = {name: near[name] & (getattr(device, name).start == 0) for name in names if _are_untimed(device, near)}
    lost = {name: int(rows.sum()) for name, rows in untimed.items() if rows.any()}
    counted = ", ".join(f"{count} of {len(near[name])} {name}" for name, count in lost.items())
    what = f"{device.path}: {counted} have no time; they begin at 0, long before the rest"
    if any(2 * lost.get(name, 0) > len(near[name]) for name in ("ops", "activities")):
        raise DataError(what)
    if not far and not lost:
        return device
    device.skipped[Reason.UNUSABLE_TIME] += far + sum(lost.values())
    device.notes += [f"{what}, and are left out; record again"] * bool(lost)
    if far:
        device.notes.append(
            f"{device.path}: {far} events begin more than a year from the middle of the trace and are left out; "
            "their times are in another unit, or of another clock; give ts in µs of one clock"
        )
    return select(device, **near | {name: near[name] & ~rows for name, rows in untimed.items()})


def _are_untimed(device: DeviceTrace, near: dict[str, Bool]) -> bool:
    """Returns whether what begins at 0 was not timed: no length or several, and as far from the rest as that lasts."""
    tables = [(getattr(device, name), near[name]) for name in ("ops", "activities")]
    start, end = (np.concatenate([getattr(table, time)[rows] for table, rows in tables]) for time in TIMES)
    is_zero = start == 0
    if not is_zero.any() or is_zero.all():
        return False
    first, last = int(start[~is_zero].min()), int(end[~is_zero].max())
    at_once = bool((end[is_zero] == 0).any()) or int((device.activities.start == 0).sum()) > 1
    return at_once and first - int(end[is_zero].max()) > last - first


def read_device_trace(
    path: InputFile,
    *,
    strict: bool = False,
    tee: Callable[[bytes], object] | None = None,
    arguments: bool = False,
    on_progress: OnProgress = unseen,
    keep_categories: Sequence[str] = (),
    modules: bool = False,
) -> DeviceTrace:
    """Reads a device trace: JSON, an export of Nsight Systems, or a rocpd database; also gzip or zstd of them.

    Of damaged JSON what can be mended, or comes before a cut, is used; the trace's `notes` say what was wrong.

    >>> import execgraph as eg
    >>> eg.read_device_trace("tests/data/training/device_rank0.json.gz").rank
    0

    Args:
        path: The file to read, or the open file.
        strict: Whether to refuse a damaged file.
        tee: Is given the text of each list of events as it is read, so that what linking does not need can be read
            in the same pass; without the rows that files may hold millions of, unless their category is
            in `keep_categories`.
        arguments: Whether the ops keep their recorded arguments, for use without a host trace.
        on_progress: Is called with the number of bytes read since the last call.
        keep_categories: The categories of rows that `tee` needs although files may hold millions of them.
        modules: Whether to read Python's calls, too. Most traces that have them hold more of these than of all else.

    Raises:
        DataError: The file is no device trace, holds no usable event, or is a damaged database; or it is damaged at
            all, with `strict`.
    """
    with path_of(path) as path:
        damage = Damage(path, "device events", strict)
        events, is_renamed = DeviceEvents(arguments, modules), False
        with open_trace(path, protected=True) as stream:
            skipped = None if strict else skip_categories(*keep_categories, *([PYTHON] if modules else []))
            reader: ArrayReader[kineto.Event] = ArrayReader(
                stream, path, "traceEvents", kineto.Event, on_progress, damage=damage, skip_pattern=skipped
            )
            with _of_one_writer(reader):
                for piece, decoded in reader:
                    is_renamed = is_renamed or (RENAMING in piece and RENAMED.search(piece) is not None)
                    events.add(decoded, partial(decode, piece, list[kineto.ExactEvent], path))
                    if tee is not None:
                        tee(piece)
        events.ignore(reader.skipped)
        events.close()
        return _trace(events, reader, damage, is_renamed)


@contextmanager
def _of_one_writer(reader: ArrayReader[kineto.Event]) -> Iterator[None]:
    """Says of a file that cannot be read if several processes wrote into it."""
    try:
        yield
    except DataError as error:
        ops = Counter(HOST_OP.findall(reader.unread))
        processes = sorted(process.decode() for process, count in ops.items() if count >= AGREEING)
        what = f"processes {', '.join(processes)} wrote into it at once, so that rows of each are lost"
        if len(processes) > 1:
            raise DataError(f"{reader.path}: {what}; record again, with a file for each rank") from error
        raise


def _top_level(events: DeviceEvents, reader: ArrayReader[kineto.Event], damage: Damage) -> DeviceFile:
    """Returns what the file holds beside its events. Raises DataError for another file, or one without any work."""
    document = reader.document
    if not reader.has_array:
        is_host = HOST_NODES.search(document)
        what = "a host trace (it has nodes)" if is_host else kind_of_text(document, "traceEvents")
        raise DataError(f"{reader.path}: {what}; expected a Kineto device trace, as the PyTorch profiler writes it")
    top = DeviceFile() if document.lstrip()[:1] == b"[" else reader.top_level(DeviceFile)
    if not events.rows[Role.OP].count and not events.rows[Role.ACTIVITY].count:
        seen = f"; {damage.findings[0]}" if damage.findings else ""
        raise DataError(
            f"{reader.path}: holds no host op and no device activity; expected a Kineto trace with traceEvents{seen}"
        )
    return top


def _trace(events: DeviceEvents, reader: ArrayReader[kineto.Event], damage: Damage, is_renamed: bool) -> DeviceTrace:
    """Returns the trace of a file that was read. `is_renamed` says whether a merging tool renamed arguments."""
    path, document, top = reader.path, reader.document, _top_level(events, reader, damage)
    pad = unpadded(events.rows.values())
    trace = DeviceTrace(
        path=path, **described(top), **tables_of(events, pad),
        communication={role: events.rows[role].communication.records() for role in (Role.OP, Role.ACTIVITY)},
        handed_over=events.flows.handoffs(pad["start"]), labels=events.labels, merged=top.merged,
        skipped=events.skipped, oddities=events.oddities,
        recording_start=min(events.recordings, default=None), read=events.read, ignored=events.ignored, ends_early=damage.ends_early,
    )  # fmt: skip
    trace.notes += [f"{path}: {note}" for note in notes_on_times(events.rows.values(), pad)]
    lanes = {lane: thread for record in top.merged for lane, thread in record.threads.items()}
    thread, recorded = events.rows[Role.ACTIVITY].column("thread"), partial(_mapped, original=lanes)
    trace = with_dependencies(trace, events.flows, thread, pad["start"], recorded)
    trace.merged = trace.merged or _named_ranks(events.named_processes, top)
    trace = in_order(within_a_recording(trace))
    trace.notes += unmarked_steps(trace)
    trace.notes += [f"{path}: {note}" for note in (top.notes if isinstance(top.notes, list) else [])]
    trace.skipped.add(damage.dropped)
    for name, count in (top.not_read if isinstance(top.not_read, dict) else {}).items():
        trace.skipped[reason_called(str(name)[:LONGEST_REASON])] += max(0, integer(count, 0))
    trace.oddities.add(damage.oddities)
    trace.notes += damage.notes
    repeated = events.flows.repeated()
    marks = (
        ("several distributedInfo", len(DISTRIBUTED.findall(document)) > 1),
        ("arguments renamed by a merging tool", is_renamed or RENAMED.search(document) is not None),
        (f"{repeated} flows that start more than once", repeated > 0),
        (f"{len(events.recordings)} recordings", len(events.recordings) > 1),
    )
    trace.merge_marks += [mark for mark, is_there in marks if is_there]
    if names := _listed(trace):
        if len(trace.merged) == 1:
            return one_rank(trace, trace.merged[0].rank)
        trace.notes.append(f"{path}: its ranks are numbered by their coordinates: {names}")
    return trace


def _named_ranks(processes: set[str], top: DeviceFile) -> list[MergedRank]:
    """Returns how to get the ranks of a trace in which processes are named by the coordinates of their rank."""
    own_processes: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for match in filter(None, map(kineto.PROCESS_OF_RANK.fullmatch, processes)):
        own_processes[match[1]][identity(match[0])] = identity(match[2])
    ranks, distributed = kineto.ranks_by_coordinates(own_processes), top.distributed or kineto.DistributedInfo()
    merged = []
    if len(ranks) == 1:
        ranks = {label: integer(distributed.rank, rank) for label, rank in ranks.items()}
    # the file has the top level of its first rank; replicas that are jobs of their own are not in its groups
    fits = integer(distributed.world_size, 0) > max(ranks.values(), default=0)
    for label, rank in ranks.items():
        groups = [group for group in _objects(distributed.pg_config) if rank in (group.get("ranks") or [rank])]
        own = kineto.DistributedInfo(rank, *([distributed.world_size, groups] if fits else []))
        of_rank = {"distributedInfo": own, "baseTimeNanoseconds": top.base_time, "deviceProperties": top.devices}
        metadata = msgspec.Raw(msgspec.json.encode(of_rank))
        merged.append(MergedRank(rank, processes=own_processes[label], metadata=metadata, label=label))
    return merged


def _listed(device: DeviceTrace) -> str:
    """Returns the first ranks that a file names, and how; nothing for one that names none."""
    names = [f"{record.rank} {record.label}" for record in device.merged if record.label]
    return ", ".join(names[:16]) + " …" * (len(names) > 16)


def ranks_of_processes(device: DeviceTrace) -> dict[int, set[int]]:
    """Returns the ranks of each process or device of a merged trace, by its records or labels."""
    # several ranks may have the same device
    ranks: defaultdict[int, set[int]] = defaultdict(set)
    for record in device.merged:
        for process in record.processes:
            ranks[process].add(record.rank)
    for process, text in device.labels if not device.merged else ():
        if match := RANK.search(text):
            ranks[process].add(int(match.group(1)))
    return dict(ranks)


def merged_ranks(path: str) -> list[int]:
    """Returns the ranks in the file of a merged trace. Raises DataError if it does not tell them."""
    device = read_device_trace(path)
    ranks = set().union(*ranks_of_processes(device).values())
    return sorted(ranks) or [one_rank(device, None).rank or 0]


def one_rank(device: DeviceTrace, rank: int | None) -> DeviceTrace:
    """Returns the rows of `rank` as its own file had them; DataError for a merged trace without it or `rank`."""
    signs = merging_signs(device)
    if not signs:
        return device
    ranks = ranks_of_processes(device)
    labelled = sorted(set().union(*ranks.values()))
    listing = f"ranks {', '.join(map(str, labelled[:16]))}{' …' if len(labelled) > 16 else ''}"
    if not labelled:
        raise DataError(
            f"{device.path}: several ranks, processes or recordings in one trace, no rank labelled ({'; '.join(signs)}); {OWN_FILES}"
        )
    if rank is None:
        raise DataError(
            f"{device.path}: several ranks merged into one trace, {listing} ({'; '.join(signs)}); build all with ",
            *(Remedy.BUILD, " and give the graphs to ", Remedy.REPORT, ", or take one out with ", Remedy.LINK_RANK),
        )
    if rank not in labelled:
        raise RequestError(f"{device.path}: rank {rank} is not in this merged trace, which holds {listing}")
    selected = _select_rank(device, rank, ranks)
    record = next((record for record in device.merged if record.rank == rank), None)
    if record is None:
        return selected
    # with the processes, times and ids of its own file, and with the top level of that
    top = decode(bytes(record.metadata), DeviceFile, f"{device.path}: metadata of rank {rank}")
    tables = {name: _undone(table, record) for name, table in _tables(selected).items()}
    start = None if device.recording_start is None else device.recording_start - record.time_shift_ns
    return replace(selected, **described(top), **tables, recording_start=start)


def merging_signs(device: DeviceTrace) -> list[str]:
    """Returns the signs, in words, that the trace holds several ranks; empty for a trace of one."""
    signs = list(device.merge_marks)
    ranks = set().union(*ranks_of_processes(device).values())
    if device.merged:
        named = _listed(device)
        signs.append(f"{len(device.merged)} ranks recorded as merged{named and f': {named}'}")
    elif len(ranks) > 1:
        signs.append(f"{len(ranks)} rank labels")
    calls = device.calls
    on_device = isin(calls.process, device.activities.process) & ~isin(calls.process, device.ops.process)
    order = np.lexsort((calls.start, calls.process, calls.correlation))
    order = order[(calls.correlation[order] != 0) & ~on_device[order]]
    same = calls.correlation[order[1:]] == calls.correlation[order[:-1]]
    shared = int((same & (calls.process[order[1:]] != calls.process[order[:-1]])).sum())
    if shared:
        signs.append(f"{shared} correlations launched by several processes")
    apart = same & (calls.start[order[1:]] >= calls.end[order[:-1]]) & (calls.end[order[1:]] > calls.start[order[1:]])
    if not shared and int(apart.sum()) > REPEATED * len(order):
        signs.append(f"{int(apart.sum())} correlations launched more than once")
    return signs


def _select_rank(device: DeviceTrace, rank: int, ranks: dict[int, set[int]]) -> DeviceTrace:
    """Returns the rows that only this rank has, and what it launched on devices that no single rank has."""

    def processes(is_chosen: Callable[[set[int]], bool]) -> Int64:
        return np.array([process for process, its_ranks in ranks.items() if is_chosen(its_ranks)], np.int64)

    def refuse_any(rows: Int64, why: str) -> None:
        if len(rows):
            listing = ", ".join(map(str, np.unique(rows).tolist()))
            raise DataError(
                f"{device.path}: rank {rank} cannot be taken out of this merged trace, as {why} {listing}; {OWN_FILES}"
            )

    hosts = np.concatenate((device.ops.process, device.calls.process))
    shared = processes(lambda of: rank in of and len(of) > 1)
    refuse_any(hosts[isin(hosts, shared)], "several ranks have the process")
    tables, own, of_one = _tables(device), processes(lambda of: of == {rank}), processes(lambda of: len(of) == 1)
    chosen = {name: isin(table.process, own) for name, table in tables.items()}
    correlation = device.calls.correlation
    by_rank, by_others = correlation[chosen["calls"]], correlation[~chosen["calls"]]
    for name in ("activities", "syncs", "dependencies"):
        table = tables[name]
        launched = ~isin(table.process, of_one) & (table.correlation != 0) & isin(table.correlation, by_rank)
        ambiguous = table.process[launched & isin(table.correlation, by_others)]
        refuse_any(ambiguous, "several ranks launched under the same correlations on device")
        chosen[name] |= launched
    counted = f"{device.path}: what was left out of it is counted over all its ranks"
    # once, with the first of them
    skipped = device.skipped if rank == min(set().union(*ranks.values())) else Counts()
    notes = [*device.notes, *([counted] if any(skipped.values()) else [])]
    return replace(
        select(device, **chosen), rank=rank, labels=[], merged=[], merge_marks=[], notes=notes, skipped=skipped,
        handed_over=device.handed_over[:, :0],
    )  # fmt: skip


def _tables(device: DeviceTrace) -> dict[str, Any]:
    """Returns the tables with rows of processes, by name."""
    names = ("ops", "calls", "activities", "syncs", "event_records", "dependencies", "python")
    return {name: table for name in names if (table := getattr(device, name)) is not None}


def _undone(table: Any, record: MergedRank) -> Any:
    columns = {field.name: column for field in fields(table) if (column := getattr(table, field.name)) is not None}
    for name, column in columns.items():
        if isinstance(column, Categorical):
            # without the texts of other ranks
            columns[name] = Categorical.of(column[row] for row in range(len(column)))
        elif name in TIMES:
            columns[name] = column - record.time_shift_ns
        elif name in IDS:
            is_moved = (column > record.id_offset) & (column <= record.id_offset + LARGEST_ID)
            columns[name] = np.where(is_moved, column - record.id_offset, column)
    process = _mapped(columns["process"], record.processes)
    if "device" in columns:
        # rows that name no device are on that of their process
        columns["device"] = np.where(columns["device"] == columns["process"], process, columns["device"])
    if "thread" in columns:
        columns["thread"] = _mapped(columns["thread"], record.threads)
    if "stream" in columns:
        # a row without a stream, whose number is that of a thread
        columns["stream"] = np.where(isin(columns["stream"], [*record.threads]), -1, columns["stream"])
    return type(table)(**columns | {"process": process})


def _mapped(numbers: Int64, original: dict[int, int]) -> Int64:
    """Returns the original numbers; merging left those unchanged that are in no map."""
    unique_numbers, rows = np.unique(numbers, return_inverse=True)
    return np.array([original.get(number, number) for number in unique_numbers.tolist()], np.int64)[rows]
