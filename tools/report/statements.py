"""What a report says of its tables in words: figures, a sentence for each section, and which of two runs is faster."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from ...schema.columns import shortened, time_text
from ...schema.linked import STEP_MARK
from ..analyses import DATA_WITHOUT_PROFILER, RUN, SYMPTOMS, WHOLE, WITHOUT_PROFILER, Gain, Table
from ..view import short_name
from .cells import Row, cell, rows_of, sums, times_text

Tables = Mapping[str, Table]
Statement = Callable[[Tables], str]
STATEMENTS: dict[str, Statement] = {}
"""What the tables of each section of the page prove, in a sentence; a statement is "" where they prove nothing."""
LONGEST = 60
PHASES = {
    "forward_and_other": "the forward pass and other ops", "backward": "the backward pass", "optimizer": "optimizer",
    "data_loading": "data loading", "waiting": "waiting", "between_ops": "Python between ops",
}  # fmt: skip
IDLE_CAUSES = {
    "host wait": "the host launches too late", "kernel wait": "kernels pause before they start",
    "other": "launched work waits for other work",
}  # fmt: skip
WORK = {
    "computation": ("kernel",), "communication": ("communication",), "memory": ("copy or set", "copies and sets"),
}  # fmt: skip
"""What the activities of a class are called."""
FACTS = ("kernel_breakdown", "communication_computation_overlap", "idle_time_breakdown")
"""The sections whose statements are facts of the run, too."""
NO_DEVICE = "No device activity was recorded: the page shows the host alone."
DIFFERENCES, OF_TWO_RUNS, LEAST_CHANGE_PCT, UNLIKE_PCT = 4, "trace_diff_runs", 1.0, 400.0
MOST_NOISE_PCT = 20.0
"""Runs whose steps differ by more by chance may differ by much without it being seen."""


# At the top


class KeyFigure(NamedTuple):
    """A number with its unit, its label, and its range over ranks."""

    value: str
    label: str
    detail: str = ""


def key_figures(tables: Tables) -> Iterator[KeyFigure]:
    """Yields the figures of the run, such as its length and how its devices spent it, or those of two runs."""
    if OF_TWO_RUNS in tables:
        yield from _figures_of_two_runs(tables)
        return
    ranks, replays = rows_of(tables, "ranks"), rows_of(tables, "critical_path_replay")
    devices = [row for row in rows_of(tables, "temporal_breakdown") if row["span"]]
    measured = [row["measured"] for row in replays if row["measured"]]
    if ranks:
        yield KeyFigure(cell(len(ranks)), "ranks")
    if measured:
        job = replays[0]["ranks"]
        yield KeyFigure(time_text(measured[0]), "run", f"of all {job} ranks" if job > 1 else "")
    if devices:
        whole = measured[0] if measured else max(row["span"] for row in devices)
        for label, column in (("device busy", "busy"), ("computing", "compute")):
            shares = [100 * row[column] / (whole or 1.0) for row in devices]
            yield _figure_over_ranks(label, shares, "{:.1f} %".format, "of the run")
    if overlapping := rows_of(tables, "communication_computation_overlap"):
        exposed = [row["exposed_communication"] for row in overlapping]
        yield _figure_over_ranks("exposed communication", exposed, time_text)
    if devices:
        yield KeyFigure(cell(_sum(devices, "activities")), "device activities")
    elif ranks and not _sum(ranks, "activities"):
        yield KeyFigure(cell(_sum(ranks, "host_ops")), "host ops")
        yield KeyFigure("none", "device activities")


def _figures_of_two_runs(tables: Tables) -> Iterator[KeyFigure]:
    ranks = Counter(row["run"] for row in rows_of(tables, "ranks"))
    kernels = [row for row in rows_of(tables, "trace_diff") if row["kind"] == "kernel"]
    of_kernels = {"a": _sum(kernels, "time_a"), "b": _sum(kernels, "time_b"), "part": "time of all device activities"}
    wholes = [row for row in rows_of(tables, OF_TWO_RUNS) if row["part"] in WHOLE]
    # of different numbers of steps, as the runs have no change
    if any(row["part"] == RUN and row["change"] is None for row in wholes):
        of_kernels["part"] += " of a step"
    for row in [*wholes, *([of_kernels] if of_kernels["a"] or of_kernels["b"] else [])]:
        yield KeyFigure(f"{time_text(row['a'])} → {time_text(row['b'])}", row["part"])
    yield KeyFigure(f"{ranks['A']} → {ranks['B']}", "ranks")


def _figure_over_ranks(label: str, values: list[float], text: Callable[[float], str], of: str = "") -> KeyFigure:
    """Returns the mean, and the range if ranks differ."""
    low, high = text(min(values)), text(max(values))
    by_rank = "" if low == high else f"{low.removesuffix(high.lstrip('0123456789.,'))} to {high} by rank"
    return KeyFigure(text(sum(values) / len(values)), label, "; ".join(filter(None, (of, by_rank))))


def facts(tables: Tables) -> list[str]:
    """Returns sentences on what ran and where the time went, each from an analysis that found something."""
    ranks, devices = rows_of(tables, "ranks"), rows_of(tables, "temporal_breakdown")
    said = [NO_DEVICE] if ranks and not _sum(ranks, "activities") else []
    if OF_TWO_RUNS in tables:
        return [*said, *_run_difference(tables)]
    count, ops = sums(rows_of(tables, "kernel_breakdown_kernels"), "class", "count"), _sum(ranks, "host_ops")
    parts = [_count_text(count[of], *words) for of, words in WORK.items() if of in count]
    ran = [f"{', '.join(parts)} ran on {_count_text(len(devices), 'device')}"] if parts else []
    ran += [f"{_count_text(ops, 'host op')} on {_count_text(len(ranks), 'rank')}"] if ops else []
    proved = [STATEMENTS[section](tables) for section in FACTS]
    path = _path_text(rows_of(tables, "critical_path"))
    return [*filter(None, (f"{', '.join(ran)}." if ran else "", *said, *proved, path))]


def _count_text(number: float, singular: str, plural: str = "") -> str:
    return f"{number:,.0f} {singular if number == 1 else plural or singular + 's'}"


def _run_difference(tables: Tables) -> Iterator[str]:
    """Yields the parts of the run that differ most, then the kernels, or without a device the ops."""
    parts = [row for row in rows_of(tables, OF_TWO_RUNS) if row["part"] not in WHOLE and row["difference"]]
    for row in parts[:DIFFERENCES]:
        yield f"{row['part'].capitalize()}: {_signed(row['difference'])} ({time_text(row['a'])} → {time_text(row['b'])})."
    items = rows_of(tables, "trace_diff")
    kernels = [row for row in items if row["kind"] == "kernel"]
    ops = [row for row in items if not row["name"].startswith(STEP_MARK)]
    for row in [row for row in kernels or ops if row["difference"]][:DIFFERENCES]:
        name = f"{_name(row['name'])} {shortened(row['shape'], 24)}".strip()
        yield f"{name}: {_signed(row['difference'])} ({row['category']}, {row['count_a']:,} → {row['count_b']:,} of them)."


def _signed(time: float) -> str:
    return f"{'+' if time > 0 else '−'}{time_text(abs(time))}"


def overlap(gain: Gain) -> str:
    """Returns that the gains of findings cannot be added, and what all of them bring together."""
    return f"These gains overlap: all of it together would save {gain.share}, {gain.time}."


# Two runs


def diff_verdict(tables: Tables) -> str:
    """Returns whether run B is faster or slower than run A, by how much, and what the largest difference is."""
    rows = rows_of(tables, OF_TWO_RUNS)
    whole = {row["part"]: row for row in rows if row["part"] in WHOLE and row["change"] is not None}
    without, waits = whole.pop(WITHOUT_PROFILER, None), [row for row in rows if row["part"] == DATA_WITHOUT_PROFILER]
    if not whole:
        return ""
    first = next(iter(whole.values()))
    if without and _may_be_alike(without, first):
        both, noise = ((without, "unprofiled"), (first, "recorded")), without["noise"]
        times = ", ".join(f"{_change(row)} {how} ({row['change']:+.1f} %)" for row, how in both)
        is_alike = max(abs(row["change"]) for row, _ in both) <= noise <= MOST_NOISE_PCT
        how = "do not differ, as far as can be told" if is_alike else "may differ, but that is not certain"
        return f"Run A and run B {how}: a step takes {times}, and steps of one program may differ by {noise:.0f} %."
    work = _work_ratio(tables) if first["part"] == RUN else 1.0
    if abs(pct := 100 * (work - 1)) >= LEAST_CHANGE_PCT:
        per_work = 100 * (first["b"] / work / first["a"] - 1)
        return (
            "Run A and run B hold different work, and no steps are marked that could be compared: run B does most of it "
            f"{_more(pct)} often. The run takes {_change(first)}, which for as much work is {_more(per_work)} time."
        )
    text = _faster(first)
    if max(first["change"], 100 * first["a"] / (first["b"] or 1) - 100) > UNLIKE_PCT:
        text += ", so the two may be of different programs"
    # what recording did to steps that waited for data says nothing of them
    waited = [row for row in waits if without and 2 * row["difference"] / (without["difference"] or 1) > 1]
    of_recording = [row for row in rows if row["part"] not in (*WHOLE, DATA_WITHOUT_PROFILER)]
    parts = [row for row in of_recording if row["difference"] * first["difference"] > 0 and not waited]
    if parts and abs(first["change"]) >= LEAST_CHANGE_PCT:
        causes = [row for row in parts if row["part"] not in SYMPTOMS]
        largest = next((row for row in causes if 2 * abs(row["difference"]) > abs(parts[0]["difference"])), parts[0])
        most = "Most" if 2 * abs(largest["difference"]) > abs(first["difference"]) else "The largest part"
        ranks = Counter(row["run"] for row in rows_of(tables, "ranks"))
        # what one rank does more, the others wait for
        of_mean = f" in the mean of {ranks['A']} ranks" if ranks["A"] == ranks["B"] > 1 else ""
        text += f". {most} of that is {largest['part'].replace(': ', ' ')}, {_change(largest)}{of_mean}"
    if without is None:
        return f"{text}."
    unprofiled, recorded = (sentence.replace("Run", "run", 1) for sentence in (_faster(without), text))
    cause = "".join(f". Most of that is the wait for data, {_change(row)}" for row in waited)
    return f"Unprofiled, {unprofiled}{cause}. Recorded, {recorded}."


def _more(pct: float) -> str:
    return f"{abs(pct):.0f} % {'less' if pct < 0 else 'more'}"


def _work_ratio(tables: Tables) -> float:
    """Returns how many times as often run B does what both runs do: the median of kernels, or ops, by their time."""
    items = [row for row in rows_of(tables, "trace_diff") if row["count_a"] and row["count_b"] and row["time_a"]]
    kernels = [row for row in items if row["kind"] == "kernel"]
    by_ratio = sorted((row["count_b"] / row["count_a"], row["time_a"]) for row in kernels or items)
    half = sum(time for _, time in by_ratio) / 2
    reached = accumulate(time for _, time in by_ratio)
    return next((ratio for (ratio, _), time in zip(by_ratio, reached, strict=True) if time >= half), 1.0)


def _may_be_alike(without: Row, recorded: Row) -> bool:
    """Returns whether steps may differ by chance: not both times by more than noise, or not in the same direction."""
    noise, changes = without.get("noise") or 0.0, (without["change"], recorded["change"])
    return bool(noise > 0 and (min(map(abs, changes)) < noise or changes[0] * changes[1] < 0))


def _faster(row: Row) -> str:
    """Returns whether run B is faster or slower, by the step or the run of a row."""
    pct = row["change"]
    how = "as fast as" if abs(pct) < LEAST_CHANGE_PCT else "faster than" if pct < 0 else "slower than"
    change = f"{abs(pct):.1f} % {'less' if pct < 0 else 'more'} time, "
    change = f"{1 + pct / 100:.1f} times as long, " if pct > UNLIKE_PCT else change
    is_same = time_text(row["a"]) == time_text(row["b"])
    takes = f"takes {'' if is_same else change}{_change(row)}"
    return f"Run B is {how} run A: {'the run' if row['part'] == RUN else 'a step'} {takes}"


def _change(row: Row) -> str:
    before, after = time_text(row["a"]), time_text(row["b"])
    return f"{after} in both" if before == after else f"{after} instead of {before}"


# Sections of the page


def _of(*names: str, section: str = "") -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Makes the statement of a section, that of the first table, from what is said of the rows of these tables."""

    def add(say: Callable[..., str]) -> Callable[..., str]:
        def statement(tables: Tables) -> str:
            rows = [rows_of(tables, name) for name in names]
            return say(*rows) if any(rows) else ""

        STATEMENTS[section or names[0]] = statement
        return say

    return add


