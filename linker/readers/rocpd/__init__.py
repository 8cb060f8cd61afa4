"""rocpd databases (SQLite) of ROCm's profilers as device traces."""

from .database import dialect, is_database, is_merged, is_rocpd, opened, processes
from .rows import read_rocpd

__all__ = ["dialect", "is_database", "is_merged", "is_rocpd", "opened", "processes", "read_rocpd"]
