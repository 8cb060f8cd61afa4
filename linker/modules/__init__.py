"""Calls of Python in; out for each op, call and activity the module and the Python function that it was done for."""

from .forward_ops import forward_ops
from .places import Places, places_of
from .stacks import SEPARATOR, Paths, Stack

__all__ = ["SEPARATOR", "Paths", "Places", "Stack", "forward_ops", "places_of"]
