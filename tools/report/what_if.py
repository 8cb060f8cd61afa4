"""Predicts by replay of all ranks' graphs how much each of several changes would shorten the run."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...schema.graph import ExecutionGraph
from .. import replay
from ..analyses import Cells, Quantity, Table, pct, reliability, tabulate, us
from ..replay import NodeClass, Recording, Scale

NAME, TITLE = "what_if", "What a changed run would take"
TWICE_AS_FAST = 0.5
NOTHING = Table(NAME, TITLE, [], "no graph was made, so nothing can be replayed")

Changes = dict[str, Sequence[Scale]]


def what_if(graphs: Sequence[ExecutionGraph], scales: Sequence[Scale], recording: Recording | None = None) -> Table:
    """Returns the makespan over all ranks with each change alone and with all of them, without a profiler where the
    `recording` tells how that is. Each row is a replay.
    """
    if not graphs:
        return NOTHING
    changes: Changes = {scale.spec: [scale] for scale in scales}
    if len(changes) > 1:
        changes["all of these"] = scales
    matches = [replay.matched(graphs, *change) for change in changes.values()]
    nodes, time = (np.array([getattr(match, of) for match in matches]) for of in ("nodes", "time_us"))
    return _table(changes, graphs, {"nodes": nodes, "matched": Quantity("µs", time)}, recording)


def classes_twice_as_fast(graphs: Sequence[ExecutionGraph], recording: Recording | None = None) -> Table:
    """Returns the makespan with half the duration of each class of work that the graphs have, without a profiler where
    the `recording` tells how that is. A delay is no work: nothing tells what would make it shorter.
    """
    if not graphs:
        return NOTHING
    present = {NodeClass(each) for graph in graphs for each in np.unique(replay.node_classes(graph)).tolist()}
    changes: Changes = {
        label: [replay.parse_scale(f"class:{label}={TWICE_AS_FAST}")]
        for label, node_class in replay.SCALABLE.items()
        if node_class in present and node_class != NodeClass.DELAY
    }
    return _table(changes, graphs, {}, recording)


def _table(
    changes: Changes, graphs: Sequence[ExecutionGraph], more: Mapping[str, Cells], recording: Recording | None
) -> Table:
    """Returns a row for each change, with `more` columns; the note says how reliable replays are, and of which run."""
    recorded = replay.gather_job(graphs)
    job = recording.without_profiler(recorded) if recording else recorded
    note, outcomes = reliability(replay.replay_job(recorded)), []
    if unprofiled := job.unprofiled:
        note = f"{unprofiled.steps} steps without a profiler; {note} as recorded"
    for change in changes.values():  # a replay takes much memory, so that none is kept
        outcome = replay.replay_job(job, change)
        outcomes.append((outcome.makespan_ns, outcome.range, outcome.start_offset))
    before = np.full(len(outcomes), replay.makespan_ns(job))
    after = np.array([makespan for makespan, *_ in outcomes], np.int64)
    columns: dict[str, Cells] = {
        "change": [*changes], **more, "before": us(before), "after": us(after), "saved": us(before - after),
        "saved_pct": pct(before - after, np.maximum(before, 1)),
    }  # fmt: skip
    known = [makespan for _, makespan, _ in outcomes if makespan is not None]
    if any(not makespan.is_clear for makespan in known):
        columns["after_low"] = us([makespan.low_ns for makespan in known])
        columns["after_high"] = us([makespan.high_ns for makespan in known])
        note = f"{note}. Answers are ranges: {known[0].reason}"
    if offset := next((offset for *_, offset in outcomes if offset), None):
        # of ranks that begin all at once; with start offsets where these are small
        without = [offset.makespan_without_ns if offset else makespan for makespan, _, offset in outcomes]
        columns["without_start_offsets"] = us(without)
        note = f"{note}. In every answer {offset.text}"
    return tabulate(NAME, TITLE, columns, note)
