"""Ranks that agree are built without a message; any that differs is found, named, and shown from both sides."""

import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from execgraph.converter.ranks import Group as RankGroup, ranks_text
from execgraph.schema.arguments import ASTRA_SIM
from execgraph.schema.linked import Communication
from execgraph.tools.job import BuildOptions, BuildReport, build, diagnose
from execgraph.tools.job.cross_rank import compare_ranks
from execgraph.tools.job.rank_comms import RankComms, group_summary
from execgraph.tools.report.inputs import find_sources
from execgraph.tools.report.report import ReportRequest, report_on
from support.builder.records import Group
from support.builder.timeline import TraceBuilder
from support.commands import status_of
from support.disagreements import ALL_TO_ALL, FAULTS, RANKS, SPLITS, Rank, SilentMember, WrongSize, did, other, write
from support.generated import here

pytestmark = pytest.mark.usefixtures("in_this_process")


def disagreements(ranks: dict[int, RankComms]) -> list[str]:
    """What the summaries alone tell, without traces to look into."""
    return compare_ranks(ranks, len(ranks), lambda rank: [])[0]


def report_of(folder: Path, out: Path, target: str = "generic") -> BuildReport:
    return build(folder, out, BuildOptions(target=target), here).report


@pytest.mark.parametrize("fault", FAULTS)
def test_a_disagreement_is_found_and_shown_from_both_sides(tmp_path: Path, fault: str) -> None:
    wrong, ranks, told = FAULTS[fault]
    report = report_of(write(tmp_path / "job", wrong, ranks), tmp_path / "out")
    assert report.disagreements == [told]
    if fault == "another size":
        reported = report_on(find_sources([tmp_path / "job"]), ReportRequest(page=False))
        assert f"ranks disagree: {told}" in reported.notes
        assert reported.verdict.startswith(
            "What limits the run cannot be told: ranks disagree on what they communicate"
        )


def test_replays_say_what_ranks_disagree_on_and_no_collective_without_members_is_scaled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, graphs = write(tmp_path / "job", other(steps=1)), tmp_path / "graphs"
    told = report_of(job, graphs).disagreements
    assert told and "rank 2 issued none" in told[0]
    assert status_of("trace-replay", str(graphs), "--scale", "class:computation=0.5") == 0
    printed = capsys.readouterr()
    assert f"ranks disagree: {told[0]}" in printed.err
    assert "Do not rely on this: ranks disagree on what they communicate." in printed.out
    assert status_of("trace-scale", str(graphs), "-o", str(tmp_path / "scaled"), "--data-parallel", "2") == 1
    assert f"ranks disagree: {told[0]}; collectives would lack members" in capsys.readouterr().err


def test_an_order_that_no_simulator_can_keep_is_said_once_and_leaves_no_graph(tmp_path: Path) -> None:
    """All collectives are on one stream, so that neither rank can come first."""

    class OneStream(Rank):
        def talk(self) -> None:
            for group in sorted((self.world, self.pair), key=lambda group: group.name, reverse=self.rank == 2):
                self.t.collective(group=group, tensors=[self.t.tensor((8,))])

    out = tmp_path / "out"
    report = report_of(write(tmp_path / "job", OneStream, range(RANKS)), out, ASTRA_SIM)
    [failure] = report.all_failures
    assert failure.startswith("ranks 0-3: the ranks' communication depends on itself in a circle of 2: ")
    [told] = report.disagreements
    assert told.startswith("group 0-3 (0) and group 2,3 (1): collective 1 of both: ")
    assert sorted(path.name for path in out.iterdir()) == ["report.json"]


def test_ranks_whose_host_threads_communicate_twice_at_once_have_no_order_to_agree_on(tmp_path: Path) -> None:
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank)
        with t.thread(2, start=0), t.annotation("gloo:all_reduce", inputs=[t.tensor((8,))]):
            t.work(10)
            if rank:
                t.leaf("gloo:all_gather", 5, inputs=[t.tensor((8,))])
        with t.thread(2):
            if not rank:
                t.leaf("gloo:all_gather", 5, inputs=[t.tensor((8,))])
        t.write(tmp_path)
    assert report_of(tmp_path, tmp_path / "out").disagreements == [
        "rank 1 began 1 communications while its host thread was still in another one, so that their order is not known; "
        "check the times in its traces"
    ]


