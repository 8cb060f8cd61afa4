"""Puts another run in place of the recorded one, in the graphs of all ranks of a build: the run without a profiler,
where it is known how long a step takes, or one with changes.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path

from ...schema.columns import time_text
from ...schema.errors import DataError
from ...schema.graph import STEP_WITHOUT_PROFILER_NS, ExecutionGraph
from .build_report import BuildOptions

PICKLE = ".pickle"
"""How the name of a graph ends that is not yet what a simulator reads."""


def put_changed_run(paths: Mapping[int, Path], options: BuildOptions) -> tuple[dict[int, ExecutionGraph], str]:
    """Replaces the graphs of ranks in these files by those of the run that the options ask for. Returns them, and in
    words what run it is; nothing where that is the recorded one, or no rank knows another. O(n + e), all ranks at once.

    Raises:
        DataError: The graphs are to be changed, and cannot be replayed together.
        RequestError: A change cannot be made.
    """
    if not paths or not (options.changes or options.without_profiler):
        return {}, ""
    first = min(paths)
    # all ranks are recorded alike, and most jobs have no other run
    if not options.changes and STEP_WITHOUT_PROFILER_NS not in _read(paths[first], tensors=False).metadata:
        return {}, ""
    from .. import replay as replays

    graphs = [_read(path) for _, path in sorted(paths.items())]
    try:
        run = replays.run_of(graphs, as_recorded=not options.without_profiler)
    except DataError as error:
        if options.changes:
            raise
        return {}, f"as recorded: {error}"
    if run.job.unprofiled is None and not options.changes:
        return {}, f"as recorded: {run.job.recording.text}" if run.job.recording else ""
    changes = replays.given_changes([*options.changes], "build(changes=…)")
    replayed = replays.replay_job(run.job, changes)
    changed = dict(zip(sorted(paths), replays.changed_graphs(replayed), strict=True))
    for rank, graph in changed.items():
        path = paths[rank]
        path.write_bytes(pickle.dumps(graph)) if path.suffix == PICKLE else graph.write(str(path))
    said = [f"with {change.spec}" for change in changes]
    if unprofiled := run.job.unprofiled:
        steps = unprofiled.steps
        lengths = (run.recorded.makespan_ns / steps / 1000, unprofiled.measured_ns / steps / 1000)
        said = [*said, "without a profiler: {} a step recorded, {} without".format(*map(time_text, lengths))]
    return changed, ", ".join(said)


def _read(path: Path, *, tensors: bool = True) -> ExecutionGraph:
    if path.suffix == PICKLE:
        graph: ExecutionGraph = pickle.loads(path.read_bytes())
        return graph
    return ExecutionGraph.read(str(path), tensors=tensors)
