"""Linked trace -> execution graph (.et), and graphs as JSON."""

from ..schema.graph import ConvertReport
from .convert import Options, convert

__all__ = ["ConvertReport", "Options", "convert"]
