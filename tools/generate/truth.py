"""The truth about a run as JSON: what had to wait for what, by the semantics of CUDA and not by reading the traces.

    {"job", "seed", "machine" (unless it is the default one), "makespan_ns", "makespans_ns": {scaling: ns},
     "ranks": [{"rank", "makespan_ns", "events",
        "activities":  [[correlation, index, rf_id, stream, start_ns, duration_ns], ...],
        "event_waits": [[[correlation, index], [correlation, index]], ...],
        "graph_order": as event_waits,
        "host_waits":  [[correlation of the call, [correlation, index]], ...],
        "handoffs":  [[tid, given_ns, tid, taken_ns, waited], ...]}]}

An activity is known by the correlation of its launch and its index among that launch's activities by start. `rf_id` is
the Record function id of the innermost op (annotations included) around the launch, 0 if there is none. `event_waits`
lead to an activity from one on another stream that an event, waited for by the stream, stood for; `graph_order` are
edges between streams that a CUDA graph imposes and no trace records; the order within each stream comes on top of them.
`host_waits` are what a blocking call waited for. Times are ns from the start of the run, which the traces put at
baseTimeNanoseconds + 1000 * the first `ts` of kind "Trace"; a machine's device trace shows activities by the device's
clock, and not those whose records were lost.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from ...schema.io import open_output
from .identity import correlation, identify, record_function
from .machine import DEFAULT
from .record import NONE, Edges, RankRun, Run

Key = tuple[int, int]


def write_truth(run: Run, path: str, makespans: Mapping[str, int]) -> None:
    """Writes truth.json in pieces; `makespans` are those of changed jobs. Raises DataError if it cannot be written."""
    machine = run.job.machine
    head: dict[str, object] = {"job": run.job.name, "seed": run.job.seed}
    head |= {"machine": asdict(machine)} if machine != DEFAULT else {}
    head |= {"makespan_ns": run.makespan_ns, "makespans_ns": dict(makespans)}
    with open_output(path) as file:
        file.write((json.dumps(head)[:-1] + ', "ranks": [').encode())
        for rank in run.ranks:
            for piece in _rank(run, rank):
                file.write(piece.encode())
        file.write(b"\n]}\n")


def _rank(run: Run, rank: RankRun) -> Iterator[str]:
    keys = activity_keys(rank)
    tids = identify(run.job, rank.rank).tids
    head = {"rank": rank.rank, "makespan_ns": rank.period().ns, "events": rank.events}
    yield (",\n" if rank.rank else "\n") + json.dumps(head)[:-1]
    yield from _list("activities", (_activity(rank, row, key) for row, key in enumerate(keys)))
    yield from _list("event_waits", _pairs(rank.event_waits, keys))
    yield from _list("graph_order", _pairs(rank.graph_order, keys))
    waits = zip(rank.host_waits.source, rank.host_waits.target, strict=True)
    yield from _list("host_waits", ((correlation(call), keys[row]) for call, row in waits))
    handoffs = (
        (tids[source], source_ns, tids[target], target_ns, bool(waits))
        for source, source_ns, target, target_ns, waits in zip(*rank.handoffs.columns(), strict=True)
    )
    yield from _list("handoffs", handoffs)
    yield "}"


def _list(name: str, rows: Iterator[object]) -> Iterator[str]:
    yield f', "{name}": ['
    separator = "\n"
    for row in rows:
        yield separator + json.dumps(row)
        separator = ",\n"
    yield "]"


def activity_keys(rank: RankRun) -> list[Key]:
    """Returns by row the correlation and the index among the launch's activities by start."""
    activities = rank.activities
    order = sorted(range(len(activities)), key=lambda row: (activities.call[row], activities.start[row], row))
    keys: list[Key] = [(0, 0)] * len(order)
    call, index = NONE, 0
    for row in order:
        index = index + 1 if activities.call[row] == call else 0
        call = activities.call[row]
        keys[row] = correlation(call), index
    return keys


def _activity(rank: RankRun, row: int, key: Key) -> tuple[int, ...]:
    activities = rank.activities
    op = rank.calls.op[activities.call[row]]
    start, end = activities.start[row], activities.end[row]
    return (*key, record_function(op) if op != NONE else 0, activities.stream[row], start, end - start)


def _pairs(edges: Edges, keys: list[Key]) -> Iterator[tuple[Key, Key]]:
    return ((keys[source], keys[target]) for source, target in zip(edges.source, edges.target, strict=True))
