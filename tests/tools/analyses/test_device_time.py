"""The analyses of device time against references that look at every nanosecond, and rules that their figures obey."""

import math
import random
import statistics
from typing import Any

import numpy as np
import pytest
from execgraph.tools.analyses import AnalysisOptions, RankTrace, Table, analyse
from hypothesis import given, strategies as st
from support import references
from support.references import COMMUNICATION, COMPUTATION, MEMORY, Act, Call, linked_of, moments, picked, queue_at, runs

RUN = tuple[list[Act], list[Call]]


def tables(acts: list[Act], calls: list[Call] | tuple[()] = (), **more: Any) -> dict[str, Table]:
    return analyse([RankTrace(0, linked_of(acts, calls, **more))])


def ns(us: float) -> int:
    return round(us * 1000)


@given(runs())
def test_devices_compute_communicate_overlap_or_idle_and_kernels_have_statistics_over_all_their_activities(run: RUN):
    acts, calls = run
    found = tables(acts, calls)
    for row in found["temporal_breakdown"].rows():
        own = references.on_device(acts, row["device"])
        busy, compute = len(moments(own)), len(moments(own, COMPUTATION))
        span = max(act.end for act in own) - min(act.start for act in own)
        assert [ns(row[name]) for name in ("span", "busy", "compute")] == [span, busy, compute]
        assert ns(row["idle"]) + ns(row["busy"]) == span
        if span:
            assert math.isclose(row["idle_pct"] + row["compute_pct"] + row["non_compute_pct"], 100)
    for device in {act.device for act in acts}:
        rows = [row for row in found["kernel_breakdown"].rows() if row["device"] == device]
        shares = {frozenset(row["class"].split(" + ")): ns(row["time"]) for row in rows}
        assert shares == references.kinds_at(references.on_device(acts, device))
        assert not rows or math.isclose(sum(row["pct"] for row in rows), 100)
    for row in found["communication_computation_overlap"].rows():
        own = references.on_device(acts, row["device"])
        talk, hidden = moments(own, COMMUNICATION), moments(own, COMMUNICATION) & moments(own, COMPUTATION)
        assert (ns(row["communication"]), ns(row["overlap"])) == (len(talk), len(hidden))
        assert ns(row["exposed_communication"]) == len(talk - hidden)
        assert row["overlap_pct"] == (pytest.approx(100 * len(hidden) / len(talk)) if talk else None)
    rows = found["kernel_duration_distribution"].rows()
    assert sum(row["count"] for row in rows) == len(acts)
    for row in rows:
        own = [act.end - act.start for act in acts if act.name == row["name"] and act.kind == row["class"]]
        spread = statistics.stdev(own) if len(own) > 1 else 0.0
        quantiles = np.quantile(own, [0.05, 0.25, 0.5, 0.75, 0.95, 0.99]).tolist()
        expected = [len(own), sum(own), statistics.mean(own), spread, min(own), max(own), *quantiles]
        names = ["sum", "mean", "std", "min", "max", "q05", "q25", "q50", "q75", "q95", "q99"]
        assert [row["count"], *(1000 * row[name] for name in names)] == pytest.approx(expected)


@given(runs(), st.integers(0, 12))
def test_each_gap_of_a_stream_is_in_one_category(run: RUN, short: int) -> None:
    acts, calls = sorted(set(run[0])), run[1]
    expected: dict[tuple[int, int, str], int] = {}
    for act, freed in references.gaps(acts):
        late = act.call >= 0 and calls[act.call].start > freed
        category = "host wait" if late else "kernel wait" if act.start - freed < short else "other"
        key = (act.device, act.stream, category)
        expected[key] = expected.get(key, 0) + act.start - freed
    options = AnalysisOptions(kernel_wait_us=short / 1000)
    (table,) = analyse([RankTrace(0, linked_of(acts, calls))], ["idle_time_breakdown"], options).values()
    rows = table.rows()
    assert {(row["device"], row["stream"], row["category"]): ns(row["idle"]) for row in rows} == expected
    for stream in {(row["device"], row["stream"]) for row in rows}:
        shares = [row["share"] for row in rows if (row["device"], row["stream"]) == stream]
        assert math.isclose(sum(shares), 100)


def test_another_gap_is_told_by_what_held_the_stream() -> None:
    acts = [
        Act(0, 10_000, stream=7, call=0),
        Act(0, 90_000, stream=20),
        Act(95_000, 99_000, stream=7, call=1),
        Act(200_000, 210_000, stream=7),
    ]
    calls = [Call(-9, -5), Call(-4, -2), Call(100_000, 190_000, name="cudaStreamSynchronize")]
    found = tables(acts, calls, device_waits=[(2, 1)], host_waits=[(2, 2)])["idle_time_breakdown"].rows()
    shown = picked(found, "category", "cause", "idle")
    assert shown == [("other", "host sync", 101.0), ("other", "event wait on stream 20", 85.0)]


