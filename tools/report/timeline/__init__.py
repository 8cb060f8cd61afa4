"""Replays of ranks in, a timeline of the whole run out, within the bytes that a page has for it.

The page unpacks it and draws it (page.timeline.js): bars one by one where they are told, sums where they are not, and
sums where they are too dense to be seen.
"""

from .timeline import Timeline as Timeline, timeline as timeline
