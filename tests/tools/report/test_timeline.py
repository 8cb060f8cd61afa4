"""The timeline of a page: its bars in the ops that they lie in, its sums over stretches of time, what it keeps when too
full, its packing.
"""

import base64
import json
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from execgraph.schema.columns import Categorical, Int64
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.analyses import analyse
from execgraph.tools.replay import replay
from execgraph.tools.report import find_sources, read_ranks, timeline
from execgraph.tools.report.bars import NO_OPS, Arrows, Bars, Slices, bars_of, host_ops, on_one_clock
from execgraph.tools.report.timeline import BarSums, drawn_first, pack_columns, pack_rank, sum_bars
from execgraph.tools.view import LOOKS, REASONS
from hypothesis import given, strategies as st
from support.graphs import LAUNCH, GraphBuilder, rank_with_collective, training_step


def bars(graph: ExecutionGraph) -> Bars:
    played = replay(graph)
    return bars_of(0, played, on_one_clock([played])[0])


def many_bars(count: int, seed: int = 0, names: int = 20) -> Bars:
    """Of three lanes, most of them short."""
    random = np.random.default_rng(seed)
    lane = np.sort(random.integers(0, 3, count))
    length = random.geometric(0.01, count) + np.where(random.random(count) < 0.01, 10_000, 0)
    start = np.cumsum(length + random.integers(0, 50, count)) - length
    none = np.zeros(0, np.int64)
    return Bars(
        0, ["one", "two", "three"], lane, start, start + length, start,
        Categorical(random.integers(0, names, count).astype(np.int32), [f"kernel {number}" for number in range(names)]),
        random.integers(0, 3, count), random.random(count) < 0.1, random.permutation(count), Arrows(none, none, none, none > 0),
        np.zeros(count, np.int64), NO_OPS,
    )  # fmt: skip


