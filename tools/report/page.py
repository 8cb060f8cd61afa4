"""Renders the page of a report, and loads the drawing libraries only then, as that takes as long as all else."""

from pathlib import PurePath

from ...schema.arguments import FilePath
from ...schema.errors import require
from .report import Report


def is_page_name(path: FilePath) -> bool:
    """Returns whether a file's name ends as a page's, or has no ending."""
    return PurePath(path).suffix.lower() in (".html", ".htm", "")


def render(report: Report) -> str:
    """Returns the page as HTML. Raises MissingLibrary if the libraries that draw it are not installed."""
    require("report")
    from .drawn_page import draw_page

    return draw_page(report)
