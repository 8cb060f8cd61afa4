"""Call sites: which calls are the same call of every step."""

from dataclasses import replace

from execgraph.linker.waits import CallSites
from execgraph.schema.columns import ABSENT, Int64
from execgraph.schema.linked import Calls
from support.tables import Called, Op, calls, column, ops

STEPS = [Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 1_000)]


def call_sites(
    op_rows: Int64, parent: list[int], *named: Op, names: tuple[str, ...] = (), threads: tuple[int, ...] = ()
) -> CallSites:
    """Of calls 100 apart, each in an op or, for -1, in none."""
    rows = [Called(100 * number, 100 * number + 50) for number in range(len(op_rows))]
    if names:
        rows = [row._replace(name=name) for row, name in zip(rows, names, strict=True)]
    table: Calls = replace(calls(*rows), op_row=op_rows)
    if threads:
        table = replace(table, thread=column(*threads))
    return CallSites(table, ops(*named), column(*parent))


def test_a_path_is_given_by_the_names_of_the_enclosing_ops() -> None:
    named = [Op("a"), Op("b"), Op("a"), Op("b"), Op("b")]
    sites = call_sites(column(1, 3, 4, 0, 2, -1), [-1, 0, -1, 2, -1], *named)
    paths = [sites.path(call) for call in range(6)]
    assert paths[0] == paths[1]
    assert paths[3] == paths[4]
    assert len(set(paths)) == 4


def test_what_marks_a_step_is_no_part_of_a_path() -> None:
    named = [*STEPS, Op("a"), Op("a"), Op("a")]
    sites = call_sites(column(2, 3, 4, 0), [-1, -1, 0, 1, -1], *named)
    assert sites.path(0) == sites.path(1) == sites.path(2)
    assert sites.path(3) == -1


def test_a_call_is_in_the_step_that_was_marked_last() -> None:
    starts = [
        Op("ProfilerStep#1", 100),
        Op("ProfilerStep#1", 100),
        Op("ProfilerStep#2", 300),
        Op("ProfilerStep#3", ABSENT),
    ]
    sites = call_sites(column(-1, -1, -1, -1, -1), [-1, -1, -1, -1], *starts)
    assert sites.step.tolist() == [0, 1, 1, 2, 2]


def test_the_same_occurrence_of_a_call_within_its_step_is_one_call_site() -> None:
    starts = [Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 200)]
    sites = call_sites(column(-1, -1, -1, -1, -1), [-1, -1], *starts)
    assert sites.groups([0, 1, 2, 3, 4]) == [[0, 2], [1, 3], [4]]


def test_calls_of_other_threads_names_paths_or_columns_are_at_other_call_sites() -> None:
    starts = [Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 100)]
    for kept in (
        call_sites(column(-1, -1), [-1, -1], *starts),
        call_sites(column(2, 3), [-1, -1, -1, -1], *starts, Op(), Op()),
    ):
        assert kept.groups([0, 1]) == kept.groups([0, 1], [5, 5]) == [[0, 1]]
        assert kept.groups([0, 1], [5, 6]) == [[0], [1]]
    for other in (
        call_sites(column(-1, -1), [-1, -1], *starts, threads=(1, 2)),
        call_sites(column(-1, -1), [-1, -1], *starts, names=("one", "other")),
        call_sites(column(2, -1), [-1, -1, -1], *starts, Op()),
    ):
        assert other.groups([0, 1]) == [[0], [1]]


def test_a_position_is_that_in_what_was_asked_for() -> None:
    assert call_sites(column(-1, -1, -1), []).groups([2, 1]) == [[0], [1]]
