"""What a build says of the network in ASTRA-sim's configuration: its figures, and whether it describes the job."""

from collections.abc import Iterator

from ...converter.network import Network
from ...converter.ranks import ranks_of
from .astra_sim_files import Simulation, link_of
from .build_report import BuildReport

POOR_FIT_PCT = 10.0
"""The median error above which a fitted network does not describe a job."""
FEW_SIZES = 10


def network_text(fitted: Network | None, simulation: Simulation) -> str:
    """Returns the bandwidth and latency that network.yml has, and where they are from."""
    bandwidth, latency = link_of(fitted or Network(), simulation)
    link = f"{bandwidth:g} GB/s, {latency:g} ns a link"
    given = [simulation.bandwidth_gb_s is not None, simulation.latency_ns is not None]
    if all(given):
        return f"{link}, as given"
    if fitted is None:
        return f"{link}; no collective or message was measured to fit a network to"
    if any(given):
        return f"{link}; the {'bandwidth' if given[0] else 'latency'} as given, the other one fitted"
    fit = f"{link}, fitted to {fitted.transfers} collectives and messages"
    error = fitted.fit_error_pct
    return fit + (", too few sizes to judge the fit" if error is None else f", median fit error {error:g} %")


def poor_fit(report: BuildReport, simulation: Simulation) -> str | None:
    """Returns why the simulated communication will be wrong and what to do instead; None where a fit is good enough."""
    network = report.network
    is_used = not simulation.replay and None in (simulation.bandwidth_gb_s, simulation.latency_ns)
    if not is_used or network is None or (network.fit_error_pct or 0.0) <= POOR_FIT_PCT:
        return None
    reasons = list(_reasons(report, network)) or ["one bandwidth and one latency are not enough"]
    return (
        f"the fitted network may not describe this job: median fit error {network.fit_error_pct:g} % "
        f"({'; '.join(reasons)}); --replay or --target goal --measured-communication keeps measured lengths"
    )


def _reasons(report: BuildReport, network: Network) -> Iterator[str]:
    present = {rank.rank for rank in report.ranks}
    groups = [group for rank in report.ranks if rank.comms for group in rank.comms.groups]
    if any(not present.issuperset(ranks_of(group.group.ranks)) for group in groups):
        yield "members of groups are absent"
    if network.sizes < FEW_SIZES:
        yield f"only {network.sizes} sizes"
    if (network.repeat_error_pct or 0.0) > POOR_FIT_PCT / 2:
        yield f"transfers of one size differ by {network.repeat_error_pct:g} % from their median: they wait or share links"
