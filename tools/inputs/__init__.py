"""Files and folders in, which of them are traces of which rank, paired, out."""

from .one_pair import OnePair, find_pair
from .pairs import Pair, Pairs, find_pairs, hosts_of
from .recognise import Kind, recognise
from .trace_files import (
    BARE_NUMBER,
    RANK_IN_NAME,
    RankTrace,
    Trace,
    TraceFiles,
    by_rank,
    find_traces,
    rank_in_name,
)

__all__ = [
    "BARE_NUMBER",
    "RANK_IN_NAME",
    "Kind",
    "OnePair",
    "Pair",
    "Pairs",
    "RankTrace",
    "Trace",
    "TraceFiles",
    "by_rank",
    "find_pair",
    "find_pairs",
    "find_traces",
    "hosts_of",
    "rank_in_name",
    "recognise",
]
