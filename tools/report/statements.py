"""The sentence that each section of the page begins with: what its tables prove."""

from collections.abc import Callable, Mapping
from statistics import median

from ...schema.columns import bytes_text, time_text
from ..analyses import WHOLE, Table
from ..view import short_name
from .cells import Row, cell, rows_of, shortened, sums, times_text
from .what_if import WITHOUT_PROFILER

Tables = Mapping[str, Table]
LONGEST, STEP = 60, "ProfilerStep#"
PHASES = {
    "forward": "the forward pass", "backward": "the backward pass", "between_ops": "Python between ops",
    "data_loading": "data loading",
}  # fmt: skip


def statement(section: str, tables: Tables) -> str:
    """Returns the sentence of a section, "" where its tables prove none."""
    return STATEMENTS[section](tables) if section in STATEMENTS else ""


def what_if(tables: Tables) -> str:
    """Says which change shortens the run most, that without a profiler where it is known."""
    rows = rows_of(tables, "what_if")
    rows = [row for row in rows if row.get("run") == WITHOUT_PROFILER] or rows
    best = max(rows, key=lambda row: row["saved"], default={})
    if not best:
        return ""
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
    differences = parts or [name for name in names if not name[0].startswith(STEP)]
    what, time = max(differences, key=lambda item: abs(item[1] or 0), default=("", 0))
    if not time:
        return ""
    return f"{what} differs most: {time_text(abs(time))} {'more' if time > 0 else 'less'} in run B."


def busy_devices(tables: Tables) -> str:
    """Says for which part of their time devices are busy."""
    rows = rows_of(tables, "temporal_breakdown")
    span, busy, compute = (sum(row[column] for row in rows) for column in ("span", "busy", "compute"))
    if not span:
        return ""
    return f"From first to last activity devices are busy for {_share(busy, span)} of the time, computing for {_share(compute, span)}."


def steps(tables: Tables) -> str:
    """Says how long steps take."""
    rows = rows_of(tables, "step_breakdown")
    if not rows:
        return ""
    times = [row["time"] for row in rows]
    outliers = sum(bool(row["outlier"]) for row in rows)
    count = "1 step takes" if len(times) == 1 else f"{len(times):,} steps of all ranks take"
    spread = "" if len(times) == 1 else f" in the median, {time_text(min(times))} to {time_text(max(times))}"
    return f"{count} {time_text(median(times))}{spread}{f'; {outliers} stand out' if outliers else ''}."


def host_phases(tables: Tables) -> str:
    """Says what the main threads do most."""
    rows = rows_of(tables, "host_phases")
    whole = sum(row["time"] for row in rows)
    phases = ("forward", "backward", "optimizer", "data_loading", "waiting", "between_ops")
    times = {name: sum(row[name] for row in rows) for name in phases} if rows else {}
    largest = sorted(times, key=lambda name: -times[name])[:2]
    if not whole:
        return ""
    first, second = (f"{_share(times[name], whole)} with {PHASES.get(name, name)}" for name in largest)
    return f"Of its time the main thread spends {first}, {second}."


def idle_cause(tables: Tables) -> str:
    """Says why streams are idle, where launches are recorded."""
    spent = sums(rows_of(tables, "idle_time_breakdown"), "category", "idle")
    whole = sum(spent.values())
    if not whole or not rows_of(tables, "launch_statistics_by_api"):
        return ""
    category, time = next(iter(spent.items()))
    why = {
        "host wait": "the host launches too late",
        "kernel wait": "kernels pause before they start",
        "other": "launched work waits for other work",
    }
    return f"Streams are idle mostly because {why[category]} ({100 * time / whole:.0f} % of their idle time)."


def heaviest_kernel(tables: Tables) -> str:
    """Says which kernel takes most of the computation."""
    rows = [row for row in rows_of(tables, "kernel_breakdown_kernels") if row["class"] == "computation"]
    whole = sum(row["sum"] for row in rows)
    spent = sums([row for row in rows if row["name"] != "others"], "name", "sum")
    if not whole or not spent:
        return ""
    name, time = next(iter(spent.items()))
    return f"The heaviest kernel is {_name(name)} with {100 * time / whole:.0f} % of the computation."


