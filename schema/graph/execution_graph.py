"""The execution graph in memory. Times are int64 ns on the device trace's own clock; row i is the file's i-th node.

A graph written by this project has ids 1 … n in topological order; a graph from elsewhere may have any ids.
"""

import os
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import columns
from ..arguments import FilePath, InputFile, check_ending, path_of
from ..columns import Categorical, Frame, Ragged, Summary, Values, format_counts, nullable
from ..reasons import Counts
from .et_file import read_columns, write_columns
from .json_files import write_json
from .nodes import DependencyKind, NodeColumns, NodeType

if TYPE_CHECKING:
    import networkx as nx


@dataclass(slots=True)
class ConvertReport:
    """What a graph contains, and what it lacks: counts, and µs where the name says so.

    >>> import execgraph as eg
    >>> report = eg.link("tests/data/training", rank=0).to_graph().report
    >>> report.activities, report.edges["launch"], report.dropped
    (63, 63, {})
    """

    nodes: int = 0
    edges: dict[str, int] = field(default_factory=dict)
    host_slices: int = 0
    activities: int = 0
    folded_slices: int = 0
    zero_length_ops: int = 0
    gaps_us: float = 0.0
    overlap_us: float = 0.0
    host_time_after_us: float = 0.0
    span_us: float = 0.0
    delays: dict[str, int] = field(default_factory=dict)
    delays_us: dict[str, float] = field(default_factory=dict)
    kernels_with_work: int = 0
    kernels_without_work: dict[str, int] = field(default_factory=dict)
    time_with_work_pct: float = 0.0
    unknown_communications: int = 0
    unknown_dtypes: int = 0
    dropped: Counts = field(default_factory=Counts)


class Change(Enum):
    """What is counted of a graph that was made for a target, and what that is called; µs where the words say so."""

    REMOVED = "removed"
    LOWERED = "lowered"
    AS_COMPUTATION = "as computation"
    PADDED = "padded"
    CONTROL_REMOVED = "control removed"
    START_OFFSET = "start offset, µs"
    EXCESS = "excess, µs"
    READY_MESSAGES = "ready messages"
    IDLE_TIME_CUT = "idle time cut, µs"
    HOST_DELAY_CUT = "host delay cut, µs"
    DELAY_NODES = "delay nodes"
    WITHOUT_WORK = "without work"
    MOST_READY = "most nodes ready at once"
    COLLECTIVES = "all collectives, µs"
    RESIZED = "communications of uneven size, given one size on all members"
    SHRUNK = "collectives that ran beside others, given the bytes of the time they had alone"
    HIDDEN = "collectives that ran beside others, given the time they had alone, which is less than their latency"
    WITHOUT_PARTNER = "communications without a partner, as computation"

    def __str__(self) -> str:
        return CHANGE_WORDS[self]


CHANGE_WORDS: dict[Change, str] = {change: change.value for change in Change}
"""What each change is called in counts and files."""


@dataclass(slots=True)
class TargetChanges:
    """The changes for a target: nodes by Change and reason, in words and without zeros; notes in words.

    >>> import execgraph as eg
    >>> eg.link("tests/data/training", rank=0).to_graph("astra-sim").changes.notes
    []
    """

    counts: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, repr=False)
