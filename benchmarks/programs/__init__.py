"""Simulated jobs for measurements and tests, beside those of trace-generate."""

from .jobs import JOBS as JOBS, NAMED as NAMED, RANDOM as RANDOM, build_job as build_job, ranks_of as ranks_of
