"""Lists the tables without rows by the reason. In a run without a device, that is the reason for all about devices."""

from collections.abc import Iterable

from ..analyses import Table

OF_HOST = (
    "host_phases", "host_time_per_op", "critical_path", "modules", "memory_timeline", "collectives_over_ranks", "trace_diff", "what_if",
)  # fmt: skip
"""The analyses that can have rows for a run without a device."""
NO_DEVICE = "no device activity was recorded"
NO_ROWS = "no rows"


def absent_tables(tables: Iterable[Table], on_device: bool) -> dict[str, list[str]]:
    """Returns the titles of the tables without rows by reason, without details whose main table has none either."""
    titles_by_reason: dict[str, dict[str, str]] = {}
    for table in tables:
        if len(table):
            continue
        is_possible = on_device or table.name.startswith(OF_HOST)
        titles = titles_by_reason.setdefault(table.note or NO_ROWS if is_possible else NO_DEVICE, {})
        if not any(table.name.startswith(f"{name}_") for name in titles):
            titles[table.name] = table.title
    return {reason: [*titles.values()] for reason, titles in titles_by_reason.items()}
