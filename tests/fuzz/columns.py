"""Changes all values of one meaning in a document, such as correlations: shared, exchanged or far apart numbers."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, repeat
from operator import add, floordiv, mul
from random import Random
from typing import Any

Slot = tuple[Any, Any]
"""A list or an object, and the place or key of something in it."""
Way = Callable[[list[Any], Random], list[Any]]
HOUR_US = 3600 * 10**6

IDS = (
    "id", "rf_id", "tid", "fw_parent", "seq_id", "fw_tid", "scope", "correlation", "External id", "external id", "Record function id",
    "Ev Idx", "Sequence number", "Fwd thread id", "pid", "stream", "device", "context", "event_id", "wait_on_stream", "op", "call", "of",
    "source", "thread", "source_thread", "target_thread", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id", "group_rank",
    "name", "sequence", "rank", "world_size", "group_size", "inter_thread_dep", "sync_dep", "Rank", "Src Rank", "Dst Rank", "Seq",
)  # fmt: skip
TIMES = (
    "ts", "dur", "inclusive_dur", "exclusive_dur", "start_ns", "end_ns", "since_ns", "source_ns", "target_ns", "waiting_since_ns",
    "start_ts", "finish_ts", "baseTimeNanoseconds", "base_time_ns", "clock_from_ns", "clock_until_ns", "median", "upper", "count",
)  # fmt: skip


def columns(document: Any, keys: Sequence[str]) -> dict[str, list[Slot]]:
    """The slots of the numbers under each of the keys; a value in an object with a name is under its name, too."""
    found: dict[str, list[Slot]] = {}
    for key, slot in _numbers(document, ""):
        if key in keys:
            found.setdefault(key, []).append(slot)
    return found


def _numbers(value: Any, key: str) -> Iterator[tuple[str, Slot]]:
    """Every number with its key; those of a list have the list's."""
    for place, inside in value.items() if isinstance(value, dict) else enumerate(value):
        named = isinstance(value, dict) and place == "value" and "name" in value
        inner = key if isinstance(value, list) else str(value["name"]) if named else place
        if isinstance(inside, int | float) and not isinstance(inside, bool):
            yield inner, (value, place)
        elif isinstance(inside, dict | list):
            yield from _numbers(inside, inner)


def change_column(document: Any, keys: Sequence[str], random: Random) -> str:
    """Changes the numbers of one meaning, or a stretch of them. Returns what was done, in words."""
    found = columns(document, keys)
    if not found:
        return "nothing to change"
    key = random.choice([*found])
    slots = found[key]
    begin = random.choice([0, 0, random.randrange(len(slots))])
    part = slots[begin : random.choice([None, None, begin + 2, begin + 20])]
    said, way = random.choice([*WAYS.items()])
    values = [container[place] for container, place in part]
    for (container, place), value in zip(part, way(values, random), strict=True):
        container[place] = value
    return f"{said} {key}, {len(part)} of {len(slots)}"


def _each(values: list[Any], change: Callable[[Any, Any], Any], by: list[Any], random: Random) -> list[Any]:
    return [*map(change, values, repeat(random.choice(by)))]


def _far_apart(values: list[Any], far: int) -> list[Any]:
    return [value + far * (place % 2) for place, value in enumerate(values)]


WAYS: dict[str, Way] = {
    "equal": lambda values, random: [random.choice([0, 1, values[0], values[-1]])] * len(values),
    "shared": lambda values, random: random.choices(random.choices(values, k=random.choice([2, 3, 7])), k=len(values)),
    "exchanged": lambda values, random: random.sample(values, len(values)),
    "reversed": lambda values, _: values[::-1],
    "rotated": lambda values, random: values[(by := random.choice([1, -1, len(values) // 2])) :] + values[:by],
    "scaled": lambda values, random: _each(values, mul, [-1, 2, 1000, 10**6, 10**9, 1 << 31, 1 << 40], random),
    "divided": lambda values, random: _each(values, floordiv, [2, 10, 1000, 10**6], random),
    "shifted": lambda values, random: _each(values, add, [1, -1, 0.5, 1 << 31, 1 << 53, -(1 << 62), HOUR_US], random),
    "far apart": lambda values, random: _far_apart(values, random.choice([10**9, 10**15, 1 << 62, 9 * 10**18])),
    "counted": lambda values, random: [*islice(count(random.choice([0, 1, 2, -len(values)])), len(values))],
}
