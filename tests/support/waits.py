"""Which waits a linked trace holds, and how much of them the device trace may tell."""

from execgraph.schema.linked import LinkedTrace

RECORDED = {"sync_records": True}

WITHOUT_EVENT = {"event_correlations": False}

UNRECORDED = {"sync_records": False}


def device_waits(linked: LinkedTrace) -> set[tuple[str, str]]:
    """(awaited activity, activity that waited)."""
    waits, name = linked.device_waits, linked.activities.name
    return {(name[s], name[t]) for s, t in zip(waits.source_row.tolist(), waits.target_row.tolist(), strict=True)}


def host_waits(linked: LinkedTrace) -> set[tuple[str, str]]:
    """(awaited activity, call that waited); "" where nothing was pending."""
    waits, name, call = linked.host_waits, linked.activities.name, linked.calls.name
    rows = zip(waits.source_row.tolist(), waits.call_row.tolist(), strict=True)
    return {(name[source] if source >= 0 else "", call[row]) for source, row in rows}
