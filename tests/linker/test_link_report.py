"""What the report counts of a part: findings of the calls in it, those of no call, and what gloo leaves open."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execgraph.linker.cut import TracePart
from execgraph.linker.link_report import report_of
from execgraph.linker.waits import Synchronisation
from execgraph.schema.linked import LinkedTrace, LinkReport, ProcessGroup
from execgraph.schema.reasons import AnyReason, Reason
from support.references import Call, Op, linked_of
from support.tables import OpRow, column, device_trace

ON_HOST = Reason.DEFAULT_GROUP


def report(linked: LinkedTrace, *calls: bool, **findings: dict[str, Any]) -> LinkReport:
    """The report of a part with these of the calls."""
    none: dict[str, Any] = {"resolved": {}, "guessed": {}, "oddities": {}, "dropped": {}}
    sync = Synchronisation(linked.device_waits, linked.host_waits, **none | findings)
    part = TracePart(linked, np.array(calls, np.bool_), {Reason.CROSSING_HANDOFFS: 3, Reason.CROSSING_HOST_WAITS: 0})  # type: ignore[arg-type]
    return report_of(None, device_trace([OpRow()]), None, sync=sync, whole=linked, part=part, clipped=0)


def test_findings_are_counted_where_their_calls_are_in_the_part_and_those_of_no_call_always() -> None:
    found: dict[AnyReason, list[int]] = {
        Reason.STREAM_IN_USE: [0, 1, 2],
        Reason.OPS_IN_CIRCLES: [-1, -1],
        Reason.BLOCKING_COPIES: [1],
    }
    kinds = ("resolved", "guessed", "oddities", "dropped")
    made = report(linked_of([], [Call(0, 1)] * 3), True, False, True, **dict.fromkeys(kinds, found))
    counted: dict[AnyReason, int] = {Reason.STREAM_IN_USE: 2, Reason.OPS_IN_CIRCLES: 2}
    assert made.waits == made.guessed == counted
    assert made.dropped == counted | {Reason.CROSSING_HANDOFFS: 3}
    assert made.oddities == counted


@pytest.mark.parametrize(
    ("groups", "guessed"),
    [([], {}), ([[0, 1]], {}), ([[0, 1], [0, 1]], {}), ([[0, 1], [0, 2]], {ON_HOST: 2})],
)
def test_of_several_groups_communication_of_the_host_is_a_guess(groups: list[list[int]], guessed: Any) -> None:
    linked = linked_of([], [], [Op(0, 1), Op(1, 2), Op(2, 3)])
    linked.ops.communication_row = column(-1, 0, 1)
    made = replace(linked, groups=[ProcessGroup(str(number), "", ranks) for number, ranks in enumerate(groups)])
    assert report(made).guessed == guessed
