"""What recording did to the run that the verdict is on, in a sentence."""

from ...schema.columns import time_text
from ...schema.machine import HOST_TRACE_US
from ..replay import Cause, NodeClass
from .findings_job import Job


def recording_cost(job: Job, limit: NodeClass) -> str:
    """Returns the sentence; "" if recording hardly changed the run, or nothing shows that it did."""
    recording = job.recording
    if recording is None:
        return _unmeasured(job) if limit is NodeClass.HOST and job.is_on_device else ""
    recorded, without = map(time_text, (recording.step_us, recording.step_without_profiler_us))
    if recording.is_known:
        return (
            f"This is the run without a profiler, in which a step takes {without} and not {recorded} as recorded "
            f"({recording.change_in_words}); tables, charts and the timeline show the recording."
        )
    return {
        Cause.SLOWER_BEFORE: f"What recording cost is not known: the steps before took {without}, the recorded ones {recorded}.",
        Cause.NOT_THE_HOST: f"A step takes {without} without a profiler and {recorded} as recorded, and a slower host alone does not "
        "explain that: gains are of the recording, and may be smaller without a profiler.",
    }.get(recording.cause, "")


def _unmeasured(job: Job) -> str:
    """Returns how much of the run recording may be, if there is a host trace; the profiler alone costs much less."""
    ops = sum(rank.recorded_ops for rank in job.ranks) / len(job.ranks)
    slowed_us = HOST_TRACE_US * ops
    if not ops:
        return ""
    share = f", so {time_text(slowed_us)} of these {time_text(job.length_us)} may come from it ({ops:,.0f} ops)"
    return (
        f"Recording a host trace slows every op, by about {HOST_TRACE_US} µs on the machine where we measured it"
        f"{share if slowed_us < job.length_us else ''}. To know, measure steps without a profiler: execgraph.capture does."
    )
