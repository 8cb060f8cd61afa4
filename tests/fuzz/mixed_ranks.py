"""Makes jobs of files that do not belong together: of other ranks, other runs, under other numbers."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz import samples
from fuzz.samples import Files

Trace = dict[str, Any]
HOSTS, DEVICES = ("host_rank0.json", "host_rank1.json"), ("device_rank0.json", "device_rank1.json")


def mixed_job(random: Random) -> tuple[Files, str]:
    """The files of a job that never ran so, and what was done, in words."""
    name = samples.draw(random)
    files = dict(samples.traces(name))
    said = []
    for way in random.sample(WAYS, random.choice([1, 1, 2, 3])):
        if way(files, random):
            said.append(way.__name__.strip("_"))
    return files, f"{name}: {', '.join(said) or 'as it is'}"


def _exchanged_hosts(files: Files, _: Random) -> bool:
    return _exchange(files, *HOSTS)


def _exchanged_devices(files: Files, _: Random) -> bool:
    return _exchange(files, *DEVICES)


def _exchange(files: Files, one: str, other: str) -> bool:
    if not {one, other} <= files.keys():
        return False
    files[one], files[other] = files[other], files[one]
    return True


def _one_pid(files: Files, random: Random) -> bool:
    """All files are of one process, or each of its own."""
    pid = random.choice([1000, 0, -1, 1 << 40])
    step = random.choice([0, 0, 1])
    for number, file in enumerate(sorted(files)):
        _edit(files, file, lambda trace, pid=pid + step * number: _set_pid(trace, pid))  # type: ignore[misc]
    return True


def _set_pid(trace: Trace, pid: int) -> None:
    if "pid" in trace:
        trace["pid"] = pid
    for row in trace.get("traceEvents", ()):
        if isinstance(row.get("pid"), int) and row.get("cat") not in (
            "kernel",
            "gpu_memcpy",
            "gpu_memset",
            "cuda_sync",
        ):
            row["pid"] = pid


def _another_run(files: Files, random: Random) -> bool:
    """A file is that of another sample."""
    file = random.choice(sorted(files))
    others = samples.traces(samples.draw(random))
    files[file] = others.get(file, others["host_rank0.json" if "host" in file else "device_rank0.json"])
    return True


def _copied_rank(files: Files, random: Random) -> bool:
    """A rank's files are there twice, or under other names, or in folders of their own."""
    rank = random.choice([2, 3, 99])
    for file in files.keys() & {"host_rank0.json", "device_rank0.json"}:
        files[file.replace("0", str(rank))] = files[file]
    return True


def _lost_file(files: Files, random: Random) -> bool:
    del files[random.choice(sorted(files))]
    return True


def _other_rank_numbers(files: Files, random: Random) -> bool:
    ranks = random.choice([(5, 6), (0, 0), (1, 0), (-1, -2), (1, 2), (1 << 31, 7), (10**6, 10**6 + 1)])
    world = random.choice([2, 2, 1, 0, -1, 4, 10**6, None])
    return _edit_info(
        files,
        lambda info, rank: info.update({"rank": ranks[rank]} | ({"world_size": world} if world is not None else {})),
    )


def _no_rank_numbers(files: Files, random: Random) -> bool:
    key = random.choice(["rank", "world_size", "pg_config", "backend"])
    return _edit_info(files, lambda info, _: info.pop(key, None))


def _edit_info(files: Files, edit: Callable[[Trace, int], object]) -> bool:
    for rank, file in enumerate(DEVICES):
        if file in files:
            _edit(files, file, lambda trace, rank=rank: edit(trace.setdefault("distributedInfo", {}), rank))  # type: ignore[misc]
    return True


def _other_groups(files: Files, random: Random) -> bool:
    """Groups have other members wherever they are recorded: without the own rank, more, none, others on each rank."""
    members = [
        random.choice([[1], [0], [5, 6], [], [1, 0], [0, 0], [0, 1, 2, 3], [*range(5000)], [-1, 0]]) for _ in range(2)
    ]
    same = random.random() < 0.5
    for number, file in enumerate(sorted(files)):
        ranks = json.dumps(members[0 if same else number % 2])
        for spelled in ("[0, 1]", "[0,1]"):
            files[file] = files[file].replace(f'ranks": {spelled}'.encode(), f'ranks": {ranks}'.encode())
            files[file] = files[file].replace(f'ranks\\": {spelled}'.encode(), f'ranks\\": {ranks}'.encode())
            files[file] = files[file].replace(f'Ranks": "{spelled}'.encode(), f'Ranks": "{ranks}'.encode())
    return True


def _rotated_correlations(files: Files, random: Random) -> bool:
    """Each kernel has the correlation of the next one."""

    def rotate(trace: Trace) -> None:
        kernels = [row for row in trace.get("traceEvents", ()) if row.get("cat") == "kernel"]
        values = [row["args"].get("correlation") for row in kernels]
        for row, value in zip(kernels, values[1:] + values[:1], strict=True):
            row["args"]["correlation"] = value

    return _edit(files, random.choice([file for file in sorted(files) if "device" in file] or sorted(files)), rotate)


def _both_in_one(files: Files, _: Random) -> bool:
    """The rows of both ranks' device traces are in one file."""
    if not {*DEVICES} <= files.keys():
        return False
    second = json.loads(files[DEVICES[1]])
    return _edit(files, DEVICES[0], lambda trace: trace["traceEvents"].extend(copy.deepcopy(second["traceEvents"])))


def _edit(files: Files, file: str, edit: Callable[[Trace], object]) -> bool:
    trace = json.loads(files[file])
    edit(trace)
    files[file] = json.dumps(trace).encode()
    return True


WAYS: tuple[Callable[[Files, Random], bool], ...] = (
    _exchanged_hosts, _exchanged_devices, _one_pid, _another_run, _copied_rank, _lost_file, _other_rank_numbers, _no_rank_numbers,
    _other_groups, _rotated_correlations, _both_in_one,
)  # fmt: skip
