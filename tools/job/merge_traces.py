"""Finds the device traces of all ranks among files and folders, and merges them into one file."""

from collections.abc import Sequence
from pathlib import Path

from ...schema.errors import DataError, RequestError
from ...schema.progress import Progress, unwatched
from ..input_ranks import by_rank
from ..kinds import InputKind
from ..pairs import hosts_of
from ..trace_files import find_traces, list_counts
from ..wrong_kind import wrong_kind
from .counting import merge_for_counting
from .merge_report import MergeReport
from .viewing import merge_for_viewing

WRITERS = {".db": merge_for_counting, ".json": merge_for_viewing, ".json.gz": merge_for_viewing}
"""What writes a merged file, by how its name ends."""


def merge_traces(inputs: Sequence[str], output: str, progress: Progress = unwatched) -> MergeReport:
    """Writes the device traces of all ranks to one file, whose name says what it is for: one to look at or to count in.

    Raises ValueError for a name that does not say it, DataError where there is no trace of a single rank or one cannot
    be used, and RequestError where the output is one of the traces.
    """
    merge = next((writer for suffix, writer in WRITERS.items() if output.lower().endswith(suffix)), None)
    if merge is None:
        raise ValueError(f"{output}: end it in {', '.join(WRITERS)} to say what to write")
    made = Path(output).resolve()
    files = find_traces([Path(path) for path in inputs], progress=progress)
    devices, merged = files.devices, [trace for trace in files.merged if Path(trace.name).resolve() != made]
    if any(Path(trace.name).resolve() == made for trace in (*devices, *files.hosts)):
        raise RequestError(f"{output} is a trace of one rank, which is read: give another name for the output")
    if files.failures:
        raise DataError("; ".join(files.failures))
    if not devices:
        of_files = (wrong_kind(path, InputKind.DEVICE) for path in map(Path, inputs) if path.is_file())
        counts = {"host traces": len(files.hosts), "merged ones": len(files.merged), **files.skipped}
        nothing = f"{', '.join(inputs)}: no device trace of a single rank{list_counts(', but ', counts)}"
        raise DataError(next(filter(None, of_files), nothing))
    ranks, notes = by_rank(devices, hosts_of(devices, files.hosts))
    report = merge(ranks, output, progress)
    hosts = {"host traces, which have no times": len(files.hosts)} if files.hosts else {}
    report.skipped = {**files.skipped, **hosts}
    report.notes += notes + [f"{trace.name}: merged of several ranks already; left out" for trace in merged]
    return report