def numbers(text: str, shapes: dict[str, list[int]]) -> tuple[dict[str, list[int]], bytes]:
    """What `pack_columns` packed, read number by number."""
    found, data, at = dict[str, list[int]](), zlib.decompress(base64.b64decode(text)), 0
    for name, (count, planes) in shapes.items():
        folded = [sum(data[at + plane * count + row] << 8 * plane for plane in range(planes)) for row in range(count)]
        found[name] = [-(value + 1) // 2 if value % 2 else value // 2 for value in folded]
        at += count * planes
    return found, data[at:]


def read_bars(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """The bars that a page tells of a rank."""
    columns, after = numbers(rank["data"], rank["columns"])
    texts = [text[1] if isinstance(text, list) else text for text in json.loads(after)]
    found, row, node = list[dict[str, Any]](), 0, 0
    for lane, told, *_ in rank["lanes"]:
        end = 0
        for row in range(row, row + told):  # noqa: B020
            start = end + columns["gap"][row]
            end, node = start + columns["time"][row], node + columns["node"][row]
            look, critical = divmod(columns["kind"][row], 2)
            name, shared = texts[columns["name"][row]], columns["shared"][row]
            found.append({"lane": lane, "name": name, "start": start, "end": end, "alone": start + shared})
            found[-1] |= {"kind": LOOKS[look], "critical": bool(critical), "node": node}
        row += bool(told)
    return found


def read_sums(rank: dict[str, Any]) -> Counter[tuple[int, int, int]]:
    """The time by lane, kind and stretch of what a page does not tell one by one."""
    columns, _ = numbers(rank["data"], rank["columns"])
    found, row, place = Counter[tuple[int, int, int]](), 0, 0
    for lane, kind, cells in rank["sums"]["keys"]:
        for row in range(row, row + cells):  # noqa: B020
            place += columns["stretch"][row]
            found[lane, kind, place] += columns["spent"][row]
        row += 1
    return found


# Bars


def test_bars_are_by_lane_and_time_with_what_the_critical_path_is() -> None:
    found = bars(training_step())
    assert found.lanes == ["rank 0 · thread 1", "rank 0 · device 0 stream 7", "rank 0 · device 0 stream 8"]
    names = [found.name[row] for row in range(len(found))]
    assert names == ["aten::mm", "aten::add", "cudaDeviceSynchronize", "host idle", "sgemm", "vector_add", "Memcpy"]
    looks = "host host waiting idle computation computation memory"
    assert [LOOKS[look] for look in found.look] == looks.split()
    assert [name for name, critical in zip(names, found.critical, strict=True) if not critical] == ["aten::add"]
    assert found.start_ns.tolist() == [0, 5, 46, 47, 8, 28, 40]


def test_arrows_are_dependencies_between_lanes_with_their_reason_and_whether_the_critical_path_takes_them() -> None:
    found = bars(training_step())
    arrows = {
        (found.name[source], found.name[target], REASONS[reason], bool(step))
        for source, target, reason, step in zip(*found.arrows, strict=True)
    }
    assert arrows == {
        ("aten::mm", "sgemm", "launch", True), ("aten::add", "vector_add", "launch", False),
        ("vector_add", "Memcpy", "event wait", True), ("Memcpy", "cudaDeviceSynchronize", "host sync", True),
    }  # fmt: skip


def test_ops_around_bars_take_a_part_of_the_room_and_the_longest_go_first() -> None:
    found, count = many_bars(50), 2000
    start = np.arange(count) * 10
    name = Categorical.of(["long" if row == 700 else "short" for row in range(count)])
    length = np.where(start == 7000, 9, 5)
    found.ops = Slices(np.zeros(count, np.int64), start, start + length, name, start % 3)
    rank = json.loads(pack_rank(found, int(found.end_ns.max()), 4000)[0])
    columns, names = numbers(rank["data"], rank["columns"])
    assert 50 < len(columns["op_time"]) < 200 and "long" in json.loads(names)
    assert [lane[2:] for lane in rank["lanes"]] == [[len(columns["op_time"]), 3], [0, 1], [0, 1]]


def test_a_thread_on_which_nothing_takes_time_has_no_lane() -> None:
    g = GraphBuilder()
    g.host("aten::mm", 0, 5)
    g.host("unrecorded host", 3, 0, thread=-2)
    assert bars(g.build()).lanes == ["rank 0 · thread 1"]


def test_a_lane_is_never_busy_twice() -> None:
    g = GraphBuilder()
    g.activity("long", 0, 100)
    g.activity("inside", 10, 20)
    g.activity("beyond", 50, 80)
    g.activity("elsewhere", 20, 30, stream=8)
    found = bars(g.build())
    assert (found.end_ns - found.alone_ns).tolist() == [100, 0, 30, 30]


def test_ranks_stand_on_one_clock_by_what_they_did_together() -> None:
    """The second rank began 40 ns after the first: its collective, which ends with the first's, is so much earlier."""
    ranks = [
        rank_with_collective(0, work=100, collective=50, clock=1000),
        rank_with_collective(1, work=60, collective=50, clock=7000),
    ]
    found = timeline({rank: replay(graph) for rank, graph in enumerate(ranks)})
    assert found is not None
    first, second = map(read_bars, json.loads(found.json)["ranks"])
    ends = [[bar["end"] for bar in one if bar["kind"] == "communication"] for one in (first, second)]
    assert ends[0] == ends[1]
    assert min(bar["start"] for bar in second) == 40
    on_path = [[bar["kind"] for bar in one if bar["critical"]] for one in (first, second)]
    assert on_path == [["computation", "communication", "computation"], []]


def test_times_in_tables_are_those_of_the_timeline(data: Path) -> None:
    for rank in read_ranks(find_sources([data / "training"]).ranks):
        played = rank.replay
        found = timeline({rank.rank: played} if played else {})
        assert found is not None
        begun = {(bar["name"], bar["start"] / 1000) for bar in read_bars(json.loads(found.json)["ranks"][0])}
        rows = analyse([rank], ["per_op_device_time"])["per_op_device_time"].rows()
        told = {(row["name"], round(row["start"], 3)) for row in rows if row["name"] == "aten::addmm"}
        assert len(told) > 5 and told <= begun


def test_times_of_lanes_are_those_of_their_nodes() -> None:
    found = timeline({0: replay(training_step())})
    assert found is not None
    spent = {(row["lane"].removeprefix("rank 0 · "), row["kind"]): row["time"] for row in found.lane_times}
    assert spent == pytest.approx(
        {
            ("thread 1", "host"): 0.009,
            ("thread 1", "waiting"): 0.001,
            ("thread 1", "idle"): 0.003,
            ("device 0 stream 7", "computation"): 0.030,
            ("device 0 stream 8", "memory"): 0.006,
        }
    )


def test_without_times_there_is_no_timeline() -> None:
    assert timeline({}) is None


# Sums over stretches of time


def busy(sums: BarSums) -> dict[str, list[int]]:
    """Of lane 0 by kind; what is on the critical path is starred."""
    rows = zip(sums.lane.tolist(), sums.kind.tolist(), sums.time_ns.tolist(), strict=True)
    return {LOOKS[kind // 2] + "*" * (kind % 2): times for lane, kind, times in rows if lane == 0}


def test_sums_split_bars_where_stretches_meet() -> None:
    g = GraphBuilder()
    g.activity("a", 0, 15)
    g.activity("b", 18, 2)
    g.activity("Memcpy", 25, 55, cat="gpu_memcpy")
    found = bars(g.build())
    found.critical[:] = False

    def summed(count: int, most_filled: int = 99) -> BarSums:
        return sum_bars(found, np.ones(3, bool), 80, count, most_filled)

    sums = summed(8)
    assert sums.width_ns == 10
    assert busy(sums) == {"computation": [10, 7, 0, 0, 0, 0, 0, 0], "memory": [0, 0, 5, 10, 10, 10, 10, 10]}
    assert sums.begun.tolist() == [[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]]
    assert busy(summed(4)) == busy(summed(8, 7)) == {"computation": [17, 0, 0, 0], "memory": [0, 15, 20, 20]}
    assert busy(summed(1)) == busy(summed(8, 0)) == {"computation": [17], "memory": [55]}


def test_many_lanes_are_summed_up_in_longer_stretches() -> None:
    count = 40_000
    rows, none = np.arange(count), np.zeros(0, np.int64)
    name, same = Categorical.of(["work"] * count), np.zeros(count, np.int64)
    found = Bars(
        0, [f"stream {row}" for row in rows], rows, rows, rows + 10, rows, name, same, same > 0, rows,
        Arrows(none, none, none, none > 0), same, NO_OPS,
    )  # fmt: skip
    sums = sum_bars(found, same == 0, count + 10, 1 << 16)
    assert sums.time_ns.shape[1] == 128 and sums.time_ns.sum() == 10 * count


def slowly_summed(found: Bars, width: int, count: int) -> Counter[tuple[int, int, int]]:
    sums = Counter[tuple[int, int, int]]()
    for row, kind in enumerate(found.kind.tolist()):
        for place in range(count):
            begin, end = max(int(found.alone_ns[row]), place * width), min(int(found.end_ns[row]), (place + 1) * width)
            if end > begin:
                sums[int(found.lane[row]), kind, place] += end - begin
    return sums


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 500), st.integers(0, 300), st.booleans()), min_size=1, max_size=40
    )
)
def test_sums_are_those_of_a_slow_reference_at_each_level(rows: list[tuple[int, int, int, bool]]) -> None:
    g = GraphBuilder()
    for stream, start, length, copies in rows:
        g.activity("work", start, length, stream=stream, cat="gpu_memcpy" if copies else "kernel")
    found = bars(g.build())
    length = int(found.end_ns.max())
    whole = int((found.end_ns - found.alone_ns).sum())
    for most_filled in (99, 40, 20, 10, 5, 0):
        sums = sum_bars(found, np.ones(len(found), bool), length, 16, most_filled)
        count = sums.time_ns.shape[1]
        assert sums.filled.sum() <= most_filled or count == 1
        assert nonzero(sums) == slowly_summed(found, sums.width_ns, count)
        assert sums.time_ns.sum() == whole and sums.begun.sum() == len(found)
        lane_busy = np.zeros((3, count), np.int64)
        np.add.at(lane_busy, sums.lane, sums.time_ns)
        assert (lane_busy <= sums.width_ns).all()


