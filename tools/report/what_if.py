"""Predicts by replay of all ranks' graphs how much each of several changes would shorten the run."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ...schema.graph import ExecutionGraph
from .. import replay
from ..analyses import Cells, Quantity, Table, pct, reliability, tabulate, us
from ..replay import NodeClass, Recording, Scale, Workload

NAME, TITLE = "what_if", "What a changed run would take"
TWICE_AS_FAST = 0.5
AS_RECORDED, UNPROFILED = "as recorded", "without a profiler"

NOTHING = Table(NAME, TITLE, [], "no graph was made, so nothing can be replayed")

Changes = dict[str, Sequence[Scale]]


def what_if(graphs: Sequence[ExecutionGraph], scales: Sequence[Scale], recording: Recording | None = None) -> Table:
    """Returns the makespan over all ranks with each change alone and with all of them. Each row is a replay.

    Where the `recording` tells how the run is without a profiler, there are rows of that run, too.
    """
    if not graphs:
        return NOTHING
    changes: Changes = {scale.spec: [scale] for scale in scales}
    if len(changes) > 1:
        changes["all of these"] = scales
    runs = {AS_RECORDED: (job := replay.gather_job(graphs))}
    if recording and recording.is_known:
        runs[UNPROFILED] = recording.without_profiler(job)
    matches = [match for change in changes.values() for match in [replay.matched(graphs, *change)] * len(runs)]
    nodes, time = (np.array([getattr(match, of) for match in matches]) for of in ("nodes", "time_us"))
    return _table(changes, runs, job, {"nodes": nodes, "matched": Quantity("µs", time)})


def classes_twice_as_fast(graphs: Sequence[ExecutionGraph], recording: Recording | None = None) -> Table:
    """Returns the makespan with half the duration of each class of work that the graphs have, without a profiler where
    the `recording` tells how long a step takes then. A delay is no work: nothing tells what would make it shorter.
    """
    if not graphs:
        return NOTHING
    present = {
        NodeClass(node_class) for graph in graphs for node_class in np.unique(replay.node_classes(graph)).tolist()
    }
    changes: Changes = {
        label: [replay.parse_scale(f"class:{label}={TWICE_AS_FAST}")]
        for label, node_class in replay.SCALABLE.items()
        if node_class in present and node_class != NodeClass.DELAY
    }
    job = replay.gather_job(graphs)
    return _table(changes, {UNPROFILED: recording.without_profiler(job)} if recording else {AS_RECORDED: job}, job)


def _table(
    changes: Changes, runs: Mapping[str, Workload], job: Workload, more: Mapping[str, Cells] = MappingProxyType({})
) -> Table:
    """Returns a row for each change to each run, with `more` columns; the note says how reliable replays are."""
    note = reliability(replay.replay_job(job))
    rows = [(change, run) for change in changes for run in runs]
    outcomes = []
    for change, run in rows:  # a replay takes much memory, so that none is kept
        outcome = replay.replay_job(runs[run], changes[change])
        outcomes.append((outcome.makespan_ns, outcome.range, outcome.start_offset))
    length = {run: replay.makespan_ns(of_run) for run, of_run in runs.items()}
    before = np.array([length[run] for _, run in rows], np.int64)
    after = np.array([makespan for makespan, *_ in outcomes], np.int64)
    columns: dict[str, Cells] = {
        "change": [change for change, _ in rows],
        **more,
        **({"run": [run for _, run in rows]} if len(runs) > 1 else {}),
        "before": us(before),
        "after": us(after),
        "saved": us(before - after),
        "saved_pct": pct(before - after, np.maximum(before, 1)),
    }
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
