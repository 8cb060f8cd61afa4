"""Reads a device trace (Kineto or rocpd) into columns: ops, calls, activities, synchronisation records.

Rows are in file order, without those of impossible times and those recorded twice. Rows of equal starts are sorted by
their other columns, so that a graph does not depend on their order in the file: whatever sorts rows later does so by
start, and keeps rows of equal starts in order.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...schema.arguments import InputFile, path_of
from ...schema.columns import Bool, Categorical, Int64, is_group_start
from ...schema.comm_groups import INT32_MAX
from ...schema.errors import Damage, DataError
from ...schema.io import open_input
from ...schema.json_stream import ArrayReader, decode, kind_of_text
from ...schema.linked import FOREVER, LONGEST_RECORDING, integer, kineto
from ...schema.progress import OnProgress, unseen
from ...schema.reasons import Reason
from .device_events import DeviceEvents, unpadded
from .device_rows import PYTHON, TABLES, DeviceTrace, Role, select, skip_categories
from .rocpd import is_database, read_rocpd

IDENTITY = {
    "ops": ("rf_id", "event_index", "external_id", "process", "thread", "name"),
    "calls": ("correlation", "process", "thread", "name"),
    "activities": ("process", "device", "stream", "correlation", "graph_node", "name"),
    "syncs": ("process", "correlation", "device", "stream", "wait_stream", "record_correlation", "event", "kind"),
    "queue_events": ("device", "stream", "awaited", "sequence"),
}
"""The columns in which rows of equal starts and lengths differ, or are the same row."""
FURTHER = {"calls": ("external_id",), "activities": ("external_id", "category", "size")}
"""Columns by which such rows are sorted after those of their identity."""
DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:')
RENAMING = b'_raw"'
RENAMED = re.compile(rb'"(?:pid|correlation|External id|id)_raw"\s*:')
HOST_NODES = re.compile(rb'"nodes"\s*:\s*\[')


def described(top: kineto.DeviceFile) -> dict[str, Any]:
    """Returns what the top level of a file says of its process, as members of `DeviceTrace`; invalid values count as
    missing. A wait for the data loader is no longer than its step.
    """
    distributed = top.distributed or kineto.DistributedInfo()
    rank, world = integer(distributed.rank, -1), integer(distributed.world_size, -1)
    base_time = integer(top.base_time, 0)
    step, wait = map(_nanoseconds, (top.step_without_profiler, top.data_wait_without_profiler))
    devices = ((integer(device.get("id"), -1), device.get("name")) for device in _objects(top.devices))
    return {
        "rank": rank if 0 <= rank <= INT32_MAX else None,
        "world_size": world if 0 < world <= INT32_MAX else None,
        "base_time_ns": base_time if 0 <= base_time < FOREVER else 0,
        "groups": _objects(distributed.pg_config),
        "device_names": {number: name for number, name in devices if number >= 0 and isinstance(name, str) and name},
        "step_without_profiler_ns": step if step > 0 else -1,
        "data_wait_without_profiler_ns": wait if wait <= step else -1,
    }


def _objects(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _nanoseconds(time_us: Any) -> int:
    is_time = isinstance(time_us, int | float) and 0 <= time_us < LONGEST_RECORDING / 1000
    return round(time_us * 1000) if is_time else -1


def within_a_recording(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace without rows that begin more than LONGEST_RECORDING from its middle op or activity.

    The dropped rows are counted. Sums and differences of the remaining times fit 64 bits.
    """
    work = np.sort(np.concatenate((device.ops.start, device.activities.start)))
    if not len(work):
        return device
    middle = int(work[len(work) // 2])
    if device.recording_start is not None and abs(device.recording_start - middle) > LONGEST_RECORDING:
        device = replace(device, recording_start=None)
    names = ("ops", "calls", "activities", "syncs", "queue_events", *(["python"] if device.python is not None else []))
    near = {name: np.abs(getattr(device, name).start - middle) <= LONGEST_RECORDING for name in names}
    dropped = sum(int((~rows).sum()) for rows in near.values())
    if not dropped:
        return device
    device.skipped[Reason.UNUSABLE_TIME] += dropped
    device.notes.append(
        f"{device.path}: {dropped} events begin more than a year from the middle of the trace and are left out; "
        "their times are in another unit, or of another clock; give ts in µs of one clock"
    )
    return select(device, **near)


def in_order(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace with rows of equal starts sorted, and without duplicate rows, which are counted.

    The longest of such rows comes first, as it encloses the others. Rows without any id are never duplicates. In
    whole-µs traces activities of one launch may be equal without being duplicates. O(n log n), linear if starts nearly
    are in order.
    """
    orders, copied = dict[str, Int64](), dict[str, Bool]()
    for name, identity in IDENTITY.items():
        orders[name], copied[name] = _sorted_ties(getattr(device, name), identity, FURTHER.get(name, ()))
    ops, activities = device.ops, device.activities
    copied["ops"] &= (ops.rf_id > 0) | (ops.external_id > 0) | (ops.event_index >= 0)
    copied["calls"] &= device.calls.correlation != 0
    copied["activities"] &= activities.correlation != 0
    copied["queue_events"][:] = False
    if not (activities.start % 1000).any():
        launched, times = np.unique(activities.correlation[~copied["activities"]], return_counts=True)
        copied["activities"] &= ~np.isin(activities.correlation, launched[times > 1])
    if count := sum(int(rows.sum()) for rows in copied.values()):
        device.skipped[Reason.RECORDED_TWICE] += count
    chosen = {name: order[~copied[name][order]] for name, order in orders.items()}
    changed = {name: rows for name, rows in chosen.items() if not np.array_equal(rows, np.arange(len(orders[name])))}
    return select(device, **changed)


def _sorted_ties(table: Any, identity: Sequence[str], further: Sequence[str]) -> tuple[Int64, Bool]:
    """Returns the rows with those of equal starts sorted, and which rows equal the one before in their identity."""
    start, count = table.start, len(table.start)
    order = np.argsort(start, kind="stable")
    first = is_group_start(start[order])
    rows = order[~(first & np.append(first[1:], True))]
    columns = [_numbers(getattr(table, name), rows) for name in (*identity, *further)]
    columns = [start[rows], start[rows] - table.end[rows], *columns]
    within = np.lexsort(columns[::-1])
    new_order, is_repeated = np.arange(count), np.zeros(count, np.bool_)
    new_order[rows] = rows[within]
    is_repeated[rows[within]] = ~is_group_start(*(column[within] for column in columns[: 2 + len(identity)]))
    return new_order, is_repeated


def _numbers(column: Int64 | Categorical, rows: Int64) -> Int64:
    """Returns numbers that sort the rows as their values do."""
    if not isinstance(column, Categorical):
        return column[rows]
    used, code = np.unique(column.codes[rows], return_inverse=True)
    by_text = sorted(range(len(used)), key=lambda position: column.table[used[position]])
    return np.argsort(np.array(by_text, np.int64))[code.reshape(-1)]


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
    """Reads a device trace: JSON, gzip or zstd of it, or a rocpd database.

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
        if is_database(path):
            return within_a_recording(read_rocpd(path))
        damage = Damage(path, "device events", strict)
        events, is_renamed = DeviceEvents(arguments, modules), False
        with open_input(path, protected=True) as stream:
            skipped = None if strict else skip_categories(*keep_categories, *([PYTHON] if modules else []))
            reader: ArrayReader[kineto.Event] = ArrayReader(
                stream, path, "traceEvents", kineto.Event, on_progress, damage=damage, skip_pattern=skipped
            )
            for piece, decoded in reader:
                is_renamed = is_renamed or (RENAMING in piece and RENAMED.search(piece) is not None)
                events.add(decoded, partial(decode, piece, list[kineto.ExactEvent], path))
                if tee is not None:
                    tee(piece)
        events.ignore(reader.skipped)
        return _trace(events, reader, damage, is_renamed)


def _top_level(events: DeviceEvents, reader: ArrayReader[kineto.Event], damage: Damage) -> kineto.DeviceFile:
    """Returns what the file holds beside its events. Raises DataError for another file, or one without any work."""
    document = reader.document
    if not reader.has_array:
        is_host = HOST_NODES.search(document)
        what = "a host trace (it has nodes)" if is_host else kind_of_text(document, "traceEvents")
        raise DataError(f"{reader.path}: {what}; expected a Kineto device trace, as the PyTorch profiler writes it")
    top = kineto.DeviceFile() if document.lstrip()[:1] == b"[" else reader.top_level(kineto.DeviceFile)
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
        path=path,
        **described(top),
        **{TABLES[role][0]: rows.table(pad) for role, rows in events.rows.items()},
        communication={role: events.rows[role].communication for role in (Role.OP, Role.ACTIVITY)},
        labels=events.labels,
        merged=top.merged,
        skipped=events.skipped,
        oddities=events.oddities,
        recording_start=events.recording_start,
        read=events.read,
        ignored=events.ignored,
        ends_early=damage.ends_early,
    )
    if any(pad.values()):
        trace.notes.append(f"{path}: its times lack the zeros before their ns (5 ns is .5, as in March 2024); read so")
    trace = in_order(within_a_recording(trace))
    trace.skipped.add(damage.dropped)
    trace.oddities.add(damage.oddities)
    trace.notes += damage.notes
    repeated = events.repeated_flows()
    marks = (
        ("several distributedInfo", len(DISTRIBUTED.findall(document)) > 1),
        ("arguments renamed by a merging tool", is_renamed or RENAMED.search(document) is not None),
        (f"{repeated} flows that start more than once", repeated > 0),
    )
    trace.merge_marks += [mark for mark, is_there in marks if is_there]
    return trace
