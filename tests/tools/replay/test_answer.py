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
            "If all kernels were twice as fast, the run would take 40.0 µs instead of 60.0 µs, 33 % less: "
            "what limits the gain is the all-reduce, 50 % of the critical path.",
        ),
        (
            ["class:communication=2"],
            "If all communication took twice as long, the run would take 80.0 µs instead of 60.0 µs, 33 % more.",
        ),
        (["class:host=0.5"], "If the host were twice as fast, the run would still take 60.0 µs."),
        (
            ["gemm=0.25", "class:communication=0.25"],
            "If everything whose name matches 'gemm' and all communication were 4 times as fast, "
            "the run would take 15.0 µs instead of 60.0 µs, 75 % less.",
        ),
        (
            ["gemm=0", "class:communication=2.9"],
            "If everything whose name matches 'gemm' took no time and all communication took 2.9 times as long, "
            "the run would take 58.0 µs instead of 60.0 µs, 3.3 % less.",
        ),
    ],
)
def test_the_answer_says_what_changes_and_what_limits_the_gain(
    ranks: list[ExecutionGraph], specs: list[str], sentence: str
) -> None:
    assert answered(ranks, *specs) == sentence


def test_what_is_like_the_changed_nodes_is_the_rest_of_them() -> None:
    g = GraphBuilder()
    op = g.host("aten::mm", 0, 10_000)
    first = g.activity("first", 10_000, 30_000, after=[(op, LAUNCH)])
    g.activity("second", 40_000, 60_000, after=[(first, STREAM_ORDER)])
    assert answered([g.build()], "first=0.5").endswith(
        "the gain is the rest of the kernels, 71 % of the critical path."
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
