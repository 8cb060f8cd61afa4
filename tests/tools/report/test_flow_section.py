"""The data flow of one step on the page: its boxes in layers, and arrows between their numbers."""

import json

from execgraph.tools.analyses import RankTrace, graph_of, rank_of_graph
from execgraph.tools.report.flow_section import FlowBox, flow_section, step_flow
from support.builder import TraceBuilder
from support.graphs import training_step
from support.runs import link_run


def rank_of(t: TraceBuilder) -> RankTrace:
    linked = link_run(t)
    return RankTrace(0, linked, graph_of(linked))


def labels(layers: list[list[FlowBox]]) -> list[list[str]]:
    return [[box.label for box in layer] for layer in layers]


def test_an_op_lies_below_the_one_that_made_what_it_reads() -> None:
    t = TraceBuilder(rank=0)
    made = t.tensor()
    with t.op("aten::relu", outputs=[made]):
        t.launch("relu_kernel", duration=50)
    with t.op("aten::mm", inputs=[made]):
        t.launch("gemm", duration=100)
    with t.op("aten::sum", inputs=[made]):
        t.launch("reduce", duration=50)
    flow = step_flow(rank_of(t))
    assert flow is not None
    section = flow_section(flow)
    assert labels(section.layers) == [["aten::relu"], ["aten::mm", "aten::sum"]]
    relu, mm, total = (box for layer in section.layers for box in layer)
    arrows = json.loads(section.arrows)["arrows"]
    assert [arrow[:2] for arrow in arrows] == [[relu.number, mm.number], [relu.number, total.number]]
    assert [round(box.share) for box in (relu, mm, total)] == [25, 50, 25]


def test_one_step_is_shown() -> None:
    t = TraceBuilder(rank=0)
    for step in range(3):
        with t.annotation(f"ProfilerStep#{step}"), t.op(f"op of step {step}"):
            t.work(10 * (step + 1))
    flow = step_flow(rank_of(t))
    assert flow is not None and flow.title == "rank 0, step 1"
    assert labels(flow_section(flow).layers) == [["op of step 1"]]


def test_a_graph_alone_is_shown_by_its_dependencies() -> None:
    flow = step_flow(rank_of_graph(training_step()))
    assert flow is not None
    assert flow_section(flow).kinds == ["event wait", "host sync", "launch", "program order", "stream order"]


def test_without_a_graph_there_is_no_data_flow() -> None:
    t = TraceBuilder()
    t.leaf("aten::mm", 5)
    assert step_flow(RankTrace(0, link_run(t))) is None
