"""One dependency rule on a run made by hand, and the edges that it makes, by the names of activities."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from execgraph.converter.context import ConversionContext, Edges
from execgraph.converter.dependencies import Rule
from execgraph.converter.timeline import slice_host
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace
from execgraph.schema.machine import LatencyStats, MachineCalibration

from support.references import linked_of
from support.tables import Called, Ran, activities, calls

MACHINE = MachineCalibration(launch={"": LatencyStats(2_000, 3_000, 9)}, gap={"": LatencyStats(500, 700, 9)})
Named = set[tuple[str, str, DependencyKind]]


def run_of(ran: Sequence[Ran], called: Sequence[Called] = (), **more: object) -> ConversionContext:
    """A run on MACHINE; `more` are columns of the linked trace."""
    linked = dataclasses.replace(linked_of([]), activities=activities(*ran), calls=calls(*called), **more)
    linked.info.machine = MACHINE
    return sliced(linked)


def sliced(linked: LinkedTrace) -> ConversionContext:
    return ConversionContext(linked, slice_host(linked, 0), np.zeros(len(linked.activities), np.int64))


def edges_of(rule: Rule, run: ConversionContext) -> Named:
    return named(rule(run), run)


def named(edges: Edges, run: ConversionContext) -> Named:
    """Edges between activities, by their names."""
    assert len(edges.source) == len(edges.target) == len(edges.kind)
    name = run.linked.activities.name
    pairs = zip(
        (edges.source - run.activities_from).tolist(), (edges.target - run.activities_from).tolist(), strict=True
    )
    return {
        (name[source], name[target], DependencyKind(kind))
        for (source, target), kind in zip(pairs, edges.kind.tolist(), strict=True)
    }
