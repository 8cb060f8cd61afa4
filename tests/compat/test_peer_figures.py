"""Figures of other tools for one built job, where raw events agree with them: HTA 0.5.0 and TraceLens.

HTA shows all steps; TraceLens is its main branch of 2026-08-21. Times are in whole µs, as HTA cuts the rest off, and
without synchronisation records, which it takes for kernels. TraceLens counts a memset as computation, which is left out
here.
"""

from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.analyses import Table, analyse
from execgraph.tools.report import find_sources, read_ranks
from support.builder.timeline import TraceBuilder

STEPS, LAYERS = 3, 3
ALL_REDUCE, ALL_GATHER = (
    f"ncclDevKernel_{kind}_RING_LL(ncclDevKernelArgsStorage<4096ul>)" for kind in ("AllReduce_Sum_f32", "AllGather")
)
FORWARD, BACKWARD, SMALL = "ampere_sgemm_128x64_nn", "ampere_sgemm_64x64_nt", "vectorized_elementwise_kernel"


def trained(rank: int, torch: str) -> TraceBuilder:
    t = TraceBuilder(torch, rank=rank, world_size=2, pid=1000 + rank, sync_records=False)
    group = t.group([0, 1])
    for step in range(STEPS):
        with t.annotation(f"ProfilerStep#{step}"):
            t.work(7)
            with t.op("aten::to"):
                t.memcpy("HtoD", duration=11, blocking=False)
            _forward(t, rank)
            t.collective(group=group, duration=90 - 10 * rank, tensors=[t.tensor((1024, 1024))])
            _backward(t)
            sizes = [t.tensor((512,)), t.tensor((1024,))]
            gathered = t.collective("allgather", group=group, duration=40, tensors=sizes, kernel=ALL_GATHER, stream=24)
            t.wait_collective(gathered)
            with t.op("optimizer"):
                t.work(5)
                t.launch("multi_tensor_apply_kernel", duration=9)
            with t.op("aten::item"):
                t.memcpy("DtoH", duration=6)
    t.device_synchronize()
    return t


def _forward(t: TraceBuilder, rank: int) -> None:
    for layer in range(LAYERS):
        with t.op("aten::linear"), t.op("aten::addmm"):
            t.work(3)
            t.launch(FORWARD, duration=20 + 5 * layer + 3 * rank)
        with t.op("aten::relu"):
            t.work(2)
            t.launch(SMALL, duration=2)
        t.work(60 if layer == 1 else 1)


def _backward(t: TraceBuilder) -> None:
    for _ in range(LAYERS):
        with t.op("aten::mm"):
            t.work(4)
            t.launch(BACKWARD, duration=33)
    with t.op("aten::zero_"):
        t.memset(duration=3)


def analysed(folder: Path, torch: str) -> dict[str, Table]:
    for rank in (0, 1):
        trained(rank, torch).write(folder)
    return analyse(read_ranks(find_sources([folder]).ranks))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    return analysed(tmp_path_factory.mktemp("job"), "2.1")


def columns(table: Table, *names: str, **where: Any) -> list[tuple[Any, ...]]:
    return [
        tuple(row[name] for name in names)
        for row in table.rows()
        if all(row[name] == value for name, value in where.items())
    ]


def test_busy_and_idle_time(tables: dict[str, Table]) -> None:
    """Both tools; the shares are HTA's, which it rounds."""
    found = columns(tables["temporal_breakdown"], "rank", "span", "busy", "idle", "compute", "non_compute")
    assert found == [(0, 879, 747, 132, 567, 180), (1, 888, 774, 114, 594, 180)]
    shares = columns(tables["temporal_breakdown"], "idle_pct", "compute_pct", "non_compute_pct")
    assert shares == [pytest.approx((15.02, 64.51, 20.48), abs=5e-3), pytest.approx((12.84, 66.89, 20.27), abs=5e-3)]


def test_why_streams_were_idle(tables: dict[str, Table]) -> None:
    """HTA, which writes a row for what takes no time, too."""
    assert columns(tables["idle_time_breakdown"], "rank", "stream", "category", "idle", "gaps") == [
        (0, 7, "host wait", 132, 5), (0, 7, "other", 120, 3), (0, 20, "host wait", 416, 2), (0, 24, "host wait", 516, 2),
        (1, 7, "host wait", 114, 5), (1, 7, "other", 120, 3), (1, 20, "host wait", 442, 2), (1, 24, "host wait", 522, 2),
    ]  # fmt: skip


def test_communication_hidden_behind_computation(tables: dict[str, Table]) -> None:
    """Both tools: the share is HTA's, the times are TraceLens'."""
    overlap = tables["communication_computation_overlap"]
    assert columns(overlap, "rank", "communication", "exposed_communication") == [(0, 390, 120), (1, 360, 120)]
    assert columns(overlap, "overlap_pct") == [pytest.approx((69.23,), abs=5e-3), pytest.approx((66.67,), abs=5e-3)]


