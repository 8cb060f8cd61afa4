"""Jobs of ranks with random groups and any communication: no rank disagrees, and a simulator plays them to the end.

Whatever the rows of a trace hold, a rank that is taken out of a merged one has its own rows again.
"""

import json
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.readers import DeviceTrace, one_rank, read_device_trace
from execgraph.schema.columns import Categorical
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Change, ExecutionGraph
from execgraph.tools.job import BuildOptions, BuildReport, build, merge_for_viewing
from execgraph.tools.replay import replay_ranks
from execgraph.tools.trace_files import RankFile
from support.builder.records import Group, Tensor
from support.builder.timeline import TraceBuilder
from support.generated import here
from support.simulator import Generation, read_files, simulate

TABLES = ("ops", "calls", "activities", "syncs", "event_records")
HOST = ("cpu_op", "user_annotation", "cuda_runtime", "overhead")
DEVICE = ("kernel", "gpu_memcpy", "cuda_sync", "cuda_event")
NUMBERS = (0, -1, 7, "7", "stream 7", "0x1f", None, 3.0, 1 << 40, (1 << 63) - 1, 1.5, [1], "", "python")
TIMES = (0, 12.5, "7.25", None, -5, 1e300, "x", "NaN", "Infinity", "1e3", 0.001)


def odd_row(chance: random.Random) -> dict[str, Any]:
    """A row of which any value may be of any type, or missing."""

    def mostly(usual: Any, odd: tuple[Any, ...]) -> Any:
        return usual if chance.random() < 0.85 else chance.choice(odd)

    category = chance.choice(HOST + DEVICE)
    process, thread = (chance.choice((0, 1)), 7) if category in DEVICE else (500, chance.choice((500, 501)))
    place = {"pid": mostly(process, (*NUMBERS, "GPU 0")), "tid": mostly(thread, NUMBERS)}
    times = {"ts": mostly(chance.randint(0, 3000), TIMES), "dur": mostly(chance.randint(0, 300), TIMES)}
    args = {"correlation": mostly(chance.randint(1, 40), NUMBERS)}
    args |= {"wait_on_cuda_event_record_corr_id": chance.randint(-1, 9)}
    args |= {key: place[of] for key, of in (("device", "pid"), ("stream", "tid")) if chance.random() < 0.8}
    phase = mostly("X", ("i", "s", "f", "M"))
    row = {"ph": phase, "cat": category, "name": "process_name", "id": 3, **place, **times, "args": args}
    return {key: value for key, value in row.items() if key == "ph" or chance.random() < 0.98}


def differing(one: DeviceTrace, other: DeviceTrace) -> list[str]:
    """The columns that are not equal in both traces."""
    pairs = {
        f"{table}.{field.name}": [getattr(getattr(trace, table), field.name) for trace in (one, other)]
        for table in TABLES
        for field in fields(getattr(one, table))
    }
    texts = {
        name: [[*map(column.__getitem__, range(len(column.codes)))] for column in columns]
        if isinstance(columns[0], Categorical)
        else columns
        for name, columns in pairs.items()
    }
    return [name for name, (left, right) in texts.items() if not np.array_equal(left, right)]


