"""Linked trace -> execution graph (.et), and graphs as JSON."""

from ..schema.graph import ConvertReport as ConvertReport
from .convert import build_generic_graph as build_generic_graph, convert as convert
from .options import Options as Options
from .targets import lower_for_target as lower_for_target
