"""Predicts by replay of all ranks' graphs how much each of several changes would shorten the run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import ExecutionGraph
from ..analyses import Column, Table, reliability
from ..replay import (
    SCALABLE,
    MakespanRange,
    NodeClass,
    Replay,
    Scale,
    StartOffset,
    matched,
    node_classes,
    parse_scale,
    replays,
)

NAME, TITLE = "what_if", "What a changed run would take"
TWICE_AS_FAST = 0.5
AS_RECORDED, WITHOUT_PROFILER = "as recorded", "without a profiler"

Changes = dict[str, Sequence[Scale]]


def what_if(graphs: Sequence[ExecutionGraph], scales: Sequence[Scale], base: Sequence[Scale] = ()) -> Table:
    """Returns the makespan over all ranks with each change alone and with all of them. Each row is a replay.

    With `base`, the changes that replay the run without a profiler, there are rows of that run, too.
    """
    changes: Changes = {scale.spec: [scale] for scale in scales}
    if len(changes) > 1:
        changes["all of these"] = scales
    table = _table(graphs, changes, {AS_RECORDED: (), WITHOUT_PROFILER: base} if base else {AS_RECORDED: ()})
    if not len(table):
        return table
    found = {name: matched(graphs, *change) for name, change in changes.items()}
    nodes, time = (np.array([getattr(found[name], of) for name in table["change"]]) for of in ("nodes", "time_us"))
    first, *others = table.columns
    return replace(table, columns=[first, Column("nodes", "", nodes), Column("matched", "µs", time), *others])


def classes_twice_as_fast(graphs: Sequence[ExecutionGraph], base: Sequence[Scale] = ()) -> Table:
    """Returns the makespan with half the duration of each class of nodes that the graphs have, each time with the
    changes of `base`, too.
    """
    present = {NodeClass(node_class) for graph in graphs for node_class in np.unique(node_classes(graph)).tolist()}
    changes: Changes = {
        label: [parse_scale(f"class:{label}={TWICE_AS_FAST}")]
        for label, node_class in SCALABLE.items()
        if node_class in present
    }
    return _table(graphs, changes, {WITHOUT_PROFILER if base else AS_RECORDED: base})


def _table(graphs: Sequence[ExecutionGraph], changes: Changes, runs: Changes) -> Table:
    """Returns a row for each change to each run, which itself is the recording with changes."""
    if not graphs:
        return Table(NAME, TITLE, [], "no graph was made, so nothing can be replayed")
    rows = [(change, run) for change in changes for run in runs]
    scaled = [[*runs[run], *changes[change]] for change, run in rows]
    bases = [run for run, base in runs.items() if base]
    recorded, *outcomes = map(_outcome, replays(graphs, [[], *(runs[run] for run in bases), *scaled]))
    length = dict.fromkeys(runs, recorded.makespan_ns) | {run: outcomes.pop(0).makespan_ns for run in bases}
    note = recorded.note
    before, after = np.array([length[run] for _, run in rows], np.int64), _array(outcomes, "makespan_ns")
    columns = [
        Column("change", "", [change for change, _ in rows]),
        *([Column("run", "", [run for _, run in rows])] if len(runs) > 1 else []),
        Column("before", "µs", before / 1000),
        Column("after", "µs", after / 1000),
        Column("saved", "µs", (before - after) / 1000),
        Column("saved_pct", "%", 100 * (before - after) / np.maximum(before, 1)),
    ]
    ranges = [outcome.range for outcome in outcomes if outcome.range is not None]
    if any(not makespan.is_clear for makespan in ranges):
        columns.append(Column("after_low", "µs", np.array([makespan.low_ns / 1000 for makespan in ranges])))
        columns.append(Column("after_high", "µs", np.array([makespan.high_ns / 1000 for makespan in ranges])))
        note = f"{note}. Answers are ranges: {ranges[0].reason}"
    if offset := next((outcome.start_offset for outcome in outcomes if outcome.start_offset), None):
        columns.append(Column("without_start_offsets", "µs", _array(outcomes, "without_offsets_ns") / 1000))
        note = f"{note}. In every answer {offset.text}"
    return Table(NAME, TITLE, columns, note)


class _Outcome(NamedTuple):
    """What is kept of a replay, which itself takes much memory; `note` says how reliable it is."""

    makespan_ns: int
    range: MakespanRange | None
    start_offset: StartOffset | None
    note: str

    @property
    def without_offsets_ns(self) -> int:
        """The makespan of ranks that begin all at once; with start offsets where these are small."""
        return self.start_offset.makespan_without_ns if self.start_offset else self.makespan_ns


def _outcome(replay: Replay) -> _Outcome:
    return _Outcome(replay.makespan_ns, replay.range, replay.start_offset, reliability(replay))


def _array(outcomes: Sequence[_Outcome], name: str) -> Int64:
    return np.array([getattr(outcome, name) for outcome in outcomes], np.int64)
