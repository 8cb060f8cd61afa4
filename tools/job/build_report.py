"""What a build says of itself: report.json, the same on every run of the same inputs, and the table for people.

What a build makes waits until all of it is there. Then the earlier report goes, and the new one comes last: after a
build that is stopped in between there is no report, so that the next one begins anew.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...converter.convert import this_tool
from ...converter.options import Options
from ...converter.ranks import Network, ranks_of
from ...converter.targets import GoalOptions, GoalReport, Roofline, write_goal
from ...linker.windows import EVERYTHING, Window
from ...schema.arguments import GOAL
from ...schema.columns import Summary, SummaryRepr, format_counts as counts_text, time_text
from ...schema.comm_groups import GROUPS
from ...schema.errors import DataError
from ...schema.graph import Change, ConvertReport, ExecutionGraph
from ...schema.io import open_input, open_output, put_in_place
from ...schema.linked import LinkReport
from ...schema.reasons import LEFT_OUT, AnyReason, Reason, from_json, in_words, to_json
from ..terminal import list_names, rank_rows, summary_line
from .cross_rank import ranks_in_words
from .rank_comms import RankComms

BUILT = "built"
FAILED = "failed"
UP_TO_DATE = "up to date"
PIECE = 1 << 20
RANKS_SHOWN = 8
NOT_LINKED = (Reason.ACTIVITIES_WITHOUT_CALL,)
HEADINGS = ("rank", "host ops", "matched", "activities", "linked", "dropped", "nodes", "edges", "status")
LOCK, WAITING = ".building.lock", ".building"
"""The file by which one build at a time works in a folder, and the folder for what has to wait."""
GOAL_FILE = "job.goal"
REPORT = "report.json"
GRAPH = r"graph\.\d+\.et"
OUTPUT = re.compile(rf"{GRAPH}|report\.json|comm_groups\.json|{re.escape(GOAL_FILE)}")


@dataclass(frozen=True, slots=True)
class BuildOptions(Options):
    """How to convert each rank, and what the graphs of a job are for.

    `goal` is how the file of the target "goal" is written, `roofline` the peaks with which ASTRA-sim is to run. With
    `start_offsets` ranks begin when they began to record, else all at once. Graphs for ASTRA-sim's `replay` mode keep
    measured times alone; with `excess_time` others keep what collectives took beyond what the fitted network gives
    them. `changes` are specs of `--scale`.
    """

    goal: GoalOptions = field(default_factory=GoalOptions)
    roofline: Roofline | None = None
    modules: bool = False
    start_offsets: bool = True
    replay: bool = False
    excess_time: bool = True
    without_profiler: bool = False
    changes: tuple[str, ...] = ()


class FileContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file and what it holds; without a hash when it was not read."""

    file: str
    bytes: int = -1
    blake2b: str = ""


class RankSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank: what it was built from, what came out, and what became of everything in between.

    `notes` are about its traces, `target_notes` about its changes for the target.
    """

    rank: int
    status: str
    device: FileContent
    host: FileContent | None = None
    graph: FileContent | None = None
    edges: int = 0
    error: str = ""
    notes: list[str] = []
    link: LinkReport | None = None
    convert: ConvertReport | None = None
    comms: RankComms | None = None
    target: dict[str, int | float] = {}
    target_notes: list[str] = []
    lacks_sync_records: bool = False
    detail: FileContent | None = None


class BuildReport(SummaryRepr, msgspec.Struct):
    """A build of all ranks. `failures` and `notes` are about traces without a rank; `skipped` counts other files.

    `disagreements` are what ranks contradict each other in, `absences` what a rank lacks that others have, `decisions`
    how calls of ranks are matched, if oddly. `run` is "" for the recorded one. `digest` is of all the rest, so that a
    report that somebody changed is not believed.
    """

    tool: str
    options: BuildOptions
    ranks: list[RankSummary] = []
    failures: list[str] = []
    notes: list[str] = []
    skipped: dict[str, int] = {}
    disagreements: list[str] = []
    absences: list[str] = []
    window: Window = EVERYTHING
    network: Network | None = None
    goal: GoalReport | None = None
    run: str = ""
    groups: FileContent | None = None
    digest: str = ""
    decisions: list[str] | msgspec.UnsetType = msgspec.UNSET

    def summary(self) -> Summary:
        """Returns how many ranks were built for which target, and how much there is to say about them."""
        counts = {
            "failures": len(self.all_failures), "notes": len(self.all_notes), "disagreements": len(self.disagreements),
            "absences": len(self.absences),
        }  # fmt: skip
        built = sum(bool(rank.graph) for rank in self.ranks)
        lines = {"target": self.options.target, "said": counts_text(counts) or "nothing to note"}
        return Summary(f"BuildReport: {built} of {len(self.ranks)} ranks built", lines)

    @property
    def is_genuine(self) -> bool:
        """Whether the report still says what was written."""
        return self.digest == _digest(self)

    @property
    def all_failures(self) -> list[str]:
        """A line for each thing that could not be built, ranks with the same error together."""
        by_error: dict[str, list[int]] = defaultdict(list)
        for rank in self.ranks:
            if rank.status == FAILED:
                by_error[rank.error].append(rank.rank)
        return self.failures + [f"{ranks_in_words(ranks)}: {error}" for error, ranks in by_error.items()]

    @property
    def all_notes(self) -> list[str]:
        """A line for each thing that is odd, ranks with the same one together; of the target last."""
        said: dict[str, list[int]] = defaultdict(list)
        for rank in self.ranks:
            link_notes = rank.link.notes if rank.link else ()
            unknown = rank.convert.unknown_dtypes if rank.convert else 0
            of_types = [f"{unknown} {Reason.UNKNOWN_DTYPES.value}"] if unknown else []
            for note in (*rank.notes, *link_notes, *of_types):
                said[note].append(rank.rank)
        of_target = [f"rank {rank.rank}: {note}" for rank in self.ranks for note in rank.target_notes]
        of_ranks = [f"{ranks_in_words(ranks)}: {note}" for note, ranks in said.items()]
        return [*self.notes, *self.absences, *of_ranks, *(self.decisions or []), *of_target]

    @property
    def lacks_members(self) -> bool:
        """Whether members of the ranks' groups are absent."""
        present = {rank.rank for rank in self.ranks}
        groups = [group for rank in self.ranks if rank.comms for group in rank.comms.groups]
        return any(not present.issuperset(ranks_of(group.group.ranks)) for group in groups)


