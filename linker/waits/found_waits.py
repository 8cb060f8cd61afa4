"""Collects the waits of a process, leaves out impossible ones, and counts what was found, left out and noted."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ...schema.columns import ABSENT, Int64, Strings, let_go
from ...schema.linked import DeviceWaits, Found, HostWaits
from ..submissions import Findings, Process
from .host_holds import HostEdge


def _findings() -> Findings:
    return defaultdict(list)


@dataclass(slots=True)
class FoundWaits:
    """The waits found so far: those of the device as (source, target, how found), and those of the host."""

    process: Process
    of_device: list[tuple[int, int, Found]] = field(default_factory=list)
    of_host: list[HostEdge] = field(default_factory=list)
    found: Findings = field(default_factory=_findings)
    noted: Findings = field(default_factory=_findings)
    dropped: Findings = field(default_factory=_findings)

    def device_waits(self, call: int, source: int, target: int, found: Found) -> None:
        """An activity waits for another one, by a call."""
        activities = self.process.activities
        if activities.end[source] > activities.start[target] + self.process.evidence.rounding:
            self.dropped["event waits that contradict the clock"].append(call)
            return
        self.of_device.append((source, target, found))
        self.found[f"device waits for device, by {found.value}"].append(call)

    def host_waits(self, call: int, sources: Iterable[int], found: Found, since: int = ABSENT) -> None:
        """A call that waits is kept even where nothing is pending: it is where the host would wait in a slower run."""
        pending = list(sources)
        limit = self.process.calls.end[call] + self.process.evidence.ahead
        kept = [source for source in pending if self.process.activities.end[source] <= limit]
        self.dropped["host waits that contradict the clock"] += [call] * (len(pending) - len(kept))
        self.of_host += [HostEdge(call, source, since, found) for source in kept or (-1,)]
        if kept:
            self.found[f"host waits for device, by {found.value}"].append(call)
        elif not pending:
            self.noted["host waits for which nothing recorded was pending"].append(call)

    def unknown(self, call: int) -> None:
        """A call waits, but nothing tells what for."""
        self.of_host.append(HostEdge(call, -1, ABSENT, Found.RECORD))

    def held(self, what: str, edges: Iterable[HostEdge]) -> None:
        """The host was held up by something else than a synchronising call."""
        for edge in edges:
            self.of_host.append(edge)
            self.found[what].append(edge.call_row)
        let_go()

    def device_table(self) -> DeviceWaits:
        """The waits between streams, in the order in which they were found."""
        edges = self.of_device
        source: Int64 = np.fromiter((edge[0] for edge in edges), np.int64, len(edges))
        target: Int64 = np.fromiter((edge[1] for edge in edges), np.int64, len(edges))
        return DeviceWaits(source, target, Strings.of(edge[2].value for edge in edges))

    def host_table(self) -> HostWaits:
        """The waits of the host that its times allow."""
        edges = self._possible()
        return HostWaits(
            call_row=np.fromiter((edge.call_row for edge in edges), np.int64, len(edges)),
            source_row=np.fromiter((edge.source for edge in edges), np.int64, len(edges)),
            since=np.fromiter((edge.since for edge in edges), np.int64, len(edges)),
            found=Strings.of(edge.found.value for edge in edges),
        )

    def _possible(self) -> list[HostEdge]:
        """Drops waits for activities that followed one submitted after the call: their stream, or the clock, is not what it seems."""
        submitted, kept = self.process.queues.submitted_until, []
        for edge in self.of_host:
            if edge.source < 0 or submitted[edge.source] <= self.process.start(edge.call_row):
                kept.append(edge)
            else:
                self.dropped["host waits that contradict the order of launches"].append(edge.call_row)
        return kept
