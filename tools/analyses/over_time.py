"""What is counted over time: queue lengths of streams, bandwidths of copies, and memory in use, of the host (-1), too.

A launch is in its queue from its call to the start of its first activity. Bandwidths are recorded ones, else bytes over
duration of copies that are long enough. Memory is what allocators recorded, else follows from lifetimes of storages.
"""

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ...converter.work import Lifetimes, lifetimes, live_bytes
from ...schema import columns
from ...schema.columns import Categorical, Floats, Int64, Rows, groupby
from ...schema.linked import streams_of
from ...schema.reasons import Reason
from .rank import ActivityClass, Allocations, AnalysisOptions, RankTrace, per_rank
from .table import Columns, Quantity, Table, ints, pct, tabulate, texts, us

QUEUE_LENGTH = "queue length"
ALL_STREAMS = -1
COPY_KIND = re.compile(r"([HDP]to[HDPA])|(Host|Device)To(Host|Device)|(memset|fill)", re.IGNORECASE)
OTHER_COPY = "copy"
KNOWN_LENGTH = 10
"""A copy must last so many times the resolution of the trace's times for its bandwidth to be known to a tenth."""
FASTEST_LINK = 2_000.0
"""GB/s: four times the fastest link of a host and a device, that of GH200 (450), so that no newer one is doubted."""
GIGA = 1e9
NO_COUNTERS = "nothing was launched and no copy's bytes were recorded"
RECORDED, BY_TENSORS = "allocators", "tensors"
NOTHING = "allocations were not recorded (profile_memory=True), nor the identities of tensors (a host trace)"
NOTE_BY_TENSORS = "from tensors of ops: "
"""Each storage lives from the op that made it to the last that names it, or throughout if it was there before."""
NOT_RECORDED, NEGATIVE = (
    "allocations were not recorded (profile_memory=True)",
    "the totals that were recorded are negative",
)
OF_DETAILS = "allocations were recorded in the steps of the host trace, and have the times of the same ops here"
NO_TOTAL = -1
BEFORE, NO_OP = "before the recording", "outside of ops"


class Counter(NamedTuple):
    """A series of one stream of a device, or of all (-1). Values are launches, or GB/s if `limit` is None."""

    device: int
    stream: int
    name: str
    series: columns.Series
    limit: int | None