def test_time_by_class(tables: dict[str, Table]) -> None:
    """HTA, which sums over ranks."""
    total: dict[str, float] = {}
    for kind, time in columns(tables["kernel_breakdown"], "class", "time"):
        total[kind] = total.get(kind, 0) + time
    assert total == {"computation": 651, "computation + communication": 510, "communication": 240, "memory": 120}


KERNELS = {
    (ALL_GATHER, 0): (120, 40, 40, 40, 0), (ALL_GATHER, 1): (120, 40, 40, 40, 0),
    (ALL_REDUCE, 0): (270, 90, 90, 90, 0), (ALL_REDUCE, 1): (240, 80, 80, 80, 0),
    (FORWARD, 0): (225, 30, 20, 25, 4.330127), (FORWARD, 1): (252, 33, 23, 28, 4.330127),
    (BACKWARD, 0): (297, 33, 33, 33, 0), (BACKWARD, 1): (297, 33, 33, 33, 0),
    ("multi_tensor_apply_kernel", 0): (27, 9, 9, 9, 0), (SMALL, 0): (18, 2, 2, 2, 0),
    ("Memcpy DtoH (Device -> Pageable)", 0): (18, 6, 6, 6, 0),
    ("Memcpy HtoD (Pageable -> Device)", 1): (33, 11, 11, 11, 0), ("Memset (Device)", 1): (9, 3, 3, 3, 0),
}  # fmt: skip
"""HTA, by kernel and rank: sum, max, min, mean, standard deviation."""


@pytest.mark.parametrize(("name", "rank"), KERNELS)
def test_statistics_of_a_kernel(tables: dict[str, Table], name: str, rank: int) -> None:
    (found,) = columns(tables["kernel_breakdown_kernels"], "sum", "max", "min", "mean", "std", name=name, rank=rank)
    assert found == pytest.approx(KERNELS[name, rank], abs=1e-6)


LAUNCHES = {
    0: [(4, 11, 0), (4, 20, 4), (4, 2, 18), (4, 25, 12), (4, 2, 31), (4, 30, 0), (4, 2, 24), (4, 90, 17), (4, 33, 7),
        (4, 33, 32), (4, 33, 57), (4, 3, 86), (4, 40, 81), (4, 9, 108), (127, 6, 0)],
    1: [(4, 11, 0), (4, 23, 4), (4, 2, 21), (4, 28, 15), (4, 2, 37), (4, 33, 0), (4, 2, 27), (4, 80, 20), (4, 33, 10),
        (4, 33, 35), (4, 33, 60), (4, 3, 89), (4, 40, 84), (4, 9, 111), (130, 6, 0)],
}  # fmt: skip
"""HTA: how long the call took the host and the work the device, and the delay between, of each launch of a step."""


@pytest.mark.parametrize("rank", LAUNCHES)
def test_every_launch(tables: dict[str, Table], rank: int) -> None:
    assert columns(tables["launch_statistics"], "host", "device", "delay", rank=rank) == STEPS * LAUNCHES[rank]


def test_longest_queues(tables: dict[str, Table]) -> None:
    """HTA; it weighs the other moments by how often the queue changed, not by how long it stayed so."""
    found = columns(tables["counters_summary"], "rank", "stream", "max", counter="queue length")
    assert found == [(0, 7, 4), (0, 20, 1), (0, 24, 1), (1, 7, 5), (1, 20, 1), (1, 24, 1)]


def test_patterns_of_an_operator(tables: dict[str, Table]) -> None:
    """HTA, asked for `aten::linear` on rank 0."""
    found = columns(
        tables["frequent_kernel_patterns"], "pattern", "count", "device_time", "host_time",
        rank=0, operator="aten::linear",
    )  # fmt: skip
    assert found == [(FORWARD, 9, 225, 63)]


def test_device_time_by_op(tables: dict[str, Table]) -> None:
    """TraceLens, of the ops that launch."""
    by_name = columns(tables["per_op_device_time_by_name"], "name", "ops", "self", "subtree", rank=1)
    for name, ops, time in (
        ("aten::mm", 9, 297), ("aten::addmm", 9, 252), ("aten::to", 3, 33), ("optimizer", 3, 27), ("aten::item", 3, 18),
        ("aten::relu", 9, 18), ("aten::zero_", 3, 9),
    ):  # fmt: skip
        assert (name, ops, time, time) in by_name


def test_collectives_over_ranks(tmp_path: Path) -> None:
    """TraceLens, on traces with a collective's group and sizes; it divides by 2^30, the bandwidths here by 10^9."""
    found = columns(
        analysed(tmp_path, "2.7")["collectives_over_ranks"],
        "collective", "latency", "start_skew", "straggler", "algorithm_bandwidth", "bus_bandwidth",
    )  # fmt: skip
    giga = 2**30 / 1e9
    expected = [
        (kind, latency, skew, 1, pytest.approx(giga * algorithm, rel=1e-6), pytest.approx(giga * bus, rel=1e-5))
        for skew in (3, 6, 9)
        for kind, latency, algorithm, bus in (
            ("allreduce", 80, 48.828125, 48.828125),
            ("allgather", 40, 0.095367432, 0.047684),
        )
    ]
    assert found == expected
