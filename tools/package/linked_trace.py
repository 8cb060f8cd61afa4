"""Traces: the linked trace as users hold it, with the way to its graph, and what is done with traces beside linking."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from .converter.convert import convert as convert_trace
from .converter.options import Options
from .execution_graph import ExecutionGraph
from .linker.link import link as link_traces, read_linked as read_linked_file
from .linker.readers import DeviceTrace, HostTrace
from .linker.windows import EVERYTHING, Window, given_window
from .run import added_to_record
from .schema import arguments
from .schema.arguments import FilePath, InputFile, InputsOutputs, Paths, Promotion, Target, given_paths, is_path
from .schema.columns import Categorical, Frame, Int64
from .schema.comm_groups import RankList
from .schema.io import path_is
from .schema.linked import LinkedTrace as TraceRecord, write_linked
from .tools.analyses import named
from .tools.job import Diagnosis, MergeReport, diagnose as diagnose_paths, merge_traces
from .tools.options import checked
from .tools.recognise import InputKind, kind_of, reading
from .tools.replay import moves_memory
from .tools.trace_files import find_pair


@added_to_record
class LinkedTrace(TraceRecord):
    """The run of one process: host ops, calls and activities, and all that is known about their order.

    `ops`, `calls` and `activities` are tables with a numpy array for each column; `to_polars` and `to_pandas` make data
    frames of them.

    >>> import execgraph as eg
    >>> trace = eg.link("tests/data/training", rank=0)
    >>> len(trace.ops), len(trace.activities), len(trace.kernels), trace.unresolved_waits
    (204, 63, 62, 0)
    """

    __slots__ = ()

    @property
    def kernels(self) -> Frame:
        """The kernels as a table, without copies and sets of memory.

        Columns: id, name, device, stream, start_ns, duration_ns, correlation, and the op and the call that launched it,
        by name, null where none is known.
        """
        activities = self.activities
        columns: dict[str, Int64 | Categorical] = {
            "id": activities.id, "name": activities.name, "device": activities.device, "stream": activities.stream,
            "start_ns": activities.start, "duration_ns": activities.end - activities.start,
            "correlation": activities.correlation,
        }  # fmt: skip
        rows = np.flatnonzero(~moves_memory(activities.name, activities.category))
        op, call = named(self.ops.name, activities.op_row), named(self.calls.name, activities.call_row)
        columns |= {"op": op, "call": call}
        return Frame("kernels", {name: column.take(rows) for name, column in columns.items()})

    @property
    def unresolved_waits(self) -> int:
        """How many waits were recorded of which nothing tells what they were for."""
        return self.info.unresolved_waits

    def to_graph(
        self,
        target: Target = "generic",
        *,
        promote: Promotion = "sync",
        io: InputsOutputs = "full",
        inferred: bool = True,
        host: bool = True,
        shortest_slice: int | None = None,
        delays: bool = True,
    ) -> ExecutionGraph:
        """Converts the trace into the execution graph of its rank; the options are those of `Options`."""
        return convert(self, Options(target, promote, io, inferred, host, shortest_slice, delays))

    def write(self, path: FilePath) -> None:
        """Writes the trace as a linked file, which `read_linked` and `trace-convert` read; .json or .json.gz.

        Raises ValueError for a name that ends like another kind of file.
        """
        write_linked(self, str(path))


def link(
    host: HostTrace | InputFile | None,
    device: DeviceTrace | InputFile | None = None,
    rank: int | None = None,
    allow_mismatch: bool = False,
    window: Window = EVERYTHING,
    *,
    strict: bool = False,
    modules: bool = False,
) -> LinkedTrace:
    """Links the host trace and the device trace of one process.

    The linked trace covers the time that both files cover, and of that the `window`.

    >>> import execgraph as eg
    >>> folder = "tests/data/training"
    >>> trace = eg.link(f"{folder}/host_rank0.json.gz", f"{folder}/device_rank0.json.gz")
    >>> trace.report.matched, trace.report.host_ops
    (200, 200)

    Args:
        host: The host trace, or its path or open file; None to build from the device trace alone. A folder stands for
            the traces in it, those of `rank` where it holds several ranks.
        device: The device trace, or its path or open file. Two paths may be given in either order.
        rank: The rank of traces that record none; of a device trace that was merged from several ranks, the one to
            link.
        allow_mismatch: Whether to link traces that seem to be of different runs or ranks.
        window: The part of the traces to link.
        strict: Whether to refuse damaged files in place of using what can be read.
        modules: Whether to read Python's calls, so that ops tell their module.

    Raises:
        DataError: The two are not of one run or `rank` contradicts the recorded one, without `allow_mismatch`; or the
            window is not in the trace, or nothing was recorded in it.
        TypeError: A trace is missing, of another kind, or, as an object, in the other's place.
    """
    given_window(window, "link(window=…)")
    rank = checked("link", rank=rank, allow_mismatch=allow_mismatch, strict=strict, modules=modules)["rank"]
    detail = None
    if device is None and is_path(host) and path_is(host, Path.is_dir):
        host, device, detail = find_pair([str(host)], rank)
    elif is_path(host) and is_path(device):
        are_hosts = [kind_of(Path(path)) is InputKind.HOST for path in (host, device)]
        host, device = (device, host) if are_hosts == [False, True] else (host, device)
    files: dict[str, Any] = {"strict": strict, "modules": modules, "detail": detail}
    return cast(LinkedTrace, link_traces(host, device, rank, allow_mismatch, window, **files))


def read_linked(path: InputFile) -> LinkedTrace:
    """Reads a linked trace, written by `LinkedTrace.write`, `trace-link` or chakra_trace_link.

    >>> import execgraph as eg
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     eg.link("tests/data/training", rank=0).write(f"{folder}/linked.json.gz")
    ...     len(eg.read_linked(f"{folder}/linked.json.gz").ops)
    204

    Args:
        path: The file to read, or the open file.

    Raises:
        DataError: The file is not a linked trace; the text says what it is.
    """
    with arguments.path_of(path) as file, reading(file, InputKind.LINKED):
        return cast(LinkedTrace, read_linked_file(file))


def convert(
    linked: TraceRecord | InputFile, options: Options | None = None, groups: Mapping[RankList, int] | None = None
) -> ExecutionGraph:
    """Converts a linked trace into the execution graph of one rank. O(n log n) in ops, calls and activities.

    The graph's `report` says what became of everything in the trace, its `changes` what was then made different for
    the target.

    >>> import execgraph as eg
    >>> graph = eg.convert(eg.link("tests/data/training", rank=0), eg.Options(host=False))
    >>> graph.report.activities
    63

    Args:
        linked: The linked trace, or its path or open file.
        options: How to convert; by default everything that is known is kept.
        groups: The numbers of the job's communicator groups, by rank list; by default they follow from this rank
            alone.

    Raises:
        DataError: The trace holds nothing that the options keep.
        TypeError: `linked` is not a linked trace, or `options` are not Options.
    """
    if not isinstance(linked, TraceRecord):
        if not arguments.is_file(linked):
            raise arguments.wrong_argument("convert(linked)", "a LinkedTrace or a linked file", linked)
        linked = read_linked(linked)
    return cast(ExecutionGraph, convert_trace(linked, options, groups))


def diagnose(inputs: Paths) -> Diagnosis:
    """Says what is in traces and what is wrong with them before any linking, as `trace-diagnose`.

    >>> import execgraph as eg
    >>> diagnosis = eg.diagnose("tests/data/training")
    >>> len(diagnosis.processes), diagnosis.wrong
    (2, 0)

    Args:
        inputs: Traces, or folders with them.

    Returns:
        What each process recorded, and the findings, each with advice.

    Raises:
        DataError: There is no trace.
        TypeError: `inputs` are not paths.
    """
    return diagnose_paths(given_paths(inputs, "diagnose(inputs)"))


def merge(inputs: Paths, output: FilePath, *, allow_mismatch: bool = False) -> MergeReport:
    """Merges the device traces of all ranks into one file, as `trace-merge`.

    >>> import execgraph as eg
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [rank.activities for rank in eg.merge("tests/data/training", f"{folder}/merged.json.gz").ranks]
    [63, 63]

    Args:
        inputs: Device traces, or folders with them.
        output: The file to write: .json or .json.gz to look at in Perfetto, .db to count in with SQL.
        allow_mismatch: Whether to merge traces that do not seem to be of one job.

    Returns:
        Where each rank comes from, and how its clock was moved.

    Raises:
        DataError: There is no trace of a single rank, or one cannot be used; or they do not seem to be of one job,
            without `allow_mismatch`.
        ValueError: The name of the output does not say what to write.
        TypeError: `inputs` are not paths.
    """
    checked("merge", allow_mismatch=allow_mismatch)
    paths = [str(path) for path in given_paths(inputs, "merge(inputs, output)")]
    return merge_traces(paths, str(output), allow_mismatch=allow_mismatch)


def generate(
    job: str,
    folder: FilePath,
    *,
    ranks: int | None = None,
    steps: int | None = None,
    layers: int | None = None,
    size_mb: float | None = None,
    seed: int = 0,
    machine_seed: int | None = None,
    sync_records: bool = True,
    stacks: int = 0,
    changes: Sequence[Mapping[str, float]] = (),
    compress: bool = False,
) -> list[tuple[Path, Path]]:
    """Simulates a training job and writes the traces that the PyTorch profiler would have written, as `trace-generate`.

    The folder also gets `truth.json`: what waited for what.

    >>> import execgraph as eg
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = eg.generate("ddp", folder, ranks=2, steps=1, layers=2)
    ...     len(files), len(eg.build(folder))
    (2, 2)

    Args:
        job: The name of a job, as `trace-generate --help` lists them.
        folder: The folder to write to; it is made if it does not exist.
        ranks: How many ranks there are; by default the job's own number.
        steps: How many training steps.
        layers: How many layers the model has.
        size_mb: About how many megabytes of traces each rank gets, in place of a number of steps.
        seed: Equal seeds give equal traces.
        machine_seed: The seed of a machine with latencies, gaps and clocks of its own; by default an undisturbed one.
        sync_records: Whether the device traces have cuda_sync rows.
        stacks: How many rows of Python's calls the device traces have for each op that Python calls.
        changes: What else to simulate: `truth.json` says how long the job takes with each of these changes, which are
            as of `what_if`.
        compress: Whether the traces are compressed.

    Returns:
        The host trace and the device trace of each rank.

    Raises:
        ValueError: There is no such job, or it cannot have this size.
        DataError: A file cannot be written.
        TypeError: An argument is of the wrong kind.
    """
    sizes: dict[str, Any] = {"ranks": ranks, "steps": steps, "layers": layers, "size_mb": size_mb, "stacks": stacks}
    sizes |= {"seed": seed, "machine_seed": machine_seed}
    checked("generate", sync_records=sync_records, compress=compress, **sizes)
    # slow to load
    from .tools.generate import makespans_of, simulate, sized_job, write_traces

    run = simulate(sized_job(job, **sizes))
    named = {" ".join(f"{selector}={factor:g}" for selector, factor in c.items()): dict(c) for c in changes}
    how: dict[str, Any] = {"sync_records": sync_records, "stacks": stacks, "compress": compress}
    files = write_traces(run, Path(folder), makespans=makespans_of(run.job, named), **how)
    return [(host, device) for host, device in files]
