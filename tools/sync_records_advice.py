"""Says what a trace without synchronisation records cannot tell, and how to record them."""

from ..schema.errors import Remedy, Words
from ..schema.linked import LinkedTrace, waits_without_record

SETTING = "experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)"
"""The argument of `torch.profiler.profile` that records them, from PyTorch 2.1 on."""
UNRECORDED_WAITS = Words(
    "no synchronisation records: which event each wait was for is inferred; ", Remedy.DIAGNOSE, " says how to record it"
)
"""The same in a line, for commands that do not say how."""


def sync_records_advice(where: str) -> list[str]:
    """Returns sentences about the traces of some ranks, `where`, and the line to add to the profiler."""
    return [
        f"No synchronisation records exist for {where}: the order and times of the calls have to show what each wait "
        "was for.",
        "What-if answers can then be off by several times as much as with the records. execgraph.capture makes them. "
        "For a profiler of your own (PyTorch 2.1 or newer), add this argument:",
        f"    {SETTING}",
    ]


def lacks_sync_records(linked: LinkedTrace) -> bool:
    """Returns whether waits for events or streams lack a record that names these; other linkers' files never do."""
    if not len(linked.activities) or not linked.info.source_device:
        return False
    return waits_without_record(linked.calls.name, linked.info.sync_records) > 0
