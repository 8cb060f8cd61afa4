"""Files and folders in, which of them are traces of which rank, paired, out."""

from .kinds import TRACE_OR_GRAPH, Kind
from .one_pair import OnePair, find_pair
from .pairs import NoDeviceTraceError, Pair, Pairs, find_pairs, hosts_of
from .ranks import RankTrace, assign_ranks, by_rank, communicating
from .recognise import recognise
from .trace_files import (
    BARE_NUMBER,
    RANK_IN_NAME,
    Trace,
    TraceFiles,
    find_traces,
    rank_in_name,
)
from .wrong_kind import file_for_folder, instead, instead_of_folder, kind_of, reading, wrong_kind

__all__ = [
    "BARE_NUMBER",
    "RANK_IN_NAME",
    "TRACE_OR_GRAPH",
    "Kind",
    "NoDeviceTraceError",
    "OnePair",
    "Pair",
    "Pairs",
    "RankTrace",
    "Trace",
    "TraceFiles",
    "assign_ranks",
    "by_rank",
    "communicating",
    "file_for_folder",
    "find_pair",
    "find_pairs",
    "find_traces",
    "hosts_of",
    "instead",
    "instead_of_folder",
    "kind_of",
    "rank_in_name",
    "reading",
    "recognise",
    "wrong_kind",
]
