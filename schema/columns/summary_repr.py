"""What large records show of themselves: a title and a few figures, as text and as HTML for notebooks."""

from dataclasses import fields
from html import escape
from typing import ClassVar, NamedTuple


class Summary(NamedTuple):
    """What a record is, and lines about it by what they tell."""

    title: str
    lines: dict[str, str]


class SummaryRepr:
    """A record whose repr is a few lines however large it is: by default the length of its columns.

    Dataclasses need `repr=False`, or they list all their rows.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, object]]

    def summary(self) -> Summary:
        """Returns what the repr shows: here the number of rows, and the names of the columns."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return Summary(f"{type(self).__name__}: {len(getattr(self, names[0])):,} rows", {"columns": ", ".join(names)})

    def __repr__(self) -> str:
        return summary_text(self.summary())

    def _repr_html_(self) -> str:
        return summary_html(self.summary())


def summary_text(summary: Summary) -> str:
    """Returns the title, and a line below it for each of the others."""
    title, lines = summary
    width = max(map(len, lines), default=0)
    return "\n".join([title, *(f"  {label:<{width}}  {text}" for label, text in lines.items())])


def summary_html(summary: Summary) -> str:
    """Returns the same as an HTML table."""
    title, lines = summary
    rows = "".join(f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in lines.items())
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def format_counts(counts: dict[str, int]) -> str:
    """Counts by what they are of, without zeros: `3 launch, 1,200 stream order`.

    >>> format_counts({"launch": 3, "event wait": 0, "stream order": 1200})
    '3 launch, 1,200 stream order'
    """
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def microseconds(ns: int) -> str:
    """Returns a time as text.

    >>> microseconds(1_234_567)
    '1,234.6 µs'
    """
    return f"{ns / 1000:,.1f} µs"


def time_text(time_us: float) -> str:
    """Returns a duration in the unit that suits it.

    >>> time_text(4.56), time_text(4560.0), time_text(4.56e6)
    ('4.6 µs', '4.56 ms', '4.56 s')
    """
    if abs(time_us) < 1000:
        return f"{time_us:.1f} µs"
    return f"{time_us / 1000:.2f} ms" if abs(time_us) < 1e6 else f"{time_us / 1e6:.2f} s"


def bytes_text(size: float) -> str:
    """Returns a size with its unit.

    >>> bytes_text(123), bytes_text(5 * 1024**3)
    ('123 B', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
