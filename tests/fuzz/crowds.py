"""Plays runs with very many of one thing in small files: threads, streams, groups, nested ops, events, launches of one call."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

from builder import LAYOUTS, TraceBuilder

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


def _one_event(t: TraceBuilder, count: int, _: Random) -> None:
    """An event that all streams wait for, recorded anew each time."""
    event = t.event()
    for number in range(count):
        t.record_event(event, stream=7)
        t.wait_event(event, stream=100 + number % 50)
    t.launch("kernel", 100, 1)


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


CROWDS: tuple[Callable[[TraceBuilder, int, Random], None], ...] = (
    _threads, _streams, _groups, _nested_ops, _staggered_activities, _events, _one_event, _graph_kernels, _steps, _tensors, _many_tensors,
    _messages, _modules,
)  # fmt: skip