def _sum(rows: list[Row], column: str) -> Any:
    return sum(row[column] for row in rows)


def _name(name: str) -> str:
    return shortened(short_name(name), LONGEST)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / (whole or 1):.0f} %"


def _largest(rows: list[Row], key: str, value: str) -> tuple[Any, float, float]:
    """Returns the key with the largest sum of values, that sum, and the sum over all keys."""
    spent = sums(rows, key, value)
    largest, time = next(iter(spent.items()), ("", 0.0))
    return largest, time, sum(spent.values())


@_of("idle_time_breakdown", "launch_statistics_by_api")
def _idle_cause(rows: list[Row], launches: list[Row]) -> str:
    category, time, whole = _largest(rows, "category", "idle")
    why = f"{IDLE_CAUSES.get(category)} ({_share(time, whole)} of their idle time)"
    return f"Streams are idle mostly because {why}." if whole and launches else ""


@_of("kernel_breakdown_kernels", section="kernel_breakdown")
def _heaviest_kernel(rows: list[Row]) -> str:
    kernels = [row for row in rows if row["class"] == "computation"]
    name, time, named = _largest([row for row in kernels if row["name"] != "others"], "name", "sum")
    share = _share(time, _sum(kernels, "sum"))
    return f"The heaviest kernel is {_name(name)} with {share} of the computation." if named else ""


