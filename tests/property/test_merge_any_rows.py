"""Whatever the rows of a trace hold, a rank that is taken out of a merged one has its own rows again."""

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
from execgraph.tools.job import merge_for_viewing
from execgraph.tools.trace_files import RankFile

TABLES = ("ops", "calls", "activities", "syncs", "event_records")
HOST, DEVICE = (
    ("cpu_op", "user_annotation", "cuda_runtime", "overhead"),
    ("kernel", "gpu_memcpy", "cuda_sync", "cuda_event"),
)
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
    args = {
        "correlation": mostly(chance.randint(1, 40), NUMBERS),
        "wait_on_cuda_event_record_corr_id": chance.randint(-1, 9),
    }
    args |= {key: place[of] for key, of in (("device", "pid"), ("stream", "tid")) if chance.random() < 0.8}
    row = {
        "ph": mostly("X", ("i", "s", "f", "M")),
        "cat": category,
        "name": "process_name",
        "id": 3,
        **place,
        **times,
        "args": args,
    }
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


@pytest.mark.parametrize("seed", range(25))
def test_a_rank_of_any_rows_is_restored(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for rank in (0, 1):
        top = {
            "baseTimeNanoseconds": 1_700_000_000_000_000_000 + chance.randint(0, 10**9),
            "distributedInfo": {"rank": rank},
        }
        rows = [odd_row(chance) for _ in range(chance.randint(5, 120))]
        (tmp_path / f"{rank}.json").write_text(json.dumps({**top, "traceEvents": rows}))
    merge_for_viewing([RankFile(rank, tmp_path / f"{rank}.json") for rank in (0, 1)], str(tmp_path / "merged.json"))
    merged = read_device_trace(str(tmp_path / "merged.json"))
    for rank in (0, 1):
        own, again = read_device_trace(str(tmp_path / f"{rank}.json")), one_rank(merged, rank)
        assert differing(own, again) == []
        assert (own.rank, own.base_time_ns, [*own.communication]) == (
            again.rank,
            again.base_time_ns,
            [*again.communication],
        )


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