def critical_path(tables: Tables) -> str:
    """Says what the critical path consists of, if of several kinds of time."""
    spent = sums(rows_of(tables, "critical_path"), "kind", "time")
    whole = sum(spent.values())
    parts = [f"{100 * time / whole:.0f} % {kind}" for kind, time in spent.items() if time >= 0.01 * whole]
    # that a run without a device is on the host alone is no news
    return f"The critical path is {', '.join(parts[:4])}." if len(parts) > 1 else ""


def whole_critical_path(tables: Tables) -> str:
    """Says the same, or what all of the path is."""
    kinds = sums(rows_of(tables, "critical_path"), "kind", "time")
    kind, time = next(iter(kinds.items()), ("", 0.0))
    share = _share(time, sum(kinds.values()) or 1.0)
    consists = critical_path(tables) or (
        f"{'All' if share == '100 %' else share} of the critical path is {kind} time." if kind else ""
    )
    crossings = sum(row["crossings"] for row in rows_of(tables, "critical_path_between_ranks"))
    return f"{consists} It goes from rank to rank {times_text(crossings)}." if crossings else consists


def hidden_communication(tables: Tables) -> str:
    """Says how much of the communication is hidden."""
    rows = rows_of(tables, "communication_computation_overlap")
    whole = sum(row["communication"] for row in rows)
    if not whole:
        return ""
    return f"{_share(sum(row['overlap'] for row in rows), whole)} of the communication is hidden behind computation."


def collectives(tables: Tables) -> str:
    """Says how long ranks wait for each other, or how many collectives there are."""
    count = len(rows_of(tables, "collectives_over_ranks"))
    waits = rows_of(tables, "collectives_over_ranks_waits_by_rank")
    waited = sum(row["waited"] for row in waits)
    if not waited:
        return f"{count:,} collectives were recorded." if count else ""
    rank, awaited = next(iter(sums(waits, "rank", "awaited").items()))
    return (
        f"In {count:,} collectives ranks wait {time_text(waited)} in all for others, {_share(awaited, waited)} of that for "
        f"rank {rank}."
    )


def memory(tables: Tables) -> str:
    """Says where memory peaks."""
    rows = rows_of(tables, "memory_timeline_peak")
    if not rows:
        return ""
    most = max(rows, key=lambda row: row["peak"])
    where = "the host" if most["device"] < 0 else f"device {most['device']}"
    step = f", in {most['step']}" if most["step"] else ""
    before = f"; {bytes_text(most['before'])} were there before the recording" if most["before"] else ""
    return f"Memory of {where} of rank {most['rank']} peaks at {bytes_text(most['peak'])}{step}{before}."


def durations(tables: Tables) -> str:
    """Says how the durations of the kernel that takes most time vary."""
    rows = rows_of(tables, "kernel_duration_distribution")
    if not rows:
        return ""
    most = max(rows, key=lambda row: row["sum"])
    spread = f"{time_text(most['q05'])} to {time_text(most['q95'])} for nine of ten"
    return f"{_name(most['name'])}, of most time, takes {time_text(most['q50'])} in the median, {spread}."


def launches(tables: Tables) -> str:
    """Says how many launches take longer than what they launch."""
    rows = rows_of(tables, "launch_statistics_by_api")
    count, short = (sum(row[column] for row in rows) for column in ("launches", "short"))
    if not count:
        return ""
    return (
        f"{_share(short, count)} of {count:,} launches take the host longer than the device takes for what they launch."
    )


def queues(tables: Tables) -> str:
    """Says how much work is queued."""
    rows = [row for row in rows_of(tables, "counters_summary") if row["counter"] == "queue length"]
    most = max(rows, key=lambda row: row["mean"], default={})
    text = "Stream {stream} of device {device} of rank {rank} has the longest queue: {mean:.1f} activities on average, up to {max:.0f}."
    return text.format(**most) if most else ""