@pytest.mark.parametrize(("host_waits", "cause"), [([(1, 2), (1, 1)], "host sync"), ([(1, 2)], "")])
def test_a_copy_that_waited_in_its_own_call_was_held_by_the_host(host_waits: list[Any], cause: str) -> None:
    acts = [Act(0, 10_000, stream=7, call=0), Act(0, 90_000, stream=20), Act(95_000, 99_000, MEMORY, stream=7, call=1)]
    calls = [Call(-9, -5), Call(5_000, 99_000, name="cudaMemcpy")]
    rows = tables(acts, calls, host_waits=host_waits)["idle_time_breakdown"].rows()
    assert picked(rows, "category", "cause") == [("other", cause)]


def test_ranks_of_a_kernel_are_told_apart_and_put_together() -> None:
    ranks = [RankTrace(rank, linked_of([Act(0, 1_000 * (1 + rank))])) for rank in (0, 3)]
    found = analyse(ranks)
    assert picked(found["kernel_duration_distribution_by_rank"].rows(), "rank", "sum") == [(3, 4.0), (0, 1.0)]
    assert picked(found["kernel_duration_distribution"].rows(), "count", "mean") == [(2, 2.5)]


def test_the_top_kernels_stand_alone_and_the_rest_are_others() -> None:
    durations = {"a": [50, 70], "b": [60], "c": [5, 7], "d": [1]}
    acts = [Act(0, length, name=name) for name, lengths in durations.items() for length in lengths]
    acts.append(Act(0, 3, MEMORY, name="copy"))
    ranks = [RankTrace(0, linked_of(acts))]
    rows = analyse(ranks, ["kernel_breakdown"], AnalysisOptions(top=2))["kernel_breakdown_kernels"].rows()
    assert [(row["class"], row["name"], ns(row["sum"]), row["count"]) for row in rows] == [
        (COMPUTATION, "a", 120, 2),
        (COMPUTATION, "b", 60, 1),
        (COMPUTATION, "others", 13, 3),
        (MEMORY, "copy", 3, 1),
    ]
    others = rows[2]
    assert [1000 * others[name] for name in ("mean", "std", "min", "max")] == pytest.approx(
        [13 / 3, statistics.stdev([5, 7, 1]), 1, 7]
    )


@given(runs())
def test_every_launch_has_its_call_its_work_and_its_delay(run: RUN) -> None:
    acts, calls = run
    rows = tables(acts, calls)["launch_statistics"].rows()
    launching = sorted({act.call for act in acts if act.call >= 0})
    assert sorted(row["correlation"] - 100 for row in rows) == launching
    for row in rows:
        call = calls[row["correlation"] - 100]
        own = [act for act in acts if act.call == row["correlation"] - 100]
        host, device = call.end - call.start, len(moments(own))
        delay = max(min(act.start for act in own) - call.end, 0)
        assert [ns(row[name]) for name in ("host", "device", "delay")] == [host, device, delay]
        assert row["activities"] == len(own)
        assert row["flags"] == ("short" if device < host else "")


def test_slow_calls_and_long_delays_are_flagged() -> None:
    calls = [Call(0, 51_000, name="hipLaunchKernel"), Call(60_000, 61_000), Call(70_000, 71_000)]
    acts = [Act(51_000, 111_000, call=0), Act(161_001, 170_000, call=1), Act(171_000, 180_000, call=2)]
    found = tables(acts, calls)
    assert [row["flags"] for row in found["launch_statistics"].rows()] == ["slow call", "long delay", ""]
    by_api = picked(found["launch_statistics_by_api"].rows(), "api", "slow_call", "long_delay")
    assert by_api == [("hipLaunchKernel", 1, 0), ("cudaLaunchKernel", 0, 1)]


@given(runs())
def test_each_kernel_is_in_the_bucket_of_its_duration(run: RUN) -> None:
    acts = [Act(act.start, act.start + 777 * (act.end - act.start), act.kind) for act in run[0]]
    kernels = [act.end - act.start for act in acts if act.kind != MEMORY]
    rows = tables(acts)["launch_statistics_short_kernels"].rows()
    for row in rows:
        own = [length for length in kernels if ns(row["from"]) <= length < ns(row["to"])]
        assert (row["kernels"], ns(row["time"])) == (len(own), sum(own))
        assert row["kernels_pct"] == pytest.approx(100 * len(own) / len(kernels))
        assert row["time_pct"] is None or row["time_pct"] == pytest.approx(100 * sum(own) / sum(kernels))
    assert sum(row["kernels"] for row in rows) == len(kernels)


