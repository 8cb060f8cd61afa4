"""Collects the events of a device trace as columns, a piece of the file at a time: one `EventRows` for each role."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from ...schema.columns import ABSENT, Categorical, CategoricalBuilder, Int64, IntegerBuilder, JsonRecordsBuilder
from ...schema.linked import ExactTimes, identities, integer_list, integers, kineto, lacks_padding, with_padding
from ...schema.reasons import Counts, Reason
from .categories import Role

Event = kineto.Event | kineto.ExactEvent

NO_ARGS = kineto.Args()
COMMUNICATION = ("record_param_comms", "nccl:", "rccl:", "hccl:", "xccl:", "ccl:", "mpi:", "ucc:", "gloo:", "c10d::")
"""Prefixes of ops whose tensors are what is communicated, in versions that do not record arguments of communication."""
LISTS = ("in_split", "out_split", "group_ranks")
AT_ONCE = 1 << 16
GIGA, FASTEST = 10**9, 10**9
"""Bytes per GB, and GB/s that no memory reaches."""
INTEGERS = {
    Role.OP: {"external_id": 0, "record_function_id": 0, "ev_idx": -1, "sequence": -1, "forward_thread": 0},
    Role.CALL: {"correlation": 0, "external_id": 0},
    Role.ACTIVITY: {"correlation": 0, "external_id": 0}
    | dict.fromkeys(("device", "stream", "graph_node", "bytes", "size"), -1),
    Role.SYNC: {"correlation": 0, "device": -1, "stream": -1, "wait_stream": -1, "wait_record": -1, "wait_event": -1},
    Role.EVENT_RECORD: {"correlation": 0, "stream": -1, "event": -1},
    Role.DEVICE_WAIT: dict.fromkeys(("device", "stream", "wait_stream", "queue_sequence"), -1),
}
"""The arguments that become columns of each role's table, and the values of missing ones."""


class EventRows:
    """The events of one role as columns; their arguments only with `keep_arguments`."""

    def __init__(self, role: Role, keep_arguments: bool = False) -> None:
        self.count = 0
        self.arguments = CategoricalBuilder()
        self._keep_arguments = keep_arguments
        self.communication: JsonRecordsBuilder[kineto.Args] = JsonRecordsBuilder(kineto.Args)
        self.name, self.category, self.sync_kind = CategoricalBuilder(), CategoricalBuilder(), CategoricalBuilder()
        self._role = role
        self._columns: dict[str, IntegerBuilder] = defaultdict(IntegerBuilder)

    def add(self, events: Sequence[Event], start: ExactTimes, duration: ExactTimes, oddities: Counts) -> None:
        """Adds events with their times (ns), and counts decisions about them in `oddities`."""
        self.name.add([event.name or "" for event in events])
        self._columns["process"].add(identities([event.pid for event in events]))
        self._columns["thread"].add(identities([event.tid for event in events]))
        for name, column in (("start", start), ("duration", duration)):
            self._columns[name].add(column.ns)
            self._columns[f"digits of {name}"].add(column.digits)
        oddities[Reason.NO_DURATION] += int((duration.ns < 0).sum())
        if events and self._role is not Role.PYTHON:
            self._add_arguments(events, oddities)
        self.count += len(events)

    def _add_arguments(self, events: Sequence[Event], oddities: Counts) -> None:
        arguments = [event.args or NO_ARGS for event in events]
        self.category.add([event.cat or "" for event in events])
        if self._keep_arguments:
            self.arguments.add([_argument_lists(args, oddities) for args in arguments])
        if self._role is Role.SYNC:
            pairs = zip(events, arguments, strict=True)
            self.sync_kind.add([str(args.sync_kind or event.name or "") for event, args in pairs])
        if self._role is Role.ACTIVITY:
            self._columns["lane"].add(integers([event.tid for event in events], -1))
            self._columns["bandwidth"].add(_bytes_per_second([args.bandwidth for args in arguments]))
        columns = zip(*map(attrgetter(*INTEGERS[self._role]), arguments), strict=True)
        for (name, missing), column in zip(INTEGERS[self._role].items(), columns, strict=True):
            self._columns[name].add(integers(column, missing))
        names = {name for name in {event.name for event in events} if name and name.startswith(COMMUNICATION)}
        communicating = {
            row: args
            for row, (event, args) in enumerate(zip(events, arguments, strict=True), self.count)
            if args.collective is not None or args.group_name is not None or event.name in names
        }
        for args in communicating.values():
            _read_lists(args, oddities)
        self.communication.add(communicating)
        oddities[Reason.STILL_RUNNING] += sum(args.finished is False for args in arguments)

    def column(self, name: str) -> Int64:
        """Returns a column of integers."""
        return self._columns[name].column()

    def argument_column(self) -> Categorical:
        """Returns the arguments of each event as JSON text, empty where they are not kept."""
        return self.arguments.column() if self._keep_arguments else Categorical(np.full(self.count, 0, np.int32), [""])

    def times(self, name: str) -> ExactTimes:
        """Returns a column of times, and with how many digits each of them was written."""
        return ExactTimes(self.column(name), self.column(f"digits of {name}"))

    def start_end(self, pad: dict[str, bool]) -> tuple[Int64, Int64]:
        """Returns starts and ends (ns); `pad` tells which of `start` and `duration` were written without padding."""
        start, duration = (
            with_padding(self.times(name)) if pad[name] else self.column(name) for name in ("start", "duration")
        )
        return start, start + np.where(duration == ABSENT, 0, np.maximum(duration, 0))


def _bytes_per_second(values: Sequence[Any]) -> Int64:
    """Returns bytes/s for values in GB/s, -1 for a value that is no speed."""
    speeds = np.array([value if type(value) in (int, float) else -1 for value in values], np.float64)
    is_valid = (speeds > 0) & (speeds < FASTEST)
    bytes_per_second = np.full(len(values), -1, np.int64)
    bytes_per_second[is_valid] = np.rint(speeds[is_valid] * GIGA)
    return bytes_per_second


def _read_lists(args: kineto.Args, oddities: Counts) -> None:
    """Replaces the texts of recorded lists by lists. Counts those that cannot be read in `oddities`."""
    for name in LISTS:
        numbers = integer_list(getattr(args, name))
        oddities[Reason.UNREADABLE_LISTS] += numbers is None
        setattr(args, name, numbers or None)


def _argument_lists(args: kineto.Args, oddities: Counts) -> str:
    """Returns an op's recorded arguments as JSON in the host trace's layout, an empty text where none are recorded.

    Only numbers have values, as text. Counts in `oddities` what is no list.
    """
    if not bytes(args.input_dims):
        return ""
    lists = [bytes(text) for text in (args.concrete_inputs, args.input_dims, args.input_types)]
    values, shapes, types = (text.decode() if text.startswith(b"[") else "[]" for text in lists)
    oddities[Reason.ARGUMENTS_NO_LISTS] += sum(not text.startswith(b"[") for text in lists if text)
    return f'{{"values":{values},"shapes":{shapes},"types":{types}}}'


def unpadded(tables: Iterable[EventRows]) -> dict[str, bool]:
    """Returns whether a file's starts and durations were written without zeros before their ns."""
    rows = list(tables)
    return {
        name: lacks_padding(piece for table in rows for piece in _in_pieces(table.times(name)))
        for name in ("start", "duration")
    }


def _in_pieces(times: ExactTimes) -> Iterator[ExactTimes]:
    for first in range(0, len(times.ns), AT_ONCE):
        yield ExactTimes(*(column[first : first + AT_ONCE] for column in times))
