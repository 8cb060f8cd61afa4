"""What a changed run would take, in a sentence."""

from dataclasses import replace

import pytest
from execgraph.schema.graph import CollectiveType, ExecutionGraph
from execgraph.tools.replay import describe, parse_scale, replay_ranks, summarise
from execgraph.tools.replay.answer import answer
from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder, rank_with_collective


def answered(ranks: list[ExecutionGraph], *specs: str) -> str:
    scale = [parse_scale(spec) for spec in specs]
    return answer(replay_ranks(ranks, scale), scale)


@pytest.fixture
def ranks() -> list[ExecutionGraph]:
    """60 µs: 40 of computing, then both ranks reduce for 20."""
    of_both = {"work": 40_000, "collective": 20_000, "clock": 0, "comm_type": int(CollectiveType.ALL_REDUCE)}
    return [rank_with_collective(rank, **of_both) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        (
            ["class:computation=0.5"],
            "If all computation were twice as fast, the run would take 40.0 µs instead of 60.0 µs, 33 % less: "
            "what limits the gain is the all-reduce, 50 % of the critical path.",
        ),
        (
            ["class:communication=2"],
            "If all communication took twice as long, the run would take 80.0 µs instead of 60.0 µs, 33 % more.",
        ),
        (["class:host=0.5"], "If the host were twice as fast, the run would still take 60.0 µs."),
        (
            ["gemm=0.25", "class:communication=0.25"],
            "If everything whose name matches 'gemm' and all communication were 4 times as fast "
            "(factors multiply where several apply), the run would take 15.0 µs instead of 60.0 µs, 75 % less.",
        ),
        (
            ["gemm=0", "class:communication=2.9"],
            "If everything whose name matches 'gemm' took no time and all communication took 2.9 times as long "
            "(factors multiply where several apply), the run would take 58.0 µs instead of 60.0 µs, 3.3 % less.",
        ),
    ],
)
def test_the_answer_says_what_changes_and_what_limits_the_gain(
    ranks: list[ExecutionGraph], specs: list[str], sentence: str
) -> None:
    assert answered(ranks, *specs) == sentence


def test_what_is_left_of_a_kind_after_a_part_of_it_took_no_time_is_its_rest() -> None:
    g = GraphBuilder()
    launch = g.host("launch", 0, 1_000)
    first = g.activity("gemm", 1_000, 10_000, after=[(launch, LAUNCH)])
    g.activity("softmax", 11_000, 30_000, after=[(first, STREAM_ORDER)])
    assert answered([g.build()], "gemm=0").endswith(
        "what limits the gain is the rest of the computation, 97 % of the critical path."
    )


def late() -> list[ExecutionGraph]:
    """Rank 1 begins 25 µs after rank 0, which waits for it."""
    early = rank_with_collective(0, work=10_000, collective=50_000, clock=0)
    return [early, rank_with_collective(1, work=15_000, collective=20_000, clock=0)]


def test_the_start_offset_that_no_change_scales_is_said_with_the_run_without_it() -> None:
    assert answered(late(), "class:computation=3").endswith(
        " The start offset of rank 1, 25.0 µs, is as measured (recording began later, or the rank was late: not known): "
        "without start offsets, the run would take 65.0 µs."
    )


def test_start_offsets_are_lines_and_keys_of_their_own() -> None:
    replayed = replay_ranks(late())
    summary = summarise(replayed)
    assert summary.start_offsets_us == {"0": 0, "1": 25}
    assert summary.without_start_offsets_us is None
    assert summary.explained_pct == pytest.approx(100 * 35 / 60, abs=0.01)
    offset = "start offset             25.0 µs  of rank 1; recording began later, or the rank was late: not known"
    assert offset in describe(replayed, summary).splitlines()
    changed = summarise(replay_ranks(late(), [parse_scale("class:computation=3")]))
    assert changed.without_start_offsets_us == 65.015


def test_start_offsets_of_less_than_a_hundredth_of_the_run_are_not_worth_a_line(ranks: list[ExecutionGraph]) -> None:
    replayed = replay_ranks(ranks, [parse_scale("gemm=0.5")])
    assert replayed.start_offset is None
    assert "start offset" not in describe(replayed, summarise(replayed), [parse_scale("gemm=0.5")])


def test_what_is_like_the_changed_nodes_is_the_rest_of_them() -> None:
    g = GraphBuilder()
    op = g.host("aten::mm", 0, 10_000)
    first = g.activity("first", 10_000, 30_000, after=[(op, LAUNCH)])
    g.activity("second", 40_000, 60_000, after=[(first, STREAM_ORDER)])
    assert answered([g.build()], "first=0.5").endswith(
        "the gain is the rest of the computation, 71 % of the critical path."
    )


def test_waiting_before_changed_nodes_is_not_changed() -> None:
    g = GraphBuilder()
    op = g.host("aten::mm", 0, 1_000)
    g.activity("gemm", 51_000, 100_000, gap=50_000, after=[(op, LAUNCH)])
    specs = "class:computation=0.5", "class:host=0.5"
    assert answered([g.build()], *specs).endswith("limits the gain is launch latency, 50 % of the critical path.")


def test_a_run_that_was_not_measured_is_compared_with_nothing(ranks: list[ExecutionGraph]) -> None:
    scale = [parse_scale("class:communication=2")]
    unmeasured = replace(replay_ranks(ranks, scale), measured_ns=0)
    assert answer(unmeasured, scale) == "If all communication took twice as long, the run would take 80.0 µs."


def test_the_answer_is_the_last_line_of_a_changed_replay_alone(ranks: list[ExecutionGraph]) -> None:
    scale = [parse_scale("gemm=0.5")]
    changed, unchanged = replay_ranks(ranks, scale), replay_ranks(ranks)
    assert describe(changed, summarise(changed), scale).splitlines()[-1] == answer(changed, scale)
    assert "If" not in describe(unchanged, summarise(unchanged))
