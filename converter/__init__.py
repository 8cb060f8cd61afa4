"""Linked trace -> execution graph (.et), and graphs as JSON."""

from ..schema.graph import ConvertReport
from .convert import before_target, convert
from .options import Options
from .targets import for_target

__all__ = ["ConvertReport", "Options", "before_target", "convert", "for_target"]
