"""The command trace-merge: merges the device traces of all ranks, for Perfetto or into a database for counting."""

import argparse
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from ...schema.errors import DataError, RequestError
from ...schema.progress import Progress
from ..command import print_json, progress, run_command
from ..command_parser import CommandParser
from ..inputs import InputKind, RankFile, by_rank, find_traces, hosts_of, list_counts, wrong_kind
from ..merge import MergeReport, counting, merge_for_counting, merge_for_viewing
from ..summary_lines import format_counts, summary_line

NAME = "trace-merge"
WRITERS = {".db": merge_for_counting, ".json": merge_for_viewing, ".json.gz": merge_for_viewing}
log = logging.getLogger("execgraph")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-merge and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Merges the device traces of all ranks (Kineto or rocpd) into one file: .json or .json.gz to look at in "
        "Perfetto, with a\n"
        "process for every rank and device and the clocks compared by shared collectives; .db to count in with SQL. A "
        "merged\n"
        "trace is no input of trace-link, but with --rank N, which takes rank N's own trace out of it.",
        f"{NAME} traces -o merged.json.gz",
    )
    parser.add_inputs("FILE_OR_DIR", "device traces, or folders with them", "--input", "--input-dir")
    made = parser.add_output("MERGED", "merged.json, merged.json.gz or merged.db")
    made.add_argument("--json", action="store_true", help="print the summary as one JSON object on stdout")
    _, _, tables_and_queries = (counting.__doc__ or "").partition("\n\n")
    parser.epilog = f"tables of a .db, and what to ask of them:\n\n{tables_and_queries}\n{parser.epilog}"
    options = parser.parse_args(arguments)
    merge = next((writer for suffix, writer in WRITERS.items() if options.output.lower().endswith(suffix)), None)
    if merge is None:
        parser.error(f"--output {options.output}: end it in {', '.join(WRITERS)} to say what to write")
    run_command(partial(_run, merge), options, NAME)


def _run(merge: Callable[[Sequence[RankFile], str, Progress], MergeReport], options: argparse.Namespace) -> None:
    output = Path(options.output).resolve()
    files = find_traces([Path(path) for path in options.inputs], progress=progress)
    devices, merged = files.devices, [trace for trace in files.merged if Path(trace.name).resolve() != output]
    if any(Path(trace.name).resolve() == output for trace in (*devices, *files.hosts)):
        raise RequestError(f"{options.output} is a trace of one rank, which is read: give another name for the output")
    if files.failures:
        raise DataError("; ".join(files.failures))
    if not devices:
        of_files = (wrong_kind(path, InputKind.DEVICE) for path in map(Path, options.inputs) if path.is_file())
        counts = {"host traces": len(files.hosts), "merged ones": len(files.merged), **files.skipped}
        others = list_counts(", but ", counts)
        nothing = f"{', '.join(options.inputs)}: no device trace of a single rank{others}"
        raise DataError(next(filter(None, of_files), nothing))
    ranks, notes = by_rank(devices, hosts_of(devices, files.hosts))
    report = merge(ranks, options.output, progress)
    report.skipped = {
        **files.skipped,
        **({"host traces, which have no times": len(files.hosts)} if files.hosts else {}),
    }
    report.notes += notes + [f"{trace.name}: merged of several ranks already; left out" for trace in merged]
    if options.json:
        print_json(msgspec.to_builtins(report))
    log.info(summary(report))


def summary(report: MergeReport) -> str:
    """Returns a line per rank, and one for each thing to know."""
    lines = [
        f"rank {r.rank:<6} {r.activities:>9} activities  {r.rows:>9} rows  clock +{r.clock_correction_ns / 1000:g} µs "
        f" {r.file}"
        for r in report.ranks
    ]
    lines += format_counts("skipped", report.skipped) + [summary_line("note", note) for note in report.notes]
    return "\n".join([*lines, f"{len(report.ranks)} ranks merged into {report.output}"])