def content_of(path: Path, name: str, is_given_up: Callable[[], bool] = lambda: False) -> FileContent:
    """Size and hash of a file, of what is read before `is_given_up` holds. Raises DataError when it cannot be read."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    try:
        with path.open("rb") as stream:
            while not is_given_up() and (piece := stream.read(PIECE)):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    return FileContent(name, size, digest.hexdigest())


def is_unchanged(path: Path, content: FileContent | None) -> bool:
    """Returns whether the file is there and holds this."""
    try:
        return path.is_file() and content_of(path, path.name) == content
    except DataError:
        return False


def _digest(report: BuildReport) -> str:
    # as it is when read, where a number that happens to be whole is a float
    read = from_json(to_json(report), BuildReport)
    return hashlib.blake2b(to_json(msgspec.structs.replace(read, digest="")), digest_size=16).hexdigest()


def read_report(path: Path) -> BuildReport | None:
    """Returns an earlier report, None where there is none that can be read."""
    if not path.is_file():  # a pipe would be waited for
        return None
    try:
        with open_input(str(path)) as stream:
            return from_json(stream.read(), BuildReport)
    except (DataError, OSError, EOFError, msgspec.DecodeError):
        return None


def table(ranks: Iterable[RankSummary], unchanged: set[int]) -> str:
    """Returns a line per rank, of many ranks one for those alike; those of `unchanged` were up to date."""
    ranks = list(ranks)
    rows = (_row(rank, UP_TO_DATE if rank.rank in unchanged else rank.status) for rank in ranks)
    by_reason: dict[AnyReason, list[str]] = defaultdict(list)
    for rank, link in ((rank, rank.link) for rank in ranks if rank.link):
        no_call = {reason: link.oddities[reason] for reason in NOT_LINKED if link.oddities[reason]}
        # rows of the device trace outside the linked part, as of steps that warm up, are in report.json alone
        for reason, count in [*no_call.items(), *link.dropped.but(LEFT_OUT - {Reason.HOST_OPS_OUTSIDE}).items()]:
            by_reason[reason].append(f"{count} of rank {rank.rank}")
    said = {reason: f"{in_words(reason)}: {_shown(counts)}" for reason, counts in by_reason.items()}
    not_linked = [summary_line("not linked", text) for reason, text in said.items() if reason in NOT_LINKED]
    left_out = [summary_line("left out", text) for reason, text in said.items() if reason in LEFT_OUT]
    dropped = [summary_line("dropped", text) for reason, text in said.items() if reason not in {*NOT_LINKED, *LEFT_OUT}]
    return "\n".join([*rank_rows(HEADINGS, rows, alike=["status"]), *not_linked, *sorted(dropped), *left_out])


def time_lines(report: BuildReport) -> Iterator[str]:
    """Yields which run it is, and what was added to it: start offsets, host time at the end, excess of collectives."""
    offsets, kept, excess = dict[int, float](), dict[int, float](), list[tuple[float, float, int]]()
    for rank in report.ranks:
        if str(Change.START_OFFSET) in rank.target:
            offsets[rank.rank] = rank.target[str(Change.START_OFFSET)]
        if rank.convert and rank.convert.host_time_after_us:
            kept[rank.rank] = rank.convert.host_time_after_us
        if str(Change.EXCESS) in rank.target:
            excess.append((rank.target[str(Change.EXCESS)], rank.target[str(Change.COLLECTIVES)], rank.rank))
    for goal_rank in report.goal.ranks if report.goal else ():
        if report.options.start_offsets and goal_rank.begin_ns:
            offsets[goal_rank.rank] = goal_rank.begin_ns / 1000
        if goal_rank.excess_ns:
            excess.append((goal_rank.excess_ns / 1000, goal_rank.collectives_ns / 1000, goal_rank.rank))
    if report.run:
        yield summary_line("run", report.run)
    if offsets:
        yield summary_line("offset", f"{_by_rank(offsets)} later than the first rank")
    if kept:
        yield summary_line("host time", f"{_by_rank(kept)} after the last activity kept")
    if excess:
        excess_us, collectives_us, rank_number = max(excess, key=lambda of_rank: of_rank[0])
        part = f"{time_text(excess_us)} of {time_text(collectives_us)} of collectives on rank {rank_number}"
        rest = f"another network changes the other {time_text(collectives_us - excess_us)} alone"
        yield summary_line("excess", f"{part} is more than the fitted network gives; {rest}")


def _by_rank(times_us: Mapping[int, float]) -> str:
    return _shown([f"rank {rank} {time_text(time)}" for rank, time in times_us.items()])


def _shown(ranks: Sequence[str]) -> str:
    more = f" and {len(ranks) - RANKS_SHOWN} more ranks" if len(ranks) > RANKS_SHOWN else ""
    return ", ".join(ranks[:RANKS_SHOWN]) + more


def _row(rank: RankSummary, status: str) -> tuple[str, ...]:
    link, convert = rank.link, rank.convert
    if link is None or convert is None:
        return (str(rank.rank), *["-"] * (len(HEADINGS) - 2), status)
    counts = (
        rank.rank, link.host_ops or link.device_ops, link.matched if link.matched_by else "-", link.activities, link.linked,
        sum(link.dropped.but(LEFT_OUT).values()), convert.nodes, rank.edges,
    )  # fmt: skip
    return (*map(str, counts), status)


def write_goal_job(made: Path, folder: Path, report: BuildReport, max_messages: int) -> None:
    """Writes `made`/job.goal if all ranks have graphs, in `made` or (up to date) in `folder`; adds to the report."""
    names = [rank.graph.file for rank in report.ranks if rank.status == BUILT and rank.graph]
    if len(names) < len(report.ranks):
        report.notes.append(f"{GOAL_FILE} is not written: it needs the graphs of all ranks; see what failed")
        return
    files = [str((made if (made / name).exists() else folder) / name) for name in names]
    try:
        report.goal = write_goal(
            str(made / GOAL_FILE), len(files), lambda index: ExecutionGraph.read(files[index], tensors=False),
            report.options.goal, start_offsets=report.options.start_offsets, excess_time=report.options.excess_time,
            max_messages=max_messages,
        )  # fmt: skip
    except DataError as error:
        report.failures.append(f"{GOAL_FILE} is not written: {str(error).replace(str(made), str(folder))}")


def comparable(
    report: BuildReport | None, target: Path, options: BuildOptions, window: Window
) -> tuple[BuildReport | None, list[str]]:
    """Returns an earlier build's report, if this tool made it with these options, or why its files make it useless."""
    if report is None or (report.tool, report.options, report.window) != (this_tool(), options, window):
        return None, []
    names = [] if report.is_genuine else [REPORT]
    if report.groups and not is_unchanged(target / GROUPS, report.groups):
        names.append(GROUPS)
    changed = [f"{name} is not what the earlier build wrote: all ranks are built again" for name in names]
    return None if changed else report, changed


