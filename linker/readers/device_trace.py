"""Reads a device trace (Kineto or rocpd) into columns: ops, calls, activities, synchronisation records.

Times are int64 ns on the trace's own clock. Rows are in file order, except those with equal starts.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

from ...schema.arguments import InputFile, path_of
from ...schema.errors import Damage, DataError
from ...schema.io import open_input
from ...schema.json_stream import ArrayReader, decode, kind_of_text
from ...schema.linked import kineto
from ...schema.progress import OnProgress, unseen
from . import device_tables
from .categories import PYTHON, Role, skip_categories
from .clock_range import within_a_recording
from .device_events import DeviceEvents
from .device_rows import DeviceTrace
from .distributed_info import device_names, distributed_info, times_without_profiler
from .duplicates import without_duplicates
from .event_rows import unpadded
from .rocpd_database import is_database
from .rocpd_rows import read_rocpd
from .tied_rows import with_ties_in_order

DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:')
RENAMING = b'_raw"'
RENAMED = re.compile(rb'"(?:pid|correlation|External id|id)_raw"\s*:')
HOST_NODES = re.compile(rb'"nodes"\s*:\s*\[')


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
        events = DeviceEvents(arguments, modules)
        with open_input(path, protected=True) as stream:
            skipped = None if strict else skip_categories(*keep_categories, *([PYTHON] if modules else []))
            reader: ArrayReader[kineto.Event] = ArrayReader(
                stream, path, "traceEvents", kineto.Event, on_progress, damage=damage, skip_pattern=skipped
            )
            is_renamed = _collect(events, reader, tee)
        top = _top_level(reader)
        _check_content(events, damage)
        trace = with_ties_in_order(without_duplicates(within_a_recording(_trace(path, top, events))))
        trace.skipped.add(damage.dropped)
        trace.oddities.add(damage.oddities)
        trace.notes += damage.notes
        trace.ends_early = damage.ends_early
        trace.merge_marks += _merge_marks(events, reader.document, is_renamed)
        return trace


def _collect(events: DeviceEvents, reader: ArrayReader[kineto.Event], tee: Callable[[bytes], object] | None) -> bool:
    """Adds all events of the file. Returns whether a merging tool renamed arguments of any."""
    is_renamed = False
    for piece, decoded in reader:
        is_renamed = is_renamed or (RENAMING in piece and RENAMED.search(piece) is not None)
        events.add(decoded, partial(decode, piece, list[kineto.ExactEvent], reader.path))
        if tee is not None:
            tee(piece)
    events.ignore(reader.skipped)
    return is_renamed


def _top_level(reader: ArrayReader[kineto.Event]) -> kineto.DeviceFile:
    """Returns what the file holds beside its events. Raises DataError for another file."""
    if not reader.has_array:
        what = _what_it_is(reader.document)
        raise DataError(f"{reader.path}: {what}; expected a Kineto device trace, as the PyTorch profiler writes it")
    is_bare = reader.document.lstrip()[:1] == b"["
    return kineto.DeviceFile() if is_bare else reader.top_level(kineto.DeviceFile)


def _check_content(events: DeviceEvents, damage: Damage) -> None:
    """Raises DataError where the file has neither ops nor activities."""
    if not events.rows[Role.OP].count and not events.rows[Role.ACTIVITY].count:
        path = damage.path
        seen = f"; {damage.findings[0]}" if damage.findings else ""
        raise DataError(
            f"{path}: holds no host op and no device activity; expected a Kineto trace with traceEvents{seen}"
        )


def _merge_marks(events: DeviceEvents, document: bytes, is_renamed: bool) -> list[str]:
    """Returns what shows that several ranks were merged into the file."""
    repeated = events.flows.repeated()
    marks = (
        ("several distributedInfo", len(DISTRIBUTED.findall(document)) > 1),
        ("arguments renamed by a merging tool", is_renamed or RENAMED.search(document) is not None),
        (f"{repeated} flows that start more than once", repeated > 0),
    )
    return [mark for mark, is_there in marks if is_there]


def _what_it_is(document: bytes) -> str:
    return "a host trace (it has nodes)" if HOST_NODES.search(document) else kind_of_text(document, "traceEvents")


def _trace(path: str, top: kineto.DeviceFile, events: DeviceEvents) -> DeviceTrace:
    rows = events.rows
    pad = unpadded(rows.values())
    trace = DeviceTrace(
        path=path,
        **distributed_info(top)._asdict(),
        ops=device_tables.ops(rows[Role.OP], pad),
        calls=device_tables.calls(rows[Role.CALL], pad),
        activities=device_tables.activities(rows[Role.ACTIVITY], pad),
        syncs=device_tables.syncs(rows[Role.SYNC], pad),
        event_records=device_tables.event_records(rows[Role.EVENT_RECORD]),
        communication={role: rows[role].communication.column() for role in (Role.OP, Role.ACTIVITY)},
        queue_events=device_tables.queue_events(rows[Role.DEVICE_WAIT], pad),
        python=device_tables.python(rows[Role.PYTHON], pad) if Role.PYTHON in rows else None,
        labels=events.labels,
        merged=top.merged,
        device_names=device_names(top),
        **times_without_profiler(top)._asdict(),
        skipped=events.skipped,
        oddities=events.oddities,
        recording_start=events.recording_start,
        read=events.read,
        ignored=events.ignored,
    )
    if any(pad.values()):
        trace.notes.append(f"{path}: its times lack the zeros before their ns (5 ns is .5, as in March 2024); read so")
    return trace
