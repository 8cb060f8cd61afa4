"""Small sound files of every kind that a command reads, made in a folder, for cases that change one of them.

A sample is a job, of two ranks as a rule: played in the layout of a version of PyTorch, simulated, or recorded. What
trace-build wrote is also meddled with: files lost, cut, exchanged, of other jobs, with other content.
"""

import gzip
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from execgraph.tools.generate import simulate, write_traces
from google.protobuf.message import DecodeError
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.databases import DIALECTS, Api, Op, Range, write_database

from benchmarks.programs import build_job
from fuzz.changes import changed_json
from fuzz.graph_changes import change_fields
from fuzz.running import must

DATA = Path(__file__).parent.parent / "data"
PLAYED = tuple(LAYOUTS)
GENERATED = ("ddp", "pageable", "moe", "halo", "critical_path", "graph")
RANKS = {"pageable": 1, "critical_path": 1, "graph": 1, "moe_dp": 4}
RECORDED = ("gloo_fast", "ddp", "torch_2.1.2", "torch_2.14.0", "threads", "compiled")
HOST, DEVICE, LINKED, GRAPH = "host_rank0.json", "device_rank0.json", "linked.json", "graph.0.et"

Files = dict[str, bytes]


def draw(random: Random) -> str:
    """The name of a sample. Recorded ones are larger than the others, and drawn less often."""
    kind = random.choices(["played", "generated", "recorded"], [24, 12, 1])[0]
    return f"{kind} {random.choice({'played': PLAYED, 'generated': GENERATED, 'recorded': RECORDED}[kind])}"


@cache
def traces(sample: str) -> Files:
    """host_rank0.json, device_rank0.json and the same of rank 1, if there is one."""
    kind, name = sample.split(" ")
    if kind == "recorded":
        # all samples have the blanks that json has, so that only a case that changes them has others
        return {
            path.stem: json.dumps(json.loads(gzip.decompress(path.read_bytes()))).encode()
            for path in sorted((DATA / name).glob("*_rank[01].*"))
        }
    if kind == "generated":
        return _written(
            lambda folder: write_traces(
                simulate(build_job(name, ranks=RANKS.get(name, 2), steps=1, layers=1, seed=1)), folder
            )
        )
    return _written(lambda folder: [played(name, rank).write(folder) for rank in (0, 1)])


def _written(write: Callable[[Path], object]) -> Files:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*_rank*.json"))}


def write_sample(folder: Path, random: Random) -> str:
    """Writes the traces of a drawn sample. Returns its name."""
    sample = draw(random)
    write(folder, traces(sample))
    return sample


def write(folder: Path, files: Files) -> None:
    """Writes the files into the folder, which need not be there yet."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _made(files: Files, name: str, command: str, *arguments: str) -> bytes:
    """What a command makes of the files; arguments that name files are in the folder with them."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), files)
        paths = [Path(folder, argument) if "." in argument else argument for argument in arguments]
        must(command, *paths, "-o", Path(folder, name))
        return Path(folder, name).read_bytes()


@cache
def linked(sample: str) -> bytes:
    """The linked trace of the sample's rank 0."""
    return _made(traces(sample), LINKED, "link", HOST, DEVICE)


@cache
def graph(sample: str, *options: str) -> bytes:
    """The graph of the sample's rank 0."""
    return _made({LINKED: linked(sample)}, GRAPH, "convert", LINKED, *options)


@cache
def graph_json(sample: str) -> bytes:
    """The JSON form of the graph of the sample's rank 0."""
    return _made({GRAPH: graph(sample)}, "graph.json", "jsonize", GRAPH)


