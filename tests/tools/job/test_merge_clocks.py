"""The clocks of ranks are compared by the collectives that they share; a rank taken out has its own again."""

import json
import shutil
from pathlib import Path

from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace
from execgraph.tools.job.merge_survey import clock_corrections
from support.reports import Jobs, merged, rows_of


def test_clocks_are_compared_by_the_ends_of_shared_collectives(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank1.json"
    ahead = json.loads(path.read_text())
    ahead["baseTimeNanoseconds"] += 7_000_000
    path.write_text(json.dumps(ahead))
    trace = merged(folder, tmp_path / "merged.json")
    ends: dict[int, list[float]] = {}
    for row in rows_of(trace):
        if row["cat"] == "kernel" and "nccl" in row["name"]:
            ends.setdefault(row["pid"], []).append(row["ts"] + row["dur"])
    first, second = ends.values()
    assert max(abs(one - other) for one, other in zip(first, second, strict=True)) < 1.1
    assert [record["time_shift_ns"] for record in trace["mergedRanks"]] == [7_000_000, 7_000_000]
    assert trace["baseTimeNanoseconds"] == ahead["baseTimeNanoseconds"] - 7_000_000


def test_clocks_are_compared_through_ranks_between() -> None:
    ranks = {
        0: {"a": {1: 100, 2: 200}},
        1: {"a": {1: 90, 2: 190, 3: 7}, "b": {1: 50}},
        2: {"b": {1: 80}},
        3: {"c": {1: 1}},
    }
    assert clock_corrections(ranks) == {0: 20, 1: 30, 2: 0, 3: 20}


def test_a_single_late_collective_does_not_move_a_clock() -> None:
    ends = {number: 1000 * number for number in range(9)}
    assert clock_corrections({0: {"a": ends}, 1: {"a": {**ends, 4: 999_999}}}) == {0: 0, 1: 0}


def test_a_rank_taken_out_has_its_own_clock_and_ids_again(jobs: Jobs, tmp_path: Path) -> None:
    test_clocks_are_compared_by_the_ends_of_shared_collectives(jobs, tmp_path)
    for rank in (0, 1):
        own = link(None, read_device_trace(str(tmp_path / f"job/device_rank{rank}.json")))
        again = link(None, read_device_trace(str(tmp_path / "merged.json")), rank)
        assert (again.info.base_time_ns, again.info.pid) == (own.info.base_time_ns, own.info.pid)
        assert again.activities.start.tolist() == own.activities.start.tolist()
        assert again.activities.correlation.tolist() == own.activities.correlation.tolist()
        assert again.groups == own.groups and again.info.world_size == 2
