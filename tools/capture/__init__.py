"""A training or serving process in, the host trace and the device trace of some of its steps out, as linking them
needs.

`capture` is for loops without a profiler (`execgraph.capture` is the same), `trace_handler` for those that have one.
"""

from .recorder import capture
from .windows import experimental_config, trace_handler
