"""Random waits of the host for the device: events, synchronisation, and copies that hold the host up."""

from execgraph.tools.generate import DEVICE_TO_HOST, MEMORY, Activity, Script

from .more_instructions import query_event
from .random_draft import Draft, Part, Rank
from .random_ops import perhaps_work, work_on
from .single_device_jobs import PINNED_BYTES_PER_US, upload_activity
from .stream_jobs import STAGED_BYTES_PER_US, pageable_activity


def await_event(draft: Draft) -> Part:
    """Makes the host wait for an event, or query it again and again."""
    stream, event, between = draft.stream(), f"event {draft.number()}", perhaps_work(draft)
    pause_us = draft.random.choice((None, 1.0, 4.0))

    def write(rank: Rank, script: Script) -> None:
        script.record(event, stream)
        between(rank, script)
        if pause_us is None:
            script.synchronize_event(event)
        else:
            query_event(script, event, pause_us)

    return write


def await_device(draft: Draft) -> Part:
    """Makes the host wait for a stream, now and then for the device."""
    stream, whole = draft.stream(), draft.random.random() < 0.3

    def write(_: Rank, script: Script) -> None:
        if whole:
            script.synchronize_device()
        else:
            script.synchronize_stream(stream)

    return write


def read_scalar(draft: Draft) -> Part:
    """tensor.item(): a copy that holds the host, with or without the synchronisation that follows it in PyTorch."""
    stream, number, synchronizes = draft.stream(), draft.number(), draft.random.random() < 0.7

    def write(rank: Rank, script: Script) -> None:
        with script.op("aten::_local_scalar_dense", (rank.result(number),)):
            script.copy(DEVICE_TO_HOST, stream, 1.6, blocking=True)
            if synchronizes:
                script.synchronize_stream(stream)

    return write


def await_side_stream(draft: Draft) -> Part:
    """Makes a stream wait for the one in use, which goes on, and the host wait for that stream."""
    source, event = draft.in_use, f"event {draft.number()}"
    target = draft.random.choice([stream for stream in draft.streams if stream != source] or [source])
    before, between = work_on(draft, source), work_on(draft, source)

    def write(rank: Rank, script: Script) -> None:
        before(rank, script)
        script.record(event, source)
        script.wait(target, event)
        between(rank, script)
        script.synchronize_stream(target)

    return write


def read_back(draft: Draft) -> Part:
    """Copies a result to pinned memory and waits for the copy: for an event behind it, its stream, or the device."""
    stream, number, us = draft.in_use, draft.number(), draft.kernel_us()
    copy = Activity("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", MEMORY, round(us * PINNED_BYTES_PER_US))
    how = draft.random.choice(("event", "stream", "stream", "device"))
    between = perhaps_work(draft)

    def write(rank: Rank, script: Script) -> None:
        result = rank.result(number)
        target = rank.process.tensor(f"read {number}", *result.shape, device="cpu")
        with script.op("aten::copy_", (target, result, True), (target,), own_us=8.0):
            script.copy(copy, stream, us)
        if how == "event":
            script.record(f"read {number}", stream)
        between(rank, script)
        if how == "event":
            script.synchronize_event(f"read {number}")
        elif how == "stream":
            script.synchronize_stream(stream)
        else:
            script.synchronize_device()

    return write


def upload(draft: Draft) -> Part:
    """Returns a copy to the device: of pinned memory while the host goes on, or of pageable memory, which holds it."""
    stream, number, us, pinned = draft.stream(), draft.number(), draft.kernel_us(), draft.random.random() < 0.6
    activity = (upload_activity if pinned else pageable_activity)(
        round(us * (PINNED_BYTES_PER_US if pinned else STAGED_BYTES_PER_US))
    )

    def write(rank: Rank, script: Script) -> None:
        buffer = rank.result(number)
        source = rank.process.tensor(f"source {number}", *buffer.shape, device="cpu")
        with script.op("aten::copy_", (buffer, source, pinned), (buffer,), own_us=8.0):
            script.copy(activity, stream, us, blocking=not pinned)

    return write
