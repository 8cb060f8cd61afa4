"""A process from rows by hand, for tests of who waited for whom."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from execgraph.linker.communication import CollectiveOps
from execgraph.linker.waits import Process, process_of
from execgraph.schema.columns import Lookup
from execgraph.schema.linked import Communication, Communications
from execgraph.schema.machine import MachineCalibration

from .device_rows import device_trace
from .tables import Called, Op, Ran, Synced, activities, calls, column, ops, syncs


def process(
    ran: Sequence[Ran],
    called: Sequence[Called],
    *synced: Synced,
    inside: Mapping[int, str] | None = None,
    awaited: Mapping[int, int] | None = None,
    calibration: MachineCalibration | None = None,
) -> Process:
    """A process that launched and synchronised so.

    Each call of `inside` is in the op of a collective of its own with this name; `awaited` is the activity that the op
    around a call names.
    """
    inside, awaited = inside or {}, awaited or {}
    op_of_call = {call: op for op, call in enumerate(inside)}
    enclosing_ops = ops(*(Op("record_param_comms") for _ in inside))
    none = column(*(-1 for _ in inside))
    recorded = Communications.of(Communication(name) for name in inside.values())
    rows = replace(calls(*called), op_row=column(*(op_of_call.get(call, -1) for call in range(len(called)))))
    launched = activities(*ran)
    return process_of(
        replace(device_trace(), syncs=syncs(*synced)),
        rows,
        replace(launched, op_row=column(*(op_of_call.get(one.call, -1) for one in ran))),
        collectives=CollectiveOps(column(*range(len(inside))), recorded, none, enclosing_ops, {}, none),
        awaited=Lookup(column(*(op_of_call[call] for call in awaited)), column(*awaited.values())),
        calibration=calibration or MachineCalibration(),
    )