@pytest.mark.parametrize("seed", range(12))
def test_a_rank_of_any_rows_is_restored(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for rank in (0, 1):
        base_time = 1_700_000_000_000_000_000 + chance.randint(0, 10**9)
        top = {"baseTimeNanoseconds": base_time, "distributedInfo": {"rank": rank}}
        rows = [odd_row(chance) for _ in range(chance.randint(5, 120))]
        (tmp_path / f"{rank}.json").write_text(json.dumps({**top, "traceEvents": rows}))
    merge_for_viewing([RankFile(rank, tmp_path / f"{rank}.json") for rank in (0, 1)], str(tmp_path / "merged.json"))
    merged = read_device_trace(str(tmp_path / "merged.json"))
    for rank in (0, 1):
        own, again = read_device_trace(str(tmp_path / f"{rank}.json")), one_rank(merged, rank)
        assert differing(own, again) == []
        assert (own.rank, own.base_time_ns) == (again.rank, again.base_time_ns)
        assert [*own.communication] == [*again.communication]


@pytest.mark.parametrize(
    "records",
    [
        '"x"',
        "[5]",
        '[{"rank": 0, "processes": {"a": 1}}]',
        '[{"rank": 99999999999999999999}]',
        '[{"rank": 0, "processes": {"1": 1}, "metadata": 5}]',
    ],
)
def test_records_of_a_merge_that_are_none_are_said_to_be_damaged(tmp_path: Path, records: str) -> None:
    row = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    (tmp_path / "t.json").write_text(f'{{"traceEvents": [{row}], "mergedRanks": {records}}}')
    trace = read_device_trace(str(tmp_path / "t.json"))
    if trace.merged:
        with pytest.raises(DataError, match="metadata of rank 0"):
            one_rank(trace, 0)
    else:
        assert any("damaged" in note for note in trace.notes)


EVEN = ("allreduce", "broadcast", "reduce", "gather", "scatter", "barrier", "all_to_all")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
SIZES = (0, 1, 7, 64)


class Job:
    """What happens, in one order for all ranks; each rank does its part of it."""

    def __init__(self, seed: int, torch: str) -> None:
        self.random, self.torch = random.Random(seed), torch
        self.ranks = self.random.choice((2, 3, 4))
        several = 3 if torch != "2.1" else 0  # which does not record who is in a group
        members = [self.random.sample(range(self.ranks), self.random.randint(1, self.ranks)) for _ in range(several)]
        self.groups = [tuple(range(self.ranks)), *(tuple(sorted(ranks)) for ranks in members)]
        self.steps = [self._step() for _ in range(self.random.randint(4, 14))]

    def _step(self) -> tuple[int, str, int, list[tuple[int, int, int]]]:
        """Group, what it does, a size, and the messages (from, to, size) by places in the group."""
        group = self.random.randrange(len(self.groups))
        places = range(len(self.groups[group]))
        kinds = [*EVEN, "_allgather_base", "_reduce_scatter_base", "all_to_allv"]
        if len(places) > 1:
            kinds += ["message", "batch", "batch"]
        pairs = [self.random.sample(places, 2) for _ in range(self.random.randint(1, 4))] if len(places) > 1 else []
        messages = [(*pair, self.random.choice((1, 4, 4, 9))) for pair in pairs]
        return group, self.random.choice(kinds), self.random.choice(SIZES), messages

    def write(self, folder: Path) -> None:
        for rank in range(self.ranks):
            t = TraceBuilder(torch=self.torch, rank=rank, world_size=self.ranks, pid=100 + rank)
            own = {number: t.group(ranks, str(number)) for number, ranks in enumerate(self.groups) if rank in ranks}
            for number, *step in self.steps:
                with t.op("aten::mm"):
                    t.launch("gemm", duration=self.random.randint(5, 60))
                if number in own:
                    _do(t, own[number], 20 + number, *step)
                    if self.random.random() < 0.3:
                        t.wait_event(t.record_event(stream=20 + number), stream=7)
            t.device_synchronize()
            t.write(folder)


def _do(t: TraceBuilder, group: Group, stream: int, kind: str, size: int, messages: list[tuple[int, int, int]]) -> None:
    me, members = group.ranks.index(t.rank or 0), len(group.ranks)
    mine: list[tuple[str, int, Tensor]] = []
    for source, target, elements in messages if kind == "batch" else messages[:1]:
        mine += [("send", target, t.tensor((elements,)))] if source == me else []
        mine += [("recv", source, t.tensor((elements,)))] if target == me else []
    if kind == "batch":
        if mine:
            t.batch(mine, group=group, stream=stream, annotated=size > 1)
    elif kind == "message":
        for name, peer, tensor in mine:
            t.collective(name, group=group, peer=peer, tensors=[tensor], stream=stream)
    elif kind == "all_to_allv":
        given = [(7 * me + 3 * place + size) % 5 for place in range(members)]
        taken = [(7 * place + 3 * me + size) % 5 for place in range(members)]
        tensors = [t.tensor((sum(splits),)) for splits in (given, taken)]
        t.collective(kind, group=group, tensors=tensors, in_split=given, out_split=taken, stream=stream)
    else:
        times = {"_allgather_base": (1, members), "_reduce_scatter_base": (members, 1)}.get(kind, (1, 1))
        tensors = [t.tensor((size * side,)) for side in times]
        t.collective(kind, group=group, tensors=tensors, root=0 if kind in ROOTED else None, stream=stream)


def checked(report: BuildReport) -> None:
    assert not report.all_failures
    assert not report.disagreements
    assert not any(rank.convert and rank.convert.unknown_communications for rank in report.ranks)
    assert not any(Change.WITHOUT_PARTNER in rank.target for rank in report.ranks)


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
@pytest.mark.parametrize("seed", range(2))
def test_any_job_is_agreed_on_replayed_and_played(tmp_path: Path, torch: str, seed: int) -> None:
    (tmp_path / "traces").mkdir()
    job = Job(seed, torch)
    job.write(tmp_path / "traces")
    checked(build(tmp_path / "traces", tmp_path / "generic", BuildOptions(), here).report)
    graphs = [ExecutionGraph.read(str(tmp_path / "generic" / f"graph.{rank}.et")) for rank in range(job.ranks)]
    assert replay_ranks(graphs).makespan_ns > 0
    for host in (True, False):
        out = tmp_path / f"host {host}"
        checked(build(tmp_path / "traces", out, BuildOptions(target="astra-sim", host=host), here).report)
        files = read_files(out / "graph", job.ranks)
        for generation in Generation:
            outcome = simulate(files, out / "comm_groups.json", generation)
            assert outcome.good, outcome.trouble
