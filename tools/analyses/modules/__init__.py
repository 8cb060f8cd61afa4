"""Time by module: of a rank as a table, of two runs as a difference."""

from .difference import ModuleTimes as ModuleTimes, module_difference as module_difference
from .modules import modules as modules