@per_rank
def counters(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns the counters as series and in short."""
    of_rank, (copied, _, unknown, short, impossible) = counters_of(rank, options.queue_limit), _copies(rank)
    series, length = [counter.series for counter in of_rank], ints(len(counter.series.time) for counter in of_rank)
    row, names = np.repeat(np.arange(len(of_rank)), length), [counter.name for counter in of_rank]
    device, stream = (ints(getattr(counter, name) for counter in of_rank) for name in ("device", "stream"))
    resolution_us, notes = rank.linked.info.machine.resolution_ns / 1000, list[str]()
    count = len(copied) + unknown + short + impossible
    if not of_rank:
        notes = [NO_COUNTERS]
    if of_rank and unknown:
        notes.append(f"{unknown} of {count} copies have no bytes or no length and are in no bandwidth")
    if of_rank and short:
        lacking = f"{short} of {count} copies have no recorded bandwidth and are in none"
        why = f"times known to {resolution_us:g} µs are too coarse to say how fast these are"
        notes.append(f"{lacking}, as they last less than {KNOWN_LENGTH * resolution_us:g} µs: {why}")
    if impossible:
        beyond = f"are faster than any link of a host ({FASTEST_LINK:,.0f} GB/s) by their recorded bytes"
        notes.append(f"{impossible} of {count} copies {beyond}, and are in no bandwidth")
    cells: Columns = {
        "device": device[row], "counter": texts(names, row), "stream": stream[row],
        "ts": us(np.concatenate([np.empty(0, np.int64), *(each.time for each in series)]) - rank.begin),
        "value": np.concatenate([np.empty(0), *(each.value for each in series)]),
    }  # fmt: skip
    statistics = np.array([_weighted_statistics(counter) for counter in of_rank], np.float64).reshape(-1, 6).T
    mean, largest, median, high, active, at_limit = statistics
    summary: Columns = {
        "device": device, "counter": names, "stream": stream, "mean": mean, "max": largest, "q50": median, "q95": high,
        "active": us(active), "at_limit": us(at_limit),
    }  # fmt: skip
    note, title = "; ".join(notes), "Queue length and copy bandwidth (GB/s)"
    in_short = tabulate("counters_summary", "Counters in short, weighted by time", summary, note)
    return tabulate("counters", title, cells, note, in_short)


def counters_of(rank: RankTrace, limit: int) -> list[Counter]:
    """Returns the queue length of each stream with launches, and the bandwidth of each kind of copy of known size."""
    activities, streams, (copied, speed, *_) = rank.linked.activities, streams_of(rank.linked.activities), _copies(rank)
    row = np.flatnonzero(activities.call_row >= 0)
    row = row[np.argsort(activities.start[row], kind="stable")]
    first = row[groupby(activities.call_row[row], streams.number[row]).first]
    issued = rank.linked.calls.start[activities.call_row[first]]
    # an activity that seems to start before its call, as the clocks differ, was not queued
    queued = columns.Intervals(issued, np.maximum(activities.start[first], issued))
    counters = []
    for number, rows in columns.rows_of_each(streams.number[first]).items():
        of_stream, length = (int(streams.device[number]), int(streams.stream[number])), np.ones(len(rows))
        counters.append(Counter(*of_stream, QUEUE_LENGTH, columns.running_sum(queued.take(rows), length), limit))
    device = activities.device[copied]
    kind = Categorical(activities.name.codes[copied], [*map(copy_kind, activities.name.table)])
    groups, ran = groupby(device, kind.numbers(sorted(set(kind.table)).index)), rank.intervals.take(copied)
    for rows in groups.rows():
        bandwidth = columns.running_sum(ran.take(rows), speed[rows])
        counters.append(Counter(int(device[rows[0]]), ALL_STREAMS, kind[rows[0]], bandwidth, None))
    return counters


def _copies(rank: RankTrace) -> tuple[Rows, Floats, int, int, int]:
    """Returns copies with known bandwidth (GB/s), and how many lack bytes, are too short, or too fast for any link."""
    activities = rank.linked.activities
    row = np.flatnonzero(rank.classes == ActivityClass.MEMORY)
    length, size, recorded = rank.durations[row], activities.size[row], activities.bandwidth[row]
    has_bandwidth = (length > 0) & ((size >= 0) | (recorded > 0))
    is_known = has_bandwidth & ((recorded > 0) | (length >= KNOWN_LENGTH * rank.linked.info.machine.resolution_ns))
    speed = np.where(recorded > 0, recorded / GIGA, size / np.maximum(length, 1))
    by_link = activities.name.take(row).where(lambda name: copy_kind(name) in ("HtoD", "DtoH"))
    is_possible = ~(by_link & is_known & (speed > FASTEST_LINK))
    unknown, short, impossible = (int(rows.sum()) for rows in (~has_bandwidth, has_bandwidth & ~is_known, ~is_possible))
    return row[is_known & is_possible], speed[is_known & is_possible], unknown, short, impossible


def copy_kind(name: str) -> str:
    """Returns the direction of a copy.

    >>> copy_kind("Memcpy HtoD (Pageable -> Device)"), copy_kind("CopyDeviceToHost"), copy_kind("Memset (Device)")
    ('HtoD', 'DtoH', 'Memset')
    """
    match = COPY_KIND.search(name)
    if match is None:
        return OTHER_COPY
    short, source, target, _ = match.groups()
    return short or (f"{source[0].upper()}to{target[0].upper()}" if source else "Memset")


def _weighted_statistics(counter: Counter) -> tuple[float, ...]:
    """Returns the mean, maximum, median and 95th percentile by time, the time (ns) above 0 and that at the limit."""
    value, limit = counter.series.value, counter.limit
    duration = np.diff(counter.series.time, append=counter.series.time[-1:])
    at_limit = float(duration[value >= limit].sum()) if limit is not None else np.nan
    mean = float(value @ duration) / max(int(duration.sum()), 1)
    order = np.argsort(value, kind="stable")
    until = np.cumsum(duration[order])
    position = np.minimum(np.searchsorted(until, np.array([0.5, 0.95]) * until[-1]), len(order) - 1)
    return mean, float(value.max()), *value[order][position].tolist(), float(duration[value > 0].sum()), at_limit


class Curve(NamedTuple):
    """The `allocated` bytes of a device from each `time` (ns) on; `reserved` is NaN if unknown.

    `live` are the blocks in use at the `peak`, `op_row` the ops that allocated them (-1 for none), `before` the bytes
    allocated before the recording. `skipped` allocations are of allocators that do not report a total.
    """

    device: int
    source: str
    time: Int64
    allocated: Int64
    reserved: Floats
    peak: int
    live: Int64
    op_row: Rows
    before: int
    skipped: int = 0


def curves_of(rank: RankTrace) -> list[Curve]:
    """Returns the curve of each device with known allocations; none by tensors where ops are lost. O(n log n)."""
    allocations = rank.recorded.allocations
    if len(allocations.time) and not have_impossible_totals(rank):
        op_row = rank.innermost_ops(allocations.thread, allocations.time)
        of_devices = columns.rows_of_each(allocations.device).values()
        return [_recorded(allocations.where(rows), op_row[rows]) for rows in of_devices]
    if rank.linked.report.oddities[Reason.ODD_OPS]:
        return []
    storages = lifetimes(rank.linked.ops)
    return [_tensor_curve(storages.where(rows), rank.end) for rows in columns.rows_of_each(storages.device).values()]


def have_impossible_totals(rank: RankTrace) -> bool:
    """Whether less than nothing was allocated by the recorded totals."""
    return bool((rank.recorded.allocations.allocated < NO_TOTAL).any())


def _recorded(rows: Allocations, op_row: Rows) -> Curve:
    """Returns the curve of one device's allocations, without those of allocators that do not report a total."""
    # of each allocation the row of its release, -1 for none
    order = np.lexsort((np.arange(len(rows.time)), rows.address))
    is_allocated = rows.size[order] > 0
    same_address = np.append(~columns.is_group_start(rows.address[order])[1:], False)
    pair = np.flatnonzero(is_allocated & same_address & np.append(~is_allocated[1:], False))
    release = np.full(len(order), -1)
    release[order[pair]] = order[pair + 1]
    total_missing = (rows.size > 0) & (rows.allocated >= 0) & (rows.allocated < rows.size)
    total_missing[release[total_missing & (release >= 0)]] = True
    kept = ~total_missing if not total_missing.all() else np.ones(len(order), np.bool_)
    position = np.cumsum(kept) - 1
    release = np.where(release >= 0, position[release], len(position))[kept]
    rows, op_row = rows.where(kept), op_row[kept]
    allocated = rows.allocated if (rows.allocated >= 0).all() else np.cumsum(rows.size)
    peak = int(np.argmax(allocated))
    live = np.flatnonzero((rows.size > 0) & (np.arange(len(release)) <= peak) & (release > peak))
    return Curve(
        device=int(rows.device[0]), source=RECORDED, time=rows.time, allocated=allocated,
        reserved=np.where(rows.reserved > 0, rows.reserved, np.nan), peak=peak, live=rows.size[live],
        op_row=op_row[live], before=max(int(allocated[peak]) - int(rows.size[live].sum()), 0),
        skipped=int((~kept).sum()),
    )  # fmt: skip


def _tensor_curve(storages: Lifetimes, end_ns: int) -> Curve:
    """Returns the curve of one device's storages; those from before the recording last to its end."""
    until = np.where(storages.op_row < 0, np.maximum(storages.until, end_ns + 1), storages.until)
    storages = storages._replace(until=until)
    steps = live_bytes(storages)
    recorded = steps.time <= max(end_ns, int(steps.time.min()))
    time, allocated = steps.time[recorded], steps.value[recorded].astype(np.int64)
    peak = int(np.argmax(allocated))
    at_peak = storages.where((storages.begin <= time[peak]) & (time[peak] < storages.until))
    was_made = at_peak.op_row >= 0
    return Curve(
        device=int(storages.device[0]), source=BY_TENSORS, time=time, allocated=allocated,
        reserved=np.full(len(time), np.nan), peak=peak, live=at_peak.size[was_made], op_row=at_peak.op_row[was_made],
        before=int(at_peak.size[~was_made].sum()),
    )  # fmt: skip


@per_rank
def memory_timeline(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns the memory in use over time, the peaks, and what lives there."""
    curves = curves_of(rank)
    columns_of = ([getattr(curve, name) for curve in curves] for name in ("time", "allocated", "reserved"))
    time, allocated, reserved = (np.concatenate([np.empty(0, np.int64), *of_all]) for of_all in columns_of)
    device = np.repeat(ints(curve.device for curve in curves), ints(len(curve.time) for curve in curves))
    note = ""
    if not curves:
        note = NOTHING
    elif curves[0].source != RECORDED:
        note = NOTE_BY_TENSORS + (NEGATIVE if have_impossible_totals(rank) else NOT_RECORDED)
    else:
        skipped = sum(curve.skipped for curve in curves)
        notes = [f"{skipped} allocations are of allocators that keep no total and are not in it"] * bool(skipped)
        note = "; ".join([*([OF_DETAILS] if rank.recorded.are_of_details else []), *notes])
    cells: Columns = {
        "device": device, "step": _step_names(rank, time), "ts": us(rank.since_begin(time)),
        "allocated": Quantity("B", allocated), "reserved": _whole_bytes(reserved),
    }  # fmt: skip
    at_peak = ints(curve.time[curve.peak] for curve in curves)
    of_peaks: Columns = {
        "device": ints(curve.device for curve in curves), "step": _step_names(rank, at_peak),
        "ts": us(rank.since_begin(at_peak)), "peak": Quantity("B", ints(curve.allocated[curve.peak] for curve in curves)),
        "before": Quantity("B", ints(curve.before for curve in curves)),
        "reserved": _whole_bytes(np.array([np.fmax.reduce(curve.reserved) for curve in curves], np.float64)),
        "known_by": [curve.source for curve in curves],
    }  # fmt: skip
    peaks = tabulate("memory_timeline_peak", "Peaks of memory", of_peaks, note)
    return tabulate("memory_timeline", "Memory in use", cells, note, peaks, _live(rank, curves, note))


def _step_names(rank: RankTrace, time: Int64) -> list[str]:
    """Returns the step that contains each time, "" before the first step."""
    return texts(rank.steps.name, np.searchsorted(rank.steps.start, time, side="right") - 1)


def _whole_bytes(values: Floats) -> Quantity:
    """Returns whole numbers if all values are known."""
    return Quantity("B", values.astype(np.float64 if np.isnan(values).any() else np.int64))


def _live(rank: RankTrace, curves: list[Curve], note: str) -> Table:
    """Returns the memory in use at each peak, the largest first, by the outermost op and the innermost one."""
    rows: list[tuple[int, str, str, int, int, int]] = []
    for curve in curves:
        by_op = defaultdict[tuple[str, str], list[int]](list)
        paths = {row: rank.op_path(row) for row in {*curve.op_row.tolist()}}
        for row, size in zip(curve.op_row.tolist(), curve.live.tolist(), strict=True):
            by_op[(paths[row][0], paths[row][-1]) if paths[row] else (NO_OP, "")].append(size)
        peak = int(curve.allocated[curve.peak])
        live = [(curve.device, *names, len(sizes), sum(sizes), peak) for names, sizes in by_op.items()]
        live += [(curve.device, BEFORE, "", 0, curve.before, peak)] if curve.before else []
        rows += sorted(live, key=lambda row: -row[4])
    device, op, maker, blocks, size, peaks = zip(*rows, strict=True) if rows else ((),) * 6
    cells: Columns = {
        "device": ints(device), "op": [*op], "allocated_by": [*maker], "blocks": ints(blocks),
        "size": Quantity("B", ints(size)), "pct": pct(ints(size), ints(peaks)),
    }  # fmt: skip
    return tabulate("memory_timeline_live", "What lives at the peak", cells, note)
