"""Linked trace -> execution graph (.et), and graphs as JSON."""

from .convert import ConvertReport, Options, convert

__all__ = ["ConvertReport", "Options", "convert"]
