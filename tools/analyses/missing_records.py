"""Records that a trace lacks, and records that are not in the graph."""

from collections import Counter

from ...schema.errors import Remedy
from ...schema.reason_words import in_words
from ...schema.reasons import Counts
from ..sync_records_advice import SETTING
from ..terminal import ranges
from .finding import LEAST_PCT, Finding
from .findings_job import Job

NAMED = 3


def missing_records(job: Job) -> list[Finding]:
    """Returns a finding if a rank has waits for events or streams, and no record that names these."""
    ranks = sorted(rank.rank for rank in job.ranks if rank.lacks_sync_records)
    if not ranks:
        return []
    return [
        Finding(
            f"The traces of rank{'s' * (len(ranks) > 1)} {ranges(ranks)} do not record what calls waited for",
            None,
            "It is inferred from the order and time of calls. Gains can then be off by several times as much as with records",
            f"Record with execgraph.capture, or give the profiler {SETTING}",
            "idle_time_breakdown",
        )
    ]


def lost_records(job: Job) -> list[Finding]:
    """Returns a finding if many records could not be used."""
    dropped = Counts().add(*(rank.dropped for rank in job.ranks))
    count = sum(dropped.values())
    if 100 * count < LEAST_PCT * len(job.work):
        return []
    parts = [f"{in_words(reason)}: {number:,}" for reason, number in Counter(dropped).most_common(NAMED)]
    more = f"; and {len(dropped) - NAMED} more reasons" if len(dropped) > NAMED else ""
    return [
        Finding(
            f"{count:,} record{'s' * (count > 1)} of the traces could not be used",
            None,
            f"{'; '.join(parts)}{more}",
            f"{Remedy.DIAGNOSE} says what is wrong with the files; a shorter recording loses less",
            "notes",
        )
    ]
