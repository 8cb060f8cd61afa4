"""Links, converts and replays the real traces of a folder: how far is each replay from the run that was measured?"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import ABSENT
from execgraph.schema.errors import DataError
from execgraph.schema.linked import LinkedTrace, are_step_marks
from execgraph.schema.reasons import Reason
from execgraph.tools.replay import replay, summarise
from execgraph.tools.trace_files import find_traces, hosts_of

log = logging.getLogger("execgraph")
OF_COMMUNICATIONS = Reason.DEFAULT_GROUP, Reason.UNKNOWN_REQUEST, Reason.TRANSFER_WITHOUT_WAIT
"""Guesses that are about no wait."""


class MeasuredRun(NamedTuple):
    """A real trace by name, linked, and how long its ops, calls and activities lasted together (ns)."""

    name: str
    linked: LinkedTrace
    span_ns: int

    def error_pct(self, options: Options | None = None) -> float:
        """Returns how much longer than the run the replay of its graph takes."""
        makespan = replay(convert(self.linked, options)).makespan_ns
        return 100 * (makespan - self.span_ns) / max(self.span_ns, 1)

    def row(self) -> list[str]:
        """Returns the table row: sizes, replay error, explained share, waits by how they are known, and delays."""
        graph = convert(self.linked)
        report, summary = self.linked.report, summarise(replay(graph))
        delays = graph.report.delays_us if graph.report is not None else {}
        guessed = sum(report.guessed.values()) - report.guessed.of(*OF_COMMUNICATIONS)
        return [
            self.name,
            str(len(self.linked.activities)),
            f"{self.error_pct():+.2f}",
            "–" if summary.explained_pct is None else f"{summary.explained_pct:.2f}",
            str(sum(report.waits.values())),
            str(guessed),
            ", ".join(f"{cause} {us:,.0f}" for cause, us in delays.items()) or "–",
        ]


HEAD = ["trace", "activities", "replay error %", "explained %", "waits", "guessed", "delays, µs"]


def measured_runs(folder: Path) -> Iterator[MeasuredRun]:
    """Yields every device trace in a folder and below, with the host trace of its process where there is one beside it.

    What cannot be linked is left out with a warning.
    """
    files = find_traces([folder], lambda _: False)
    for below in sorted({Path(device.name).parent for device in files.devices}):
        devices, hosts = (
            [trace for trace in traces if Path(trace.name).parent == below] for traces in (files.devices, files.hosts)
        )
        host_of = hosts_of(devices, hosts)
        for device in sorted(devices, key=lambda trace: trace.name):
            host = host_of.get(device.name)
            try:
                linked = link(read_host_trace(host) if host else None, read_device_trace(device.name))
            except DataError as error:
                log.warning("left out: %s", error)
                continue
            yield MeasuredRun(Path(device.name).relative_to(folder).as_posix(), linked, _span(linked))


def _span(linked: LinkedTrace) -> int:
    """Returns from the first start to the last end of an op, call or activity."""
    ops = linked.ops
    timed = (ops.start != ABSENT) & ~are_step_marks(ops.name)
    starts = np.concatenate((ops.start[timed], linked.calls.start, linked.activities.start))
    ends = np.concatenate((ops.end[timed], linked.calls.end, linked.activities.end))
    return int(ends.max() - starts.min()) if len(starts) else 0
