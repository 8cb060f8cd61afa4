"""Random waits of the host for the device: events, synchronisation, and copies that hold the host up."""

from execgraph.tools.generate.programs import DEVICE_TO_HOST, Script

from .random_draft import Draft, Part, Rank
from .random_ops import perhaps_work
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
            script.query_event(event, pause_us)

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
