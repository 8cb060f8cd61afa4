"""What a build says of itself: report.json, the same on every run of the same inputs, and the table for people."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ...converter.ranks import Network
from ...converter.targets import GoalReport
from ...linker.windows import EVERYTHING, Window
from ...schema.columns import Summary, SummaryRepr, format_counts as counts_text, time_text
from ...schema.errors import DataError
from ...schema.graph import ConvertReport
from ...schema.io import open_input, open_output
from ...schema.linked import LinkReport
from ..rank_rows import rank_rows
from ..summary_lines import summary_line
from .build_options import BuildOptions
from .cross_rank import mark_of, ranks_in_words
from .rank_comms import RankComms

BUILT = "built"
FAILED = "failed"
UP_TO_DATE = "up to date"
PIECE = 1 << 20
RANKS_SHOWN = 8
START_OFFSET = "start offset, µs"
"""What a rank's changes for the target call its start offset."""
EXCESS = "excess, µs"
"""What they call the time that its collectives took beyond the fitted network."""
COLLECTIVES = "all collectives, µs"
"""What they call the time that these collectives took in all."""
HEADINGS = (
    "rank", "host ops", "matched", "kernels", "", "devices", "streams", "collectives", "activities", "linked",
    "dropped", "nodes", "edges", "status",
)  # fmt: skip


class FileContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file and what it holds; without a hash when it was not read."""

    file: str
    bytes: int = -1
    blake2b: str = ""


class RankSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank: what it was built from, what came out, and what became of everything in between.

    `notes` are about its traces, `target_notes` about its changes for the target. If it `lacks_sync_records`, what its
    waits were for is inferred.
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


class BuildReport(SummaryRepr, msgspec.Struct):
    """A build of all ranks. `failures` and `notes` are about traces without a rank; `skipped` counts other files.

    `disagreements` are what ranks contradict each other in, `absences` what a rank lacks that others have. `network` is
    what the measured communication fits, for simulators, `goal` what the file of the target "goal" holds. `groups` is
    the file with the numbers of process groups, and `digest` that of all the rest, so that a report that somebody
    changed is not believed.
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
    groups: FileContent | None = None
    digest: str = ""

    def summary(self) -> Summary:
        """Returns how many ranks were built for which target, and how much there is to say about them."""
        counts = {
            "failures": len(self.all_failures),
            "notes": len(self.all_notes),
            "disagreements": len(self.disagreements),
            "absences": len(self.absences),
        }
        built = sum(bool(rank.graph) for rank in self.ranks)
        lines = {"target": self.options.target, "said": counts_text(counts) or "nothing to note"}
        return Summary(f"BuildReport: {built} of {len(self.ranks)} ranks built", lines)

    @property
    def is_genuine(self) -> bool:
        """Whether the report still says what was written."""
        return self.digest == _digest(self)

    @property
    def start_offsets_us(self) -> dict[int, float]:
        """By rank, how much later than the first one each begins in what was built for a simulator."""
        if self.goal and self.options.start_offsets:
            return {rank.rank: rank.begin_ns / 1000 for rank in self.goal.ranks if rank.begin_ns}
        return {rank.rank: rank.target[START_OFFSET] for rank in self.ranks if START_OFFSET in rank.target}

    @property
    def host_time_after_us(self) -> dict[int, float]:
        """By rank, for how long the host worked on after the last activity, of graphs without host."""
        kept = {rank.rank: rank.convert.host_time_after_us for rank in self.ranks if rank.convert}
        return {rank: time for rank, time in kept.items() if time}

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
        """A line for each thing that is odd."""
        of_ranks = [
            f"rank {rank.rank}: {note}"
            for rank in self.ranks
            for note in (*rank.notes, *rank.target_notes, *(rank.link.notes if rank.link else ()))
        ]
        return self.notes + of_ranks + self.absences


def this_tool() -> str:
    """Name and version."""
    import importlib.metadata  # slow to load

    return f"execgraph {importlib.metadata.version('execgraph')}"


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


