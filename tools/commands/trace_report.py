"""The command trace-report: analyses the traces of all ranks of a run, as a page, tables, CSV or JSON."""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ...linker.windows import Window
from ...schema.errors import Audience, require, said_to
from ...schema.io import STANDARD_STREAM, open_output
from ..analyses import AnalysisOptions, read_captures
from ..command import progress, run_command
from ..command_parser import CommandParser, Inputs, Output
from ..options import chosen_for
from ..recognise import InputKind
from ..report import (
    ReportRequest,
    Sources,
    find_sources,
    is_page_name,
    of_ranks,
    overlay_path,
    print_tables,
    render,
    report_on,
    report_on_diff,
    summary_text,
    tables_text,
    write_csv,
)
from ..terminal import print_text, summary_line
from ..wrong_kind import reading

NAME = "trace-report"
log = logging.getLogger("execgraph")


@said_to(Audience.TERMINAL)
def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-report and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Says what limits a run over all its ranks, by how much, and what to do, with the tables behind the answer.\n"
        "Without an option for output it prints the verdict, the findings and one table.",
        f"{NAME} traces -o report.html --scale 'class:computation=0.5'",
        Inputs(
            "FILE_OR_DIR",
            "device traces with their host traces, linked traces or graphs of a run, or folders with them",
            ("--input", "--input-dir"),
            unless=("diff",),
        ),
        Output("REPORT.html", "write the page, one file that needs no network", read=_page, is_required=False),
    )
    arguments = parser.parse_args(argv)
    arguments.paths = [Path(path) for path in arguments.inputs]
    arguments.is_short = not (arguments.all or arguments.only)
    if arguments.all and arguments.only:
        parser.error("--all prints every table, --only some; give one of them")
    if arguments.paths and arguments.diff:
        parser.error("give the files of one run, or --diff with two runs")
    if arguments.diff and (arguments.only or arguments.changes or arguments.perfetto or arguments.captures):
        parser.error("--diff compares two runs as they were, without --only, --scale, --perfetto and --capture-trace")
    if arguments.diff and _options_of(arguments) != AnalysisOptions():
        parser.error("--diff compares two runs as they were; the options of the analyses change nothing in it")
    if Path(STANDARD_STREAM) in [*arguments.paths, *(arguments.diff or ())]:
        parser.error("traces are looked at before they are read; give files or a folder, not stdin")
    if arguments.perfetto == STANDARD_STREAM:
        parser.error("--perfetto writes files, not stdout")
    run_command(_report, arguments, NAME)


def _options_of(arguments: argparse.Namespace) -> AnalysisOptions:
    given = chosen_for("AnalysisOptions", arguments)
    return AnalysisOptions(**given | {"peaks": dict(arguments.peaks)})


def _page(path: str) -> str:
    """Returns the path of a page, whose name ends as one or has no ending."""
    if not is_page_name(path):
        raise argparse.ArgumentTypeError(
            f"{path} would hold an HTML page: name a file that ends in .html or .htm, or redirect the text, > {path}"
        )
    return path


def _sources(paths: list[Path], ranks: tuple[int, ...] | None) -> Sources:
    sources = find_sources(paths, progress)
    return sources if ranks is None else of_ranks(sources, ranks)


def _report(arguments: argparse.Namespace) -> None:
    if arguments.output:
        require("report", "--output")
    if arguments.diff:
        before, after = (_sources([path], arguments.ranks) for path in arguments.diff)
        report = report_on_diff(before, after, progress, Window(**chosen_for("Window", arguments)), arguments.modules)
    else:
        captures = []
        for path in map(str, arguments.captures):
            with reading(path, InputKind.DEVICE):
                captures += read_captures(path)
        options = replace(_options_of(arguments), captures=captures)
        scales = [replace(scale, peaks=options.peaks) for scale in arguments.changes]
        request = ReportRequest(
            arguments.only,
            scales,
            bool(arguments.output),
            arguments.perfetto or "",
            options,
            Window(**chosen_for("Window", arguments)),
            arguments.modules,
        )
        report = report_on(_sources(arguments.paths, arguments.ranks), request, progress)
    for note in report.notes:
        log.warning(f"{NAME}: note: {note}")
    if arguments.output:
        page = render(report).encode("utf-8", "replace")
        with open_output(arguments.output) as stream:
            stream.write(page)
        log.info(summary_line("page", f"{arguments.output}, {len(page) / 1e6:.1f} MB"))
    if arguments.perfetto:
        ranks = report.ranks["rank"]
        for rank in ranks:
            path = overlay_path(arguments.perfetto, int(rank), len(ranks) > 1)
            log.info(summary_line("perfetto", f"{path}, for https://ui.perfetto.dev"))
    if arguments.csv:
        write_csv(report.tables.values(), arguments.csv, report.clock_of_tables)
        log.info(summary_line("tables", f"{arguments.csv}, {len(report.tables)} tables and notes"))
    if arguments.json:
        print_tables(report.tables.values(), report.clock_of_tables)
    elif not (arguments.output or arguments.csv or arguments.perfetto):
        print_text(summary_text(report) if arguments.is_short else tables_text(report), answer_first=arguments.is_short)