def patterns(tables: Tables) -> str:
    """Says which sequence of kernels takes most time."""
    rows = rows_of(tables, "frequent_kernel_patterns")
    rows = [row for row in rows if row["length"] > 1] or rows
    if not rows:
        return ""
    most = max(rows, key=lambda row: row["device_time"])
    kernels = "the same kernel" if most["length"] == 1 else f"the same {most['length']} kernels in a row"
    return f"{_name(most['operator'])} launches {kernels} {times_text(most['count'])}, for {time_text(most['device_time'])}."


def graphs(tables: Tables) -> str:
    """Says how often graphs are launched."""
    launched = sums(rows_of(tables, "graph_replays"), "rank", "launches")
    return f"Graphs are launched {times_text(sum(launched.values()))}." if launched else ""


def ops_of_device(tables: Tables) -> str:
    """Says which op takes devices longest."""
    return _largest_share(
        rows_of(tables, "per_op_device_time_by_name"), "of the devices' time in ops is work launched by"
    )


def ops_of_host(tables: Tables) -> str:
    """Says which op takes the host longest."""
    return _largest_share(rows_of(tables, "host_time_per_op"), "of the host's time in ops goes to")


def _largest_share(rows: list[Row], what: str) -> str:
    spent = sums(rows, "name", "self")
    whole = sum(spent.values())
    if not whole:
        return ""
    name, time = next(iter(spent.items()))
    return f"{_share(time, whole)} {what} {_name(name)}: {time_text(time)}."


def efficiency(tables: Tables) -> str:
    """Says what the op of most time reaches of its device's peak."""
    rows = [row for row in rows_of(tables, "efficiency") if row["bound"]]
    if not rows:
        return ""
    most = max(rows, key=lambda row: row["time"])
    column, of = ("speed_pct", "speed") if most["bound"] == "compute" else ("bandwidth_pct", "memory bandwidth")
    name = shortened(f"{most['op']} {most['shape']}", LONGEST)
    if most[column] is None:
        return f"{name}, of most time, moves bytes faster than the device's memory can: a cache serves it."
    return f"{name}, of most time, reaches {cell(most[column])} % of the device's peak in {of}."


def hardware_counters(tables: Tables) -> str:
    """Says how many kernels were measured, and which did most floating-point operations."""
    rows = rows_of(tables, "cupti_counters")
    flops_by_kernel = {name: flops for name, flops in sums(rows, "kernel", "flops").items() if flops}
    most = f"; most floating-point operations are of {_name(next(iter(flops_by_kernel)))}" if flops_by_kernel else ""
    return f"Counters were recorded of {len(rows):,} kernel{'s' * (len(rows) > 1)}{most}." if rows else ""


def modules(tables: Tables) -> str:
    """Says which module takes most time: the outermost one that is not all."""
    rows = rows_of(tables, "modules")
    column = "device_subtree" if any(row["device_subtree"] for row in rows) else "host_subtree"
    outer = [row for row in rows if row["depth"] == 0]
    whole = sum(row[column] for row in outer)
    if not whole:
        return ""
    inner = [row for row in rows if row["depth"] == 1]
    name, time = next(iter(sums(outer if len(outer) > 1 or not inner else inner, "path", column).items()))
    of = "device" if column.startswith("device") else "host"
    return f"{shortened(name, LONGEST)} takes {_share(time, whole)} of the {of} time in modules."


def _name(name: str) -> str:
    return shortened(short_name(name), LONGEST)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


STATEMENTS: dict[str, Callable[[Tables], str]] = {
    "what_if": what_if,
    "trace_diff": difference,
    "temporal_breakdown": busy_devices,
    "step_breakdown": steps,
    "host_phases": host_phases,
    "idle_time_breakdown": idle_cause,
    "kernel_breakdown": heaviest_kernel,
    "critical_path": whole_critical_path,
    "communication_computation_overlap": hidden_communication,
    "collectives_over_ranks": collectives,
    "memory_timeline": memory,
    "kernel_duration_distribution": durations,
    "launch_statistics": launches,
    "counters": queues,
    "frequent_kernel_patterns": patterns,
    "graph_replays": graphs,
    "cupti_counters": hardware_counters,
    "per_op_device_time": ops_of_device,
    "host_time_per_op": ops_of_host,
    "efficiency": efficiency,
    "modules": modules,
}
"""The function that says what each section proves, by the section's name."""
