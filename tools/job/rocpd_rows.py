"""Writes a trace that was read from a database as the rows that Kineto would have written.

Reading these rows gives the same columns again.
"""

from collections.abc import Iterator
from itertools import islice

import msgspec

from ...linker.readers import DeviceTrace
from ...schema.linked import microseconds, streams_of
from .merge_lanes import FIRST_LANE

ROWS_AT_A_TIME = 1 << 14


def chrome_rows(trace: DeviceTrace) -> Iterator[bytes]:
    """Yields JSON lists of rows: annotations, calls, activities, and the flows between calls and activities."""
    rows = _rows(trace)
    while piece := list(islice(rows, ROWS_AT_A_TIME)):
        yield msgspec.json.encode(piece)


def _rows(trace: DeviceTrace) -> Iterator[dict[str, object]]:
    ops, calls, activities = trace.ops, trace.calls, trace.activities
    launches = set(activities.correlation[activities.correlation > 0].tolist())
    for row in range(len(ops.start)):
        lane = {"pid": int(ops.process[row]), "tid": int(ops.thread[row])}
        yield _complete("user_annotation", ops.name[row], lane, int(ops.start[row]), int(ops.end[row]), args={})
    for row, number in enumerate(calls.correlation.tolist()):
        lane = {"pid": int(calls.process[row]), "tid": int(calls.thread[row])}
        yield _complete(
            "hip_runtime",
            calls.name[row],
            lane,
            int(calls.start[row]),
            int(calls.end[row]),
            args={"correlation": number},
        )
        if number in launches:
            yield _flow("s", number, lane, int(calls.start[row]))
    lanes = _lanes(trace)
    for row, number in enumerate(activities.correlation.tolist()):
        device, stream = int(activities.device[row]), int(activities.stream[row])
        lane = {"pid": device, "tid": lanes[device, stream]}
        args = {"device": device, "stream": stream, "correlation": number}
        start, end = int(activities.start[row]), int(activities.end[row])
        yield _complete(activities.category[row], activities.name[row], lane, start, end, args=args)
        if number:
            yield _flow("f", number, lane, start)


def _lanes(trace: DeviceTrace) -> dict[tuple[int, int], int]:
    """Returns the thread id that shows a stream: its number, or if viewers cannot show that, its device index."""
    streams = streams_of(trace.activities)
    keys = list(zip(streams.device.tolist(), streams.stream.tolist(), strict=True))
    fits_viewers = all(0 <= stream < FIRST_LANE for _, stream in keys)
    return {(device, stream): stream if fits_viewers else lane for lane, (device, stream) in enumerate(keys, 1)}


def _complete(
    category: str, name: str, lane: dict[str, int], start: int, end: int, *, args: dict[str, int]
) -> dict[str, object]:
    times = {"ts": _stamp(start), "dur": _stamp(end - start)}
    return {"ph": "X", "cat": category, "name": name, **lane, **times, "args": args}


def _flow(phase: str, number: int, lane: dict[str, int], at: int) -> dict[str, object]:
    ends = {"bp": "e"} if phase == "f" else {}
    return {"ph": phase, "id": number, **lane, "ts": _stamp(at), "cat": "ac2g", "name": "ac2g", **ends}


def _stamp(ns: int) -> msgspec.Raw:
    return msgspec.Raw(microseconds(ns).encode())
