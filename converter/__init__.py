"""Linked trace -> execution graph (.et), and graphs as JSON."""

from ..schema.graph import ConvertReport as ConvertReport
from .convert import before_target as before_target, convert as convert
from .options import Options as Options
from .targets import for_target as for_target
