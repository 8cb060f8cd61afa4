"""What holds a run up, and what to try: rules over one record of the job, each with its gain by a replay.

A rule is a function from the `Job` to findings. Those that would gain less than 2 % are left out; the others come in
the order of their gain, then what limits the trust in them.
"""

from collections.abc import Callable, Iterable, Sequence

from .job import Finding, Gain, Job
from .rules_host import data_loader, heaviest_op, idle_between_steps, pauses, small_kernels
from .rules_products import matrix_products
from .rules_ranks import absent_ranks, exposed_communication, late_start, shared_device, straggler
from .rules_records import lost_records, memory_peaks, missing_records, unexplained_time
from .rules_waits import host_waits, pageable_copies

ADD_UP = 0.9
"""Gains overlap if all changes together bring a smaller share of their sum than this."""

Rule = Callable[[Job], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    small_kernels,
    host_waits,
    data_loader,
    idle_between_steps,
    pageable_copies,
    matrix_products,
    exposed_communication,
    straggler,
    heaviest_op,
    pauses,
    late_start,
    unexplained_time,
    lost_records,
    missing_records,
    absent_ranks,
    shared_device,
    memory_peaks,
)


def find(job: Job) -> list[Finding]:
    """Returns what all rules find, the largest gain first, then what has no gain, in the order of the rules."""
    findings = [finding for rule in RULES for finding in rule(job)]
    gains = [finding for finding in findings if finding.gain is not None and finding.gain.is_worth_it]
    gains.sort(key=lambda finding: -(finding.gain.us if finding.gain else 0.0))
    return [*gains, *(finding for finding in findings if finding.gain is None)]


def together(job: Job, findings: Sequence[Finding]) -> Gain | None:
    """Returns the gain of all findings together if their gains overlap, so that they cannot be added; else None."""
    gains = [finding.gain for finding in findings if finding.gain is not None]
    changes = [gain.change for gain in gains if gain.change is not None]
    if len(changes) < 2:
        return None
    of_all = job.gain_together(changes)
    return of_all if of_all.us < ADD_UP * sum(gain.us for gain in gains) else None
