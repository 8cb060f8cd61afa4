"""The lines of a summary: a title, then the text. docs/summary-lines.md explains every title; a test compares."""

from collections.abc import Mapping

from .terminal import in_one_line

WIDTH = 12


def summary_line(title: str, text: str) -> str:
    """Returns a line of a summary.

    >>> summary_line("nodes", "420: 357 on the host, 63 activities")
    'nodes       420: 357 on the host, 63 activities'
    """
    return in_one_line(f"{title:<{WIDTH}}{text}")


def format_counts(title: str, counts: Mapping[str, int]) -> list[str]:
    """Returns a line for each thing that was counted."""
    return [summary_line(title, f"{count} {what}") for what, count in counts.items()]