def nonzero(sums: BarSums) -> Counter[tuple[int, int, int]]:
    return Counter(
        {
            (lane, kind, place): time
            for lane, kind, times in zip(sums.lane.tolist(), sums.kind.tolist(), sums.time_ns.tolist(), strict=True)
            for place, time in enumerate(times)
            if time
        }
    )


# What is told where there is no room for all


def test_told_are_the_longest_of_each_name_and_then_of_each_lane() -> None:
    found = many_bars(3000)
    chosen = np.isin(np.arange(3000), drawn_first(found, 600)[:600])
    length = found.end_ns - found.start_ns
    assert chosen.sum() == 600
    for lane in range(3):
        mine = found.lane == lane
        assert set(found.name.codes[chosen & mine].tolist()) == set(range(20))
        assert np.sort(length[mine & chosen])[-100] >= length[mine & ~chosen].max()


@given(st.integers(1, 2000), st.integers(0, 5), st.sampled_from([200, 3000, 10**6]))
def test_what_is_told_and_what_is_summed_is_all_there_is(count: int, seed: int, max_bytes: int) -> None:
    found = many_bars(count, seed)
    length = int(found.end_ns.max())
    packed, singly, width_ns = pack_rank(found, length, max_bytes)
    rank = json.loads(packed)
    told, sums = read_bars(rank), read_sums(rank)
    spent = Counter[tuple[str, str]]()
    for bar in told:
        spent[bar["lane"], bar["kind"]] += bar["end"] - bar["alone"]
    for (lane, kind, _), time in sums.items():
        spent[found.lanes[lane], LOOKS[kind // 2]] += time
    expected = Counter[tuple[str, str]]()
    for lane, look, time in zip(found.lane, found.look, found.end_ns - found.start_ns, strict=True):
        expected[found.lanes[lane], LOOKS[look]] += int(time)
    assert spent == expected
    columns, _ = numbers(rank["data"], rank["columns"])
    assert len(told) == singly == sum(told for _, told, *_ in rank["lanes"])
    assert len(told) + sum(columns.get("begun", [])) == count
    assert (width_ns > 0) == (len(told) < count)
    original = {int(node): row for row, node in enumerate(found.node)}
    for bar in told:
        row = original[bar["node"]]
        assert (bar["start"], bar["end"], bar["name"]) == (found.start_ns[row], found.end_ns[row], found.name[row])


@pytest.mark.parametrize("max_bytes", [30_000, 60_000, 200_000])
def test_a_rank_takes_no_more_room_than_it_has_and_makes_use_of_it(max_bytes: int) -> None:
    found = many_bars(100_000)
    packed, singly, _ = pack_rank(found, int(found.end_ns.max()), max_bytes)
    assert 0.6 * max_bytes < len(packed) <= max_bytes
    assert singly < 100_000


def test_small_ranks_are_shown_whole_and_leave_their_bytes_to_the_large_ones() -> None:
    def rank(count: int) -> ExecutionGraph:
        g, random = GraphBuilder(), np.random.default_rng(count)
        starts = np.cumsum(random.integers(30, 10_000, count)).tolist()
        for start in starts:
            g.activity("work", start, int(random.integers(1, 30)))
        return g.build()

    played = {0: replay(rank(8000)), 1: replay(rank(50)), 2: replay(rank(8000))}
    found = timeline(played, max_bytes=40_000)
    assert found is not None and len(found.json) < 41_000
    large, small, other = (one["lanes"][0][1] for one in json.loads(found.json)["ranks"])
    assert small == 50 < large < 8000 and other == pytest.approx(large, rel=0.5)
    assert found.single_bars == large + small + other and found.bars == 16_050 and found.coarsest > 0


def test_arrows_lead_between_told_bars() -> None:
    g = GraphBuilder()
    for number in range(2000):
        call = g.host("call", 100 * number, 10 + number % 50)
        g.activity("kernel", 100 * number + 60, 5 + number % 30, after=[(call, LAUNCH)])
    found = bars(g.build())
    rank = json.loads(pack_rank(found, int(found.end_ns.max()), 6000)[0])
    columns, _ = numbers(rank["data"], rank["columns"])
    told = read_bars(rank)
    targets = np.cumsum(columns["target"]).tolist()
    pairs = [(told[target + back], told[target]) for target, back in zip(targets, columns["source"], strict=True)]
    launches = [pair for pair, step in zip(pairs, columns["step"], strict=True) if not step]
    assert 10 < len(launches) < 2000
    assert {(one["name"], other["start"] - one["start"]) for one, other in launches} == {("call", 60)}


# How it is packed


@given(st.lists(st.integers(-(2**52), 2**52)), st.lists(st.integers(0, 200)), st.lists(st.text(max_size=9)))
def test_what_is_packed_is_unpacked(one: list[int], other: list[int], names: list[str]) -> None:
    columns: dict[str, Int64] = {"one": np.array(one, np.int64), "other": np.array(other, np.int64)}
    made = pack_columns(columns, Categorical.of(names))
    found, texts = numbers(made["data"], made["columns"])
    by_number = [text if isinstance(text, str) else text[-1] for text in json.loads(texts)]
    assert [by_number[number] for number in found.pop("name")] == names
    assert found == {"one": one, "other": other}


def test_a_column_of_zeros_takes_nothing() -> None:
    made = pack_columns({"zeros": np.zeros(1000, np.int64)}, Categorical.of([]))
    assert made["columns"] == {"zeros": (1000, 0), "name": (0, 0)}


def test_bars_lie_in_the_ops_that_called_theirs() -> None:
    """A step holds two ops, of which the first calls another; an op of another thread is not drawn."""
    g = GraphBuilder()
    for name, start, length in (("outer", 1010, 10), ("inner", 1020, 20), ("outer", 1040, 10), ("leaf", 1060, 30)):
        g.host(name, start, length)
    g.activity("kernel", 1025, 5)
    names = Categorical.of(["step", "outer", "inner", "leaf", "elsewhere"])
    thread, start, end = (np.array(times) for times in zip(
        (1, 1000, 1100), (1, 1010, 1050), (1, 1020, 1040), (1, 1060, 1090), (9, 1000, 1100), strict=True
    ))  # fmt: skip
    played = replay(g.build())
    ops = host_ops(SimpleNamespace(thread=thread, start=start, end=end, name=names))  # type: ignore[arg-type]
    found = bars_of(0, played, (500, on_one_clock([played])[0][1]), ops)
    rows = {(found.name[row], int(found.row[row])) for row in range(len(found))}
    assert rows == {("outer", 1), ("inner", 2), ("leaf", 1), ("kernel", 0)}
    around = zip(found.ops.start_ns.tolist(), found.ops.end_ns.tolist(), found.ops.row.tolist(), strict=True)
    assert [found.ops.name[row] for row in range(2)] == ["step", "outer"]
    assert [*around] == [(490, 590, 0), (500, 540, 1)]