def graph_names(report: BuildReport) -> list[str]:
    """Returns the names of the graphs that a report lists."""
    return [rank.graph.file for rank in report.ranks if rank.graph]


def put_all_in_place(
    made: Path, folder: Path, report: BuildReport, earlier: BuildReport | None, graphs: dict[int, Path]
) -> list[str]:
    """Moves the report and what it lists from `made` to `folder`, itself last; returns a sentence per removed graph.

    Reports are from anywhere: a graph that the earlier one lists is only removed when it is named like one and holds
    what the report says.
    """
    report.digest = _digest(report)
    with open_output(str(made / REPORT)) as out:
        out.write(msgspec.json.format(to_json(report), indent=1) + b"\n")
    names = {path.name for path in graphs.values()}
    removed = _of_another_job(folder, earlier, report, names)
    for rank in earlier.ranks if earlier else ():
        name = rank.graph.file if rank.graph else ""
        path = folder / name
        if name not in names and re.fullmatch(GRAPH, name) and path.is_file():
            is_known = is_unchanged(path, rank.graph)
            if is_known:
                path.unlink()
            became = "removed" if is_known else "left, as something else has written it since"
            removed.append(f"{name}: rank {rank.rank} of an earlier build, which is not in this job; {became}")
    for rank in report.ranks:
        graph = graphs[rank.rank]
        if rank.status == FAILED and graph.is_file():
            graph.unlink()
            removed.append(f"{graph.name}: rank {rank.rank} failed; removed")
    if report.groups is None and earlier and is_unchanged(folder / GROUPS, earlier.groups):
        (folder / GROUPS).unlink()
    if report.options.target == GOAL and report.goal is None:
        (folder / GOAL_FILE).unlink(missing_ok=True)
    (folder / REPORT).unlink(missing_ok=True)
    for name in (*graph_names(report), GROUPS, GOAL_FILE, REPORT):
        if (made / name).exists():
            put_in_place(made / name, folder / name)
    return removed


def _of_another_job(folder: Path, earlier: BuildReport | None, report: BuildReport, names: set[str]) -> list[str]:
    """Returns a sentence on graphs in the folder that were made of other traces, or of which no report tells."""
    if earlier is None:
        there = sorted(path.name for path in folder.iterdir() if re.fullmatch(GRAPH, path.name))
        replaced = len(names.intersection(there))
        became = f"{replaced} replaced, {len(there) - replaced} left"
        return [f"{list_names(there, 1)}: in the folder without a report of their build; {became}"] if there else []
    devices = ([rank.device for rank in of.ranks] for of in (earlier, report))
    before, now = ({device.blake2b: device.file for device in of if device.blake2b} for of in devices)
    told = f"the folder held a job of other traces, {list_names([*before.values()], 1)}; it is replaced"
    return [told] if before and now and not before.keys() & now.keys() else []