@pytest.mark.parametrize(("other_op", "world_size"), [("aten::mm", 1), ("aten::add", 1), ("aten::add", 2)])
def test_ranks_that_record_nothing_of_each_other_and_run_other_ops_may_be_of_two_jobs(
    tmp_path, capsys, other_op, world_size
):
    for rank, name in enumerate(("aten::mm", other_op)):
        t = TraceBuilder(rank=rank, world_size=world_size, pid=1000 + rank)
        with t.thread(2, start=0):
            t.leaf(name, 5, inputs=[t.tensor((8,))])
        t.write(tmp_path)
    are_two, built = other_op != "aten::mm" and world_size == 1, report_of(tmp_path, tmp_path / "out").all_notes
    reported = report_on(find_sources([tmp_path]), ReportRequest(page=False)).notes
    for notes in (built, reported, [found.what for found in diagnose([tmp_path]).findings]):
        assert sum("are of one job" in note for note in notes) == are_two
    assert status_of("trace-replay", tmp_path / "out") == 0
    assert ("are of one job" in capsys.readouterr().err) == are_two


def test_ranks_that_agree_are_built_without_a_word(tmp_path: Path) -> None:
    report = report_of(write(tmp_path / "job"), tmp_path / "out")
    assert (report.disagreements, report.all_notes, report.all_failures) == ([], [], [])


def test_ranks_that_differ_in_the_same_way_are_named_together(tmp_path: Path) -> None:
    class Short(SilentMember, WrongSize): ...

    report = report_of(write(tmp_path / "job", Short, [2, 3]), tmp_path / "out")
    assert len(report.disagreements) == 1
    summaries = {rank.rank: rank.comms for rank in report.ranks if rank.comms}
    assert disagreements(summaries) == ["group 0-3 (0): 4 and 4 collectives that differ (as for rank 3)"]


def test_a_window_that_began_later_is_told_by_the_numbers_of_collectives(tmp_path: Path) -> None:
    class Later(Rank):
        def reduce(self, group: Group | None = None, size: int = 0) -> None:
            if self.t.activities[-1].start > 60_000:
                super().reduce(group, size)
            else:
                next(self.t._sequence[self.world.name])

    report = report_of(write(tmp_path / "job", Later), tmp_path / "out")
    assert report.disagreements == [
        f"group 0-3 (0): collective with number 1: {did(0, 'allreduce')}, rank 2 issued none"
    ]


class Uneven(Rank):
    """Shards that differ and make up the whole, and an all-to-all whose first rank records no splits: they are even."""

    def gather(self) -> None:
        self.shard = 8 + 4 * (self.rank % 2)
        super().gather()

    def exchange(self, splits: Sequence[Sequence[int]] = SPLITS) -> None:
        even = [[2, 2, 2, 2], *([2, 1, 1, 1] for _ in range(RANKS - 1))]
        if self.rank:
            super().exchange(even)
        else:
            tensors = [self.t.tensor((8,)), self.t.tensor((8,))]
            self.t.collective("all_to_allv", group=self.world, tensors=tensors, kernel=ALL_TO_ALL)


def test_uneven_collectives_that_fit_are_right(tmp_path: Path) -> None:
    assert report_of(write(tmp_path / "job", Uneven, range(RANKS)), tmp_path / "out").disagreements == []


def test_an_all_to_all_may_be_split_in_rows_or_in_elements() -> None:
    group = RankGroup("0,1", "")
    rows = Communication("all_to_allv", "Float", 30, 50, in_split=[1, 2], out_split=[1, 4])
    elements = Communication("all_to_allv", "Float", 60, 40, in_split=[40, 20], out_split=[20, 20])
    ranks = {0: RankComms([group_summary(group, [rows])]), 1: RankComms([group_summary(group, [elements])])}
    assert disagreements(ranks) == []


def test_two_groups_of_the_same_ranks_are_two_wherever_they_lie_in_memory(tmp_path: Path) -> None:
    class Twice(Rank):
        def talk(self) -> None:
            names = [str(94_000_000_000_000 + 1000 * self.rank + number) for number in range(2)]
            for size, name in enumerate(names * 2, 5):
                group = self.t.group([0, 1, 2, 3], name)
                self.t.collective(group=group, tensors=[self.t.tensor((size,))], seq=size)

    assert report_of(write(tmp_path / "job", Twice, range(RANKS)), tmp_path / "out").disagreements == []


class OneStepMore(Rank):
    def run(self) -> None:
        super().run()
        with self.t.annotation("ProfilerStep#2"):
            self.t.work(5)


class NoKernels(Rank):
    def run(self) -> None:
        with self.t.annotation("ProfilerStep#0"):
            self.t.leaf("aten::empty", 5)


