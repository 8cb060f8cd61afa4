"""A folder of a job's graphs in, a folder with those of the same program on other ranks out."""

from .scale_job import REPORT as REPORT, scale as scale
from .scale_report import lines as lines
