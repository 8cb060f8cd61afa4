"""Names the lanes of a workload as people know them: `main thread`, `autograd thread`, `device 0 stream 7`."""

from collections.abc import Mapping

import numpy as np

from ...schema.columns import Bool, Categorical, Int64
from ...schema.graph import ExecutionGraph
from ..replay import NodeClass, Workload

UNRECORDED = (NodeClass.UNRECORDED, NodeClass.METADATA, NodeClass.DELAY)
MAIN_OPS = "ProfilerStep#", "Optimizer.step#", "DistributedDataParallel.forward"
ROLES = {"autograd": "autograd::engine::evaluate_function", "gloo": "gloo:"}
"""What a thread other than the main one is for, by how the name of any of its nodes begins."""


def lane_names(work: Workload) -> list[str]:
    """Returns the lanes' labels: `main thread`, `autograd thread`, `thread 4711` for other threads, `unrecorded host
    4711` where no node of the thread was recorded, `device 0 stream 7`, `delays`.

    The main thread is the one with the number of its process, else the only one that marks steps or steps an optimizer.
    Several threads of a rank that are for the same keep their numbers: `gloo thread 4711`.
    """
    recorded = np.zeros(len(work.lanes), bool)
    recorded[work.lane[~np.isin(work.node_class, UNRECORDED)]] = True
    names = [
        lane.label if is_recorded else lane.label.replace("thread", "unrecorded host")
        for lane, is_recorded in zip(work.lanes, recorded.tolist(), strict=True)
    ]
    for rank, graph in enumerate(work.graphs):
        lane = work.lane[work.first_row[rank] :][: len(graph)]
        threads = {number for number in np.unique(lane).tolist() if names[number].startswith("thread ")}
        if (main := _main_thread(graph, lane, {number: work.lanes[number].number for number in threads})) is not None:
            names[main] = "main thread"
            threads.remove(main)
        for role, prefix in ROLES.items():
            alike = threads & _lanes_of_ops(graph.name, lane, (prefix,))
            threads -= alike
            for number in alike:
                names[number] = f"{role} {names[number]}" if len(alike) > 1 else f"{role} thread"
    return names


def _main_thread(graph: ExecutionGraph, lane: Int64, threads: Mapping[int, int]) -> int | None:
    """Returns the lane of the process's first thread, None where that is not known; `threads` are numbers by lane."""
    pid = graph.number("pid", -1)
    by_number = [number for number, thread in threads.items() if thread == pid]
    candidates = by_number or sorted(_lanes_of_ops(graph.name, lane, MAIN_OPS) & {*threads})
    return candidates[0] if len(candidates) == 1 else None


def _lanes_of_ops(name: Categorical, lane: Int64, prefixes: tuple[str, ...]) -> set[int]:
    """Returns the lanes with a node whose name begins so."""
    begins: Bool = np.array([text.startswith(prefixes) for text in [*name.table, ""]], bool)
    return {*np.unique(lane[begins[name.codes]]).tolist()}