def test_buckets_of_durations_are_powers_of_two() -> None:
    acts = [Act(0, length) for length in (999, 1_000, 1_999, 4_000, 4_500)] + [Act(0, 90_000, MEMORY)]
    rows = tables(acts)["launch_statistics_short_kernels"].rows()
    found = picked(rows, "from", "to", "kernels", "time")
    assert found == [(0.0, 1.0, 1, 0.999), (1.0, 2.0, 2, 2.999), (2.0, 4.0, 0, 0.0), (4.0, 8.0, 2, 8.5)]
    of_a_century = tables([Act(0, 1 << 61)])["launch_statistics_short_kernels"].rows()[-1]
    assert (of_a_century["kernels"], of_a_century["to"] > (1 << 61) / 1000) == (1, True)


@given(runs())
def test_a_launch_is_queued_until_its_first_activity_starts(run: RUN) -> None:
    acts, calls = run
    rows = [row for row in tables(acts, calls)["counters"].rows() if row["counter"] == "queue length"]
    lanes = {(row["device"], row["stream"]) for row in rows}
    assert lanes == {(act.device, act.stream) for act in acts if act.call >= 0}
    for device, stream in lanes:
        own = [row for row in rows if (row["device"], row["stream"]) == (device, stream)]
        for row in own:
            assert row["value"] == queue_at(acts, calls, device, stream, ns(row["ts"]) + references.began(acts, calls))
        assert own[-1]["value"] == 0
        assert [row["ts"] for row in own] == sorted({row["ts"] for row in own})


def test_time_at_the_queue_limit_counts_full_queues() -> None:
    calls = [Call(0, 1), Call(10, 11), Call(20, 21)]
    acts = [Act(30, 40, call=0), Act(40, 45, call=1), Act(60, 70, call=2)]
    ranks = [RankTrace(0, linked_of(acts, calls))]
    row = analyse(ranks, ["counters"], AnalysisOptions(queue_limit=2))["counters_summary"].rows()[0]
    assert (ns(row["at_limit"]), ns(row["active"]), row["max"]) == (30, 60, 3.0)
    assert row["mean"] == pytest.approx((10 * 1 + 10 * 2 + 10 * 3 + 10 * 2 + 20 * 1) / 60)


def known(span: int, idle: int, activities: int, communication: int) -> list[Act]:
    """Activities in whole µs whose union leaves this much idle and whose communication covers exactly this much."""
    dice = random.Random(span)
    islands = activities // 3
    edges = sorted(dice.sample(range(1, span - idle), islands - 1))
    busy = [after - before for before, after in zip([0, *edges], [*edges, span - idle], strict=True)]
    seas = sorted(dice.sample(range(1, idle), islands - 2))
    empty = [after - before for before, after in zip([0, *seas], [*seas, idle], strict=True)]
    acts, start = [], 1_000_000
    for length, gap in zip(busy, [*empty, 0], strict=True):
        end, talk = start + length, min(length, communication)
        communication -= talk
        if talk:
            acts.append((start, start + talk, COMMUNICATION, 20))
        acts.append((start, end, COMPUTATION if dice.random() < 0.9 or talk < length else MEMORY, 7))
        start = end + gap
    while len(acts) < activities:
        first, last, kind, _ = acts[dice.randrange(len(acts))]
        begin = dice.randint(first, last)
        acts.append((begin, dice.randint(begin, last), COMPUTATION if kind == COMMUNICATION else kind, 24))
    dice.shuffle(acts)
    return [Act(1000 * first, 1000 * last, kind, stream) for first, last, kind, stream in acts]


@pytest.mark.parametrize(
    ("span", "idle", "activities", "communication"),
    [(1_732_965, 732_352, 22_290, 357_343), (464_594, 76_007, 9_450, 0)],
)
def test_whole_microseconds_give_exact_totals(span: int, idle: int, activities: int, communication: int) -> None:
    found = tables(known(span, idle, activities, communication))
    row = found["temporal_breakdown"].rows()[0]
    assert (row["span"], row["idle"], row["activities"]) == (span, idle, activities)
    talk = found["communication_computation_overlap"]
    assert sum(row["communication"] for row in talk.rows()) == communication
    assert sum(row["time"] for row in found["kernel_breakdown"].rows()) == span - idle


def test_an_analysis_is_run_by_name_and_a_wrong_name_is_refused() -> None:
    ranks = [RankTrace(0, linked_of([Act(0, 5)]))]
    assert list(analyse(ranks, ["kernel_breakdown"])) == ["kernel_breakdown", "kernel_breakdown_kernels"]
    with pytest.raises(ValueError, match="there is no analysis 'nonsense': choose from "):
        analyse(ranks, ["nonsense"])


def test_a_rank_is_let_go_before_the_next_is_read() -> None:
    alive: list[int] = []

    class Watched(RankTrace):
        def __del__(self) -> None:
            alive.remove(self.rank)

    def ranks() -> Any:
        for rank in range(4):
            alive.append(rank)
            yield Watched(rank, linked_of([Act(0, 5)]))
            assert not alive

    assert [row["rank"] for row in analyse(ranks())["temporal_breakdown"].rows()] == [0, 1, 2, 3]
