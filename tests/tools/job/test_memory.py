"""Merging takes the memory of one rank, however many there are."""

import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from execgraph.tools.job import MergeReport, merge_for_counting, merge_for_viewing
from execgraph.tools.trace_files import RankFile
from support.reports import Jobs, ranks_in


@pytest.mark.parametrize(("merge", "name"), [(merge_for_viewing, "merged.json"), (merge_for_counting, "merged.db")])
def test_memory_does_not_grow_with_the_number_of_ranks(
    jobs: Jobs, tmp_path: Path, merge: Callable[[Sequence[RankFile], str], MergeReport], name: str
) -> None:
    def peak(ranks: Sequence[RankFile]) -> int:
        tracemalloc.start()
        merge(ranks, str(tmp_path / name))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    every = ranks_in(jobs(16))
    merge(every[:1], str(tmp_path / name))
    added = sum(path.stat().st_size for _, path in every[2:])
    assert peak(every) - peak(every[:2]) < added / 4
