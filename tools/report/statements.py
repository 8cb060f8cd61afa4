"""What the tables of each section of the page prove, in a sentence; a statement is "" where they prove none."""

from collections.abc import Callable, Mapping
from functools import wraps
from statistics import median
from typing import Any

from ...schema.columns import bytes_text, time_text
from ...schema.linked import STEP_MARK
from ..analyses import WHOLE, Table
from ..view import short_name
from .cells import Row, cell, rows_of, shortened, sums, times_text
from .what_if import UNPROFILED

Tables = Mapping[str, Table]
LONGEST = 60
PHASES = {
    "forward": "the forward pass", "backward": "the backward pass", "optimizer": "optimizer",
    "data_loading": "data loading", "waiting": "waiting", "between_ops": "Python between ops",
}  # fmt: skip
IDLE_CAUSES = {
    "host wait": "the host launches too late", "kernel wait": "kernels pause before they start",
    "other": "launched work waits for other work",
}  # fmt: skip


Statement = Callable[[Tables], str]


def _of(table: str) -> Callable[[Callable[[list[Row], Tables], str]], Statement]:
    """Makes a statement of what is said of a table's rows: "" where it has none."""

    def made(say: Callable[[list[Row], Tables], str]) -> Statement:
        @wraps(say)
        def statement(tables: Tables) -> str:
            rows = rows_of(tables, table)
            return say(rows, tables) if rows else ""

        return statement

    return made


def _sum(rows: list[Row], column: str) -> Any:
    return sum(row[column] for row in rows)


def _most(rows: list[Row], column: str) -> Row:
    return max(rows, key=lambda row: row[column])


def _name(name: str) -> str:
    return shortened(short_name(name), LONGEST)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


@_of("what_if")
def what_if(rows: list[Row], _: Tables) -> str:
    """Says which change shortens the run most, that without a profiler where it is known."""
    best = _most([row for row in rows if row.get("run") == UNPROFILED] or rows, "saved")
    run = f"run {best['run']}" if "run" in best else "run"
    return f"With {best['change']} the {run} is {best['saved_pct']:.0f} % shorter."


def difference(tables: Tables) -> str:
    """Says what two runs spend their time on most differently, else which op or kernel differs most."""
    parts = [
        (row["part"].replace(": ", " ").capitalize(), row["difference"])
        for row in rows_of(tables, "trace_diff_runs")
        if row["part"] not in WHOLE
    ]
    names = [(_name(row["name"]), row["difference"]) for row in rows_of(tables, "trace_diff")]
    differences = parts or [name for name in names if not name[0].startswith(STEP_MARK)]
    what, time = max(differences, key=lambda item: abs(item[1] or 0), default=("", 0))
    more = "more" if (time or 0) > 0 else "less"
    return f"{what} differs most: {time_text(abs(time))} {more} in run B." if time else ""


@_of("temporal_breakdown")
def busy_devices(rows: list[Row], _: Tables) -> str:
    """Says for which part of their time devices are busy."""
    span = _sum(rows, "span")
    if not span:
        return ""
    busy, computing = (_share(_sum(rows, column), span) for column in ("busy", "compute"))
    return f"From first to last activity devices are busy for {busy} of the time, computing for {computing}."


@_of("step_breakdown")
def steps(rows: list[Row], _: Tables) -> str:
    """Says how long steps take."""
    times = [row["time"] for row in rows]
    outliers = sum(bool(row["outlier"]) for row in rows)
    count = "1 step takes" if len(times) == 1 else f"{len(times):,} steps of all ranks take"
    spread = "" if len(times) == 1 else f" in the median, {time_text(min(times))} to {time_text(max(times))}"
    return f"{count} {time_text(median(times))}{spread}{f'; {outliers} stand out' if outliers else ''}."


@_of("host_phases")
def host_phases(rows: list[Row], _: Tables) -> str:
    """Says what the main threads do most."""
    whole = _sum(rows, "time")
    times = {name: _sum(rows, name) for name in PHASES}
    largest = sorted(times, key=lambda name: -times[name])[:2]
    if not whole:
        return ""
    spent = (f"{_share(times[name], whole)} with {PHASES[name]}" for name in largest)
    return f"Of its time the main thread spends {', '.join(spent)}."


