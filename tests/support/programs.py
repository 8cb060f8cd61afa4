"""Random runs that could have happened: steps on one or two host threads and three streams, in the order of time."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from hypothesis import strategies as st

from support.builder.layouts import LAYOUTS
from support.builder.records import Event
from support.builder.timeline import TraceBuilder

STREAMS = (7, 20, 24)
MAIN, WORKER = 1, 9


class Step(NamedTuple):
    """`back` counts the events recorded since the one that is meant."""

    action: str
    stream: int
    back: int
    us: int


Action = Callable[[TraceBuilder, Step, Event, str], object]


def launch_in_op(t: TraceBuilder, step: Step, _: Event, name: str) -> None:
    with t.op("aten::linear"), t.op("aten::addmm"):
        t.work(1)
        t.launch(name, step.stream, step.us)
        t.work(1)


def launch_graph(t: TraceBuilder, step: Step, _: Event, name: str) -> None:
    """The graph ends when all its branches have."""
    streams = STREAMS[: step.back]
    t.graph_launch([(f"{name}.{number}", stream, step.us) for number, stream in enumerate(streams)])
    t.ready |= dict.fromkeys(streams, max(t.ready[stream] for stream in streams))


def backward(t: TraceBuilder, step: Step, _: Event, name: str, before: int = 1) -> None:
    """The main thread is blocked while the autograd worker launches, which begins `before` µs or more after that."""
    sequence = len(t.ops)
    with t.op("aten::mm", seq_id=sequence):
        t.work(2)
    with t.annotation("## backward ##"):
        t.work(before)
        with (
            t.thread(WORKER, start=t.now + step.back),
            t.op("autograd::engine::evaluate_function: MmBackward0", seq_id=sequence, fw_thread=MAIN),
        ):
            t.work(step.us)
            t.launch(name, step.stream, step.us)
        t.join_thread(WORKER)
        t.work(2)


def launch_late(t: TraceBuilder, step: Step, _: Event, name: str) -> None:
    """Nothing tells why the kernel starts so late."""
    with t.op("aten::linear"):
        t.launch(name, step.stream, step.us, start=max(t.now + 4, t.ready[step.stream] / 1000) + 50 * step.back)


ACTIONS: dict[str, Action] = {
    "work": lambda t, step, event, name: t.work(step.us),
    "op": lambda t, step, event, name: t.leaf("aten::view", step.us),
    "launch": lambda t, step, event, name: t.launch(name, step.stream, step.us),
    "early": lambda t, step, event, name: t.launch(name, step.stream, step.us, call_duration=20, latency=3),
    "launch in op": launch_in_op,
    "graph": launch_graph,
    "set": lambda t, step, event, name: t.memset(step.stream, step.us),
    "upload": lambda t, step, event, name: t.memcpy("HtoD", step.stream, step.us),
    "download": lambda t, step, event, name: t.memcpy("DtoH", step.stream, step.us),
    "wait event": lambda t, step, event, name: t.wait_event(event, stream=step.stream),
    "event synchronize": lambda t, step, event, name: t.event_synchronize(event),
    "event query": lambda t, step, event, name: t.event_query(event),
    "stream synchronize": lambda t, step, event, name: t.stream_synchronize(step.stream),
    "device synchronize": lambda t, step, event, name: t.device_synchronize(),
}
STEPS = st.builds(
    Step,
    st.sampled_from([*ACTIONS, "record", "record", "enter op", "leave ops"]),
    st.sampled_from(STREAMS),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3, 5, 17, 40]),
)
BACKWARD = st.builds(Step, st.just("backward"), st.sampled_from(STREAMS), st.integers(0, 3), st.integers(1, 20))
AT_ONCE = st.builds(Step, st.just("backward at once"), st.sampled_from(STREAMS), st.integers(0, 1), st.integers(1, 20))
LATE = st.builds(Step, st.just("late"), st.sampled_from(STREAMS), st.integers(1, 3), st.integers(1, 40))
RARE: dict[str, Action] = {
    "backward": backward,
    "backward at once": lambda t, step, event, name: backward(t, step, event, name, before=0),
    "late": launch_late,
}
VERSIONS = st.sampled_from(sorted(LAYOUTS))

one_thread = st.lists(STEPS | BACKWARD, min_size=3, max_size=30)
with_backwards = st.lists(STEPS | AT_ONCE | AT_ONCE, min_size=3, max_size=30)
with_delays = st.lists(STEPS | BACKWARD | LATE, min_size=3, max_size=30)
two_threads = st.lists(STEPS, min_size=3, max_size=30)


def play(steps: list[Step], *, threads: int = 1, **options: object) -> TraceBuilder:
    """Each step is taken by the thread whose clock is behind, so that calls are made in the order they are listed."""
    return go_on(TraceBuilder(**options), steps, threads)  # type: ignore[arg-type]


def go_on(t: TraceBuilder, steps: list[Step], threads: int = 1) -> TraceBuilder:
    """The same in a run that has begun."""
    opened = {number: ExitStack() for number in range(MAIN, MAIN + threads)}
    for number in opened:
        with t.thread(number):
            t.leaf("aten::empty", 2 * number)
    events = [t.record_event(stream=STREAMS[0])]
    for number, step in enumerate(steps):
        thread = min(opened, key=lambda candidate: t.threads[candidate].clock)
        with t.thread(thread):
            if step.action == "record":
                events.append(t.record_event(stream=step.stream))
            elif step.action == "enter op":
                opened[thread].enter_context(t.op("aten::outer"))
            elif step.action == "leave ops":
                opened[thread].close()
            else:
                action = (ACTIONS | RARE)[step.action]
                action(t, step, events[-min(step.back or 1, len(events))], f"{step.action} {number}")
    for number, ops in opened.items():
        with t.thread(number):
            ops.close()
    return t