def write_report(report: BuildReport, path: Path) -> None:
    """Writes the report with its digest as JSON, whole or not at all."""
    report.digest = _digest(report)
    with open_output(str(path)) as out:
        out.write(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def _digest(report: BuildReport) -> str:
    # as it is when read, where a number that happens to be whole is a float
    read = msgspec.json.decode(msgspec.json.encode(report), type=BuildReport)
    return hashlib.blake2b(msgspec.json.encode(msgspec.structs.replace(read, digest="")), digest_size=16).hexdigest()


def comparable(report: BuildReport | None, options: BuildOptions, window: Window) -> BuildReport | None:
    """Returns what an earlier build said, if it was by this tool, of this part and with these options."""
    is_comparable = report is not None and (report.tool, report.options, report.window) == (
        this_tool(),
        options,
        window,
    )
    return report if is_comparable else None


def read_report(path: Path) -> BuildReport | None:
    """Returns an earlier report, None where there is none that can be read."""
    try:
        with open_input(str(path)) as stream:
            return msgspec.json.decode(stream.read(), type=BuildReport)
    except (DataError, OSError, EOFError, msgspec.DecodeError):
        return None


def table(ranks: Iterable[RankSummary], unchanged: set[int]) -> str:
    """Returns a line per rank, of many ranks one for those alike; those of `unchanged` were up to date."""
    ranks = list(ranks)
    most_kernels = max((rank.comms.kernels for rank in ranks if rank.comms), default=0)
    rows = (_row(rank, UP_TO_DATE if rank.rank in unchanged else rank.status, most_kernels) for rank in ranks)
    return "\n".join([*rank_rows(HEADINGS, rows, alike=("", "status")), *_dropped_lines(ranks)])


def time_lines(report: BuildReport) -> Iterator[str]:
    """Yields what was added to the ranks' own activities: start offsets, host time at the end, and what collectives
    took beyond the fitted network.
    """
    if report.start_offsets_us:
        yield summary_line("offset", f"{_by_rank(report.start_offsets_us)} later than the first rank")
    if report.host_time_after_us:
        yield summary_line("host time", f"{_by_rank(report.host_time_after_us)} after the last activity kept")
    if longer := [rank for rank in report.ranks if EXCESS in rank.target]:
        most = max(longer, key=lambda rank: rank.target[EXCESS])
        yield _excess_line(most.rank, most.target[EXCESS], most.target[COLLECTIVES])
    elif report.goal and any(rank.excess_ns for rank in report.goal.ranks):
        longest = max(report.goal.ranks, key=lambda rank: rank.excess_ns)
        yield _excess_line(longest.rank, longest.excess_ns / 1000, longest.collectives_ns / 1000)


def _excess_line(rank: int, excess_us: float, collectives_us: float) -> str:
    return summary_line(
        "excess",
        f"{time_text(excess_us)} of {time_text(collectives_us)} of collectives on rank {rank} is more than the fitted "
        "network gives; kept whatever the network",
    )


def _by_rank(times_us: Mapping[int, float]) -> str:
    ranks = [f"rank {rank} {time_text(time)}" for rank, time in list(times_us.items())[:RANKS_SHOWN]]
    more = f" and {len(times_us) - RANKS_SHOWN} more ranks" if len(times_us) > RANKS_SHOWN else ""
    return ", ".join(ranks) + more


def _dropped_lines(ranks: Iterable[RankSummary]) -> Iterator[str]:
    """Yields a line for each reason for which something was dropped: how often on which ranks."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for rank in ranks:
        for reason, count in rank.link.dropped.items() if rank.link else ():
            by_reason[reason].append(f"{count} of rank {rank.rank}")
    for reason, counts in sorted(by_reason.items()):
        more = f" and {len(counts) - RANKS_SHOWN} more ranks" if len(counts) > RANKS_SHOWN else ""
        yield summary_line("dropped", f"{reason}: {', '.join(counts[:RANKS_SHOWN])}{more}")


def _row(rank: RankSummary, status: str, most_kernels: int) -> tuple[str, ...]:
    link, convert, comms = rank.link, rank.convert, rank.comms
    if link is None or convert is None or comms is None:
        return (str(rank.rank), *["-"] * (len(HEADINGS) - 2), status)
    mark, collectives = mark_of(comms.kernels, most_kernels), sum(group.collectives for group in comms.groups)
    counts = (
        rank.rank, link.host_ops, link.matched, comms.kernels, mark, comms.devices, comms.streams, collectives,
        link.activities, link.linked, sum(link.dropped.values()), convert.nodes, rank.edges,
    )  # fmt: skip
    return (*map(str, counts), status)
