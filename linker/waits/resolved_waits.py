"""Collects the waits of a process, drops impossible ones, and counts what was resolved, dropped and odd."""

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ...schema.columns import ABSENT, ActivityRows, CallRows, Categorical, Int64, RowBuilder
from ...schema.linked import DeviceWaits, HostWaits, Provenance
from ...schema.reasons import Reason
from .implicit_host_waits import ImplicitHostWaits
from .named_events import Findings
from .process import Process

NAMES = [provenance.value for provenance in Provenance]
CODE = {provenance: code for code, provenance in enumerate(Provenance)}


def no_findings() -> Findings:
    """Returns findings that can be appended to, none yet."""
    return defaultdict(lambda: array("q"))


@dataclass(slots=True)
class ResolvedWaits:
    """The waits found so far, as rows of numbers.

    Those of the device are (source, target, provenance), those of the host (call, source, since, provenance).
    """

    process: Process
    of_device: RowBuilder = field(default_factory=lambda: RowBuilder(3))
    of_host: RowBuilder = field(default_factory=lambda: RowBuilder(4))
    resolved: Findings = field(default_factory=no_findings)
    oddities: Findings = field(default_factory=no_findings)
    dropped: Findings = field(default_factory=no_findings)

    def add_device_wait(self, call: int, source: int, target: int, provenance: Provenance) -> None:
        """Adds that a call lets the activity `target` wait for `source`."""
        activities = self.process.activities
        if activities.end[source] > activities.start[target] + self.process.timing.timestamp_quantum_ns:
            self.dropped[Reason.EVENT_WAIT_AGAINST_CLOCK].append(call)
            return
        self.of_device.append(source, target, CODE[provenance])
        self.resolved[Reason.STREAM_WAITS.of(provenance.value)].append(call)

    def add_host_waits(self, call: int, sources: Iterable[int], provenance: Provenance, since: int = ABSENT) -> None:
        """Adds that a call waits for activities.

        The call is kept even where nothing is pending (source -1): in a slower run the host would wait there.
        """
        pending = list(sources)
        limit = self.process.calls.end[call] + self.process.timing.max_clock_lead_ns
        possible = [source for source in pending if self.process.activities.end[source] <= limit]
        self.dropped[Reason.HOST_WAIT_AGAINST_CLOCK].extend([call] * (len(pending) - len(possible)))
        for source in possible or (-1,):
            self.of_host.append(call, source, since, CODE[provenance])
        if possible:
            self.resolved[Reason.HOST_WAITS.of(provenance.value)].append(call)
        elif not pending:
            self.oddities[Reason.WAITS_FOR_NOTHING].append(call)

    def add_unknown(self, call: int) -> None:
        """Adds that a call waits for something unknown."""
        self.of_host.append(call, -1, ABSENT, CODE[Provenance.RECORD])

    def add_implicit(self, reason: Reason, waits: ImplicitHostWaits) -> None:
        """Adds waits of the host that no synchronising call makes."""
        self.of_host.extend(*waits[:-1], np.full(len(waits.call_row), CODE[waits.provenance]))
        if len(waits.call_row):
            self.resolved[reason].extend(waits.call_row.data)

    def device_table(self) -> DeviceWaits:
        """Returns the waits between streams, in the order in which they were added."""
        source, target, code = self.of_device.columns()
        return DeviceWaits(ActivityRows(source), ActivityRows(target), _provenance_column(code))

    def host_waits_so_far(self) -> HostWaits:
        """Returns the waits of the host, in the order in which they were added."""
        call, source, since, code = self.of_host.columns()
        return HostWaits(CallRows(call), ActivityRows(source), since, _provenance_column(code))

    def host_table(self) -> HostWaits:
        """Returns the waits of the host without those for activities that were submitted after the call began.

        These are dropped: their stream or clock is wrong. To be called once, as it counts them.
        """
        waits = self.host_waits_so_far()
        submitted = np.append(self.process.queues.submitted_until, 0)
        possible = (waits.source_row < 0) | (submitted[waits.source_row] <= self.process.calls.start[waits.call_row])
        if not possible.all():
            self.dropped[Reason.HOST_WAIT_AGAINST_LAUNCHES].extend(waits.call_row[~possible].tolist())
        rows = CallRows(waits.call_row[possible]), ActivityRows(waits.source_row[possible])
        return HostWaits(*rows, waits.since[possible], waits.known_by.take(possible))


def _provenance_column(code: Int64) -> Categorical:
    return Categorical(code.astype(np.int32), NAMES)
