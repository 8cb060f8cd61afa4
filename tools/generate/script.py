"""Writing the program of one host thread: each method adds the instructions of one thing that PyTorch does.

Durations are drawn around their mean from the rank's own random numbers, so equal seeds give equal programs.
"""

import contextlib
from collections.abc import Iterator
from random import Random

from .instructions import (
    MEMORY,
    Activity,
    Begin,
    Call,
    Collective,
    End,
    Get,
    GraphLaunch,
    GraphNode,
    HostWork,
    Instruction,
    Launch,
    Op,
    Put,
    QueryEvent,
    RecordEvent,
    Rendezvous,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Value,
    WaitEvent,
)
from .machine import Machine, stretched
from .operators import SCHEMAS

USER_SCOPE, BACKWARD_SCOPE = 7, 1
EARLY_START = 0.1
"""The share of launches that reach the device before the call has returned."""
GRAPH_LATENCY = 25 / 12
"""How much longer a graph is on its way than a single activity."""


class Script:
    """The program of a thread. `events` numbers the process's CUDA events by name; `stalls` draws random stalls.

    Ops that are equal in name and arguments become one object, whatever the step.
    """

    def __init__(self, random: Random, stalls: Random, events: dict[str, int], machine: Machine) -> None:
        self.instructions: list[Instruction] = []
        self.random, self._stalls, self._machine = random, stalls, machine
        self._ops: dict[tuple[object, ...], Op] = {}
        self._events = events

    def take(self) -> list[Instruction]:
        """Returns what was written since the last call."""
        instructions, self.instructions = self.instructions, []
        return instructions

    # ops and host work

    @contextlib.contextmanager
    def op(
        self,
        name: str,
        inputs: tuple[Value, ...] = (),
        outputs: tuple[Value, ...] = (),
        *,
        scope: int = 0,
        sequence: int = -1,
        forward_thread: int = 0,
        collective: Collective | None = None,
        comm_sequence: int = 0,
        own_us: float = 4.0,
    ) -> Iterator[None]:
        """Runs an op whose children are written inside; `own_us` of its own work lie around them."""
        key = (name, inputs, outputs, collective)
        op = self._ops.get(key)
        if op is None:
            annotation = scope == USER_SCOPE
            op = self._ops[key] = Op(name, inputs, outputs, SCHEMAS.get(name, ""), scope, annotation, collective)
        self.instructions.append(Begin(op, sequence, forward_thread, comm_sequence))
        self.work(own_us * 0.7)
        yield
        self.work(own_us * 0.3)
        self.instructions.append(End())

    def annotation(self, name: str, own_us: float = 2.0) -> contextlib.AbstractContextManager[None]:
        """Returns a user annotation around what is written within it."""
        return self.op(name, scope=USER_SCOPE, own_us=own_us)

    def leaf(self, name: str, inputs: tuple[Value, ...] = (), outputs: tuple[Value, ...] = (), us: float = 3.0) -> None:
        """Runs an op that does nothing on the device."""
        with self.op(name, inputs, outputs, own_us=us):
            pass

    def work(self, us: float) -> None:
        """Host work of about `us`, and sometimes a stall behind it."""
        self.instructions.append(HostWork(stretched(self._stalls, self._machine.stalls, self._draw_ns(us * 1000))))

    def _draw_ns(self, ns: float, spread: float | None = None) -> int:
        """Returns a duration near `ns`, with the spread of host work unless another one is given."""
        share = self._machine.host_spread if spread is None else spread
        return max(1, round(ns * self.random.uniform(1 - share, 1 + share)))

    def _latency(self, factor: float = 1.0) -> int:
        return self._draw_ns(self._machine.latency_ns * factor, self._machine.latency_spread)

    def _return(self, us: float) -> int:
        """Returns how long a call that waited takes to return."""
        return self._draw_ns(us * 1000 * self._machine.return_factor)

    # launches

    def launch(self, activity: Activity, stream: int, device_us: float, call: str = "cudaLaunchKernel") -> None:
        """Launches an activity of about `device_us`."""
        self.instructions.append(self._launch(activity, stream, self._draw_ns(device_us * 1000, 0.03), call))

    def copy(self, activity: Activity, stream: int, device_us: float, blocking: bool = False) -> None:
        """Launches a copy; a blocking copy blocks its thread until it has ended, as a copy to pageable memory does."""
        launch = self._launch(activity, stream, self._draw_ns(device_us * 1000, 0.03), "cudaMemcpyAsync")
        self.instructions.append(launch._replace(blocking=blocking, return_ns=self._return(3)))

    def rendezvous(
        self, activity: Activity, stream: int, device_ns: int, rendezvous: Rendezvous, comm_sequence: int
    ) -> None:
        """Launches a kernel that runs together with others; its duration has to be the same on all ranks."""
        launch = self._launch(activity, stream, device_ns, "cudaLaunchKernelExC")
        self.instructions.append(launch._replace(rendezvous=rendezvous, comm_sequence=comm_sequence))

    def graph(self, nodes: tuple[GraphNode, ...], stream: int) -> None:
        """Launches a CUDA graph."""
        host = self._draw_ns(3000 + 400 * len(nodes))
        self.instructions.append(GraphLaunch(stream, nodes, host, host, self._latency(GRAPH_LATENCY)))

    def _launch(self, activity: Activity, stream: int, device_ns: int, call: str) -> Launch:
        host = self._draw_ns(5000)
        submit = round(host * 0.5) if self.random.random() < EARLY_START else host
        latency, gap = self._latency(), self._draw_ns(self._machine.gap_ns, self._machine.gap_spread)
        return Launch(call, activity, stream, device_ns, host, submit, latency, gap)

    def call(self, name: str, us: float = 1.0) -> None:
        """Makes a runtime call that neither launches nor waits."""
        self.instructions.append(Call(name, self._draw_ns(us * 1000)))

    # events and synchronisation

    def record(self, event: str, stream: int) -> None:
        """Records the event on the stream."""
        self.instructions.append(RecordEvent(self._event(event), stream, self._draw_ns(1500)))

    def wait(self, stream: int, event: str) -> None:
        """Makes the stream wait for the event."""
        self.instructions.append(WaitEvent(stream, self._event(event), self._draw_ns(1200)))

    def synchronize_event(self, event: str) -> None:
        """Waits on the host for the event."""
        self.instructions.append(SynchronizeEvent(self._event(event), self._return(2.5)))

    def query_event(self, event: str, pause_us: float = 20.0) -> None:
        """Asks for the event until it has happened, with pauses of about `pause_us`."""
        self.instructions.append(QueryEvent(self._event(event), self._draw_ns(1500), self._draw_ns(pause_us * 1000)))

    def synchronize_stream(self, stream: int) -> None:
        """Waits on the host for the stream."""
        self.instructions.append(SynchronizeStream(stream, self._return(2.5)))

    def synchronize_device(self) -> None:
        """Waits on the host for all streams."""
        self.instructions.append(SynchronizeDevice(self._return(4)))

    def _event(self, name: str) -> int:
        return self._events.setdefault(name, len(self._events) + 1)

    # other threads

    def put(self, queue: str, capacity: int = 0) -> None:
        """Puts an item into a queue of threads, and waits where there are more than `capacity` then (0: never)."""
        self.instructions.append(Put(queue, capacity))

    def get(self, queue: str, wake_us: float = 8.0) -> None:
        """Takes an item out of a queue of threads; a thread that had to wait goes on about `wake_us` after it came."""
        self.instructions.append(Get(queue, self._draw_ns(wake_us * 1000)))


DEVICE_TO_HOST = Activity("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", MEMORY, 4)
