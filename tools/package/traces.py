"""What is done with traces besides linking: looking for what is wrong, merging ranks, and making traces up."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from .schema.arguments import FilePath, Paths, given_paths
from .tools.job import Diagnosis, MergeReport, diagnose as diagnose_paths, merge_traces
from .tools.options import checked


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


def merge(inputs: Paths, output: FilePath) -> MergeReport:
    """Merges the device traces of all ranks into one file, as `trace-merge`.

    >>> import execgraph as eg
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [rank.activities for rank in eg.merge("tests/data/training", f"{folder}/merged.json.gz").ranks]
    [63, 63]

    Args:
        inputs: Device traces, or folders with them.
        output: The file to write: .json or .json.gz to look at in Perfetto, .db to count in with SQL.

    Returns:
        Where each rank comes from, and how its clock was moved.

    Raises:
        DataError: There is no trace of a single rank, or one cannot be used.
        ValueError: The name of the output does not say what to write.
        TypeError: `inputs` are not paths.
    """
    return merge_traces([str(path) for path in given_paths(inputs, "merge(inputs, output)")], str(output))


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
    sizes = {"ranks": ranks, "steps": steps, "layers": layers, "size_mb": size_mb, "stacks": stacks}
    checked("generate", seed=seed, machine_seed=machine_seed, sync_records=sync_records, compress=compress, **sizes)
    # slow to load
    from .tools.generate import DEFAULT, build_job, draw_machine, simulate, sized_job, write_traces

    machine = DEFAULT if machine_seed is None else draw_machine(machine_seed)
    of_steps = partial(build_job, job, ranks=ranks, layers=layers, seed=seed, machine=machine)
    sized = (
        of_steps(steps=steps)
        if size_mb is None
        else sized_job(lambda count: of_steps(steps=count), size_mb, stacks=stacks)
    )
    run = simulate(sized)
    makespans = {
        " ".join(f"{selector}={factor:g}" for selector, factor in change.items()): simulate(
            sized, dict(change), refuse_unused=True
        ).makespan_ns
        for change in changes
    }
    files = write_traces(
        run, Path(folder), sync_records=sync_records, stacks=stacks, compress=compress, makespans=makespans
    )
    return [(host, device) for host, device in files]
