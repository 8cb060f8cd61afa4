"""The analyses on real traces: figures that were checked by hand, and rules that hold for every trace."""

import math
from pathlib import Path

import pytest
from execgraph.tools.analyses import RankTrace, analyse, read_rank


@pytest.fixture(scope="module")
def dlrm(real_traces: Path) -> list[RankTrace]:
    folder = real_traces / "dlrm_8gpu"
    return [
        read_rank(str(folder / f"device_rank{rank}.json.gz"), str(folder / f"host_rank{rank}.json.gz"), rank)
        for rank in range(4)
    ]


def test_dlrm_is_half_idle_and_its_communication_exposed(dlrm: list[RankTrace]) -> None:
    found = analyse(dlrm)
    times = [(row["span"], row["idle"], row["compute"]) for row in found["temporal_breakdown"].rows()]
    assert times == [(13009, 6419, 1034), (18749, 6428, 1246), (11350, 7046, 1068), (18853, 8145, 1240)]
    talk = [(row["communication"], row["overlap"]) for row in found["communication_computation_overlap"].rows()]
    assert talk == [(5798, 261), (11336, 280), (3492, 275), (9774, 324)]


def test_dlrm_ranks_meet_in_all_eight_collectives(dlrm: list[RankTrace]) -> None:
    rows = analyse(dlrm, ["collectives_over_ranks"])["collectives_over_ranks"].rows()
    assert [(row["sequence"], row["present"], row["members"], row["missing"]) for row in rows] == [
        (sequence, 4, 8, "") for sequence in range(147, 155)
    ]
    largest = max(rows, key=lambda row: row["size"])
    assert (largest["collective"], largest["size"], largest["latency"]) == ("allreduce", 1_576_964, 198)
    assert largest["bus_bandwidth"] == pytest.approx(1_576_964 / 198_000 * 14 / 8)


NAMES = [
    "device_only/a100_nccl_rank0_of_2", "device_only/h100_bert", "device_only/mi210_gpu_only", "device_only/mi300_bert",
    "device_only/mi300_vllm_decode_hipgraph", "device_only/mtia_inference", "critical_path/event_sync",
    "critical_path/event_sync_multi_stream", "captures/ddp_gloo/kineto_rank0",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_rules_hold_for_every_trace(name: str, real_traces: Path) -> None:
    rank = read_rank(str(real_traces / f"{name}.json.gz"))
    found, activities = analyse([rank]), rank.linked.activities
    for row in found["temporal_breakdown"].rows():
        assert row["idle"] + row["busy"] == pytest.approx(row["span"])
        classes = [one for one in found["kernel_breakdown"].rows() if one["device"] == row["device"]]
        assert sum(one["time"] for one in classes) == pytest.approx(row["busy"])
        computing = [one["time"] for one in classes if "computation" in one["class"]]
        assert sum(computing) == pytest.approx(row["compute"])
    assert sum(row["activities"] for row in found["temporal_breakdown"].rows()) == len(activities)
    launched = int((activities.call_row >= 0).sum())
    assert sum(row["activities"] for row in found["launch_statistics"].rows()) == launched
    assert sum(row["self"] for row in found["per_op_device_time"].rows()) == pytest.approx(
        (activities.end - activities.start)[activities.op_row >= 0].sum() / 1000
    )
    assert math.isclose(sum(row["pct"] for row in found["critical_path"].rows()), 100)