@_of("idle_time_breakdown")
def idle_cause(rows: list[Row], tables: Tables) -> str:
    """Says why streams are idle, where launches are recorded."""
    spent = sums(rows, "category", "idle")
    whole = sum(spent.values())
    if not whole or not rows_of(tables, "launch_statistics_by_api"):
        return ""
    category, time = next(iter(spent.items()))
    return f"Streams are idle mostly because {IDLE_CAUSES[category]} ({_share(time, whole)} of their idle time)."


@_of("kernel_breakdown_kernels")
def heaviest_kernel(rows: list[Row], _: Tables) -> str:
    """Says which kernel takes most of the computation."""
    kernels = [row for row in rows if row["class"] == "computation"]
    spent = sums([row for row in kernels if row["name"] != "others"], "name", "sum")
    whole = _sum(kernels, "sum")
    if not whole or not spent:
        return ""
    name, time = next(iter(spent.items()))
    return f"The heaviest kernel is {_name(name)} with {_share(time, whole)} of the computation."


@_of("critical_path")
def critical_path(rows: list[Row], _: Tables) -> str:
    """Says what the critical path consists of, if of several kinds of time."""
    spent = sums(rows, "kind", "time")
    whole = sum(spent.values())
    parts = [f"{_share(time, whole)} {kind}" for kind, time in spent.items() if time >= 0.01 * whole]
    # that a run without a device is on the host alone is no news
    return f"The critical path is {', '.join(parts[:4])}." if len(parts) > 1 else ""


@_of("critical_path")
def whole_critical_path(rows: list[Row], tables: Tables) -> str:
    """Says the same, or what all of the path is."""
    kinds = sums(rows, "kind", "time")
    kind, time = next(iter(kinds.items()))
    share = _share(time, sum(kinds.values()) or 1.0)
    all_of = "All" if share == "100 %" else share
    consists = critical_path(tables) or f"{all_of} of the critical path is {kind} time."
    crossings = _sum(rows_of(tables, "critical_path_between_ranks"), "crossings")
    return f"{consists} It goes from rank to rank {times_text(crossings)}." if crossings else consists


@_of("communication_computation_overlap")
def hidden_communication(rows: list[Row], _: Tables) -> str:
    """Says how much of the communication is hidden."""
    whole = _sum(rows, "communication")
    hidden = _share(_sum(rows, "overlap"), whole) if whole else ""
    return f"{hidden} of the communication is hidden behind computation." if whole else ""


@_of("collectives_over_ranks")
def collectives(rows: list[Row], tables: Tables) -> str:
    """Says how long ranks wait for each other, or how many collectives there are."""
    waits = rows_of(tables, "collectives_over_ranks_waits_by_rank")
    waited = _sum(waits, "waited")
    if not waited:
        return f"{len(rows):,} collectives were recorded."
    rank, awaited = next(iter(sums(waits, "rank", "awaited").items()))
    of_rank = f"{_share(awaited, waited)} of that for rank {rank}"
    return f"In {len(rows):,} collectives ranks wait {time_text(waited)} in all for others, {of_rank}."


@_of("memory_timeline_peak")
def memory(rows: list[Row], _: Tables) -> str:
    """Says where memory peaks."""
    most = _most(rows, "peak")
    where = "the host" if most["device"] < 0 else f"device {most['device']}"
    step = f", in {most['step']}" if most["step"] else ""
    before = f"; {bytes_text(most['before'])} were there before the recording" if most["before"] else ""
    return f"Memory of {where} of rank {most['rank']} peaks at {bytes_text(most['peak'])}{step}{before}."


@_of("kernel_duration_distribution")
def durations(rows: list[Row], _: Tables) -> str:
    """Says how the durations of the kernel that takes most time vary."""
    most = _most(rows, "sum")
    spread = f"{time_text(most['q05'])} to {time_text(most['q95'])} for nine of ten"
    return f"{_name(most['name'])}, of most time, takes {time_text(most['q50'])} in the median, {spread}."


