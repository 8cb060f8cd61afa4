"""The timeline of a run within the room that a page has: bars one by one where they fit, sums over stretches of time
for the others.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import orjson

from ....schema.columns import Bool, Int64
from ...replay import Replay
from ...view import LOOKS
from ..cells import short_and_full
from .bars import Bars, Row, bars_of, began, lane_times, timed
from .detail import around_the_path, detailed, order_of_detail
from .packed import Packed, packed
from .picture import Strip, picture, strips
from .summary import Summary, kinds, summarised

ROOM, SUMS = 1_900_000, 2
"""Bytes that all ranks take together; the sums take at most one part in so many of a rank's."""
LEAST, OF_CELL, FEWEST = 3, 7, 1000
"""Bytes that a bar takes at least, and that a sum takes about; so many bars are told of every rank in any case."""
FINEST = 1 << 16
"""Stretches of a summary at most."""


class Timeline(NamedTuple):
    """What a page holds of the drawn `ranks`: `told` of their `bars` bars one by one. Times are µs from the run's first
    start.

    `window` is around the longest piece of the critical path, `coarsest` the longest stretch that bars are summed up
    in, 0 where all are told. `json` is what the page unpacks, `picture` an SVG of the whole run. `lane_times` say what
    each lane's time was spent on.
    """

    ranks: list[int]
    window: tuple[float, float]
    whole: tuple[float, float]
    bars: int
    told: int
    coarsest: float
    json: bytes
    picture: str
    lane_times: list[Row]


class Told(NamedTuple):
    """A rank on the page: what it unpacks, how many bars are told, and the stretch in which the others are summed up, 0
    for none.
    """

    json: bytes
    bars: int
    width_ns: int


