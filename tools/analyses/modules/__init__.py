"""What the run's time is spent on by module: of a rank as a table, of two runs as a difference."""

from .difference import ModuleTimes, module_difference
from .modules import modules

__all__ = ["ModuleTimes", "module_difference", "modules"]