@_of("launch_statistics_by_api")
def launches(rows: list[Row], _: Tables) -> str:
    """Says how many launches take longer than what they launch."""
    count, short = _sum(rows, "launches"), _sum(rows, "short")
    of_all = f"{_share(short, count)} of {count:,} launches" if count else ""
    return f"{of_all} take the host longer than the device takes for what they launch." if count else ""


@_of("counters_summary")
def queues(rows: list[Row], _: Tables) -> str:
    """Says how much work is queued."""
    lengths = [row for row in rows if row["counter"] == "queue length"]
    text = "Stream {stream} of device {device} of rank {rank} has the longest queue: {mean:.1f} activities on average, up to {max:.0f}."
    return text.format(**_most(lengths, "mean")) if lengths else ""


@_of("frequent_kernel_patterns")
def patterns(rows: list[Row], _: Tables) -> str:
    """Says which sequence of kernels takes most time."""
    most = _most([row for row in rows if row["length"] > 1] or rows, "device_time")
    kernels = "the same kernel" if most["length"] == 1 else f"the same {most['length']} kernels in a row"
    often = f"{times_text(most['count'])}, for {time_text(most['device_time'])}"
    return f"{_name(most['operator'])} launches {kernels} {often}."


@_of("graph_replays")
def graphs(rows: list[Row], _: Tables) -> str:
    """Says how often graphs are launched."""
    return f"Graphs are launched {times_text(sum(sums(rows, 'rank', 'launches').values()))}."


@_of("per_op_device_time_by_name")
def ops_of_device(rows: list[Row], _: Tables) -> str:
    """Says which op takes devices longest."""
    return _largest_share(rows, "of the devices' time in ops is work launched by")


@_of("host_time_per_op")
def ops_of_host(rows: list[Row], _: Tables) -> str:
    """Says which op takes the host longest."""
    return _largest_share(rows, "of the host's time in ops goes to")


def _largest_share(rows: list[Row], what: str) -> str:
    spent = sums(rows, "name", "self")
    whole = sum(spent.values())
    name, time = next(iter(spent.items()))
    return f"{_share(time, whole)} {what} {_name(name)}: {time_text(time)}." if whole else ""


@_of("efficiency")
def efficiency(rows: list[Row], _: Tables) -> str:
    """Says what the op of most time reaches of its device's peak."""
    bound = [row for row in rows if row["bound"]]
    if not bound:
        return ""
    most = _most(bound, "time")
    column, of = ("speed_pct", "speed") if most["bound"] == "compute" else ("bandwidth_pct", "memory bandwidth")
    name = shortened(f"{most['op']} {most['shape']}", LONGEST)
    if most[column] is None:
        return f"{name}, of most time, moves bytes faster than the device's memory can: a cache serves it."
    return f"{name}, of most time, reaches {cell(most[column])} % of the device's peak in {of}."


@_of("cupti_counters")
def hardware_counters(rows: list[Row], _: Tables) -> str:
    """Says how many kernels were measured, and which did most floating-point operations."""
    kernel, flops = next(iter(sums(rows, "kernel", "flops").items()))
    most = f"; most floating-point operations are of {_name(kernel)}" if flops else ""
    return f"Counters were recorded of {len(rows):,} kernel{'s' * (len(rows) > 1)}{most}."


@_of("modules")
def modules(rows: list[Row], _: Tables) -> str:
    """Says which module takes most time: the outermost one that is not all."""
    of = "device" if any(row["device_subtree"] for row in rows) else "host"
    column = f"{of}_subtree"
    outer, inner = ([row for row in rows if row["depth"] == depth] for depth in (0, 1))
    whole = _sum(outer, column)
    name, time = next(iter(sums(outer if len(outer) > 1 or not inner else inner, "path", column).items()))
    return f"{shortened(name, LONGEST)} takes {_share(time, whole)} of the {of} time in modules." if whole else ""
