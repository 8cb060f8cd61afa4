"""The benchmark's results: as records that are saved, and as tables of one size or of changes since another run."""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from .work import FLOORS, Counts

MB = 1_000_000
NODES = "graph nodes"
COLUMNS = ["s", "MB/s", "nodes/s", "peak MB", "peak / input", "× floor"]
OF_ONE_RANK = ("nodes/s", "× floor")


class Result(msgspec.Struct):
    """The runs of one work."""

    work: str
    seconds: list[float]
    peak_bytes: int

    @property
    def median(self) -> float:
        """Seconds of the run in the middle."""
        return statistics.median(self.seconds)


class Size(msgspec.Struct):
    """All works on one input: one rank of about `megabytes`, or a job of small `ranks` (0 megabytes)."""

    megabytes: int
    input_bytes: int
    counts: Counts
    results: list[Result]
    ranks: int = 1

    @property
    def name(self) -> str:
        """What was asked for, as in `325 MB` and `64 ranks`."""
        return f"{self.megabytes} MB" if self.ranks == 1 else f"{self.ranks} ranks"

    def result(self, work: str) -> Result | None:
        """Returns the runs of a work, None where it was not measured."""
        return next((result for result in self.results if result.work == work), None)


class Benchmark(msgspec.Struct):
    """A whole run; `commit` is empty if it is not known. The sizes of one rank ascend, and the jobs by their ranks."""

    machine: str
    python: str
    commit: str
    sizes: list[Size]
    jobs: list[Size] = []

    def size(self, name: str) -> Size | None:
        """Returns what was measured on the input of that name, None if nothing."""
        return next((size for size in [*self.sizes, *self.jobs] if size.name == name), None)


class Table(NamedTuple):
    """Cells; the first column is text, the others are numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Returns the table for a terminal, columns aligned; first the title."""
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        return "\n".join([self.title, *aligned])

    def markdown(self) -> str:
        """Returns the table as markdown; first the title."""
        rule = ["---", *["--:"] * (len(self.header) - 1)]
        lines = [f"| {' | '.join(cells)} |" for cells in (self.header, rule, *self.rows)]
        return "\n".join([f"{self.title}:", "", *lines])


def size_table(size: Size, smallest: Size) -> Table:
    """Returns the works on one size, and how they grew from the smallest size of its kind on."""
    columns = COLUMNS if size.ranks == 1 else [column for column in COLUMNS if column not in OF_ONE_RANK]
    header = ["", *columns]
    rows = [[result.work, *map(_cells(size, result).__getitem__, columns)] for result in size.results]
    if size is not smallest:
        growth = f"input × {size.input_bytes / smallest.input_bytes:.0f}"
        header += [f"time, {growth}", f"peak, {growth}"]
        for row, result in zip(rows, size.results, strict=True):
            row += _growth(smallest.result(result.work), result)
    counts = "".join(f", {count:,} {what}" for what, count in size.counts.items())
    ranks = "" if size.ranks == 1 else f"{size.ranks} ranks, "
    return Table(f"{ranks}{size.input_bytes / MB:.0f} MB{counts}", header, rows)


def build_share(size: Size) -> str:
    """Returns a line that compares building a rank with its two steps apart; nothing if one was not measured."""
    works = [size.result(work) for work in ("build", "link", "convert")]
    times = [result.median for result in works if result]
    return (
        f"\nbuild takes {times[0] / sum(times[1:]):.2f} of link and convert apart" if len(times) == len(works) else ""
    )


def _cells(size: Size, result: Result) -> dict[str, str]:
    floor = size.result(FLOORS.get(result.work, ""))
    return {
        "s": f"{result.median:.2f}",
        "MB/s": f"{size.input_bytes / MB / result.median:.0f}",
        "nodes/s": f"{size.counts.get(NODES, 0) / result.median:,.0f}",
        "peak MB": f"{result.peak_bytes / MB:.0f}",
        "peak / input": f"{result.peak_bytes / size.input_bytes:.1f}",
        "× floor": f"{result.median / floor.median:.1f}" if floor else "",
    }


def _growth(before: Result | None, now: Result) -> Iterator[str]:
    yield f"× {now.median / before.median:.1f}" if before else ""
    yield f"× {now.peak_bytes / before.peak_bytes:.1f}" if before else ""


def changes_table(old: Benchmark, new: Benchmark) -> Table:
    """Seconds and peak memory of every work that both runs have."""
    rows = []
    for size in [*new.sizes, *new.jobs]:
        before = old.size(size.name)
        for result in size.results:
            was = before.result(result.work) if before else None
            if was:
                seconds = _change(was.median, result.median, ".2f")
                peak = _change(was.peak_bytes / MB, result.peak_bytes / MB, ".0f")
                rows.append([f"{size.name} {result.work}", *seconds, *peak])
    header = ["", "s before", "now", "change", "peak MB before", "now", "change"]
    machines = "" if old.machine == new.machine else f"; before on another machine, {old.machine}"
    return Table(f"{old.commit or 'before'} -> {new.commit or 'now'}{machines}", header, rows)


def _change(before: float, now: float, digits: str) -> tuple[str, str, str]:
    return format(before, digits), format(now, digits), f"{100 * (now / before - 1):+.0f} %"
