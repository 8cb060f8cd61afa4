"""A folder of a job's graphs in, a folder with those of the same program on other ranks out."""

from .scale_job import REPORT as REPORT, Runner as Runner, scale as scale
from .scale_report import ScaleReport as ScaleReport, lines as lines