class ExecutionGraph(NodeColumns):
    """The execution graph of one rank; a new one has a `report` on the conversion and `changes` for its target."""

    report: ConvertReport | None = None
    changes: TargetChanges | None = None
    links: Any = field(default=None, init=False, repr=False, compare=False)
    """What `execgraph` keeps of its dependencies once a node was asked for them."""

    @staticmethod
    def read(path: InputFile, tensors: bool = True) -> "ExecutionGraph":
        """Reads a .et file, see `read_et`."""
        return read_et(path, tensors)

    def write(self, path: FilePath) -> None:
        """Writes the graph, whole or not at all: as JSON where the name ends in .json, else as a .et file.

        A further .gz compresses either. Raises ValueError for a name that ends like another kind of file.
        """
        name = os.fspath(path)
        check_ending(name, ".et", ".json")
        write = write_json if name.removesuffix(".gz").endswith(".json") else write_columns
        write(self, name)

    def summary(self) -> Summary:
        """Returns its rank and target, its nodes and dependencies, and the measured time of the run."""
        rank, target = self.number("rank", -1), self.metadata.get("target", "")
        delays, activities = int(self.is_delay.sum()), int(self.is_activity.sum())
        nodes = {"host": len(self) - activities - delays, "activities": activities, "delays": delays}
        lines = {"nodes": f"{len(self):,}: {format_counts(nodes)}", "dependencies": f"{len(self.data_deps.values):,}"}
        kinds = self.attributes.get("data_dep_kinds")
        if isinstance(kinds, Ragged):
            counts = {kind.label: int((kinds.values & kind != 0).sum()) for kind in DependencyKind}
            lines["dependencies"] += f": {format_counts(counts)}"
        timed = self.type != NodeType.METADATA
        if timed.any():
            end, start = (self.start_ns + self.duration_ns)[timed].max(), self.start_ns[timed].min()
            lines["measured"] = columns.microseconds_text(int(end - start))
        return Summary(
            f"ExecutionGraph: rank {rank if rank >= 0 else 'unknown'}" + (f", {target}" if target else ""), lines
        )

    def to_pandas(self) -> Any:
        """Returns a pandas.DataFrame with a row per node; ImportError where pandas is not installed.

        Columns: id, name, type, start_ns, duration_ns, an attribute each, null where a node lacks it, and lists of ids
        in data_deps and ctrl_deps.
        """
        return columns.to_pandas(self._frame())

    def to_polars(self) -> Any:
        """Returns the same as a polars.DataFrame; ImportError where polars is not installed."""
        return columns.to_polars(self._frame())

    def _frame(self) -> dict[str, Values]:
        table: dict[str, Values] = {
            "id": self.id, "name": self.name, "type": _type_names(self), "start_ns": self.start_ns,
            "duration_ns": self.duration_ns,
        }  # fmt: skip
        for name, column in self.attributes.items():
            if name not in ("start_time_ns", "duration_ns"):
                table[name] = nullable(column) if isinstance(column, np.ndarray) else column
        return table | {"data_deps": self.data_deps, "ctrl_deps": self.ctrl_deps}


def _type_names(graph: NodeColumns) -> Categorical:
    return Categorical(graph.type.astype(np.int32), [kind.name for kind in NodeType])


def digraph_of(graph: ExecutionGraph) -> "nx.DiGraph[int]":
    """Returns a graph for networkx as `to_networkx` describes it, without what the Python API adds there."""
    import networkx as nx

    digraph: nx.DiGraph[int] = nx.DiGraph()
    digraph.graph.update(graph.metadata)
    table: dict[str, Values] = {"name": graph.name, "type": _type_names(graph)}
    for name, column in graph.attributes.items():
        if not isinstance(column, Ragged):
            table[name] = column if isinstance(column, Categorical) else nullable(column)
    for node, row in zip(graph.id.tolist(), Frame("", table).rows(), strict=True):
        digraph.add_node(node, **{name: value for name, value in row.items() if value is not None})
    targets = np.repeat(graph.id, graph.data_deps.lengths())
    kinds = graph.attributes.get("data_dep_kinds")
    labels = kinds.values.tolist() if isinstance(kinds, Ragged) else [0] * len(targets)
    words = {bits: DependencyKind(bits).label for bits in set(labels)}
    for source, target, bits in zip(graph.data_deps.values.tolist(), targets.tolist(), labels, strict=True):
        digraph.add_edge(source, target, kind=words[bits], kind_bits=bits)
    return digraph


def read_et(path: InputFile, tensors: bool = True) -> ExecutionGraph:
    """Reads a .et file, with the tensors of ops or without; DataError says from which byte on it is no graph."""
    with path_of(path) as path:
        table = read_columns(path, tensors)
    return ExecutionGraph(**{field.name: getattr(table, field.name) for field in fields(table)})
