"""Rules on what a loop on the CPU does: heavy ops and annotations, unusually long calls, time without ops, cores."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...converter.timeline import IDLE
from ...schema.columns import Bool, Categorical, Floats, groupby
from ...schema.linked import AUTOGRAD, STEP_MARK, USER_SCOPE
from .. import replay as replays
from ..replay import NodeClass, waits_of
from .finding_words import Found, Said
from .job import ATEN, Finding, Gain, Job

TWICE_AS_FAST = 0.5
WAITS = 0.2
"""A loop that waits for its data for a larger share of a step leaves cores to others: nobody takes them from it."""
VIEW, ALLOCATES = "-> Tensor(a)", "aten::empty"
"""How schemas of views end, and how names of ops that only get memory begin."""
FEWEST_CALLS = 5
"""Of fewer calls none can be told to be unusual."""
UNUSUAL = 20
"""A pause takes more than so many times the median of its op and shapes."""
LONG, COMPILED = 0.1, "## Call CompiledFxGraph"
"""Time without ops is named from this share of a step on, unless compiled kernels run in it."""
PARTS = re.compile(
    r"ProfilerStep#|Optimizer\.|enumerate\(|DistributedDataParallel|Torch-Compiled|##|\w+:|"
    r"(forward|backward|optimizer|loss|train)( (pass|step))?$",
    re.IGNORECASE,
)
"""How annotations begin that PyTorch makes, or that name what each loop does."""
LEAST_PART, MOST_PART, ANNOTATIONS = 0.03, 0.5, 64
"""The share of the run of an annotation that may be there by mistake, and how many annotations are looked at."""
MOSTLY, NAMED = 0.8, 3
"""The share of an op in an annotation from which it is a part of it, and how many pauses are named."""


def heaviest_work(job: Job) -> Iterator[Finding]:
    """Finds whether a run on the CPU alone would be shorter with its heaviest op, or optimizer, twice as fast."""
    if job.is_on_device:
        return
    is_pause = usual_ns(job)[1]
    is_work = (job.work.node_class == NodeClass.HOST) & ~is_pause
    is_op = is_work & job.names.where(lambda name: name.startswith(ATEN))
    annotated, recorded_ns = _longest_annotation(job), job.recorded.work.duration_ns * is_op
    times_ns, inside_ns = (
        np.bincount(job.names.codes, recorded_ns * part, len(job.names.table))
        for part in (is_op, annotated.inside if annotated else np.zeros_like(is_op))
    )
    # what mostly lies in an annotation that is a finding itself is worth nothing more
    times_ns[inside_ns > MOSTLY * times_ns] = 0
    if not times_ns.any():
        return
    heaviest = job.names.table[int(times_ns.argmax())]
    chosen = is_op & job.names.equal(heaviest)
    # it computes nothing if it returns a view of its input, by its schema, or memory without values
    schemas = Categorical.joined(rank.graph.texts("op_schema") for rank in job.ranks)
    with_schema = np.flatnonzero(chosen & (schemas.codes >= 0))
    is_view = len(with_schema) > 0 and schemas[int(with_schema[0])].endswith(VIEW)
    is_cheap = is_view or heaviest.startswith(ALLOCATES)
    advice: object = Said.CALL_LESS.of(count=int(chosen.sum())) if is_cheap else Said.COMPUTE_FASTER
    run = job.work.unprofiled
    if run and not is_cheap and 0 < (busy := run.busy_cores) < run.cores - 0.5:
        advice = Said.MORE_THREADS.of(busy=busy, cores=run.cores)
    phase = np.concatenate([replays.phases_of(rank.graph) for rank in job.ranks])
    of_optimizer = is_work & (phase == [*replays.Phase].index(replays.Phase.OPTIMIZER))
    for what, part in [(Found.HEAVIEST_OP, chosen), *[(Found.OPTIMIZER, of_optimizer)] * bool(of_optimizer.any())]:
        ranks, runs = job.rank_of_node[part], (job.work, job.recorded.work)
        times_us, recorded_us = (np.bincount(ranks, run.duration_ns[part]) / 1000 for run in runs)
        gain, longest = job.gain(np.where(part, TWICE_AS_FAST, 1.0)), int(times_us.argmax())
        values = {
            "op": heaviest, "time": gain.in_its_unit(times_us[longest]), "rank": job.rank_named(longest),
            "pct": 100 * times_us[longest] / job.length_us,
            "recorded": gain.in_its_unit(recorded_us[longest]) if recorded_us[longest] != times_us[longest] else "",
            "advice": advice, "slow": int((is_pause & job.names.equal(heaviest)).sum()) or None,
            "spec": shlex.quote(f"^{re.escape(heaviest)}$={TWICE_AS_FAST}"),
        }  # fmt: skip
        yield Finding(what, gain, "host_time_per_op", values)


class Annotated(NamedTuple):
    """The annotation of the program with most work: its share of the run, the change without it, what is `inside`."""

    name: str
    share: float
    question: str
    inside: Bool


def _longest_annotation(job: Job) -> Annotated | None:
    is_named = np.concatenate([rank.graph.integers("scope") == USER_SCOPE for rank in job.ranks]) & ~job.in_loader
    names = [job.names.table[code] for code in np.unique(job.names.codes[is_named]).tolist()]
    found = None
    for name in [name for name in names if not PARTS.match(name)][:ANNOTATIONS]:
        question = f"{replays.UNDER}^{re.escape(name)}$=0".replace("\\ ", " ")
        change = replays.parse_scale(question)
        inside = np.concatenate([change.matches(rank.graph, replays.node_classes(rank.graph)) for rank in job.ranks])
        of_ranks = np.bincount(job.rank_of_node, inside * job.work.duration_ns)
        share = float(of_ranks.max()) / 1000 / job.length_us
        if (found.share if found else LEAST_PART) <= share <= MOST_PART:
            found = Annotated(name, share, question, inside)
    return found


def annotated_work(job: Job) -> Iterator[Finding]:
    """Finds how much shorter a run on the CPU alone would be without the work in an annotation of the program."""
    if not job.is_on_device and (found := _longest_annotation(job)):
        none = np.zeros(len(job.work.source), np.bool_)
        gain = job.gain_of(found.question, np.where(found.inside, 0.0, 1.0), none)
        is_trained = (found.inside & job.names.where(lambda name: name.startswith(AUTOGRAD))).any()
        values = {"name": found.name, "pct": 100 * found.share, "spec": shlex.quote(found.question)}
        values["advice"] = Said.CHEAPER_FORM if is_trained else Said.LEAVE_OUT
        yield Finding(Found.ANNOTATED_WORK, gain, "host_time_per_op", values)


def crowded_cores(job: Job) -> Iterator[Finding]:
    """Finds whether other processes keep cores busy that a loop on a CPU could use. Their share bounds the gain."""
    run = job.work.unprofiled
    # other ranks on the same machine are other processes, too
    if job.is_on_device or job.world_size > 1 or len(job.ranks) > 1 or run is None or not run.is_crowded:
        return
    if run.data_wait_us > WAITS * run.step_without_profiler_us:
        return
    own, others = (us / run.step_without_profiler_us for us in (run.own_cpu_us, run.others_cpu_us))
    share = run.lost_share
    gain = Gain(share * job.length_us, 100 * share, steps=run.steps)
    shares = len(waits_of(job.recorded.work)[0]) > 0
    said = {"whose": Said.OF_LOADER, "advice": Said.FREE_CORES} if shares else {"whose": "", "advice": Said.OTHER_JOBS}
    yield Finding(Found.CROWDED_CORES, gain, "host_phases", {**said, "own": own, "others": others, "cores": run.cores})


def pauses(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without pauses, calls far longer than usual, such as first ones."""
    median_ns, is_pause = usual_ns(job)
    if not is_pause.any():
        return
    work, names, nodes = job.work, job.names, np.flatnonzero(is_pause)
    longest = nodes[np.argsort(-work.duration_ns[nodes], kind="stable")].tolist()
    times_us, usual_us = work.duration_ns / 1000, median_ns / 1000
    first, shown = longest[0], longest[:NAMED]
    title = Said.ONE_PAUSE if len(longest) == 1 else Said.SEVERAL_PAUSES
    values: dict[str, object] = {"title": title.of(op=names[first], count=len(longest), time=times_us[first])}
    values["advice"] = Said.WARM_UP if job.is_on_device else Said.RECORD_MORE
    last, more = shown[-1], len(longest) - len(shown) or None
    facts = [
        Said.PAUSE.of(time=times_us[node], op=names[node], usual=usual_us[node], more=more if node == last else None)
        for node in shown
    ]
    gain = job.gain(np.where(is_pause, median_ns / np.maximum(work.duration_ns, 1), 1.0))
    yield Finding(Found.PAUSES, gain, "host_time_per_op", values, facts)


