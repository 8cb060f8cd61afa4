"""Scales a job: surveys the graphs of all ranks, plans, writes those of every copy, and scale.json, all or nothing."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from ...converter import scaling
from ...converter.ranks import Network, fitted_network, for_more_ranks, ranks_text
from ...converter.scaling import Assumed, Grown, Growth, RankFacts, ScalePlan
from ...schema.arguments import ASTRA_SIM
from ...schema.comm_groups import GRAPHS, GROUPS, write_groups
from ...schema.errors import DataError, Remedy
from ...schema.graph import CollectiveType, ExecutionGraph
from ...schema.io import fresh_folder, locked, open_output, path_is
from ...schema.progress import Progress, unwatched
from ..terminal import summary_line
from .astra_sim_files import POOR_FIT_PCT, AstraSimOptions, write_astra_sim_files
from .build_report import REPORT as BUILD_REPORT, read_report
from .rank_building import FITTED_TO_TRACED

LARGEST_NUMBER = 2_147
"""ASTRA-sim begins the stream numbers of a group at a million times its number, in 32 bits."""
GROUPS_SHOWN = 3
"""Of those that are assumed."""
SCALE_REPORT = "scale.json"
RECORDED = "these graphs hold the recorded run: build them with --without-profiler, unless that said `the recorded one`"
COPIES_AT_ONCE = 32
"""A rank's graph is read once for so many of its copies."""
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Generator[tuple[Any, Any], None, None]]
"""Runs a function on tasks and yields each with what became of it, a result or an exception, in any order."""
T = TypeVar("T")


class CopyTask(NamedTuple):
    """The graph of a rank, the copies of it to write into a folder, and the plan, which is that of this rank alone."""

    source: Path
    rank: int
    folder: Path
    copies: range
    plan: ScalePlan


def survey_rank(source: Path) -> RankFacts:
    """Returns the facts of a graph file. Raises DataError, naming it, where it is none."""
    graph = ExecutionGraph.read(str(source), tensors=False)
    recorded = graph.metadata.get("rank", "unknown")
    if recorded != _rank_of(source):
        raise DataError(f"{source}: its graph is of rank {recorded}; build the whole job again")
    return scaling.rank_facts(graph)


def _rank_of(graph: Path) -> int:
    return int(graph.name.split(".")[1])


def write_copies(task: CopyTask) -> tuple[int, int]:
    """Writes the graphs of a rank's copies, whose own is read once. Returns how many nodes and bytes they have."""
    graph = scaling.resized(ExecutionGraph.read(str(task.source)), task.plan.ranks[task.rank])
    size = 0
    for copy in task.copies:
        copied_graph = scaling.copied(graph, task.plan, copy)
        path = task.folder / f"{GRAPHS}.{copied_graph.metadata['rank']}.et"
        copied_graph.write(str(path))
        size += path.stat().st_size
    return len(graph) * len(task.copies), size


class GroupLine(msgspec.Struct, frozen=True):
    """A group of the traced job, why the copies join theirs ("" if they do not), and its members before and after."""

    group: str
    joined: str
    members: int
    scaled_members: int


class ScaleReport(msgspec.Struct):
    """A scaled job: its ranks, what stands in for those not traced, its groups and collectives, and what is written."""

    ranks: int
    scaled_ranks: int
    copies: int
    removed: list[int]
    stand_ins: dict[int, int]
    groups: list[GroupLine]
    lengths: list[Grown]
    notes: list[str]
    nodes: int = 0
    bytes: int = 0
    network: Network | None = None


def report_of(plan: ScalePlan, is_simulated: bool) -> ScaleReport:
    """Returns the report of a plan, before anything is written."""
    rank_copies = plan.rank_copies
    groups = [
        GroupLine(use.text, use.joined, len(use.members), len(rank_copies.members(use.members, bool(use.joined), 0)))
        for use in plan.uses
    ]
    return ScaleReport(
        ranks=rank_copies.world_size, scaled_ranks=rank_copies.ranks, copies=rank_copies.copies,
        removed=sorted(set(range(rank_copies.world_size)) - set(rank_copies.kept_ranks)), stand_ins=plan.assumed.source,
        groups=groups, lengths=plan.grown, notes=list(_notes(plan, is_simulated)),
    )  # fmt: skip


