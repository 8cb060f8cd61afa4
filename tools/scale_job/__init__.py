"""A folder of a job's graphs in, a folder with those of the same program on other ranks out."""

from .scale_job import REPORT as REPORT, scale as scale, simulation_of as simulation_of
from .scale_report import ScaleReport as ScaleReport, lines as lines
