"""Finds the module and the Python function that each op, call and activity was done for."""

from .forward_ops import forward_ops as forward_ops
from .module_paths import python_context as python_context
from .stacks import SEPARATOR as SEPARATOR, Paths as Paths, Stack as Stack