ABSENCES = {
    "kernels, some": (other(kernels=3), ["rank 2: 12 kernels where another rank has 18"]),
    "kernels, many": (other(kernels=0), ["rank 2: LOW, 6 kernels where another rank has 18"]),
    "a step": (OneStepMore, ["rank 2: 3 steps, other ranks 2"]),
}


@pytest.mark.parametrize("absence", ABSENCES)
def test_what_a_rank_lacks_is_noted(tmp_path: Path, absence: str) -> None:
    lacking, notes = ABSENCES[absence]
    report = report_of(write(tmp_path / "job", lacking), tmp_path / "out")
    assert (report.absences, report.disagreements) == (notes, [])


def test_a_rank_without_kernels_is_missing_from_its_groups(tmp_path: Path) -> None:
    report = report_of(write(tmp_path / "job", NoKernels, [3]), tmp_path / "out")
    assert report.absences == ["rank 3: 1 steps, other ranks 2", "rank 3: MISSING, 0 kernels where another rank has 18"]
    assert [line.split(":")[0] for line in report.disagreements] == ["group 0-3 (0)", "group 2,3 (1)"]
    assert all(line.endswith("rank 3 issued none") for line in report.disagreements)


def test_ranks_without_traces_are_absent_with_their_groups(tmp_path: Path) -> None:
    report = report_of(write(tmp_path / "job", absent=[1, 3]), tmp_path / "out")
    assert report.disagreements == []
    assert report.absences == [
        "2 of 4 ranks are absent: 1, 3",
        "1 of 2 members of the group 0,1 are absent",
        "2 of 4 members of the group 0-3 are absent",
        "1 of 2 members of the group 2,3 are absent",
    ]


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    return status_of("trace-build", "--jobs", 1, *arguments), capsys.readouterr().err


def test_a_disagreement_is_said_and_fails_only_a_strict_build(tmp_path, capsys):
    wrong, right = write(tmp_path / "wrong", WrongSize), write(tmp_path / "right")
    for strict in (0, 1):
        out = ("--output-dir", tmp_path / "out", *["--strict"] * strict)
        status, said = command(capsys, "--input-dir", wrong, *out)
        assert status == strict
        assert f"trace-build: ranks disagree: {FAULTS['another size'][2]}" in said.splitlines()
    assert command(capsys, "--input-dir", right, *out)[0] == 0


def test_what_was_dropped_is_told_by_reason_and_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Odd(Rank):
        def run(self) -> None:
            super().run()
            for _ in range(self.rank):
                odd = {"ph": "X", "cat": "riddle", "name": "?", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}}
                self.t.add_device_event(odd | {"ts": len(self.t.device_events)})

    folder = write(tmp_path / "job", Odd, range(RANKS))
    _, said = command(capsys, "--input-dir", folder, "--output-dir", tmp_path / "out")
    assert "dropped     unknown category riddle: 1 of rank 1, 2 of rank 2, 3 of rank 3" in said.splitlines()


def job_of(ranks: int, wrong: int | None = None) -> Iterator[tuple[int, RankComms]]:
    """Data, tensor and expert parallel groups of a rank, with a few collectives; one rank is `wrong` about a split."""
    for rank in range(ranks):
        lists = [range(ranks), range(rank % 8, ranks, 8), range(rank // 8 * 8, rank // 8 * 8 + 8)]
        groups = [RankGroup(ranks_text(members), str(number)) for number, members in enumerate(lists)]
        even = Communication("allreduce", "Float", 64, 64)
        splits = [4] * ranks
        received = [*splits[:-1], 5] if rank == wrong else splits
        exchange = Communication("all_to_allv", "Float", 4 * ranks, sum(received), splits, received)
        summaries = [group_summary(group, [even] * 3) for group in groups[1:]]
        yield rank, RankComms([group_summary(groups[0], [exchange, even]), *summaries], kernels=200, steps=2)


def test_a_thousand_ranks_take_little_memory() -> None:
    ranks = dict(job_of(1000, wrong=7))
    # four bytes for each peer and way where ranks exchange splits, and little else
    assert max(len(msgspec.msgpack.encode(comms)) for comms in ranks.values()) < 2 * 4 * 1000 + 1000
    tracemalloc.start()
    try:
        found = disagreements(ranks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [line.partition(": ")[2] for line in found] == ["rank 999 sends what rank 7 does not expect"]
    assert peak < 16 * 2**20
