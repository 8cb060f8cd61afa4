"""A folder of a job's graphs in, a folder with those of the same program on other ranks out."""

from .scale_job import REPORT, Runner, scale
from .scale_report import ScaleReport, lines

__all__ = [
    "REPORT",
    "Runner",
    "ScaleReport",
    "lines",
    "scale",
]
