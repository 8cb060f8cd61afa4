"""Predicts by replay of all ranks' graphs how much each of several changes would shorten the run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.graph import ExecutionGraph
from ..analyses import Column, Table
from ..replay import (
    SCALABLE,
    MakespanRange,
    NodeClass,
    Replay,
    Scale,
    StartOffset,
    node_classes,
    parse_scale,
    replay_ranks,
    replays,
    trust,
)

NAME, TITLE = "what_if", "What a changed run would take"
TWICE_AS_FAST = 0.5


def what_if(graphs: Sequence[ExecutionGraph], scales: Sequence[Scale]) -> Table:
    """Returns the makespan over all ranks with each change alone and with all of them. Each row is a replay."""
    changes = {scale.spec: [scale] for scale in scales}
    if len(changes) > 1:
        changes["all of these"] = list(scales)
    return _table(graphs, changes, replay_unchanged(graphs))


class UnchangedRun(NamedTuple):
    """The makespan without changes, and a note on that replay, which itself takes too much memory to be kept."""

    makespan_ns: int
    note: str


def replay_unchanged(graphs: Sequence[ExecutionGraph], replays: Sequence[Replay] = ()) -> UnchangedRun:
    """Replays the graphs without changes. `replays` are those of each graph alone, if known, which serve a single
    graph.
    """
    if not graphs:
        return UnchangedRun(0, "")
    replay = replays[0] if len(graphs) == len(replays) == 1 else replay_ranks(graphs)
    return UnchangedRun(replay.makespan_ns, _note(replay))


def classes_twice_as_fast(graphs: Sequence[ExecutionGraph], before: UnchangedRun) -> Table:
    """Returns the makespan with half the duration of each class of nodes that the graphs have."""
    present = {NodeClass(node_class) for graph in graphs for node_class in np.unique(node_classes(graph)).tolist()}
    changes = {
        label: [parse_scale(f"class:{label}={TWICE_AS_FAST}")]
        for label, node_class in SCALABLE.items()
        if node_class in present
    }
    return _table(graphs, changes, before)


def _table(graphs: Sequence[ExecutionGraph], changes: dict[str, list[Scale]], unscaled: UnchangedRun) -> Table:
    if not graphs:
        return Table(NAME, TITLE, [], "no graph was made, so nothing can be replayed")
    before, note = unscaled
    outcomes = [*map(_outcome, replays(graphs, changes.values()))]
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
    """What is kept of a replay."""

    makespan_ns: int
    range: MakespanRange | None
    start_offset: StartOffset | None

    @property
    def without_offsets_ns(self) -> int:
        """The makespan of ranks that begin all at once; with start offsets where these are small."""
        return self.start_offset.makespan_without_ns if self.start_offset else self.makespan_ns


def _outcome(replay: Replay) -> _Outcome:
    return _Outcome(replay.makespan_ns, replay.range, replay.start_offset)


def _note(replay: Replay) -> str:
    """Returns how many ranks were replayed, if several or not all of the job's, and how reliable the replay is."""
    graphs = replay.work.graphs
    world = max(graph.number("world_size", 0) for graph in graphs)
    isolated = f"{len(graphs)} of {world:,} ranks, without waiting for the others" if len(graphs) < world else ""
    joint = f"{len(graphs)} ranks, which wait for each other" if len(graphs) > 1 else ""
    return "; ".join(filter(None, [isolated or joint, trust(replay)]))
