"""Predicts the run time of a job with changed durations, by replaying the graphs of all its ranks."""

from collections.abc import Mapping
from typing import NamedTuple

from ...schema.columns import Summary, summary_html, summary_text, time_text
from ...schema.given_files import wrong_argument
from ..given_graphs import Graphs, given_graphs
from .execution import Replay, replay_ranks
from .scaling import parse_scale

CALL = "what_if(graphs, changes)"


class WhatIf(NamedTuple):
    """The replays of the run without and with changes; their rows are those of the graphs, one after the other.

    `after.range` says between what the makespan of the changed run lies.
    """

    before: Replay
    after: Replay

    @property
    def saved_us(self) -> float:
        """How much sooner (µs) the changed run ends; negative for later."""
        return (self.before.makespan_ns - self.after.makespan_ns) / 1000

    @property
    def speedup(self) -> float:
        """How many times as fast the changed run is; inf for one that takes no time."""
        return self.before.makespan_ns / self.after.makespan_ns if self.after.makespan_ns else float("inf")

    def summary(self) -> Summary:
        """Returns how many times as fast the changed run is, and how long the run takes without and with changes."""
        lines = {
            "before": time_text(self.before.makespan_ns / 1000),
            "after": time_text(self.after.makespan_ns / 1000),
            "saved": time_text(self.saved_us),
        }
        waits = self.after.range
        if waits is not None and not waits.is_clear:
            lines["between"] = f"{time_text(waits.low_ns / 1000)} and {time_text(waits.high_ns / 1000)}"
        return Summary(f"WhatIf: {self.speedup:.2f} times as fast", lines)

    def __repr__(self) -> str:
        return summary_text(self.summary())

    def _repr_html_(self) -> str:
        return summary_html(self.summary())


def what_if(graphs: Graphs, changes: Mapping[str, float]) -> WhatIf:
    """Predicts how long the run of these ranks would take if durations were multiplied by factors.

    Replays twice, O(n + e) each, and once more if there are waits that nothing confirms.

    >>> from execgraph import convert, link
    >>> folder = "tests/data/training"
    >>> graph = convert(link(f"{folder}/host_rank0.json.gz", f"{folder}/device_rank0.json.gz"))
    >>> answer = what_if(graph, {"class:computation": 0.5})
    >>> round(answer.speedup, 2)
    1.64

    Args:
        graphs: The graph of one rank, or a list with one for each rank; graphs or paths of .et files.
        changes: The factor (0 or more) by what it applies to, spelled as before the `=` of `--scale`: a regular
            expression that is searched in the names of nodes, `class:` with host, computation, communication, memory
            or delay, or `bound:` with compute or memory. The factors of one node multiply.

    Raises:
        ValueError: A change cannot be made, or there is no graph.
        TypeError: `graphs` or `changes` are of another kind.
        DataError: Some nodes never become ready.
    """
    if not isinstance(changes, Mapping):
        raise wrong_argument(CALL, 'changes such as {"class:communication": 0.5}', changes)
    ranks = given_graphs(graphs, CALL)
    scales = [parse_scale(f"{selector}={factor}") for selector, factor in changes.items()]
    return WhatIf(replay_ranks(ranks), replay_ranks(ranks, scales))
