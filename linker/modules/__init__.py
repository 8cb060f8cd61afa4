"""Calls of Python in; out for each op, call and activity the module and the Python function that it was done for."""

from .forward_ops import forward_ops as forward_ops
from .module_paths import CallSites as CallSites, places_of as places_of
from .stacks import SEPARATOR as SEPARATOR, Paths as Paths, Stack as Stack