def usual_ns(job: Job) -> tuple[Floats, Bool]:
    """Returns the median time of calls of each node's op and shapes, NaN if unknown, and whether the node is a pause.

    That is the longest part of a call that takes many times as long. Short parts are left out, so none are compared.
    Where a device computes, launching takes as long for all shapes, and calls need none to be compared.
    """
    work = job.work
    median_ns, is_pause = np.full(len(work), np.nan), np.zeros(len(work), np.bool_)
    is_op = job.names.where(lambda name: name.startswith(ATEN)) & (work.node_class == NodeClass.HOST)
    nodes = np.flatnonzero(is_op)
    calls = groupby(job.rank_of_node[nodes], job.calls[nodes])
    time, first = calls.sum(work.duration_ns[nodes]), nodes[calls.first]
    kinds = groupby(job.names.codes[first], job.shapes.codes[first])
    order, count = np.lexsort((time, kinds.number)), kinds.count()
    is_known = (count >= FEWEST_CALLS) & (job.is_on_device or job.shapes.where(lambda shape: shape != "").any())
    median = np.where(is_known, time[order[np.cumsum(count) - count + count // 2]], np.nan)[kinds.number]
    median_ns[nodes] = median[calls.number]
    for call in np.flatnonzero((median > 0) & (time > UNUSUAL * median)).tolist():
        of_call = nodes[calls.number == call]
        is_pause[of_call[work.duration_ns[of_call].argmax()]] = True
    return median_ns, is_pause


def without_ops(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without annotations of hardly any op and long stretches without ops."""
    work, least_ns = job.work, LONG * job.replay.makespan_ns / max(1, *(len(rank.step_starts) for rank in job.ranks))
    is_host, is_idle = ~job.in_loader & (work.node_class == NodeClass.HOST), job.names.equal(IDLE)
    # other threads may wait for what is not recorded
    ops_ns = np.bincount(work.lane, work.duration_ns * (is_host & ~is_idle), len(work.lanes))
    is_stretch = is_host & is_idle & (work.duration_ns >= least_ns) & (2 * ops_ns[work.lane] > ops_ns.max())
    is_named = ~job.names.where(lambda name: name.startswith((STEP_MARK, COMPILED)))
    nodes = np.flatnonzero(is_host & is_named & (job.integers("scope") == USER_SCOPE))
    calls = groupby(job.rank_of_node[nodes], job.calls[nodes])
    # recording lengthens what lies between ops: beside a device, which waits for it, only what has none counts
    is_long = (calls.sum(work.duration_ns[nodes]) >= least_ns) & ((calls.count() == 1) | (not job.is_on_device))
    nodes = np.append(nodes[is_long[calls.number]], np.flatnonzero(is_stretch & (not job.is_on_device)))
    label = np.where(is_idle, -1, job.names.codes)[nodes]
    total_us = Counter[str]()
    for row in job.rows("host_time_per_op"):
        total_us[row["name"]] += row["total"]
    for code in np.unique(label).tolist():
        chosen, name = np.isin(np.arange(len(work)), nodes[label == code]), job.names.table[code] if code >= 0 else ""
        if code >= 0 and job.recorded.work.duration_ns[chosen].sum() < 1000 * total_us[name] / 2:
            continue
        times_us = np.bincount(job.rank_of_node[chosen], work.duration_ns[chosen]) / 1000
        gain, longest, time_us = job.gain(np.where(chosen, 0.0, 1.0)), int(times_us.argmax()), float(times_us.max())
        where = Said.MOST_OF.of(name=name) if name else Said.OF_STEPS
        values = {"where": where, "name": name, "time": gain.in_its_unit(time_us), "rank": job.rank_named(longest)}
        yield Finding(Found.WITHOUT_OPS, gain, "host_phases", values)


RULES = heaviest_work, annotated_work, crowded_cores, without_ops, pauses