def _notes(plan: ScalePlan, is_simulated: bool) -> Iterator[str]:
    if plan.assumed.source:
        yield _assumption(plan.assumed)
        if not plan.assumed.same_work:
            yield "the traced ranks run different kernels, so the missing ranks may run yet others"
    if unsure := [grown for grown in plan.grown if not grown.identifiable]:
        widest = max(unsure, key=lambda grown: abs(grown.times_of_latency - grown.times))
        yield (
            "latency and bandwidth cannot be distinguished, because too few sizes of collectives were measured: "
            f"{widest.collective} of {widest.scaled_members} members last {widest.times:g} times as long as measured if "
            f"bandwidth limits them, as is assumed, and {widest.times_of_latency:g} times if latency does; give "
            f"{Remedy.LATENCY} or {Remedy.BANDWIDTH}"
        )
    if (worst := max((grown.fit_error_pct for grown in plan.grown), default=0.0)) > POOR_FIT_PCT:
        yield (
            f"half of the measured collectives are {worst:g} % or more off a latency and a bandwidth, so the lengths "
            f"among more members are uncertain; give {Remedy.LATENCY} and {Remedy.BANDWIDTH}"
        )
    if plan.undivided:
        yield (
            f"{plan.undivided} gathers of groups that scatter nothing: each rank puts in as much as before, so that "
            "the whole grows with the group"
        )
    if any(use.joined and use.scatters for use in plan.uses):
        yield "kernels that work on a rank's shard, as the optimizer's, keep their measured time"
    joined = [{*use.members} for use in plan.uses if use.joined]
    for use in plan.uses:
        members = {*use.members}
        is_exchange = CollectiveType.ALL_TO_ALL in use.kinds and not use.joined and plan.rank_copies.copies > 1
        # each copy has parts of a model of which there was but one
        if is_exchange and all(members <= others for others in joined if not members.isdisjoint(others)):
            yield (
                f"each copy has tables or experts of its own, spread over {use.group.text}; nothing reduces their "
                "gradients among copies, as no group of the traced job does"
            )
    numbers = len(plan.numbering.joined) + plan.rank_copies.copies * len(plan.numbering.separate)
    if is_simulated and numbers > LARGEST_NUMBER:
        yield f"there are {numbers} groups, more than the {LARGEST_NUMBER} whose numbers the simulator can bear"


def _assumption(assumed: Assumed) -> str:
    of_source = defaultdict[int, list[int]](list)
    for rank, source in assumed.source.items():
        of_source[rank - source].append(rank)
    alike = "; ".join(
        f"{ranks_text(ranks)} as {ranks_text([rank - distance for rank in ranks])}"
        for distance, ranks in of_source.items()
    )
    groups = f", in groups {'; '.join(map(ranks_text, assumed.groups[:GROUPS_SHOWN]))}" if assumed.groups else ""
    more = f" and {len(assumed.groups) - GROUPS_SHOWN} more" if len(assumed.groups) > GROUPS_SHOWN else ""
    ranks = f"{'rank' if len(assumed.source) == 1 else 'ranks'} {ranks_text(sorted(assumed.source))}"
    return f"{ranks} not traced; assumed to do what traced ranks do, in the same time ({alike}){groups}{more}"


def lines(report: ScaleReport) -> Iterator[str]:
    """Yields the report for people; groups that are alike in a line."""
    kept_count = report.ranks - len(report.removed)
    traced = f"; {report.ranks - len(report.stand_ins)} traced" if report.stand_ins else ""
    copies = f", {report.copies} copies of {kept_count}" if report.copies > 1 else ""
    yield summary_line("ranks", f"{report.ranks} -> {report.scaled_ranks}{copies}{traced}")
    alike = defaultdict[tuple[object, ...], list[GroupLine]](list)
    for group in report.groups:
        alike[group.group.partition(", ")[2], group.joined, group.members, group.scaled_members].append(group)
    for groups in alike.values():
        first, more = groups[0], len(groups) - 1
        more_groups = f" and {more} more" if more else ""
        joined = f"joined, {first.joined}: {first.members} -> {first.scaled_members} members"
        yield summary_line("group", f"{first.group}{more_groups}; {joined if first.joined else 'in each copy'}")
    of_kind = defaultdict[tuple[object, ...], list[Grown]](list)
    for length in report.lengths:
        of_kind[length.collective, length.members, length.scaled_members, length.fitted_to].append(length)
    for same in of_kind.values():
        yield summary_line("lengths", _length_text(same))
    yield summary_line("written", f"{report.scaled_ranks} graphs, {report.nodes:,} nodes, {report.bytes / 1e6:,.1f} MB")


def _length_text(same: Sequence[Grown]) -> str:
    first = same[0]
    members = f"{first.members} -> {first.scaled_members} members"
    what = f"{sum(line.collectives for line in same)} {first.collective} of {members}"
    if not first.fitted_to:
        return f"{what}: as before, as none was measured"
    latency, bandwidths = _range([line.latency_ns for line in same]), [line.gib_s for line in same if line.gib_s]
    bandwidth = f"{_range(bandwidths)} GiB/s" if bandwidths else "any bandwidth"
    measured = f"{first.transfers} measured{' in each' if len(same) > 1 else ''}"
    error = max(line.fit_error_pct for line in same)
    return f"{what}: {latency} ns a link, {bandwidth}; {first.fitted_to}, half of the {measured} within {error:g} %"


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys((f"{min(values):g}", f"{max(values):g}")))


