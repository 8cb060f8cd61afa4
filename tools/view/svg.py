"""What pictures in SVG are made of: the frame, texts as XML can hold them, and curves with a head."""

import html
import re
from collections.abc import Iterable

Point = tuple[float, float]

NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML does not allow."""


def xml_text(text: str) -> str:
    """Returns a text between two tags: without markup, ? for characters that XML does not allow.

    >>> xml_text("a<b> & c")
    'a&lt;b&gt; &amp; c'
    """
    return html.escape(NOT_XML.sub("?", text), quote=False)


def svg(width: float, height: float, style: str, parts: Iterable[str]) -> str:
    """Returns a picture of a size in px on paper, whose parts are lines."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    paper = f'<style>{style}</style><rect class="paper" width="100%" height="100%"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', paper, *parts, "</svg>\n"])


def curve(start: Point, leaving: Point, end: Point, arriving: Point, head: str) -> str:
    """Returns the path of an arrow that leaves and arrives in these directions, with a head."""
    controls = (start[0] + leaving[0], start[1] + leaving[1]), (end[0] + arriving[0], end[1] + arriving[1])
    points = " ".join(f"{x:.1f} {y:.1f}" for x, y in (*controls, end))
    return f"M{start[0]:.1f} {start[1]:.1f}C{points}{head}"
