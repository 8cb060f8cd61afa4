"""What holds a run up, and what to try: rules over one record of the job, each with its gain by a replay.

A rule is a function from the `Job` to findings. Those that would gain less than 2 % are left out; the others come in
the order of their gain, then what limits the trust in them.
"""

from collections.abc import Callable, Sequence

from .absent_ranks import absent_ranks
from .data_loader import data_loader
from .exposed_communication import exposed_communication
from .finding import Finding as Finding, Gain as Gain
from .findings_job import Job as Job, job_of as job_of
from .heaviest_op import heaviest_op
from .host_waits_finding import host_waits
from .idle_between_steps import idle_between_steps
from .late_start import late_start
from .matrix_products import matrix_products
from .memory_peaks_finding import memory_peaks
from .missing_records import lost_records, missing_records
from .pageable_copies import pageable_copies
from .pauses import pauses
from .rank_facts import RankFacts as RankFacts, facts_of as facts_of
from .shared_device import shared_device
from .small_kernels import small_kernels
from .straggler import straggler
from .unexplained_time import unexplained_time
from .verdict import Verdict as Verdict, verdict as verdict

ADD_UP = 0.9
"""Gains overlap if all changes together bring a smaller share of their sum than this."""

Rule = Callable[[Job], list[Finding]]

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
