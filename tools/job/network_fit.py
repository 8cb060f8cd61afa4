"""What a build says of the network in ASTRA-sim's configuration: its figures, and whether it describes the job."""

from collections.abc import Iterator, Sequence

from ...converter.ranks import Link, Network, ranks_of
from ...converter.targets import GoalReport
from .astra_sim_files import Simulation, UsedNetwork, used_network
from .build_report import BuildReport

POOR_FIT_PCT = 10.0
"""The median error above which a fitted network does not describe a job."""
FEW_SIZES = 10
TWO = 2


def network_text(fitted: Network | None, simulation: Simulation, ranks: int) -> str:
    """Returns the bandwidth and latency that network.yml has for so many ranks, and where they are from."""
    used = used_network(fitted or Network(), simulation, ranks)
    link = links_text(used.links)
    if simulation.replay:
        return "not used, as every node takes its recorded time"
    if ranks == 1:
        return f"{link}, not used, as a rank alone sends nothing"
    is_given = [simulation.bandwidth_gib_s is not None, simulation.latency_ns is not None]
    if all(is_given):
        return f"{link}, as given"
    if fitted is None or not fitted.transfers:
        return f"{link}; no collective or message was measured to fit a network to"
    why = "; ".join(["", *_one_network(used, fitted)]) if used.fit_error_pct is None else ""
    fit = f"fitted to {fitted.transfers} collectives and messages, {fit_error_text(used.fit_error_pct)}{why}"
    if any(is_given):
        return f"{link}; the {'bandwidth as given, the latency' if is_given[0] else 'latency as given, the bandwidth'} {fit}"
    return f"{link}, {fit}"


def links_text(links: Sequence[Link]) -> str:
    """Returns bandwidth and latency of a link, of two dimensions those within a node and between nodes."""
    of_each = [f"{link.bandwidth_gib_s:g} GiB/s, {link.latency_ns:g} ns a link" for link in links]
    if len(links) != TWO:
        return "; ".join(of_each)
    return f"{of_each[0]} within nodes of {links[0].ranks} ranks, {of_each[1]} across {links[1].ranks} nodes"


def fit_error_text(error: float | None) -> str:
    """Returns the median error in % of a fit, None where nothing could be left out of it, in words."""
    return "too few sizes to judge the fit" if error is None else f"median fit error {error:g} %"


def poor_fit(fitted: Network | None, simulation: Simulation, *, lacks_members: bool) -> str | None:
    """Returns why the simulated communication will be wrong; None where a fit is good enough or not used.

    `lacks_members` is whether ranks of groups were not traced.
    """
    is_used = not simulation.replay and None in (simulation.bandwidth_gib_s, simulation.latency_ns)
    if not is_used or fitted is None:
        return None
    used = used_network(fitted, simulation, 0)
    if (used.fit_error_pct or 0.0) <= POOR_FIT_PCT:
        return None
    reasons = list(_reasons(used, fitted, lacks_members)) or ["its latency and bandwidth are not enough"]
    return f"the fitted network may not describe this job: {fit_error_text(used.fit_error_pct)} ({'; '.join(reasons)})"


def poor_goal_fit(report: GoalReport) -> str | None:
    """Returns why messages in the fitted network will take other times than measured; None for a good fit or none."""
    fit = report.network
    if fit is None or fit.fit_error_pct is None or fit.fit_error_pct <= POOR_FIT_PCT:
        return None
    return (
        f"one latency and one time of a byte do not describe the messages of this job: median fit error "
        f"{fit.fit_error_pct:g} %; --measured-communication keeps the measured times"
    )


def lacks_members(report: BuildReport) -> bool:
    """Returns whether members of the groups of a built job are absent."""
    present = {rank.rank for rank in report.ranks}
    groups = [group for rank in report.ranks if rank.comms for group in rank.comms.groups]
    return any(not present.issuperset(ranks_of(group.group.ranks)) for group in groups)


def _reasons(used: UsedNetwork, fitted: Network, lacks_members: bool) -> Iterator[str]:
    if lacks_members:
        yield "members of groups are absent"
    if used.sizes < FEW_SIZES:
        yield f"only {used.sizes} sizes"
    if (fitted.repeat_error_pct or 0.0) > POOR_FIT_PCT / 2:
        yield f"transfers of one size differ by {fitted.repeat_error_pct:g} % from their median: they wait or share links"
    yield from _one_network(used, fitted)


def _one_network(used: UsedNetwork, fitted: Network) -> Iterator[str]:
    """Yields why groups that may have two networks get one; nothing for others."""
    why = fitted.one_because
    if fitted.two_dimensions and len(used.links) != TWO:
        why = "a given bandwidth or latency describes one"
    if why:
        yield f"one network for all groups, as {why}"