def scale(
    input_dir: Path, output_dir: Path, growth: Growth, run: Runner, progress: Progress = unwatched
) -> ScaleReport:
    """Writes the scaled job: OUT/graph.N.et per rank, comm_groups.json and scale.json; for ASTRA-sim its configuration.

    Raises DataError where the input is no whole job or keeps times of the traced ranks alone, the growth would make it
    another program, `output_dir` is not empty, or another process is scaling into it.
    """
    if path_is(output_dir, Path.exists) and (not output_dir.is_dir() or any(output_dir.iterdir())):
        raise DataError(f"{output_dir}: is there and not empty; name a new folder")
    sources = _graph_files(input_dir)
    facts = _run_all(run, survey_rank, list(sources.values()), progress=progress, what="reading ranks", unit="rank")
    facts.sort(key=lambda rank: rank.rank)
    plan = scaling.plan_scaling(facts, growth)
    is_simulated = all(rank.target == ASTRA_SIM for rank in facts)
    report = report_of(plan, is_simulated)
    report.notes += [RECORDED] * any(rank.is_timed for rank in facts) + [note for rank in facts for note in rank.notes]
    try:
        output_dir.parent.mkdir(parents=True, exist_ok=True)
        lock, beside = (output_dir.parent / f".{output_dir.name}.scaling{ending}" for ending in (".lock", ""))
        with locked(lock, str(output_dir)), fresh_folder(beside):
            folder = beside / output_dir.name
            folder.mkdir()
            copies = range(plan.rank_copies.copies)
            tasks = [
                # a worker needs to know of no other rank
                CopyTask(sources[of_rank.source], rank, folder, copies[first:][:COPIES_AT_ONCE], plan.for_rank(rank))
                for first in copies[::COPIES_AT_ONCE]
                for rank, of_rank in plan.ranks.items()
            ]
            written = _run_all(run, write_copies, tasks, progress=progress, what="writing copies", unit="piece")
            report.nodes, report.bytes = (sum(counts) for counts in zip(*written, strict=True))
            groups, ranks = dict(scaling.all_groups(plan.numbering, plan.rank_copies)), plan.rank_copies.ranks
            write_groups(str(folder / GROUPS), groups)
            if is_simulated:
                fitted = fitted_network(plan.measured, plan.rank_copies.world_size)
                report.network = for_more_ranks(fitted, groups, ranks)
                write_astra_sim_files(folder, ranks, report.network, simulation_of(growth))
            with open_output(str(folder / SCALE_REPORT)) as out:
                out.write(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
            folder.rename(output_dir)
    except OSError as error:
        raise DataError(f"{output_dir}: cannot be written ({error.strerror or error}); is there room?") from error
    return report


def _graph_files(folder: Path) -> dict[int, Path]:
    """Returns the graph of each rank. Raises DataError if times or bytes in them hold for the traced ranks alone."""
    from ..replay import graph_files

    graphs = {_rank_of(path): path for path in map(Path, graph_files(folder))}
    report = read_report(folder / BUILD_REPORT)
    if report and report.disagreements:
        problem = f"{folder}: ranks disagree: {report.disagreements[0]}"
        raise DataError(f"{problem}; collectives would lack members: build steps that all ranks recorded")
    targets = [rank.target for rank in report.ranks] if report else []
    changed = next((change for target in targets for change in FITTED_TO_TRACED if str(change) in target), None)
    if changed:
        kept = f"what collectives of the traced ranks took beyond the fitted network ({changed})"
        problem = f"{folder}: the graphs keep {kept}, which does not hold for more ranks"
        raise DataError(f"{problem}; build them with ", Remedy.NO_EXCESS_TIME)
    return graphs


def _run_all(
    run: Runner, work: Callable[[Any], T], tasks: Sequence[Any], *, progress: Progress, what: str, unit: str
) -> list[T]:
    """Returns the result of each task; raises what one raised."""
    results = []
    with closing(run(work, tasks)) as outcomes:
        for _, outcome in progress(outcomes, what, len(tasks), unit):
            if isinstance(outcome, Exception):
                raise outcome
            results.append(outcome)
    return results


def simulation_of(growth: Growth) -> AstraSimOptions:
    """Returns the link of the grown job's network in the simulator."""
    return AstraSimOptions(bandwidth_gib_s=growth.bandwidth_gib_s, latency_ns=growth.latency_ns)
