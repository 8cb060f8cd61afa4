"""Where things are, for tests in any folder; and pages of docs/ whose tables scripts write."""

from collections.abc import Iterable, Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
"""The small captures."""
DOCS = ROOT / "docs"


def with_rows(page: Path, tables: Mapping[str, Iterable[str]]) -> str:
    """The text of a page, whose tables with these heads have these rows in place of those that are there."""
    text = page.read_text(encoding="utf-8")
    for head, rows in tables.items():
        before, below = text.split(f"{head}\n")
        rule, *lines = below.splitlines(keepends=True)
        behind = next((place for place, line in enumerate(lines) if not line.startswith("|")), len(lines))
        text = "".join([before, f"{head}\n", rule, *(f"{row}\n" for row in rows), *lines[behind:]])
    return text
