"""Gives rows other times: equal, reversed, nested, far apart, hugely scaled."""

from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.columns import TIMES, change_column

Span = tuple[float, float]
"""Start and duration."""
HOUR_US = 3600 * 10**6
CLASSES = {
    "all": ("",),
    "ops": ("cpu_op", "user_annotation"),
    "calls": ("cuda_runtime", "cuda_driver", "cudaLaunch"),
    "activities": ("kernel", "gpu_memcpy", "gpu_memset"),
    "waits": ("cuda_sync", "cuda_event"),
}


def change_times(document: dict[str, Any], random: Random) -> str:
    """Changes the times of a class of rows of a device trace or a linked trace. Returns what was done, in words."""
    if random.random() < 0.2:
        return change_column(document, TIMES, random)
    rows = document.get("traceEvents", document.get("nodes"))
    duration = "dur" if "traceEvents" in document else "inclusive_dur"
    chosen = random.choice([*CLASSES])
    timed = [row for row in rows if isinstance(row.get("ts"), int | float) and _is_of(row, CLASSES[chosen])]
    if chosen == "all" and random.random() < 0.3:
        timed = timed[random.randrange(len(timed)) :]
    way = random.choice(WAYS)
    if timed:
        spans = way([(row["ts"], row.get(duration, 0)) for row in timed], random)
        for row, (start, length) in zip(timed, spans, strict=True):
            row["ts"] = start
            if duration in row:
                row[duration] = length
    return f"{way.__name__.strip('_')} times of {chosen}, {len(timed)} rows"


def _is_of(row: dict[str, Any], categories: tuple[str, ...]) -> bool:
    """Whether a row is of these categories; ops of linked traces have none."""
    return "" in categories or row.get("cat", "cpu_op") in categories


def _equal(spans: list[Span], random: Random) -> list[Span]:
    start, length = random.choice(spans)
    return [(start, random.choice([length, own])) for _, own in spans]


def _mirrored(spans: list[Span], _: Random) -> list[Span]:
    """What was last comes first."""
    whole = min(start for start, _ in spans) + max(start + length for start, length in spans)
    return [(whole - start - length, length) for start, length in spans]


def _reversed(spans: list[Span], _: Random) -> list[Span]:
    return spans[::-1]


def _shuffled(spans: list[Span], random: Random) -> list[Span]:
    return random.sample(spans, len(spans))


def _scaled(spans: list[Span], random: Random) -> list[Span]:
    factor = random.choice([0, 1e-3, 0.5, 1000, 1e6, 1e9, -1])
    first = spans[0][0] if random.random() < 0.7 else 0
    return [(first + (start - first) * factor, length * factor) for start, length in spans]


def _lasting(spans: list[Span], random: Random) -> list[Span]:
    length = random.choice([0, 0, -1, 1e-3, 0.4, 1e6, 1e12, 9e15, 1e300])
    return [(start, length) for start, _ in spans]


def _shifted(spans: list[Span], random: Random) -> list[Span]:
    by = random.choice([0.3, 5, -5, HOUR_US, -HOUR_US, 1e12, 9e15])
    return [(start + by, length) for start, length in spans]


def _far_apart(spans: list[Span], random: Random) -> list[Span]:
    far, half = random.choice([1e6, 1e12, 4e15]), len(spans) // 2
    return spans[:half] + [(start + far, length) for start, length in spans[half:]]


def _coarse(spans: list[Span], random: Random) -> list[Span]:
    step = random.choice([1, 10, 1000])
    return [(start // step * step, length // step * step) for start, length in spans]


def _nested(spans: list[Span], _: Random) -> list[Span]:
    first, count = spans[0][0], len(spans)
    return [(first + place, 2.0 * (count - place)) for place in range(count)]


def _staggered(spans: list[Span], _: Random) -> list[Span]:
    """Each begins in the one before, and ends behind it."""
    first, count = spans[0][0], len(spans)
    return [(first + place, float(count)) for place in range(count)]


WAYS: tuple[Callable[[list[Span], Random], list[Span]], ...] = (
    _equal, _mirrored, _reversed, _shuffled, _scaled, _lasting, _shifted, _far_apart, _coarse, _nested, _staggered,
)  # fmt: skip
