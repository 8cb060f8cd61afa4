"""The command trace-merge: merges the device traces of all ranks, for Perfetto or into a database for counting."""

import argparse

import msgspec

from ..command import log, print_json, progress
from ..command_parser import Inputs, Output, command
from ..job import TABLES_AND_QUERIES, MergeReport, merge_traces
from ..terminal import format_counts, summary_line


@command(
    "trace-merge",
    "Merges the device traces of all ranks (Kineto or rocpd) into one file. A .json or .json.gz is for Perfetto, with a\n"
    "process for every rank and device, and clocks aligned by shared collectives. A .db is a database for SQL. "
    "trace-link\nreads a merged trace only with --rank N, which takes the trace of rank N out of it.",
    "traces -o merged.json.gz",
    Inputs("TRACES", "device traces, or folders with them", ("--input", "--input-dir")),
    Output("MERGED", "merged.json, merged.json.gz or merged.db"),
    appendix=f"tables of a .db, and queries:\n\n{TABLES_AND_QUERIES}\n",
)
def main(options: argparse.Namespace) -> None:
    """Merges traces into one file."""
    report = merge_traces(options.inputs, options.output, progress, options.allow_mismatch)
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
