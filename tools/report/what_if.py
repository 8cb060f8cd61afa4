"""Predicts by replay of all ranks' graphs how much each of several changes would shorten the run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.graph import ExecutionGraph
from ..analyses import Column, Table, reliability
from ..replay import (
    SCALABLE,
    MakespanRange,
    NodeClass,
    Recording,
    Replay,
    Scale,
    StartOffset,
    gather_job,
    makespan_ns,
    node_classes,
    parse_scale,
    replay_job,
    replays,
)

NAME, TITLE = "what_if", "What a changed run would take"
TWICE_AS_FAST = 0.5


def what_if(graphs: Sequence[ExecutionGraph], scales: Sequence[Scale]) -> Table:
    """Returns the makespan over all ranks with each change alone and with all of them. Each row is a replay."""
    changes = {scale.spec: [scale] for scale in scales}
    if len(changes) > 1:
        changes["all of these"] = list(scales)
    return _table(graphs, changes)


def classes_twice_as_fast(graphs: Sequence[ExecutionGraph], recording: Recording | None = None) -> Table:
    """Returns the makespan with half the duration of each class of nodes that the graphs have, without a profiler where
    the `recording` tells how long a step takes then.
    """
    present = {NodeClass(node_class) for graph in graphs for node_class in np.unique(node_classes(graph)).tolist()}
    changes = {
        label: [parse_scale(f"class:{label}={TWICE_AS_FAST}")]
        for label, node_class in SCALABLE.items()
        if node_class in present
    }
    return _table(graphs, changes, recording)


def _table(
    graphs: Sequence[ExecutionGraph], changes: dict[str, list[Scale]], recording: Recording | None = None
) -> Table:
    if not graphs:
        return Table(NAME, TITLE, [], "no graph was made, so nothing can be replayed")
    job = gather_job(graphs)
    note = _outcome(replay_job(job)).note
    unchanged = recording.without_profiler(job) if recording else job
    outcomes = list(map(_outcome, replays(unchanged, changes.values())))
    before = makespan_ns(unchanged)
    after = np.array([outcome.makespan_ns for outcome in outcomes], np.int64)
    columns = [
        Column("change", "", list(changes)),
        Column("before", "µs", np.full(len(after), before / 1000)),
        Column("after", "µs", after / 1000),
        Column("saved", "µs", (before - after) / 1000),
        Column("saved_pct", "%", 100 * (before - after) / max(before, 1)),
    ]
    ranges = [outcome.range for outcome in outcomes if outcome.range is not None]
    if any(not makespan.is_clear for makespan in ranges):
        columns.append(Column("after_low", "µs", np.array([makespan.low_ns / 1000 for makespan in ranges])))
        columns.append(Column("after_high", "µs", np.array([makespan.high_ns / 1000 for makespan in ranges])))
        note = f"{note}. Answers are ranges: {ranges[0].reason}"
    if offset := next((outcome.start_offset for outcome in outcomes if outcome.start_offset), None):
        without = [outcome.without_offsets_ns / 1000 for outcome in outcomes]
        columns.append(Column("without_start_offsets", "µs", np.array(without)))
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
