"""Files and folders in, which of them are traces of which rank, paired, out."""

from .kinds import TRACE_OR_GRAPH as TRACE_OR_GRAPH, InputKind as InputKind
from .one_pair import OnePair as OnePair, find_pair as find_pair
from .pairs import (
    NoDeviceTraceError as NoDeviceTraceError,
    Pair as Pair,
    Pairs as Pairs,
    find_pairs as find_pairs,
    hosts_of as hosts_of,
)
from .ranks import (
    AssignedRanks as AssignedRanks,
    RankFile as RankFile,
    assign_ranks as assign_ranks,
    by_rank as by_rank,
    communicating as communicating,
)
from .recognise import recognise as recognise
from .trace_files import (
    BARE_NUMBER as BARE_NUMBER,
    RANK_IN_NAME as RANK_IN_NAME,
    Trace as Trace,
    TraceFiles as TraceFiles,
    find_traces as find_traces,
    list_counts as list_counts,
    rank_in_name as rank_in_name,
)
from .wrong_kind import (
    file_for_folder as file_for_folder,
    instead as instead,
    instead_of_folder as instead_of_folder,
    kind_of as kind_of,
    reading as reading,
    wrong_kind as wrong_kind,
)