@cache
def graphs(sample: str, *options: str) -> Files:
    """What trace-build writes for the sample."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "traces", traces(sample))
        must("build", folder / "traces", "-o", folder / "graphs", "-q", *options)
        return {path.name: path.read_bytes() for path in (folder / "graphs").iterdir() if path.is_file()}


def prepare() -> None:
    """Makes what cases share before they run, and loads what commands load when they first need it."""
    for kind, names in (("played", PLAYED), ("generated", GENERATED), ("recorded", RECORDED)):
        for name in names:
            graph_json(f"{kind} {name}")
            graphs(f"{kind} {name}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "graphs", graphs("played 2.13"))
        write(folder / "traces", traces("played 2.13"))
        must("report", folder / "traces", "-o", folder / "report.html")
        must("view", folder / "graphs" / GRAPH, "-o", folder / "view.svg")
        must("view", folder / "graphs" / GRAPH, "-o", folder / "view.graphml")
        must("diagnose", folder / "traces")
        must("merge", folder / "traces", "-o", folder / "merged.db")


def played(torch: str, rank: int) -> TraceBuilder:
    """Plays ops with tensors, copies, waits, a graph, a backward pass on a thread, collectives, messages, modules."""
    t = TraceBuilder(torch, rank=rank, world_size=2, pid=1000 + rank)
    group = t.group([0, 1], name="0")
    a, b, c = t.tensor((4, 8)), t.tensor((8, 4)), t.tensor((4, 4))
    with t.annotation("ProfilerStep#3"), t.python("train.py(3): step"), t.module("Linear_0"):
        t.memcpy("HtoD", 7, 3)
        with t.op(
            "aten::mm", inputs=[a, b], outputs=[c], seq_id=1, schema="aten::mm(Tensor self, Tensor mat2) -> Tensor"
        ):
            t.work(2)
            t.launch("sgemm", 7, 20)
        t.graph_launch([("first", 7, 5), ("second", 20, 5)])
        with t.annotation("## backward ##"):
            with (
                t.thread(9, start=t.now + 1),
                t.op("autograd::engine::evaluate_function: MmBackward0", seq_id=1, fw_thread=1),
            ):
                t.work(2)
                t.launch("dgemm", 7, 10)
            t.join_thread(9)
        done = t.collective("allreduce", group=group, tensors=[c])
        t.wait_collective(done)
        t.collective("alltoall_base", group=group, tensors=[c, a], in_split=[1, 3], out_split=[2, 2])
        t.collective("send" if rank == 0 else "recv", group=group, tensors=[a], peer=1 - rank)
        event = t.record_event(stream=20)
        t.wait_event(event, stream=7)
        t.event_synchronize(event)
        t.memset(7)
        t.memcpy("DtoH", 7, 3)
        t.device_synchronize()
    return t


def write_rocpd(path: Path, random: Random) -> None:
    """Writes a database of any dialect."""
    ops = [
        Op("gemm", 100, 400, caller=1),
        Op("copy", 450, 500, queue=2, type="CopyDeviceToHost", caller=2, hwq=3),
        Op("other", 600, 700),
    ]
    api = [Api("hipLaunchKernel", 50, 60), Api("hipMemcpyAsync", 70, 80), Api("hipDeviceSynchronize", 90, 510)]
    write_database(path, random.choice(DIALECTS), ops, api, [Range("step", 0, 1000)])


REPORT, GROUPS = "report.json", "comm_groups.json"


def meddle(folder: Path, random: Random) -> str:
    """Changes files of a build. Returns what was done, in words."""
    return ", ".join(random.choice(WAYS)(folder, random) for _ in range(random.choice([1, 1, 2])))


def _file(folder: Path, random: Random) -> Path:
    """A file of the folder: each kind as often as the others."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return random.choice([*[path for path in files if path.name in (REPORT, GROUPS)] * 3, *files])


def _lose(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    path.unlink()
    return f"{path.name} lost"


def _cut(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    path.write_bytes(path.read_bytes()[: random.choice([0, 1, 100, -1])])
    return f"{path.name} cut"


def _exchange(folder: Path, random: Random) -> str:
    one, other = _file(folder, random), _file(folder, random)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return f"{one.name} and {other.name} exchanged"


def _of_another_job(folder: Path, random: Random) -> str:
    name = draw(random)
    path = _file(folder, random)
    others = graphs(name)
    path.write_bytes(others.get(path.name, others[GRAPH]))
    return f"{path.name} of {name}"


def _change(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    content = path.read_bytes()
    try:
        path.write_bytes(changed_json(content, random) if path.suffix == ".json" else change_fields(content, random)[0])
    except (ValueError, IndexError, DecodeError):
        path.write_bytes(b"")
    return f"{path.name} changed"


def _renumber(folder: Path, random: Random) -> str:
    """Gives the groups other numbers."""
    path = folder / GROUPS
    if not path.exists():
        return "no groups"
    groups = {"1": [0, 1], "2": [1, 0], "7": [0]}
    path.write_text(
        json.dumps(
            random.choice([groups, {}, {"2": [0, 1]}, {"1": [1, 0]}, {"1": [0, 1, 2, 3]}, {"-1": [0, 1]}, {"1": []}])
        )
    )
    return "groups renumbered"


def _rename(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    name = random.choice(
        ["graph.7.et", "graph.-1.et", "graph.00.et", "graph.x.et", "graph.1.et.gz", f"graph.{'9' * 30}.et", "job.goal"]
    )
    path.rename(folder / name)
    return f"{path.name} renamed to {name}"


WAYS: tuple[Callable[[Path, Random], str], ...] = (
    _lose, _cut, _exchange, _of_another_job, _change, _change, _renumber, _rename,
)  # fmt: skip
