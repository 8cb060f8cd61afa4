"""The input of an analysis: one rank's linked trace with its graph and replay, and the options of all analyses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...converter.convert import convert
from ...converter.options import Options as ConvertOptions
from ...converter.work import KernelWork, kernel_work
from ...linker.link import link
from ...linker.readers import read_host_trace
from ...linker.windows import EVERYTHING, Window
from ...schema.columns import Categorical, OpRows
from ...schema.graph import ExecutionGraph
from ...schema.linked import NEVER, LinkedTrace, op_tree
from ...schema.progress import OnProgress, unseen
from ..replay import Replay, replay
from .annotations import with_modules
from .captures import Capture
from .first_start import first_start_ns
from .recorded import Allocations, Recorded, read_recorded
from .shapes import op_shapes
from .table import Table, concat


@dataclass(slots=True)
class RankTrace:
    """One rank. Without `graph` or `recorded`, the analyses that need them return no rows and say so.

    `replay` is the replay of `graph` alone, made when it is first needed. `path` is that of the device trace, "" if the
    rank was not read from one.
    """

    rank: int
    linked: LinkedTrace
    graph: ExecutionGraph | None = None
    replay: Replay | None = None
    recorded: Recorded | None = None
    path: str = ""
    _shapes: Categorical | None = None
    _work: KernelWork | None = None

    def replayed(self) -> Replay | None:
        """Returns the graph's replay, made once; None without a graph or with one that has no nodes."""
        if self.replay is None and self.graph is not None and len(self.graph):
            self.replay = replay(self.graph)
        return self.replay

    def shapes(self) -> Categorical:
        """Returns the shapes of each op's inputs, computed once."""
        if self._shapes is None:
            self._shapes = op_shapes(self.linked.ops)
        return self._shapes

    def work(self) -> KernelWork:
        """Returns the operations and bytes of each activity, computed once."""
        if self._work is None:
            self._work = kernel_work(self.linked, OpRows(op_tree(self.linked.ops).parent))
        return self._work


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Thresholds of the analyses, and how much they show.

    >>> import execgraph as eg
    >>> options = eg.AnalysisOptions(top=1, peaks={"fp32": 19.5})
    >>> report = eg.report("tests/data/training", only="kernel_breakdown", options=options)
    >>> len(report.tables["kernel_breakdown_kernels"])
    8

    Args:
        kernel_wait_us: A shorter gap on a stream counts as the kernel's own wait, unless the host was late.
        slow_call_us: A launch call that takes longer is slow.
        long_delay_us: Work that starts later after its call has a long delay.
        queue_limit: How many launched activities a stream's queue holds.
        top: How many kernels of each class to name.
        quantiles: The quantiles of distributions.
        operator: Kernel patterns are searched in operators whose name contains this text.
        longest_pattern: Patterns of more kernels are only counted.
        peaks: Numbers of `--peak` by their name, which override those of all devices.
        captures: Where the ops behind launched graphs are looked up, beside the rank's own trace.
    """

    kernel_wait_us: float = 30
    slow_call_us: float = 50
    long_delay_us: float = 100
    queue_limit: int = 1024
    top: int = 10
    quantiles: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    operator: str = ""
    longest_pattern: int = 64
    peaks: Mapping[str, float] = field(default_factory=dict)
    captures: Sequence[Capture] = ()


class Analysis(NamedTuple):
    """An analysis in two steps: `of_rank` extracts what it needs of a rank, `over_ranks` makes the table of all ranks.

    So ranks can be read one at a time, and only the extracted parts stay in memory.
    """

    name: str
    of_rank: Callable[[RankTrace, AnalysisOptions], Any]
    over_ranks: Callable[[Sequence[Any], AnalysisOptions], Table]

    def __call__(self, ranks: Iterable[RankTrace], options: AnalysisOptions | None = None) -> Table:
        """Returns the table over all ranks, of which there must be at least one."""
        options = options or AnalysisOptions()
        return self.over_ranks([self.of_rank(rank, options) for rank in ranks], options)


def per_rank(name: str, table_of: Callable[[RankTrace, AnalysisOptions], Table]) -> Analysis:
    """Returns an analysis of each rank by itself; the table is those of the ranks one below the other."""

    def of_rank(rank: RankTrace, options: AnalysisOptions) -> tuple[int, Table]:
        return rank.rank, table_of(rank, options)

    def over_ranks(parts: Sequence[tuple[int, Table]], _: AnalysisOptions) -> Table:
        return concat(parts)

    return Analysis(name, of_rank, over_ranks)


def graph_of(linked: LinkedTrace, work: KernelWork | None = None) -> ExecutionGraph:
    """Converts a trace to its execution graph without tensors, which no analysis reads and which are most of a graph.

    `work` is that of its kernels, if it is known already. A trace without modules has annotations in their place.
    """
    return convert(with_modules(linked), ConvertOptions(io="none"), work=work)


READ_STAGES = 4
"""The host trace is read, the device trace is read, both are linked, and converted to a graph."""


def read_rank(
    device_path: str,
    host_path: str | None = None,
    rank: int | None = None,
    *,
    graph: bool = True,
    window: Window = EVERYTHING,
    memory: bool = True,
    modules: bool = False,
    on_progress: OnProgress = unseen,
) -> RankTrace:
    """Reads and links the traces of one rank, or of the part of it in `window`, and converts them to a graph.

    Args:
        device_path: The device trace.
        host_path: The host trace, if there is one.
        rank: The rank, where the trace does not record one (else 0), or of a merged trace.
        graph: Whether to make the execution graph.
        window: The part of the trace to keep.
        memory: Whether to read the recorded allocations.
        modules: Whether to read Python's calls, which tell the module of each op.
        on_progress: Called after each of the READ_STAGES.

    Raises:
        DataError: The files cannot be used.
    """
    host = read_host_trace(host_path) if host_path else None
    on_progress(1)
    device, recorded = read_recorded(device_path, rank, of_ops=host is None, memory=memory, modules=modules)
    on_progress(1)
    linked = link(host, device, rank, window=window)
    on_progress(1)
    read = RankTrace(max(linked.info.rank, 0), linked, recorded=recorded, path=device_path)
    if graph:
        read.graph = graph_of(linked, read.work())
    on_progress(1)
    if window != EVERYTHING:
        recorded.allocations = _allocations_of_part(recorded.allocations, linked)
    return read


def _allocations_of_part(allocations: Allocations, linked: LinkedTrace) -> Allocations:
    """Returns the allocations between the first start and the last end on the host of a part of a trace."""
    first, last = first_start_ns(linked), max(int(table.end.max(initial=NEVER)) for table in (linked.ops, linked.calls))
    return allocations.where((allocations.time >= first) & (allocations.time <= last))
