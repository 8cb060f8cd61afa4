"""Records both traces of some steps: `capture` for loops without a profiler, `trace_handler` beside one."""

from .recorder import capture
from .windows import experimental_config, trace_handler