def timeline(replays: Mapping[int, Replay], around: int, room: int = ROOM) -> Timeline | None:
    """Returns of the replayed ranks, all on one clock, first seen where about `around` bars are; None where no time was
    recorded.

    The small ranks are told whole, the large ones share equally what these leave; the largest says what is seen first.
    One rank at a time, linear in bars but for sorting.
    """
    known = timed(replays)
    if not known:
        return None
    begin = dict(zip(known, began([*known.values()]).tolist(), strict=True))
    length = max(int(one.work.measured_end_ns.max()) + begin[rank] for rank, one in known.items())
    told, drawn, times, count = dict[int, Told](), list[Strip](), dict[int, list[Row]](), 0
    *others, last = sorted(known, key=lambda rank: (len(known[rank].work), -rank))
    largest = bars_of(last, known[last], begin[last])
    window = around_the_path(largest, around // len(known))
    for rank in (*others, last):
        bars = largest if rank == last else bars_of(rank, known[rank], begin[rank])
        told[rank] = told_within(bars, length, window, room // (len(known) - len(told)))
        room, count = room - len(told[rank].json), count + len(bars)
        drawn += strips(bars, length)
        times[rank] = lane_times(bars)
    ranks = sorted(told)
    meta = {"length": length, "window": window, "looks": LOOKS}
    json = b'{"meta":' + orjson.dumps(meta) + b',"ranks":[' + b",".join(told[rank].json for rank in ranks) + b"]}"
    return Timeline(
        ranks,
        (window[0] / 1000, window[1] / 1000),
        (min(begin.values()) / 1000, length / 1000),
        count,
        sum(one.bars for one in told.values()),
        max(one.width_ns for one in told.values()) / 1000,
        json,
        picture(sorted(drawn, key=lambda strip: strip.rank), length),
        [row for rank in ranks for row in times[rank]],
    )


def told_within(bars: Bars, length_ns: int, window_ns: tuple[int, int], room: int) -> Told:
    """Returns as many bars as about `room` bytes hold, of a run of `length_ns`, all in the window among them if that
    leaves half of the room.
    """
    most, order = room // LEAST, None
    while True:
        if len(bars) <= most:
            chosen = np.ones(len(bars), bool)
        else:
            order = order or order_of_detail(bars, window_ns, most)
            chosen = detailed(bars, order, most)
        sums = None if chosen.all() else _sums(bars, ~chosen, length_ns, room // SUMS)
        made = _json(bars, chosen, sums)
        if len(made) <= room or most <= FEWEST:
            return Told(made, int(chosen.sum()), sums.width_ns if sums else 0)
        # the sums keep their size, and fewer bars compress less well
        left = (room - room // SUMS) / (len(made) - (room // SUMS if sums else 0))
        most = max(min(int(0.97 * most * left), int(chosen.sum()) - 1), FEWEST)


def _sums(bars: Bars, chosen: Bool, length_ns: int, room: int) -> Summary:
    """Returns in stretches so short that they just fit."""
    found = summarised(bars, chosen, length_ns, FINEST)
    while found.filled.sum() * OF_CELL > room and found.time_ns.shape[1] > 1:
        found = found.coarser()
    return found


def _json(bars: Bars, chosen: Bool, sums: Summary | None) -> bytes:
    codes, name = np.unique(bars.name.codes[chosen], return_inverse=True)
    texts = [bars.name.table[code] if code >= 0 else "" for code in codes.tolist()]
    columns = _bar_columns(bars, chosen) | {"name": name.reshape(-1).astype(np.int64)}
    columns |= _arrow_columns(bars, chosen)
    if sums:
        columns |= _sum_columns(sums)
    made = packed(columns, orjson.dumps([short_and_full(text) for text in texts]))
    told = np.bincount(bars.lane[chosen], minlength=len(bars.lanes)).tolist()
    summed = np.bincount(bars.lane[~chosen], minlength=len(bars.lanes)).tolist()
    return orjson.dumps(
        {"rank": bars.rank, "lanes": [*zip(bars.lanes, told, summed, strict=True)]} | _described(made, sums)
    )


def _described(made: Packed, sums: Summary | None) -> dict[str, Any]:
    rows = sums.filled.sum(axis=1).tolist() if sums else []
    keys = [*zip(sums.lane.tolist(), sums.kind.tolist(), rows, strict=True)] if sums else []
    width, count = (sums.width_ns, sums.time_ns.shape[1]) if sums else (0, 0)
    return {"columns": made.columns, "sums": {"width": width, "count": count, "keys": keys}, "data": made.text}


def _bar_columns(bars: Bars, chosen: Bool) -> dict[str, Int64]:
    """`gap` is the time since the end of the bar before, on the first of a lane since the run's start; `node` the
    difference to the bar before.
    """
    lane, start, end = bars.lane[chosen], bars.start_ns[chosen], bars.end_ns[chosen]
    before = np.append(0, end[:-1])[: len(end)]
    before[np.append(True, lane[1:] != lane[:-1])[: len(lane)]] = 0
    return {
        "gap": start - before,
        "time": end - start,
        "shared": bars.alone_ns[chosen] - start,
        "kind": kinds(bars)[chosen],
        "node": np.diff(bars.node[chosen], prepend=0),
    }


def _arrow_columns(bars: Bars, chosen: Bool) -> dict[str, Int64]:
    """Between bars that are told, by their target: the difference to the target before, and from the target to the
    source.
    """
    source, target, is_step = bars.arrows
    told = chosen[source] & chosen[target]
    row = np.cumsum(chosen) - 1
    source, target, is_step = row[source[told]], row[target[told]], is_step[told]
    order = np.lexsort((source, target))
    return {
        "target": np.diff(target[order], prepend=0),
        "source": (source - target)[order],
        "step": is_step[order].astype(np.int64),
    }


def _sum_columns(sums: Summary) -> dict[str, Int64]:
    """Returns of each lane and kind the stretches in which there is something, each as the difference to the one
    before.
    """
    stretch = np.nonzero(sums.filled)[1]
    return {
        "stretch": np.diff(stretch, prepend=0),
        "spent": sums.time_ns[sums.filled],
        "begun": sums.begun[sums.filled],
    }
