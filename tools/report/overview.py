"""The top of a report: a few figures, and sentences on what ran and where the time went."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...schema.columns import time_text
from ...schema.linked import STEP_MARK
from ..analyses import WHOLE, WITHOUT_PROFILER, Gain
from ..view import short_name
from .cells import Row, cell, rows_of, shortened, sums
from .statements import Tables, critical_path, heaviest_kernel, hidden_communication, idle_cause

WORK = {
    "computation": ("kernel",), "communication": ("communication",), "memory": ("copy or set", "copies and sets"),
}  # fmt: skip
"""What the activities of a class are called."""
SYMPTOMS = ("device: idle", "host: waiting")
"""Parts of a run that follow from what other parts take."""
DIFFERENCES, OF_TWO_RUNS, LEAST_CHANGE_PCT = 4, "trace_diff_tree", 1.0


class KeyFigure(NamedTuple):
    """A number with its unit, its label, and its range over ranks."""

    value: str
    label: str
    detail: str = ""


def key_figures(tables: Tables) -> list[KeyFigure]:
    """Returns the figures of the run, such as its length and how its devices spent it, or those of two runs."""
    return [*(_figures_of_two_runs(tables) if OF_TWO_RUNS in tables else _figures_of_run(tables))]


def _figures_of_run(tables: Tables) -> Iterator[KeyFigure]:
    ranks, replays = rows_of(tables, "ranks"), rows_of(tables, "critical_path_replay")
    devices = [row for row in rows_of(tables, "temporal_breakdown") if row["span"]]
    measured = [row["measured"] for row in replays if row["measured"]]
    if ranks:
        yield KeyFigure(cell(len(ranks)), "ranks")
    if measured:
        job = replays[0]["ranks"]
        yield KeyFigure(time_text(measured[0]), "measured run", f"of all {job} ranks" if job > 1 else "")
    if devices:
        whole = measured[0] if measured else max(row["span"] for row in devices)
        for label, column in (("device busy", "busy"), ("computing", "compute")):
            shares = [100 * row[column] / (whole or 1.0) for row in devices]
            yield _figure_over_ranks(label, shares, "{:.1f} %".format, "of the run")
    if overlapping := rows_of(tables, "communication_computation_overlap"):
        exposed = [row["exposed_communication"] for row in overlapping]
        yield _figure_over_ranks("exposed communication", exposed, time_text)
    if devices:
        yield KeyFigure(cell(sum(row["activities"] for row in devices)), "device activities")
    elif _lacks_devices(ranks):
        yield KeyFigure(cell(sum(row["host_ops"] for row in ranks)), "host ops")
        yield KeyFigure("none", "device activities")


def _figures_of_two_runs(tables: Tables) -> Iterator[KeyFigure]:
    ranks = Counter(row["run"] for row in rows_of(tables, "ranks"))
    kernels = [row for row in rows_of(tables, "trace_diff") if row["kind"] == "kernel"]
    before, after = (sum(row[name] for row in kernels) for name in ("time_a", "time_b"))
    for row in rows_of(tables, "trace_diff_runs"):
        if row["part"] in WHOLE:
            yield KeyFigure(f"{time_text(row['a'])} → {time_text(row['b'])}", row["part"])
    if before or after:
        yield KeyFigure(f"{time_text(before)} → {time_text(after)}", "time of all device activities")
    yield KeyFigure(f"{ranks['A']} → {ranks['B']}", "ranks")


def diff_verdict(tables: Tables) -> str:
    """Returns whether run B is faster or slower than run A, by how much, and what the largest difference is."""
    rows = rows_of(tables, "trace_diff_runs")
    whole = {row["part"]: row for row in rows if row["part"] in WHOLE and row["change"] is not None}
    without = whole.pop(WITHOUT_PROFILER, None)
    if not whole:
        return ""
    first, *others = whole.values()
    text = _faster(first)
    text += "".join(f", the {row['part']} {_change(row)}" for row in others)
    parts = [row for row in rows if row["part"] not in WHOLE and row["difference"] * first["difference"] > 0]
    if parts and not _is_alike(first):
        causes = [row for row in parts if row["part"] not in SYMPTOMS]
        largest = next((row for row in causes if 2 * abs(row["difference"]) > abs(parts[0]["difference"])), parts[0])
        most = "Most" if 2 * abs(largest["difference"]) > abs(first["difference"]) else "The largest part"
        text += f". {most} of that is {largest['part'].replace(': ', ' ')}, {_change(largest)}{_of_mean(tables)}"
    if without is None:
        return f"{text}."
    return f"Without a profiler, {_lower(_faster(without))}. As recorded, {_lower(text)}."


def _faster(row: Row) -> str:
    """Returns whether run B is faster or slower, by the step or the run of a row."""
    how = "as fast as" if _is_alike(row) else "faster than" if row["change"] < 0 else "slower than"
    change = f"{abs(row['change']):.1f} % {'less' if row['change'] < 0 else 'more'} time, "
    is_same = time_text(row["a"]) == time_text(row["b"])
    takes = f"takes {'' if is_same else change}{_change(row)}"
    return f"Run B is {how} run A: {'the run' if row['part'] == 'run' else 'a step'} {takes}"


def _is_alike(row: Row) -> bool:
    return bool(abs(row["change"]) < LEAST_CHANGE_PCT)


def _of_mean(tables: Tables) -> str:
    """Returns over how many ranks parts are a mean, if over several: what one rank does more, the others wait for."""
    ranks = Counter(row["run"] for row in rows_of(tables, "ranks"))
    return f" in the mean of {ranks['A']} ranks" if min(ranks["A"], ranks["B"]) > 1 and ranks["A"] == ranks["B"] else ""


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _change(row: Row) -> str:
    before, after = time_text(row["a"]), time_text(row["b"])
    return f"{after} in both" if before == after else f"{after} instead of {before}"


def _figure_over_ranks(label: str, values: list[float], text: Callable[[float], str], of: str = "") -> KeyFigure:
    """Returns the mean, and the range if ranks differ."""
    low, high = text(min(values)), text(max(values))
    of_low = low.removesuffix(high.lstrip("0123456789.,"))
    by_rank = "" if low == high else f"{of_low} to {high} by rank"
    return KeyFigure(text(sum(values) / len(values)), label, "; ".join(filter(None, (of, by_rank))))


def facts(tables: Tables) -> list[str]:
    """Returns sentences on what ran and where the time went, each from an analysis that found something."""
    lacks_devices = _lacks_devices(rows_of(tables, "ranks"))
    host_only = "No device activity was recorded: the page shows the host alone." if lacks_devices else ""
    proved = (statement(tables) for statement in (heaviest_kernel, hidden_communication, idle_cause, critical_path))
    return [*_activity_counts(tables), *filter(None, (host_only, *proved)), *_run_difference(tables)]


def _activity_counts(tables: Tables) -> Iterator[str]:
    if OF_TWO_RUNS in tables:
        return
    ranks, devices = rows_of(tables, "ranks"), rows_of(tables, "temporal_breakdown")
    count = sums(rows_of(tables, "kernel_breakdown_kernels"), "class", "count")
    parts = [_count_text(count[of], *words) for of, words in WORK.items() if of in count]
    ops = sum(row["host_ops"] for row in ranks)
    ran = [f"{', '.join(parts)} ran on {_count_text(len(devices), 'device')}"] if parts else []
    ran += [f"{_count_text(ops, 'host op')} on {_count_text(len(ranks), 'rank')}"] if ops else []
    if ran:
        yield f"{', '.join(ran)}."


def _lacks_devices(ranks: list[Row]) -> bool:
    return bool(ranks) and not any(row["activities"] for row in ranks)


def _count_text(number: float, singular: str, plural: str = "") -> str:
    return f"{number:,.0f} {singular if number == 1 else plural or singular + 's'}"


def _run_difference(tables: Tables) -> Iterator[str]:
    """Yields the parts of the run that differ most, then the kernels, or without a device the ops."""
    rows = [row for row in rows_of(tables, "trace_diff_runs") if row["part"] not in WHOLE]
    for row in [row for row in rows if row["difference"]][:DIFFERENCES]:
        yield f"{row['part'].capitalize()}: {_signed(row['difference'])} ({time_text(row['a'])} → {time_text(row['b'])})."
    items = rows_of(tables, "trace_diff")
    kernels = [row for row in items if row["kind"] == "kernel"]
    ops = [row for row in items if not row["name"].startswith(STEP_MARK)]
    for row in [row for row in kernels or ops if row["difference"]][:DIFFERENCES]:
        name = f"{shortened(short_name(row['name']), 60)} {shortened(row['shape'], 24)}".strip()
        yield f"{name}: {_signed(row['difference'])} ({row['category']}, {row['count_a']:,} → {row['count_b']:,} of them)."


def _signed(time: float) -> str:
    return f"{'+' if time > 0 else '−'}{time_text(abs(time))}"


def overlap(gain: Gain) -> str:
    """Returns that the gains of findings cannot be added, and what all of them bring together."""
    return f"These gains overlap: all of it together would save {gain.share} ({gain.time})."
