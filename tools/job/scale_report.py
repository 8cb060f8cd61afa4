"""What scaling a job says of itself: scale.json, and lines for people."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from ...converter.ranks import GIB, Network, ranks_text
from ...converter.scaling import Assumed, GroupRole, Grown, ScalePlan
from ...schema.graph import CollectiveType
from ..summary_lines import summary_line

LARGEST_NUMBER = 2_147
"""ASTRA-sim begins the stream numbers of a group at a million times its number, in 32 bits."""
POOR_FIT_PCT = 10.0
GROUPS_SHOWN = 3
"""Of those that are assumed."""


class GroupLine(msgspec.Struct, frozen=True):
    """A group of the traced job, why the copies join theirs ("" if they do not), and its members before and after."""

    group: str
    joined: str
    members: int
    scaled_members: int


class LengthLine(msgspec.Struct, frozen=True):
    """By which line the collectives of a type changed whose group has other members then, and how right that is."""

    group: str
    collective: str
    collectives: int
    members: int
    scaled_members: int
    step_ns: float
    gib_s: float | None
    fitted_to: str
    transfers: int
    fit_error_pct: float
    identifiable: bool


class ScaleReport(msgspec.Struct):
    """A scaled job: how many ranks it had and has, which traced rank stands in for each that was not, what became of
    its groups and collectives, and what is written. `network` is what the traced job's collectives fit, for graphs of a
    simulator.
    """

    ranks: int
    scaled_ranks: int
    copies: int
    removed: list[int]
    stand_ins: dict[int, int]
    groups: list[GroupLine]
    lengths: list[LengthLine]
    notes: list[str]
    nodes: int = 0
    bytes: int = 0
    network: Network | None = None


def report_of(plan: ScalePlan, is_simulated: bool) -> ScaleReport:
    """Returns the report of a plan, before anything is written."""
    rank_copies = plan.rank_copies
    return ScaleReport(
        ranks=rank_copies.world_size,
        scaled_ranks=rank_copies.ranks,
        copies=rank_copies.copies,
        removed=sorted(set(range(rank_copies.world_size)) - set(rank_copies.kept_ranks)),
        stand_ins=plan.assumed.source,
        groups=[_group(role, plan) for role in plan.roles],
        lengths=[_length(grown) for grown in plan.grown],
        notes=list(_notes(plan, is_simulated)),
    )


def _group(role: GroupRole, plan: ScalePlan) -> GroupLine:
    members = role.use.members
    then = plan.rank_copies.joined(members) if role.joined else plan.rank_copies.of(members, 0)
    return GroupLine(role.use.text, role.joined, len(members), len(then))


def _length(grown: Grown) -> LengthLine:
    fit = grown.fit
    return LengthLine(
        group=grown.group,
        collective=CollectiveType(grown.kind).name.lower(),
        collectives=grown.collectives,
        members=grown.members,
        scaled_members=grown.scaled_members,
        step_ns=round(fit.line.step_ns, 1) if fit else 0.0,
        gib_s=round(1e9 / GIB / fit.line.byte_ns, 3) if fit and fit.line.byte_ns else None,
        fitted_to=fit.source if fit else "",
        transfers=fit.transfers if fit else 0,
        fit_error_pct=fit.fit_error_pct if fit else 0.0,
        identifiable=fit is not None and fit.identifiable,
    )


def _notes(plan: ScalePlan, is_simulated: bool) -> Iterator[str]:
    yield from _assumptions(plan.assumed)
    fits = [grown.fit for grown in plan.grown]
    if not all(fit and fit.identifiable for fit in fits):
        yield (
            "latency and bandwidth cannot be distinguished, because too few sizes of collectives were measured; give "
            "--latency or --bandwidth"
        )
    if (worst := max((fit.fit_error_pct for fit in fits if fit), default=0.0)) > POOR_FIT_PCT:
        yield (
            f"half of the measured collectives are {worst:g} % or more off a latency and a bandwidth, so the lengths "
            "among more members are uncertain; give --latency and --bandwidth"
        )
    if plan.undivided:
        yield (
            f"{plan.undivided} gathers of groups that scatter nothing: each rank puts in as much as before, so that "
            "the whole grows with the group"
        )
    if any(role.joined and role.use.scatters for role in plan.roles):
        yield "kernels that work on a rank's shard, as the optimizer's, keep their measured time"
    for role in plan.roles:
        if _is_unsynchronised(role, plan):
            yield (
                f"each copy has tables or experts of its own, spread over {role.use.group.text}; nothing reduces their "
                "gradients among copies, as no group of the traced job does"
            )
    numbers = len(plan.numbering.joined) + plan.rank_copies.copies * len(plan.numbering.separate)
    if is_simulated and numbers > LARGEST_NUMBER:
        yield f"there are {numbers} groups, more than the {LARGEST_NUMBER} whose numbers the simulator can bear"


def _assumptions(assumed: Assumed) -> Iterator[str]:
    if not assumed.source:
        return
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
    yield f"{ranks} not traced; assumed to do what traced ranks do, in the same time ({alike}){groups}{more}"
    if not assumed.same_work:
        yield "the traced ranks run different kernels, so the missing ranks may run yet others"


def _is_unsynchronised(role: GroupRole, plan: ScalePlan) -> bool:
    """Returns whether a group in each copy has parts of a model of which there was but one."""
    members = {*role.use.members}
    joined = [
        {*other.use.members} for other in plan.roles if other.joined and not members.isdisjoint(other.use.members)
    ]
    is_exchange = CollectiveType.ALL_TO_ALL in role.use.kinds and not role.joined and plan.rank_copies.copies > 1
    return is_exchange and all(members <= others for others in joined)


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
        became = (
            f"joined, {first.joined}: {first.members} -> {first.scaled_members} members"
            if first.joined
            else "in each copy"
        )
        yield summary_line("group", f"{first.group}{more_groups}; {became}")
    of_kind = defaultdict[tuple[object, ...], list[LengthLine]](list)
    for length in report.lengths:
        of_kind[length.collective, length.members, length.scaled_members, length.fitted_to].append(length)
    for same in of_kind.values():
        yield summary_line("lengths", _length_text(same))
    yield summary_line("written", f"{report.scaled_ranks} graphs, {report.nodes:,} nodes, {report.bytes / 1e6:,.1f} MB")


def _length_text(same: Sequence[LengthLine]) -> str:
    first = same[0]
    what = (
        f"{sum(line.collectives for line in same)} {first.collective} of {first.members} -> {first.scaled_members} "
        "members"
    )
    if not first.fitted_to:
        return f"{what}: as before, as none was measured"
    latency, bandwidths = _range([line.step_ns for line in same]), [line.gib_s for line in same if line.gib_s]
    bandwidth = f"{_range(bandwidths)} GiB/s" if bandwidths else "any bandwidth"
    error = max(line.fit_error_pct for line in same)
    return (
        f"{what}: {latency} ns a step, {bandwidth}; {first.fitted_to}, half of the {first.transfers} measured"
        f"{' in each' if len(same) > 1 else ''} within {error:g} %"
    )


def _range(values: Sequence[float]) -> str:
    smallest, largest = f"{min(values):g}", f"{max(values):g}"
    return smallest if smallest == largest else f"{smallest} to {largest}"