def _path_text(rows: list[Row]) -> str:
    """Returns what the critical path consists of; "" if of one kind of time, as that of a run without a device is."""
    spent = sums(rows, "kind", "time")
    whole = sum(spent.values())
    parts = [f"{_share(time, whole)} {kind}" for kind, time in spent.items() if time >= 0.01 * whole]
    return f"The critical path is {', '.join(parts[:4])}." if len(parts) > 1 else ""


@_of("critical_path", "critical_path_between_ranks")
def _critical_path(rows: list[Row], between_ranks: list[Row]) -> str:
    kind, time, whole = _largest(rows, "kind", "time")
    share, crossings = _share(time, whole), _sum(between_ranks, "crossings")
    consists = _path_text(rows) or f"{'All' if share == '100 %' else share} of the critical path is {kind} time."
    return f"{consists} It goes from rank to rank {times_text(crossings)}." if crossings else consists


@_of("communication_computation_overlap")
def _hidden_communication(rows: list[Row]) -> str:
    whole = _sum(rows, "communication")
    return f"{_share(_sum(rows, 'overlap'), whole)} of the communication is hidden behind computation." if whole else ""


@_of("collectives_over_ranks", "collectives_over_ranks_waits_by_rank")
def _collectives(rows: list[Row], waits: list[Row]) -> str:
    waited = _sum(waits, "waited")
    rank, awaited, _ = _largest(waits, "rank", "awaited")
    of_rank = f"ranks wait {time_text(waited)} in all for others, {_share(awaited, waited)} of that for rank {rank}"
    return f"In {len(rows):,} collectives {of_rank}." if waited else f"{len(rows):,} collectives were recorded."


@_of("per_op_device_time_by_name", section="per_op_device_time")
def _ops_of_device(rows: list[Row]) -> str:
    name, time, whole = _largest(rows, "name", "self")
    of_name = f"{_share(time, whole)} of the devices' time in ops is work launched by {_name(name)}: {time_text(time)}."
    return of_name if whole else ""
