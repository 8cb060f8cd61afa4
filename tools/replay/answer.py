"""Says in one sentence how long the run would take with changed durations, and what limits the gain."""

import re
from collections.abc import Sequence

import numpy as np

from ...schema.columns import Bool, Int64, time_text
from ...schema.graph import CollectiveType
from .changes import Bound, Scale
from .critical_path import HOST_DELAY, KINDS, START_OFFSET, UNKNOWN_START, pieces_of
from .execution import Replay
from .gathered_job import absence
from .workload import NodeClass

CHANGED = {
    NodeClass.HOST: "the host",
    NodeClass.COMPUTATION: "all computation",
    NodeClass.COMMUNICATION: "all communication",
    NodeClass.MEMORY: "all memory copies",
    NodeClass.DELAY: "all delays",
    Bound.COMPUTE: "all compute-bound kernels",
    Bound.MEMORY: "all memory-bound kernels",
}
LIMITS = {
    NodeClass.HOST.label: "the host",
    NodeClass.COMPUTATION.label: "the computation",
    NodeClass.MEMORY.label: "the memory copies",
    NodeClass.UNRECORDED.label: "host work that was not recorded",
    NodeClass.DELAY.label: "delays that no dependency explains",
    "launch": "launch latency",
    "stream order": "the gaps between kernels",
    HOST_DELAY: "the host",
    START_OFFSET: "the start offsets of ranks",
    UNKNOWN_START: "starts that no dependency explains",
}
NAMES = (
    *(LIMITS.get(kind, kind if kind == NodeClass.COMMUNICATION.label else f"gaps ({kind})") for kind in KINDS),
    *(f"the {collective_type.name.lower().replace('_', '-')}" for collective_type in CollectiveType),
)
"""What the time of a critical path is spent on: in the order of KINDS, then by the type of collective."""
LEAST_SHARE_PCT = 5
"""A smaller share of the critical path than this hardly limits the gain."""


def answer(replay: Replay, scale: Sequence[Scale]) -> str:
    """Returns how long the run would take with these changes, compared with the measured time if there is one."""
    before, after = replay.measured_ns, replay.makespan_ns
    times = [time_text(time / 1000) for time in (before, after)]
    change_pct = 100 * (after - before) / before if before else 0.0
    if not before:
        outcome = f"take {times[1]}"
    elif times[0] == times[1]:
        outcome = f"still take {times[1]}"
    else:
        share = f"{abs(change_pct):.0f}" if abs(change_pct) >= 10 else f"{abs(change_pct):.1f}"
        outcome = f"take {times[1]} instead of {times[0]}, {share} % {'less' if change_pct < 0 else 'more'}"
    limit = limit_of_gain(replay, scale) if all(change_.factor < 1 for change_ in scale) else ""
    sentence = f"If {_condition(scale)}, the run would {outcome}{limit and f': what limits the gain is {limit}'}."
    absent = absence(replay.work)
    return sentence + _range_sentence(replay) + _offset(replay) + (f" {absent}." if absent else "")


def _range_sentence(replay: Replay) -> str:
    """Returns a sentence on how long the run would take without the uncertain waits, if that makes a difference."""
    if replay.range is None or replay.range.is_clear:
        return ""
    low, high = replay.range.low_ns, replay.range.high_ns
    without_ns = low if replay.makespan_ns == high else high
    pronoun = "them" if replay.range.waits != 1 else "it"
    return f" {replay.range.reason}: without {pronoun}, it would take {time_text(without_ns / 1000)}."


def _offset(replay: Replay) -> str:
    """Returns a sentence on start offsets, which no change scales, if they matter."""
    if replay.start_offset is None:
        return ""
    text, without_us = replay.start_offset.text, replay.start_offset.makespan_without_ns / 1000
    return f" {text[0].upper()}{text[1:]}: without start offsets, the run would take {time_text(without_us)}."


def _condition(scale: Sequence[Scale]) -> str:
    """Returns the condition: what would be changed, grouped by the factor."""
    subjects: dict[str, list[str]] = {}
    for change in scale:
        subjects.setdefault(_predicate(change.factor), []).append(_subject(change.target))
    condition = " and ".join(f"{' and '.join(names)} {predicate}" for predicate, names in subjects.items())
    may_overlap = len(scale) > 1 and not all(isinstance(change.target, NodeClass) for change in scale)
    return condition + (" (factors multiply where several apply)" if may_overlap else "")


def _subject(target: NodeClass | Bound | re.Pattern[str]) -> str:
    return f"everything whose name matches '{target.pattern}'" if isinstance(target, re.Pattern) else CHANGED[target]


def _predicate(factor: float) -> str:
    """
    >>> _predicate(0.5), _predicate(0.8), _predicate(3), _predicate(0)
    ('were twice as fast', 'were 1.25 times as fast', 'took 3 times as long', 'took no time')
    """
    if factor in (0, 1):
        return "were as fast as measured" if factor else "took no time"
    return f"were {_times(1 / factor)} as fast" if factor < 1 else f"took {_times(factor)} as long"


def _times(factor: float) -> str:
    return "twice" if factor == 2 else f"{factor:.3g} times"


def limit_of_gain(replay: Replay, scale: Sequence[Scale]) -> str:
    """Returns what the unchanged part of the critical path is mostly spent on, with its share; "" if that is small."""
    pieces, changed = pieces_of(replay), _is_changed(replay)
    kind = np.where(pieces.kind == NodeClass.COMMUNICATION, _communication(replay)[pieces.row], pieces.kind)
    is_changed = changed[pieces.row] & (pieces.kind < len(NodeClass))
    if NodeClass.HOST in {change.target for change in scale}:
        is_changed |= pieces.kind == KINDS.index(HOST_DELAY)
    total = np.bincount(kind[~is_changed], pieces.time[~is_changed], len(NAMES))
    largest = int(total.argmax())
    share = 100 * float(total[largest]) / max(replay.makespan_ns, 1)
    if share < LEAST_SHARE_PCT or not changed.any():
        return ""
    changed_kinds = {*kind[is_changed].tolist(), *replay.work.node_class[changed[: len(replay.work)]].tolist()}
    part = "the rest of " if largest in changed_kinds else ""
    return f"{part}{NAMES[largest]}, {share:.0f} % of the critical path"


def _communication(replay: Replay) -> Int64:
    """Returns for each row of the schedule the position in NAMES of its kind of communication."""
    work = replay.work
    types = np.concatenate([graph.collective_types() for graph in work.graphs])
    collectives = np.flatnonzero(np.isin(types, list(CollectiveType)))
    names = np.full(len(replay.schedule.end_ns), int(NodeClass.COMMUNICATION))
    for rows in (collectives, replay.schedule.finish_row[collectives]):
        names[rows] = len(KINDS) + types[collectives]
    return names


def _is_changed(replay: Replay) -> Bool:
    """Returns which rows of the schedule have a changed duration; a collective has one if a member has."""
    work = replay.work
    measured = np.concatenate([graph.duration_ns for graph in work.graphs])
    nodes = np.flatnonzero(work.duration_ns != measured)
    changed = np.zeros(len(replay.schedule.end_ns), bool)
    changed[nodes] = changed[replay.schedule.finish_row[nodes]] = True
    return changed
