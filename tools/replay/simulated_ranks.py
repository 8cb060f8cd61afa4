"""Compares when ASTRA-sim finishes each rank of a job with the measured run, before anybody runs the simulator.

A rank that began to record later begins with its start offset, so that its times are on the job's clock, and so is the
measured run that they are compared with.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from ...converter.ranks import Link
from ...schema.choices import ASTRA_SIM
from ...schema.columns import Summary, summary_text, time_text
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ..job import links_text
from .simulator_configuration import Configuration
from .simulator_rules import simulated_ends
from .simulator_transfers import Transfers
from .workload import gather

REPLAY, SIMULATED, ROOFLINE = "replay", "simulated", "roofline"


class SimulatedRank(msgspec.Struct, frozen=True):
    """When a rank finishes in the simulator and in the measured run, in µs, and the difference; both count from
    `start_offset_us` before the rank began to record. A rank that was not measured has 0 there.
    """

    finish_us: float
    measured_us: float
    error_pct: float
    start_offset_us: float = 0.0


class Simulated(msgspec.Struct, frozen=True):
    """Every rank by its label, the largest error, and the mode; the `network` is empty in replay mode.

    >>> import execgraph as eg
    >>> simulated = eg.build("tests/data/training", target="astra-sim").simulate()
    >>> simulated.ranks.keys(), simulated.mode, abs(simulated.worst_error_pct) < 1
    (dict_keys(['0', '1']), 'simulated', True)
    """

    simulator: str
    ranks: dict[str, SimulatedRank]
    worst_error_pct: float
    mode: str = REPLAY
    network: tuple[Link, ...] = ()

    def __repr__(self) -> str:
        last = max(self.ranks, key=lambda label: self.ranks[label].finish_us)
        lines = {"last": f"rank {last}, after {time_text(self.ranks[last].finish_us)}"}
        lines |= {"network": links_text(self.network)} if self.network else {}
        if any(rank.measured_us for rank in self.ranks.values()):
            lines["error"] = f"{self.worst_error_pct:+.2f} % at worst, against the measured run"
        return summary_text(Summary(f"{self.simulator}, {self.mode}: {len(self.ranks)} ranks", lines))


def simulate_ranks(graphs: Sequence[ExecutionGraph], configuration: Configuration | None = None) -> Simulated:
    """Returns when the simulator finishes each rank. O((n + e) log n).

    Args:
        graphs: Those of all ranks of a simulated job, in the order of their files.
        configuration: What the simulator is configured with; replay mode if there is none, or that says so.

    Raises:
        DataError: A graph is for another target or has a cycle, or communication waits for ever.
    """
    work = gather(graphs)
    for label, graph in zip(work.rank_labels(), graphs, strict=True):
        if graph.metadata.get("target") != ASTRA_SIM:
            raise DataError(f"the graph of rank {label} is not for {ASTRA_SIM}; convert with --target {ASTRA_SIM}")
    simulated = configuration if configuration and not configuration.is_replay else None
    ends = simulated_ends(graphs, Transfers(graphs, simulated) if simulated else None)
    ranks = {}
    for position, (label, graph) in enumerate(zip(work.rank_labels(), graphs, strict=True)):
        finish = int(ends[position].max(initial=0)) / 1000
        of_rank = work.ranks_of(np.arange(len(work))) == position
        offset = int(graph.integers("start_offset_ns", 0).sum()) / 1000
        recorded_ns = 0 if work.is_of_scaled_job else int(work.measured_end_ns[of_rank].max(initial=0))
        measured = offset + recorded_ns / 1000 if recorded_ns else 0.0
        error = 100 * (finish - measured) / measured if measured else 0.0
        ranks[label] = SimulatedRank(finish, measured, error, offset)
    worst = max((rank.error_pct for rank in ranks.values()), key=abs, default=0.0)
    if simulated is None:
        return Simulated(ASTRA_SIM, ranks, worst)
    return Simulated(ASTRA_SIM, ranks, worst, ROOFLINE if simulated.peaks else SIMULATED, simulated.links)


def describe_simulated(result: Simulated) -> str:
    """Returns a line per rank, for people."""
    lines = [
        f"rank {label:<10}{rank.finish_us:>14,.1f} µs simulated{_measured(rank)}"
        for label, rank in result.ranks.items()
    ]
    is_measured = any(rank.measured_us for rank in result.ranks.values())
    last = max(result.ranks, key=lambda label: result.ranks[label].finish_us)
    error = (
        f"worst {result.worst_error_pct:+.2f} %" if is_measured else f"rank {last} is the last; no rank was measured"
    )
    worst = f"{error}, in {result.simulator}'s {result.mode} mode"
    return "\n".join([*lines, worst + (f"; network {links_text(result.network)}" if result.network else "")])


def _measured(rank: SimulatedRank) -> str:
    return f"{rank.measured_us:>14,.1f} µs measured  {rank.error_pct:+.2f} %" if rank.measured_us else ""
