"""Collects the waits of a process, leaves out impossible ones, and counts what was found, left out and noted."""

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ...schema.columns import ABSENT, ActivityRows, CallRows, Categorical, Int64, RowBuilder
from ...schema.linked import DeviceWaits, HostWaits, Provenance
from ..submissions import Findings, Process
from .implicit_host_waits import ImplicitHostWaits

HOWS = [found.value for found in Provenance]
HOW = {found: number for number, found in enumerate(Provenance)}


def findings() -> Findings:
    """None yet."""
    return defaultdict(lambda: array("q"))


@dataclass(slots=True)
class ResolvedWaits:
    """The waits found so far: those of the device as source, target and how found, those of the host as call, source,
    since and how.
    """

    process: Process
    of_device: RowBuilder = field(default_factory=lambda: RowBuilder(3))
    of_host: RowBuilder = field(default_factory=lambda: RowBuilder(4))
    found: Findings = field(default_factory=findings)
    noted: Findings = field(default_factory=findings)
    dropped: Findings = field(default_factory=findings)

    def device_waits(self, call: int, source: int, target: int, found: Provenance) -> None:
        """An activity waits for another one, by a call."""
        activities = self.process.activities
        if activities.end[source] > activities.start[target] + self.process.evidence.timestamp_quantum_ns:
            self.dropped["event waits that contradict the clock"].append(call)
            return
        self.of_device.append(source, target, HOW[found])
        self.found[f"device waits for device, by {found.value}"].append(call)

    def host_waits(self, call: int, sources: Iterable[int], found: Provenance, since: int = ABSENT) -> None:
        """A call that waits is kept even where nothing is pending: it is where the host would wait in a slower run."""
        pending = list(sources)
        limit = self.process.calls.end[call] + self.process.evidence.max_clock_lead_ns
        kept = [source for source in pending if self.process.activities.end[source] <= limit]
        self.dropped["host waits that contradict the clock"].extend([call] * (len(pending) - len(kept)))
        for source in kept or (-1,):
            self.of_host.append(call, source, since, HOW[found])
        if kept:
            self.found[f"host waits for device, by {found.value}"].append(call)
        elif not pending:
            self.noted["host waits for which nothing recorded was pending"].append(call)

    def unknown(self, call: int) -> None:
        """A call waits, but nothing tells what for."""
        self.of_host.append(call, -1, ABSENT, HOW[Provenance.RECORD])

    def blocked(self, what: str, holds: ImplicitHostWaits) -> None:
        """The host was held up by something else than a synchronising call."""
        self.of_host.extend(*holds[:-1], np.full(len(holds.call_row), HOW[holds.found]))
        if len(holds.call_row):
            self.found[what].extend(holds.call_row.data)

    def device_table(self) -> DeviceWaits:
        """Returns the waits between streams, in the order in which they were found."""
        source, target, how = self.of_device.columns()
        return DeviceWaits(ActivityRows(source), ActivityRows(target), _hows(how))

    def host_table(self) -> HostWaits:
        """Returns the waits of the host but for those for activities that followed one submitted after the call: their
        stream, or the clock, is not what it seems.
        """
        call, source, since, how = self.of_host.columns()
        submitted = np.append(self.process.queues.submitted_until, 0)
        kept = (source < 0) | (submitted[source] <= self.process.calls.start[call])
        if not kept.all():
            self.dropped["host waits that contradict the order of launches"].extend(call[~kept].data)
        return HostWaits(CallRows(call[kept]), ActivityRows(source[kept]), since[kept], _hows(how[kept]))


def _hows(number: Int64) -> Categorical:
    return Categorical(number.astype(np.int32), HOWS)
