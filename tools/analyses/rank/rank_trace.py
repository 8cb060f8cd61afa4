"""What an analysis takes: one rank's linked trace with its graph and replay, and the options that all analyses share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....converter import Options as ConvertOptions, convert
from ....converter.kernel_work import KernelWork, kernel_work
from ....linker import link, read_host_trace
from ....linker.windows import EVERYTHING, Window
from ....schema.columns import Categorical
from ....schema.graph import ExecutionGraph
from ....schema.linked import LinkedTrace, op_tree
from ....schema.progress import Advanced, unseen
from ....schema.traces import NEVER
from ...replay import Replay, replay
from .annotations import with_modules
from .began import began_ns
from .captures import Capture
from .recorded import Allocations, Recorded, read_recorded
from .shapes import op_shapes
from .table import Table, concat


@dataclass(slots=True)
class RankTrace:
    """One rank. `graph` and `recorded` may be absent: the analyses that need them then say so and give no rows.

    `replay` is of `graph` alone; where it is absent the first analysis that needs it makes it. `path` is that of the
    device trace, if the rank was read from one.
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
        """Returns the shapes of each op's inputs, told once."""
        if self._shapes is None:
            self._shapes = op_shapes(self.linked.ops)
        return self._shapes

    def work(self) -> KernelWork:
        """Returns what each activity computes and moves, told once."""
        if self._work is None:
            self._work = kernel_work(self.linked, op_tree(self.linked.ops).parent)
        return self._work


@dataclass(frozen=True, slots=True)
class Options:
    """Thresholds in µs and choices of what is shown.

    `operator` is the text that an operator's name must contain to be searched for kernel patterns; patterns of more
    than `longest_pattern` kernels are counted, not shown. `peaks` are fields of Peak that count instead of the table's,
    for all devices. In `captures` the ops behind launched graphs are looked for, beside those in a rank's own trace.
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
    """`of_rank` takes what is needed out of one rank, `over_ranks` makes the table from all ranks' parts.

    So ranks can come one at a time: only the parts of the earlier ones stay in memory.
    """

    name: str
    of_rank: Callable[[RankTrace, Options], Any]
    over_ranks: Callable[[Sequence[Any], Options], Table]

    def __call__(self, ranks: Iterable[RankTrace], options: Options | None = None) -> Table:
        """Returns the table over all ranks, of which there must be one."""
        options = options or Options()
        return self.over_ranks([self.of_rank(rank, options) for rank in ranks], options)


def per_rank(name: str, table_of: Callable[[RankTrace, Options], Table]) -> Analysis:
    """Returns an analysis that looks at each rank alone; the ranks' tables stand one below the other."""

    def of_rank(rank: RankTrace, options: Options) -> tuple[int, Table]:
        return rank.rank, table_of(rank, options)

    def over_ranks(parts: Sequence[tuple[int, Table]], _: Options) -> Table:
        return concat(parts)

    return Analysis(name, of_rank, over_ranks)


def graph_of(linked: LinkedTrace, work: KernelWork | None = None) -> ExecutionGraph:
    """Returns the execution graph, with this work of its kernels if that is known, and without the tensors of its
    nodes: no analysis reads them, and they are most of it.

    Where the trace tells no modules, annotations stand in for them.
    """
    return convert(with_modules(linked), ConvertOptions(io="none"), work=work)


READ_STAGES = 4
"""Both traces are read, linked, and made into a graph."""


def read_rank(
    device_path: str,
    host_path: str | None = None,
    rank: int | None = None,
    graph: bool = True,
    window: Window = EVERYTHING,
    memory: bool = True,
    modules: bool = False,
    advanced: Advanced = unseen,
) -> RankTrace:
    """Returns one rank, or a part of it, from its files, with its graph and the recorded allocations unless told
    otherwise.

    Raises DataError where they cannot be used.

    With `modules` Python's calls are read, too, which tell the module of each op. A trace that records no rank is rank
    0 unless `rank` says which. `advanced` is told of each of the READ_STAGES.
    """
    host = read_host_trace(host_path) if host_path else None
    advanced(1)
    device, recorded = read_recorded(device_path, rank, host is None, memory, modules)
    advanced(1)
    linked = link(host, device, rank, window=window)
    advanced(1)
    read = RankTrace(max(linked.info.rank, 0), linked, recorded=recorded, path=device_path)
    if graph:
        read.graph = graph_of(linked, read.work())
    advanced(1)
    if window != EVERYTHING:
        recorded.allocations = _within(recorded.allocations, linked)
    return read


def _within(allocations: Allocations, linked: LinkedTrace) -> Allocations:
    """Returns those in the time that a part of a trace takes on the host."""
    first, last = began_ns(linked), max(int(table.end.max(initial=NEVER)) for table in (linked.ops, linked.calls))
    return allocations.where((allocations.time >= first) & (allocations.time <= last))
