"""Predicts by replay of all ranks' graphs how much each of several changes would shorten the run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...schema.graph import ExecutionGraph
from ..analyses import Column, Table, reliability
from ..replay import (
    SCALABLE,
    GatheredJob,
    MakespanRange,
    NodeClass,
    Recording,
    Replay,
    Scale,
    StartOffset,
    gather_job,
    makespan_ns,
    matched,
    node_classes,
    parse_scale,
    replay_job,
)

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
    job = gather_job(graphs)
    runs = {AS_RECORDED: job}
    if recording and recording.is_known:
        runs[UNPROFILED] = recording.without_profiler(job)
    table = _table(changes, runs, _note(job))
    matches = {name: matched(graphs, *change) for name, change in changes.items()}
    nodes, time = (np.array([getattr(matches[name], of) for name in table["change"]]) for of in ("nodes", "time_us"))
    first, *others = table.columns
    return replace(table, columns=[first, Column("nodes", "", nodes), Column("matched", "µs", time), *others])


def classes_twice_as_fast(graphs: Sequence[ExecutionGraph], recording: Recording | None = None) -> Table:
    """Returns the makespan with half the duration of each class of work that the graphs have, without a profiler where
    the `recording` tells how long a step takes then. A delay is no work: nothing tells what would make it shorter.
    """
    present = {NodeClass(node_class) for graph in graphs for node_class in np.unique(node_classes(graph)).tolist()}
    if not graphs:
        return NOTHING
    changes: Changes = {
        label: [parse_scale(f"class:{label}={TWICE_AS_FAST}")]
        for label, node_class in SCALABLE.items()
        if node_class in present and node_class != NodeClass.DELAY
    }
    job = gather_job(graphs)
    run = {UNPROFILED: recording.without_profiler(job)} if recording else {AS_RECORDED: job}
    return _table(changes, run, _note(job))


def _table(changes: Changes, runs: Mapping[str, GatheredJob], note: str) -> Table:
    """Returns a row for each change to each run."""
    rows = [(change, run) for change in changes for run in runs]
    # a replay takes much memory, so that none is kept
    outcomes = [_outcome(replay_job(runs[run], changes[change])) for change, run in rows]
    makespans, ranges, offsets = zip(*outcomes, strict=True) if outcomes else ((), (), ())
    length = {run: makespan_ns(job) for run, job in runs.items()}
    before, after = np.array([length[run] for _, run in rows], np.int64), np.array(makespans, np.int64)
    columns = [
        Column("change", "", [change for change, _ in rows]),
        *([Column("run", "", [run for _, run in rows])] if len(runs) > 1 else []),
        Column("before", "µs", before / 1000),
        Column("after", "µs", after / 1000),
        Column("saved", "µs", (before - after) / 1000),
        Column("saved_pct", "%", 100 * (before - after) / np.maximum(before, 1)),
    ]
    known = [makespan for makespan in ranges if makespan is not None]
    if any(not makespan.is_clear for makespan in known):
        columns.append(Column("after_low", "µs", np.array([makespan.low_ns / 1000 for makespan in known])))
        columns.append(Column("after_high", "µs", np.array([makespan.high_ns / 1000 for makespan in known])))
        note = f"{note}. Answers are ranges: {known[0].reason}"
    if offset := next(filter(None, offsets), None):
        # of ranks that begin all at once; with start offsets where these are small
        without = [of.makespan_without_ns if of else makespan for of, makespan in zip(offsets, makespans, strict=True)]
        columns.append(Column("without_start_offsets", "µs", np.array(without, np.int64) / 1000))
        note = f"{note}. In every answer {offset.text}"
    return Table(NAME, TITLE, columns, note)


def _outcome(replay: Replay) -> tuple[int, MakespanRange | None, StartOffset | None]:
    return replay.makespan_ns, replay.range, replay.start_offset


def _note(job: GatheredJob) -> str:
    """Returns how reliable replays of the job are."""
    return reliability(replay_job(job))
