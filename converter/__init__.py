"""Linked trace -> execution graph (.et), and graphs as JSON."""

from ..schema.graph import ConvertReport
from .convert import convert
from .options import Options

__all__ = ["ConvertReport", "Options", "convert"]
