"""The page of a report, without loading what draws it before somebody wants one: that takes as long as all else."""

from ...schema.optional import require
from .report import Report


def render(report: Report) -> str:
    """Returns the page. Raises MissingLibrary where the libraries that draw it are not installed."""
    require("report")
    from .drawn_page import drawn

    return drawn(report)
