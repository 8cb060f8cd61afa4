"""Makes a timeline of the whole run from replays of ranks, within the bytes that a page has for it.

The page unpacks and draws it (page.timeline.js): single bars as far as they are in it, else sums over stretches of
time.
"""

from .nested import HostOps as HostOps, host_ops as host_ops
from .timeline import Timeline as Timeline, timeline as timeline
