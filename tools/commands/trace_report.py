"""The command trace-report: analyses the traces of all ranks of a run, as a page, tables, CSV or JSON."""

import argparse
from dataclasses import replace
from pathlib import Path

from ...linker.windows import Window
from ...schema.errors import require
from ...schema.io import STANDARD_STREAM, open_output
from .. import report as reports
from ..analyses import AnalysisOptions, read_captures
from ..command import log, log_notes, progress, refuse_contradictions
from ..command_parser import Inputs, Output, command
from ..options import chosen_for, path_of_rank
from ..recognise import InputKind, reading
from ..terminal import print_text, summary_line


@command(
    "trace-report",
    "Says what limits a run over all its ranks, by how much, and what to do, with the tables behind the answer.\n"
    "Without an option for output it prints the verdict, the findings and one table.",
    "traces -o report.html",
    Inputs(
        "TRACES",
        "device traces with their host traces, linked traces or graphs of a run, or folders with them",
        ("--input", "--input-dir"),
        unless=("diff",),
    ),
    Output("REPORT.html", "write the page, one file that needs no network", is_required=False),
)
def main(options: argparse.Namespace) -> None:
    """Prints or writes what the options ask for."""
    analysis = AnalysisOptions(**chosen_for("AnalysisOptions", options) | {"peaks": dict(options.peaks)})
    _check(options, analysis)
    if options.output:
        require("report", "--output")
    runs = [[path] for path in options.diff or ()] or [[*map(Path, options.inputs)]]
    sources = [reports.find_sources(paths, progress, options.ranks, options.allow_mismatch) for paths in runs]
    window = Window(**chosen_for("Window", options))
    if options.diff:
        report = reports.report_on_diff(sources[0], sources[1], progress, window, options.modules)
    else:
        report = reports.report_on(sources[0], _request(options, analysis, window), progress)
    log_notes(options.prog, report.notes)
    if options.output:
        page = reports.render(report).encode("utf-8", "replace")
        with open_output(options.output) as stream:
            stream.write(page)
        log.info(summary_line("page", f"{options.output}, {len(page) / 1e6:.1f} MB"))
    if options.perfetto:
        ranks = report.ranks["rank"]
        for rank in ranks:
            path = path_of_rank(options.perfetto, int(rank), len(ranks) > 1)
            log.info(summary_line("perfetto", f"{path}, for https://ui.perfetto.dev"))
    if options.csv:
        reports.write_csv(report.tables.values(), options.csv, report.clock_of_tables)
        log.info(summary_line("tables", f"{options.csv}, {len(report.tables)} tables and notes"))
    if options.json:
        reports.print_tables(report.tables.values(), report.clock_of_tables)
    elif not (options.output or options.csv or options.perfetto):
        is_short = not (options.all or options.only)
        print_text(reports.summary_text(report) if is_short else reports.tables_text(report), answer_first=is_short)


def _check(options: argparse.Namespace, analysis: AnalysisOptions) -> None:
    """Raises WrongUsage for options that contradict each other."""
    diff, whole = options.diff, "--diff compares two runs as they were"
    of_run = options.only or options.perfetto or options.captures or options.as_recorded
    from_stdin = STANDARD_STREAM in map(str, [*options.inputs, *(diff or ())])
    refuse_contradictions(
        (options.all and options.only, "--all prints every table, --only some; give one of them"),
        (options.inputs and diff, "give the files of one run, or --diff with two runs"),
        (diff and of_run, f"{whole}, without --only, --as-recorded, --perfetto and --capture-trace"),
        (diff and analysis != AnalysisOptions(), f"{whole}; the options of the analyses change nothing in it"),
        (from_stdin, "traces are looked at before they are read; give files or a folder, not stdin"),
        (options.perfetto == STANDARD_STREAM, "--perfetto writes files, not stdout"),
    )
    if options.output:
        reports.check_page_name(options.output)


def _request(options: argparse.Namespace, analysis: AnalysisOptions, window: Window) -> reports.ReportRequest:
    captures = []
    for path in map(str, options.captures):
        with reading(path, InputKind.DEVICE):
            captures += read_captures(path)
    return reports.ReportRequest(
        options.only, bool(options.output), options.perfetto or "", replace(analysis, captures=captures), window,
        options.modules, options.as_recorded,
    )  # fmt: skip
