"""The slice of the calling op that precedes each host slice, in runs made by hand."""

import numpy as np
from execgraph.converter.building import calling_slices
from execgraph.converter.context import ConversionContext
from execgraph.converter.timeline import names_of, slice_host
from execgraph.schema.linked import LinkedTrace
from support.references import Act, Call, Op, linked_of


def called_from(linked: LinkedTrace) -> set[tuple[str, str]]:
    """(called, caller), each as its name and start."""
    run = ConversionContext(linked, slice_host(linked, 0), np.zeros(len(linked.activities), np.int64))
    names = names_of(linked, run.timeline)
    label = [f"{names[row]} {start}" for row, start in enumerate(run.timeline.start.tolist())]
    edges = calling_slices(run)
    assert not edges.kind.any()
    return {(label[target], label[source]) for source, target in zip(edges.source, edges.target, strict=True)}


def test_a_slice_was_called_by_the_last_earlier_slice_of_the_op_around_its_op() -> None:
    ops = [Op(0, 100, name="outer"), Op(10, 20, 0, "first"), Op(40, 60, 0, "second"), Op(45, 50, 2, "inner")]
    assert called_from(linked_of([], ops=ops)) == {
        ("first 10", "outer 0"),
        ("second 40", "outer 20"),
        ("inner 45", "second 40"),
        ("second 50", "outer 20"),
    }


def test_nothing_called_what_has_no_op_around_it_or_none_that_had_begun() -> None:
    ops = [Op(0, 100, name="outer"), Op(0, 20, 0, "at once"), Op(200, 300, name="alone")]
    assert called_from(linked_of([], ops=ops)) == set()


def test_a_wait_was_called_by_the_op_around_its_call() -> None:
    linked = linked_of(
        [Act(30, 80, call=0)],
        [Call(0, 10, 0), Call(20, 90, 0, "cudaStreamSynchronize")],
        [Op(0, 100, name="outer"), Op(0, 10, 0, "before")],
        host_waits=[(1, 0)],
    )
    assert ("cudaStreamSynchronize 80", "outer 10") in called_from(linked)


def test_an_op_of_another_thread_called_nothing_here() -> None:
    linked = linked_of([], ops=[Op(0, 100, name="outer"), Op(10, 20, 0, "elsewhere"), Op(30, 40, 0, "here")])
    linked.ops.thread[1] = 2
    assert called_from(linked) == {("here 30", "outer 0")}


def test_a_run_of_waits_alone_has_no_callers() -> None:
    linked = linked_of([Act(30, 80)], [Call(20, 90, name="cudaStreamSynchronize")], host_waits=[(0, 0)])
    assert called_from(linked) == set()
