"""The ranks of a run in, all that is shown of it out, in one pass; of the ranks only the graphs are kept, to replay them together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...schema.graph import ExecutionGraph
from ..analyses import Column, RankTrace, Table, analyse, trace_diff
from ..scaling import Scale
from .excerpt import Excerpt, excerpt
from .inputs import Sources, read_ranks
from .what_if import classes_twice_as_fast, what_if

RANKS_DRAWN, NODES_DRAWN = 8, 3000
OF_GRAPHS = "critical_path"
"""The analysis that needs the execution graph, which takes longest to make."""


@dataclass(slots=True)
class Report:
    """The tables by name, the ranks as a table, and what a reader should know about the inputs.

    A page shows besides: timelines of the first ranks, and what the run would take if one class of work were twice as fast.
    """

    title: str
    tables: dict[str, Table]
    ranks: Table
    notes: list[str]
    excerpts: list[Excerpt] = field(default_factory=list)
    twice_as_fast: Table | None = None


def report_on(
    sources: Sources, only: Sequence[str] | None = None, scales: Sequence[Scale] = (), for_page: bool = True
) -> Report:
    """Analyses the sources, or does the analyses named in `only`, and replays them with `scales`.

    Raises DataError where a file cannot be used, ValueError for a name that no analysis has.
    """
    needs_graphs = for_page or bool(scales) or only is None or OF_GRAPHS in only
    seen = _Seen(min(len(sources.ranks), RANKS_DRAWN) if for_page else 0)
    tables = analyse(seen.passing(read_ranks(sources.ranks, needs_graphs)), only)
    if scales:
        tables["what_if"] = what_if(seen.graphs, scales)
    classes = classes_twice_as_fast(seen.graphs) if for_page else None
    return Report(sources.title, tables, _ranks_table(seen.facts), sources.notes + seen.notes(), seen.excerpts, classes)


def report_on_diff(before: Sources, after: Sources) -> Report:
    """What differs between two runs. Raises DataError where a file cannot be used."""
    seen = _Seen(0), _Seen(0)
    ranks = [one.passing(read_ranks(sources.ranks, False)) for one, sources in zip(seen, (before, after), strict=True)]
    tables = {table.name: table for table in trace_diff(*ranks).with_details()}
    notes = [
        f"{run}: {note}"
        for run, one, sources in zip("AB", seen, (before, after), strict=True)
        for note in sources.notes + one.notes()
    ]
    return Report(
        f"{before.title} → {after.title}", tables, _ranks_table([fact for one in seen for fact in one.facts]), notes
    )


class _Seen:
    """What is taken from ranks while they pass by on their way to the analyses."""

    def __init__(self, drawn: int) -> None:
        self.drawn = drawn
        self.graphs: list[ExecutionGraph] = []
        self.excerpts: list[Excerpt] = []
        self.facts: list[tuple[int | str, ...]] = []
        self.remarks: list[tuple[int, str]] = []

    def passing(self, ranks: Iterable[RankTrace]) -> Iterator[RankTrace]:
        for rank in ranks:
            self.facts.append(_facts(rank))
            self.remarks += [(rank.rank, remark) for remark in rank.linked.report.remarks]
            if rank.graph is not None:
                self.graphs.append(rank.graph)
            if len(self.excerpts) < self.drawn:
                window = self.excerpts[0].window if self.excerpts else None
                found = excerpt(rank, NODES_DRAWN // self.drawn, window)
                self.excerpts += [found] if found else []
            yield rank

    def notes(self) -> list[str]:
        """The remarks of the linker, each once, with the ranks that it is about."""
        ranks: dict[str, list[str]] = {}
        for rank, remark in self.remarks:
            ranks.setdefault(remark, []).append(str(rank))
        return [f"rank {', '.join(of)}: {remark}" for remark, of in ranks.items()]


FACTS = (
    "rank", "process", "device_trace", "host_trace", "host_ops", "matched", "calls", "activities", "linked", "dropped", "nodes",
)  # fmt: skip

FILES = ("device_trace", "host_trace")


def _facts(rank: RankTrace) -> tuple[int | str, ...]:
    linked, report = rank.linked, rank.linked.report
    nodes = len(rank.graph) if rank.graph is not None else 0
    files = Path(linked.info.source_device).name, Path(linked.info.source_host).name
    counts = len(linked.ops), report.matched, len(linked.calls), len(linked.activities), report.linked
    return rank.rank, linked.info.pid, *files, *counts, sum(report.dropped.values()), nodes


def _ranks_table(facts: list[tuple[int | str, ...]]) -> Table:
    """A row per rank."""
    columns = zip(FACTS, zip(*facts, strict=True), strict=True)
    made = [Column(name, "", list(map(str, of)) if name in FILES else np.array(of, np.int64)) for name, of in columns]
    return Table("ranks", "What was recorded", made)
