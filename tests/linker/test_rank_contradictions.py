"""Ranks that cannot be right: beyond the world, or of a host trace by its collectives."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from execgraph.linker.rank_contradictions import groups_without_rank, other_rank, rank_beyond_world
from support.builder import TraceBuilder
from support.device_rows import device_trace
from support.runs import read_pair


@pytest.mark.parametrize(("rank", "size"), [(None, 2), (0, None), (0, 2), (1, 2)])
def test_a_rank_within_the_world_or_an_unknown_one_may_be(rank: int | None, size: int | None) -> None:
    assert rank_beyond_world(device_trace(rank=rank, world_size=size)) is None


def test_a_rank_beyond_the_last_one_is_wrong() -> None:
    said = rank_beyond_world(device_trace(rank=2, world_size=2))
    assert said is not None
    assert said.what == "is of rank 2 in a job of 2 ranks, the last of which is 1"


@pytest.mark.parametrize(("members", "is_foreign"), [((2, 3), True), ((0, 3), False)])
def test_a_group_that_only_its_collectives_describe_is_checked_too(members: Sequence[int], is_foreign: bool) -> None:
    t = TraceBuilder(rank=0, world_size=4)
    t.collective("allreduce", group=t.group(members))
    _, device = read_pair(t)
    said = groups_without_rank(None, replace(device, groups=[]))
    assert (said is not None) == is_foreign


def test_the_first_foreign_group_is_named() -> None:
    t = TraceBuilder(rank=0, world_size=4)
    for group in (t.group([0, 1], "a"), t.group([2, 3], "b"), t.group([1, 3], "c")):
        t.collective("allreduce", group=group)
    said = groups_without_rank(None, read_pair(t)[1])
    assert said is not None
    assert "in 2 of 3 process groups that it is not in (the first: group 'b' of ranks 2, 3, " in said.what


def rank_of_host(members: Sequence[int], own: int, name: str = "allreduce") -> str:
    """What is said of a host trace whose process has the number `own` in a group, beside a device trace of rank 3."""
    t = TraceBuilder(rank=3, world_size=4)
    t.collective(name, group=t.group(members), root=own)
    said = other_rank(*read_pair(t))
    return said.what.split(" by ")[0] if said is not None else ""


@pytest.mark.parametrize(("own", "said"), [(-1, ""), (0, "is of rank 0"), (2, "is of rank 2"), (3, ""), (4, "")])
def test_the_rank_in_a_group_of_all_is_that_of_the_process(own: int, said: str) -> None:
    assert rank_of_host(range(4), own) == said


@pytest.mark.parametrize(("own", "said"), [(-1, ""), (0, "is of rank 0"), (1, "is of rank 2"), (2, ""), (3, "")])
def test_the_rank_in_another_group_is_the_place_among_its_members(own: int, said: str) -> None:
    assert rank_of_host((0, 2, 3), own) == said


def test_a_collective_that_records_its_root_does_not_show_the_rank() -> None:
    assert rank_of_host(range(4), 0, "broadcast") == ""
