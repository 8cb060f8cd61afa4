"""Merges the device traces of all ranks into one Chrome trace, from which each rank's trace can be taken again.

Every row is kept. Memory is that of one rank's columns and one piece of its file, however many ranks there are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec

from ...linker.readers import is_database, read_device_trace
from ...schema.errors import Damage
from ...schema.io import open_input, open_output
from ...schema.json_stream import ArrayReader
from ...schema.linked import DATA_WAIT_WITHOUT_PROFILER, STEP_WITHOUT_PROFILER, DeviceFile, MergedRank
from ...schema.progress import Progress, unwatched
from ..input_ranks import RankFile
from .merge_lanes import FIRST_LANE, Lanes, PlacedRow
from .merge_report import MergeReport, RankReport
from .rewrite import RankRows, Row
from .rocpd_rows import chrome_rows
from .survey import Survey, survey

EVENTS = "traceEvents"
NOTHING_BEFORE = 0, 0, FIRST_LANE

T = TypeVar("T")


def merge_for_viewing(ranks: Sequence[RankFile], output: str, progress: Progress = unwatched) -> MergeReport:
    """Writes the merged trace (.gz compresses), or nothing. Raises DataError if a trace cannot be read."""
    job = survey(ranks, progress)
    report, records = MergeReport(output, notes=[*job.notes]), []
    with open_output(output) as out:
        head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": job.base_time_ns}
        out.write(msgspec.json.encode(head)[:-1] + b',"%b":[' % EVENTS.encode())
        rows: RankRows | None = None
        for trace in progress(ranks, "merging ranks", len(ranks), "rank"):
            rows, damage = _write_rank(trace, job, rows, out)
            records.append(rows.record)
            correction = job.clocks[trace.rank].correction_ns
            report.ranks.append(RankReport(trace.rank, str(trace.path), rows.rows, rows.activities, correction))
            report.notes += damage.notes
        out.write(b'],"mergedRanks":' + msgspec.json.encode(records) + b"}\n")
    return report


def _write_rank(trace: RankFile, job: Survey, before: RankRows | None, out: IO[bytes]) -> tuple[RankRows, Damage]:
    """Writes the rows of a rank behind those of the one before."""
    offset, process, lane = (before.largest_id, before.last_process, before.lanes.end) if before else NOTHING_BEFORE
    record = MergedRank(trace.rank, trace.path.name, job.clocks[trace.rank].shift_ns, offset)
    lanes = Lanes(_Rows(trace.path, PlacedRow), lane)
    rows = RankRows(record, job.hosts[trace.rank], process, lanes)
    source: _Rows[Row] = _Rows(trace.path, Row)
    separator = b",\n" if before else b"\n"
    for piece in source:
        text = rows.rewrite(piece)
        if text:
            out.write(separator + text)
            separator = b",\n"
    out.write(separator + rows.names())
    record.metadata = source.metadata
    return rows, source.damage


class _Rows(Generic[T]):
    """The rows of a trace in pieces, decoded as `kind`.

    Afterwards `metadata` is the rest of its top level, as JSON, and `damage` what was wrong.
    """

    def __init__(self, path: Path, kind: Any) -> None:
        self._path, self._kind, self._list = str(path), kind, list[kind]
        self.damage = Damage(str(path), "rows")
        self.metadata = msgspec.Raw(b"{}")

    def __iter__(self) -> Iterator[list[T]]:
        if is_database(self._path):
            for piece in chrome_rows(read_device_trace(self._path)):
                yield msgspec.json.decode(piece, type=self._list)
            return
        with open_input(self._path, protected=True) as stream:
            reader: ArrayReader[T] = ArrayReader(
                stream, self._path, EVENTS, self._kind, lambda _: None, damage=self.damage
            )
            for _, rows in reader:
                yield rows
        if reader.document.lstrip()[:1] == b"{":
            self.metadata = msgspec.Raw(msgspec.json.encode(_metadata(reader)))


def _metadata(reader: ArrayReader[T]) -> Row:
    """Returns the keys beside the rows; of a damaged file those that say whose it is."""
    try:
        top = msgspec.json.decode(reader.document, type=Row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        recorded = msgspec.to_builtins(reader.top_level(DeviceFile))
        times = STEP_WITHOUT_PROFILER, DATA_WAIT_WITHOUT_PROFILER
        kept = ("distributedInfo", "baseTimeNanoseconds", "deviceProperties", *times)
        top = {key: msgspec.Raw(msgspec.json.encode(recorded[key])) for key in kept}
    top.pop(EVENTS, None)
    return top
