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
    after = np.array([makespan for makespan, _ in outcomes], np.int64)
    columns = [
        Column("change", "", list(changes)),
        Column("before", "µs", np.full(len(after), before / 1000)),
        Column("after", "µs", after / 1000),
        Column("saved", "µs", (before - after) / 1000),
        Column("saved_pct", "%", 100 * (before - after) / max(before, 1)),
    ]
    ranges = [makespan for _, makespan in outcomes if makespan is not None]
    if any(not makespan.is_clear for makespan in ranges):
        columns.append(Column("after_low", "µs", np.array([makespan.low_ns / 1000 for makespan in ranges])))
        columns.append(Column("after_high", "µs", np.array([makespan.high_ns / 1000 for makespan in ranges])))
        note = f"{note}. Answers are ranges: {ranges[0].reason}"
    return Table(NAME, TITLE, columns, note)


def _outcome(replay: Replay) -> tuple[int, MakespanRange | None]:
    return replay.makespan_ns, replay.range


def _note(replay: Replay) -> str:
    """Returns how many ranks were replayed, if several or not all of the job's, and how reliable the replay is."""
    graphs = replay.work.graphs
    world = max(graph.number("world_size", 0) for graph in graphs)
    isolated = f"{len(graphs)} of {world:,} ranks, without waiting for the others" if len(graphs) < world else ""
    joint = f"{len(graphs)} ranks, which wait for each other" if len(graphs) > 1 else ""
    return "; ".join(filter(None, [isolated or joint, trust(replay)]))
