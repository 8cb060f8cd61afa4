"""Reports on runs: what limits a run, and in what two runs differ."""

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import cast

from .linker.windows import EVERYTHING, Window, given_window
from .records import added_to_record
from .schema.arguments import FilePath, Paths, given, given_path, given_paths, texts
from .schema.errors import nearest
from .schema.io import open_output
from .tools.analyses import AnalysisOptions, Table, read_captures
from .tools.options import checked
from .tools.replay import Changes, given_changes
from .tools.report import (
    Report as ReportRecord,
    ReportRequest,
    find_sources,
    is_page_name,
    of_ranks,
    render,
    report_on,
    report_on_diff,
    summary_text,
    tables_text,
    write_csv,
)


class TablesByName(dict[str, Table]):
    """The tables of a report, by name. A KeyError names the nearest one, or all."""

    def __missing__(self, name: str) -> Table:
        raise KeyError(f"the report has no table {name!r}{nearest(str(name), self)}")


@added_to_record
class Report(ReportRecord):
    """What limits a run and what to do, or in what two runs differ: the `verdict`, the `findings`, and the `tables` by
    name.

    >>> import execgraph as eg
    >>> report = eg.report("tests/data/training")
    >>> print(str(report).splitlines()[2][:27])
    Computation limits the run:
    >>> report.findings[0].gain.pct > 10, len(report.tables) > 20
    (True, True)
    """

    __slots__ = ()

    def write_csv(self, folder: FilePath) -> None:
        """Writes NAME.csv for every table to a folder; if one fails, none is written."""
        write_csv(self.tables.values(), given_path(folder, "write_csv(folder)"), self.clock_of_tables)

    def __repr__(self) -> str:
        text = tables_text(self) if self.is_of_some else summary_text(self)
        return f"Report of {self.title}\n\n{text}"

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{escape(repr(self))}</pre>'


def report(
    inputs: Paths,
    path: FilePath | None = None,
    *,
    only: str | Sequence[str] | None = None,
    changes: Changes = (),
    ranks: Sequence[int] | None = None,
    window: Window = EVERYTHING,
    modules: bool = False,
    options: AnalysisOptions | None = None,
    captures: Paths = (),
    perfetto: FilePath | None = None,
) -> Report:
    """Says what limits a run over all its ranks, by how much, and what to do, as `trace-report` does.

    >>> import execgraph as eg
    >>> report = eg.report("tests/data/training", only=["critical_path"])
    >>> report.tables["critical_path_replay"].rows()[0]["ranks"]
    2

    Args:
        inputs: Folders or files with traces, linked traces or graphs of the run.
        path: The .html file to write the page to; without it none is drawn.
        only: The names of the analyses to make; by default all.
        changes: What else to replay, for the table `what_if`; as of `what_if`.
        ranks: Only these ranks of those that are there.
        window: The part of each rank's traces to look at.
        modules: Whether to read Python's calls, for tables by module.
        options: Thresholds of the analyses, and how much they show.
        captures: Device traces in which CUDA graphs were captured, or ran op by op: they name the ops behind the
            kernels of launched graphs.
        perfetto: The file to write the device trace to with counters, the critical path and kernel patterns, for
            https://ui.perfetto.dev; several ranks give NAME.rankN.json.

    Returns:
        The verdict, the findings, and the tables by name.

    Raises:
        DataError: A file cannot be used, or no rank is there.
        ImportError: What draws the page is not installed.
        ValueError: There is no analysis of a name in `only`, a change cannot be made, or `path` does not end in .html.
        TypeError: `inputs` are not paths, or the changes or another argument are of the wrong kind.
    """
    _check_name(path, "report(inputs, path)")
    given_window(window, "report(window=…)")
    chosen = checked("report", ranks=ranks, modules=modules)["ranks"]
    sources = find_sources(given_paths(inputs, "report(inputs)"))
    scales = given_changes(changes, "report(inputs, path, changes=…)")
    names = [only] if isinstance(only, str) else None if only is None else [*texts(only, "report(only=…)")]
    captured = [
        capture for trace in given_paths(captures, "report(captures=…)") for capture in read_captures(str(trace))
    ]
    options = given(options or AnalysisOptions(), AnalysisOptions, "report(options=…)", "AnalysisOptions")
    options = dataclasses.replace(options, captures=[*options.captures, *captured])
    request = ReportRequest(names, scales, path is not None, str(perfetto or ""), options, window, modules)
    read = sources if chosen is None else of_ranks(sources, chosen)
    return _finished(report_on(read, request), path)


def compare(
    before: Paths,
    after: Paths,
    path: FilePath | None = None,
    *,
    window: Window = EVERYTHING,
    modules: bool = False,
) -> Report:
    """Says which of two runs is faster, by how much, and what the difference was spent on, as `trace-report --diff`.

    >>> import execgraph as eg
    >>> folder = "tests/data/training"
    >>> report = eg.compare(f"{folder}/device_rank0.json.gz", f"{folder}/device_rank1.json.gz")
    >>> report.tables["trace_diff_runs"]["part"][:2]
    ['step', 'run']

    Args:
        before: Folders or files with traces or linked traces of the first run.
        after: The same of the second.
        path: The .html file to write the page to; without it none is drawn.
        window: The part of both runs to compare.
        modules: Whether to read Python's calls, for tables by module.

    Returns:
        The verdict and the tables by name.

    Raises:
        DataError: A file cannot be used, or no rank is there.
        ImportError: What draws the page is not installed.
        ValueError: `path` does not end in .html.
        TypeError: `before` or `after` are not paths, or `window` is not a Window.
    """
    _check_name(path, "compare(before, after, path)")
    given_window(window, "compare(window=…)")
    checked("compare", modules=modules)
    first, second = (find_sources(given_paths(argument, "compare(before, after)")) for argument in (before, after))
    return _finished(report_on_diff(first, second, window=window, modules=modules), path)


def _check_name(path: FilePath | None, argument: str) -> None:
    if path is not None and not is_page_name(given_path(path, argument)):
        raise ValueError(f"{path}: the report is an HTML page; name it .html")


def _finished(report: ReportRecord, path: FilePath | None) -> Report:
    report.tables = TablesByName(report.tables)
    if path is not None:
        page = render(report).encode("utf-8", "replace")
        with open_output(str(path)) as stream:
            stream.write(page)
    return cast(Report, report)
