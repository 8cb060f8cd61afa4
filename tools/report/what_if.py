"""What each of some changes would bring to the whole run, by replay of the graphs of all ranks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.graph import ExecutionGraph
from ..analyses import Column, Table
from ..replay import SCALABLE, NodeClass, Replay, Scale, node_classes, parse_scale, replay_ranks, replays, trust

NAME, TITLE = "what_if", "What a changed run would take"
TWICE_AS_FAST = 0.5


def what_if(graphs: Sequence[ExecutionGraph], scales: Sequence[Scale]) -> Table:
    """Makespans with each change alone and, of several, with all together, over all ranks at once. A replay per row."""
    changes = {scale.spec: [scale] for scale in scales}
    if len(changes) > 1:
        changes["all of these"] = list(scales)
    return _table(graphs, changes, unchanged(graphs))


class Unchanged(NamedTuple):
    """The makespan without any change, and what is to say of that replay, which takes too much memory to be kept."""

    makespan_ns: int
    note: str


def unchanged(graphs: Sequence[ExecutionGraph], replays: Sequence[Replay] = ()) -> Unchanged:
    """`replays` are those of each graph alone, where they are known; one of the only graph there is needs no other."""
    if not graphs:
        return Unchanged(0, "")
    replay = replays[0] if len(graphs) == len(replays) == 1 else replay_ranks(graphs)
    return Unchanged(replay.makespan_ns, _note(replay))


def classes_twice_as_fast(graphs: Sequence[ExecutionGraph], before: Unchanged) -> Table:
    """Returns the same for half the duration of each class of nodes that the graphs have."""
    present = {NodeClass(node_class) for graph in graphs for node_class in np.unique(node_classes(graph)).tolist()}
    changes = {
        label: [parse_scale(f"class:{label}={TWICE_AS_FAST}")]
        for label, node_class in SCALABLE.items()
        if node_class in present
    }
    return _table(graphs, changes, before)


def _table(graphs: Sequence[ExecutionGraph], changes: dict[str, list[Scale]], unscaled: Unchanged) -> Table:
    if not graphs:
        return Table(NAME, TITLE, [], "no graph was made, so nothing can be replayed")
    before, note = unscaled
    after = np.array([*map(_makespan, replays(graphs, changes.values()))], np.int64)
    columns = [
        Column("change", "", list(changes)),
        Column("before", "µs", np.full(len(after), before / 1000)),
        Column("after", "µs", after / 1000),
        Column("saved", "µs", (before - after) / 1000),
        Column("saved_pct", "%", 100 * (before - after) / max(before, 1)),
    ]
    return Table(NAME, TITLE, columns, note)


def _makespan(replay: Replay) -> int:
    return replay.makespan_ns


def _note(replay: Replay) -> str:
    """Returns whose replay it is, where that is not plain, and how far it is off; a part of a job misses what the
    others would have waited for.
    """
    graphs = replay.work.graphs
    world = max(graph.number("world_size", 0) for graph in graphs)
    isolated = f"{len(graphs)} of {world:,} ranks, without waiting for the others" if len(graphs) < world else ""
    joint = f"{len(graphs)} ranks, which wait for each other" if len(graphs) > 1 else ""
    return "; ".join(filter(None, [isolated or joint, trust(replay)]))
