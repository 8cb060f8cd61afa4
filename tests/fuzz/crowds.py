"""Plays runs with very many of one thing (threads, streams, groups, nested ops), and gives nodes other parents."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder

SMALLEST, LARGEST = 30, 4000


def write_crowd(folder: Path, random: Random) -> str:
    """Writes both traces of a run with very many of something. Returns what it has many of, in words."""
    count = round(SMALLEST * (LARGEST / SMALLEST) ** random.random())
    crowds = random.sample(CROWDS, random.choice([1, 1, 2]))
    t = TraceBuilder(random.choice([*LAYOUTS]), rank=0, world_size=2, sync_records=random.random() < 0.7)
    with t.op("aten::mm"):
        t.launch("first", 7, 1)
    for crowd in crowds:
        crowd(t, count // len(crowds), random)
    t.write(folder)
    return f"{count} {' and '.join(crowd.__name__.strip('_') for crowd in crowds)}"


def _threads(t: TraceBuilder, count: int, _: Random) -> None:
    for number in range(100, 100 + count):
        with t.thread(number), t.op("aten::add"):
            t.launch("add", 7, 1)


def _streams(t: TraceBuilder, count: int, random: Random) -> None:
    waits = random.random() < 0.5
    for stream in range(100, 100 + count):
        with t.op("aten::add"):
            t.launch("add", stream, 1)
        if waits:
            t.wait_event(t.record_event(stream=stream), stream=7)
    t.device_synchronize()


def _groups(t: TraceBuilder, count: int, random: Random) -> None:
    size = random.choice([2, 2, 64])
    tensor = t.tensor()
    for number in range(count):
        group = t.group([0, *range(number + 1, number + size)], name=str(number), description=f"group {number}")
        t.collective("allreduce", group=group, tensors=[tensor], after=None)


def _nested_ops(t: TraceBuilder, count: int, random: Random) -> None:
    launches = random.random() < 0.5
    with ExitStack() as stack:
        for number in range(count):
            stack.enter_context(t.op(f"aten::op{number % 7}"))
            if launches:
                t.launch("kernel", 7, 1)


def _staggered_activities(t: TraceBuilder, count: int, random: Random) -> None:
    """Nested and staggered ones, all on a stream."""
    for number in range(count):
        made = t.call("cudaLaunchKernel", 1)
        length = random.choice([count, 2 * (count - number)])
        t.activity("kernel", 7, made.end / 1000, length, made)


def _events(t: TraceBuilder, count: int, random: Random) -> None:
    """Events that are recorded, awaited, asked for, in any order."""
    events = [t.record_event(stream=7)]
    for number in range(count):
        way = random.randrange(5)
        if way == 0:
            events.append(t.record_event(stream=random.choice([7, 20, 24])))
        elif way == 1:
            t.wait_event(random.choice(events), stream=random.choice([7, 20, 24]))
        elif way == 2:
            t.event_query(random.choice(events))
        elif way == 3:
            t.launch(f"kernel{number % 3}", random.choice([7, 20, 24]), 2)
        else:
            t.event_synchronize(events[-1])


def _graph_kernels(t: TraceBuilder, count: int, random: Random) -> None:
    """One call that launches all."""
    streams = random.choice([[7], [7, 20], [*range(100, 160)]])
    t.graph_launch([(f"kernel{number % 9}", random.choice(streams), 1) for number in range(count)])


def _steps(t: TraceBuilder, count: int, _: Random) -> None:
    for number in range(count):
        with t.annotation(f"ProfilerStep#{number}"), t.op("aten::mul"):
            t.launch("mul", 7, 1)


def _tensors(t: TraceBuilder, count: int, random: Random) -> None:
    """Ops that all write the same storage, or views of it."""
    base = t.tensor((64, 64))
    for number in range(count):
        view = t.tensor((1, 64), storage=base, offset=number % 64 * random.choice([0, 64]))
        with t.op(
            "aten::add_",
            inputs=[base, view],
            outputs=[view],
            schema="aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)",
        ):
            t.launch("add", random.choice([7, 20]), 1)


def _many_tensors(t: TraceBuilder, count: int, _: Random) -> None:
    """One op with them all."""
    inputs = [t.tensor() for _ in range(count)]
    with t.op("aten::cat", inputs=[inputs], outputs=[t.tensor((4, 4 * count))]):
        t.launch("cat", 7, 1)


def _messages(t: TraceBuilder, count: int, random: Random) -> None:
    group = t.group([0, 1], name="9")
    tensor = t.tensor()
    if random.random() < 0.5:
        t.batch([(random.choice(["send", "recv"]), 1, tensor) for _ in range(count)], group=group)
        return
    for _ in range(count):
        t.collective(random.choice(["send", "recv"]), group=group, tensors=[tensor], peer=1)


def _modules(t: TraceBuilder, count: int, _: Random) -> None:
    with ExitStack() as stack:
        for number in range(count):
            stack.enter_context(t.module(f"Linear_{number}"))
        with t.op("aten::mm"):
            t.launch("mm", 7, 1)


def _workers(t: TraceBuilder, count: int, random: Random) -> None:
    """Threads that run the backward pass of ops of others, or of nobody; their caller is idle while they do."""
    known = random.random() < 0.7
    for number in range(100, 100 + count):
        with t.op("aten::mm", seq_id=number):
            t.work(2)
        t.idle(1)
        name = "autograd::engine::evaluate_function: MmBackward0" if known else "aten::mm"
        with t.thread(number), t.op(name, seq_id=number if known else -1, fw_thread=int(known)):
            t.launch("dgemm", 7, 1)
        t.join_thread(number)


def _chained_threads(t: TraceBuilder, count: int, _: Random) -> None:
    """Each thread goes on with what the one before did."""
    for number in range(100, 100 + count):
        start = t.threads[number - 1].clock / 1000 if number - 1 in t.threads else t.now
        with (
            t.thread(number, start),
            t.op("autograd::engine::evaluate_function: B", seq_id=number, fw_thread=number - 1),
            t.op("aten::mm", seq_id=number + 1),
        ):
            t.launch("mm", 7, 1)


def _devices(t: TraceBuilder, count: int, _: Random) -> None:
    first = t.device
    for t.device in range(first, first + count):
        with t.op("aten::add"):
            t.launch("add", 7, 1)
    t.device = first


def _large_group(t: TraceBuilder, count: int, _: Random) -> None:
    """A group of very many ranks."""
    group = t.group([*range(count)], name="1")
    for _ in range(3):
        t.collective("allreduce", group=group)


def _collectives(t: TraceBuilder, count: int, random: Random) -> None:
    """Collectives of one group, each awaited, by the next kernel or in the end."""
    group, later = t.group([0, 1], name="1"), random.random() < 0.5
    tensor = t.tensor()
    awaited = []
    for _ in range(count):
        awaited.append(t.collective("allreduce", group=group, tensors=[tensor]))
        if not later:
            t.wait_collective(awaited.pop())
    for collective in awaited:
        t.wait_collective(collective)


def _annotations(t: TraceBuilder, count: int, random: Random) -> None:
    """Annotations of one name or of as many as there are, one in the other or in a row."""
    nested, names = random.random() < 0.5, random.choice([1, count])
    with ExitStack() as stack:
        for number in range(count):
            stack.enter_context(t.annotation(f"part {number % names}"))
            t.launch("kernel", 7, 1)
            if not nested:
                stack.close()


def _waits_on_one_event(t: TraceBuilder, count: int, random: Random) -> None:
    """An event that is recorded once or anew each time, and that streams or the host wait for ever after."""
    event, streams, is_anew = t.record_event(stream=7), random.choice([2, 50, count]), random.random() < 0.5
    for number in range(count):
        if is_anew:
            t.record_event(event, stream=7)
        if random.random() < 0.5:
            t.wait_event(event, stream=100 + number % streams)
        else:
            t.event_synchronize(event)
    t.launch("kernel", 100, 1)


def _unawaited_events(t: TraceBuilder, count: int, _: Random) -> None:
    for number in range(count):
        t.record_event(stream=7 + number % 2)
    t.launch("kernel", 7, 1)


def _launches_of_one_call(t: TraceBuilder, count: int, random: Random) -> None:
    """Kernels or calls that share a correlation."""
    made = t.call("cudaLaunchKernel")
    for number in range(count):
        t.activity(f"kernel{number % 9}", random.choice([7, 20]), t.now + number, 1, made)
        if number % 2:
            t.call("cudaLaunchKernel", 1, correlation=made.correlation)


def _shared_sequence(t: TraceBuilder, count: int, random: Random) -> None:
    """Forward and backward ops that all have one sequence number."""
    threads = random.choice([1, 9])
    for number in range(count):
        with t.op("aten::mm", seq_id=1):
            t.launch("mm", 7, 1)
        with (
            t.thread(100 + number % threads, t.now),
            t.op("autograd::engine::evaluate_function: B", seq_id=1, fw_thread=1),
        ):
            t.launch("dmm", 7, 1)
        t.join_thread(100 + number % threads)


def _flows(t: TraceBuilder, count: int, random: Random) -> None:
    """Arrows between one op and many, with their own number or a shared one."""
    with t.op("aten::mm") as op:
        t.launch("mm", 7, 1)
    ids = random.choice([1, count])
    for number in range(count):
        place = {"pid": t.pid, "tid": t.pid + op.thread - 1, "ts": t.layout.origin_us + number % 5}
        category = random.choice(["fwdbwd", "ac2g"])
        for end in ({"ph": "s"}, {"ph": "f", "bp": "e"}):
            t.add_device_event(end | place | {"id": number % ids, "cat": category, "name": category})


def _counters(t: TraceBuilder, count: int, _: Random) -> None:
    """Counters and allocations."""
    for number in range(count):
        place = {"pid": t.pid, "tid": t.pid, "ts": t.layout.origin_us + number}
        t.add_device_event(place | {"ph": "C", "name": f"GPU {number % 3}", "args": {f"series {number % 7}": number}})
        memory = {"Addr": number % 50, "Bytes": 512 - 1024 * (number % 2), "Device Type": 1, "Device Id": 0}
        memory |= {"Total Allocated": number, "Total Reserved": number}
        t.add_device_event(
            place | {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "args": memory}
        )


def _queries(t: TraceBuilder, count: int, random: Random) -> None:
    """Events that a thread asks for again and again."""
    t.launch("kernel", 7, random.choice([1, 10 * count]))
    events = [t.record_event(stream=7) for _ in range(random.choice([1, 9]))]
    for number in range(count):
        t.event_query(events[number % len(events)])
    t.launch("kernel", 7, 1)


CROWDS: tuple[Callable[[TraceBuilder, int, Random], None], ...] = (
    _threads, _streams, _groups, _nested_ops, _staggered_activities, _events, _graph_kernels, _steps, _tensors, _many_tensors,
    _messages, _modules, _workers, _chained_threads, _devices, _large_group, _collectives, _annotations, _waits_on_one_event,
    _unawaited_events, _launches_of_one_call, _shared_sequence, _flows, _counters, _queries,
)  # fmt: skip


Nodes = list[dict[str, Any]]
MISSING = 1 << 40


def change_parents(document: dict[str, Any], random: Random) -> str:
    """Changes the parents of nodes of a host trace or a linked trace. Returns what was done, in words."""
    key = random.choice([key for key in ("ctrl_deps", "parent") if key in document["nodes"][0]])
    nodes = [node for node in document["nodes"] if isinstance(node.get(key), int)]
    # those of a thread, a part of them, or all
    nodes = random.choice(
        [nodes, nodes, random.sample(nodes, len(nodes) // 2), random.sample(nodes, min(len(nodes), 3))]
    )
    said, way = random.choice([*WAYS.items()])
    parents = way([node["id"] for node in nodes], [node[key] for node in nodes], random)
    for node, parent in zip(nodes, parents, strict=True):
        node[key] = parent
    without_inputs = random.random() < 0.3
    if without_inputs:
        for node in document["nodes"]:
            node["inputs"] = {name: [] for name in node["inputs"]} if isinstance(node.get("inputs"), dict) else []
    return f"{said} parents of {len(nodes)} nodes{', without inputs' if without_inputs else ''}"


def _with_children(ids: list[int], parents: list[int]) -> list[int]:
    """Each has one of its children, if it has any."""
    child = dict(zip(parents, ids, strict=True))
    return [child.get(number, parent) for number, parent in zip(ids, parents, strict=True)]


WAYS: dict[str, Callable[[list[int], list[int], Random], list[int]]] = {
    "themselves as": lambda ids, parents, random: ids, "a ring of": lambda ids, parents, random: ids[1:] + ids[:1],
    "pairs of": lambda ids, parents, random: [ids[place ^ 1 if place ^ 1 < len(ids) else place] for place in range(len(ids))],
    "a chain that runs into a circle of": lambda ids, parents, random: [*ids[1:], random.choice(ids)],
    "a chain of": lambda ids, parents, random: ids[:1] + ids[:-1],
    "drawn": lambda ids, parents, random: random.choices(ids, k=len(ids)),
    "exchanged": lambda ids, parents, random: random.sample(parents, len(parents)),
    "the same": lambda ids, parents, random: [random.choice(ids)] * len(ids),
    "children as": lambda ids, parents, random: _with_children(ids, parents),
    "later": lambda ids, parents, random: [max(number, random.choice(ids)) for number in ids],
    "missing": lambda ids, parents, random: [number + MISSING for number in ids],
}  # fmt: skip
