"""rocpd databases (SQLite) of ROCm's profilers as device traces."""

from .database import (
    dialect as dialect,
    is_database as is_database,
    is_merged as is_merged,
    is_rocpd as is_rocpd,
    opened as opened,
    processes as processes,
)
from .rows import read_rocpd as read_rocpd
