"""trace-view: the data flow of a graph by module and op, of a step, a module or an op."""

from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from execgraph.schema.columns import ABSENT, BytesColumn, Ragged
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import ExecutionGraph, NodeType
from execgraph.schema.linked import Arguments
from execgraph.tools.view import PICTURED, DataFlow, Selection, data_flow, draw_flow, median_step, view
from support.commands import Run as Command
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder, training_step

SVG = "{http://www.w3.org/2000/svg}"
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


class Program:
    """Ops in program order, 10 µs each: `op("aten::mm", reads=[1], writes=[2])`, tensors by number."""

    def __init__(self, **metadata: int) -> None:
        self.graph = GraphBuilder(rank=0, **metadata)
        self.callers: list[list[int]] = []
        self.texts: list[tuple[bytes, bytes]] = []

    def op(self, name, *, reads=(), writes=(), within=0, **more):
        row = len(self.callers)
        before = [(row, PROGRAM_ORDER)] if row else []
        number = self.graph.host(name, 10_000 * row, 10_000, after=before, slice=0, op_id=100 + row, **more)
        self.callers.append([within] if within else [])
        self.texts.append((_tensors(reads), _tensors(writes)))
        return number

    def build(self) -> ExecutionGraph:
        graph = self.graph.build()
        graph.ctrl_deps = Ragged.of(self.callers)
        return graph

    def flow(self, graph: ExecutionGraph | None = None) -> DataFlow:
        graph = graph or self.build()
        inputs, outputs = (BytesColumn.of(pair[side] for pair in self.texts) for side in (0, 1))
        tensors = Arguments(inputs, outputs).tensors
        return data_flow(graph, "a test", np.zeros(len(graph), np.int64), tensors=tensors)


@pytest.fixture
def p() -> Program:
    return Program()


def _tensors(numbers: tuple[int, ...]) -> bytes:
    values = ",".join(f'[{number},{number},0,4,4,"cuda:0"]' for number in numbers)
    return f'{{"values":[{values}]}}'.encode()


def flows(flow: DataFlow) -> set[tuple[str, str]]:
    ends = zip(flow.flows.source.tolist(), flow.flows.target.tolist(), strict=True)
    return {(flow.boxes[source].label, flow.boxes[target].label) for source, target in ends}


def labels(flow: DataFlow) -> list[str]:
    return [box.label for box in flow.root.walk()][1:]


def drawn(picture: str) -> list[str]:
    tree = ElementTree.fromstring(picture)
    return [(text.text or "").strip() for text in tree.iter(f"{SVG}text") if text.get("class") == "name"]


def test_a_tensor_flows_from_the_op_that_made_it_last_to_those_that_read_it(p: Program) -> None:
    p.op("aten::zeros", writes=(5,))
    p.op("aten::mm", reads=(1,), writes=(5,))
    p.op("aten::relu", reads=(5,), writes=(6,))
    p.op("aten::sum", reads=(5,), writes=(7,))
    assert flows(p.flow()) == {("aten::mm", "aten::relu"), ("aten::mm", "aten::sum")}


def test_what_an_op_called_reads_and_writes_for_it(p: Program) -> None:
    p.op("aten::relu", writes=(2,))
    outer = p.op("aten::linear", reads=(2,), writes=(3,))
    p.op("aten::addmm", reads=(2,), writes=(3,), within=outer)
    p.op("aten::t", writes=(9,), within=outer)
    p.op("aten::sum", reads=(3,))
    assert flows(p.flow()) == {("aten::relu", "aten::addmm"), ("aten::addmm", "aten::sum")}


def test_without_tensors_order_is_shown() -> None:
    flow = data_flow(training_step(), "a test", np.zeros(7, np.int64))
    assert {("aten::mm", "aten::add"), ("sgemm", "vector_add"), ("vector_add", "Memcpy")} <= flows(flow)


def test_slices_of_an_op_are_one_call_with_or_without_its_id() -> None:
    for op_id in (40, ABSENT):
        g = GraphBuilder()
        g.host("aten::mm", 0, 5, slice=0, op_id=op_id)
        g.host("aten::empty", 5, 5, slice=0, op_id=ABSENT if op_id == ABSENT else 41)
        g.host("aten::mm", 10, 5, slice=1, op_id=op_id)
        g.host("aten::mm", 15, 5, slice=0, op_id=ABSENT if op_id == ABSENT else 42)
        flow = data_flow(g.build(), "a test", np.zeros(4, np.int64))
        assert [(box.label, int(box.time.sum())) for box in flow.boxes] == [
            ("aten::mm", 10), ("aten::empty", 5), ("aten::mm", 5),
        ]  # fmt: skip


def test_a_kernel_is_one_with_the_op_that_launched_nothing_else() -> None:
    graph = training_step()
    graph.ctrl_deps = Ragged.of([[], [], [1], [2], [2], [], []])
    flow = data_flow(graph, "a test", np.zeros(7, np.int64))
    assert labels(flow) == ["aten::mm", "aten::add", "vector_add", "Memcpy", "cudaDeviceSynchronize"]
    assert [box.kind.label for box in flow.root.inner] == ["computation", "computation", "host"]


def test_boxes_are_modules_in_phases_and_ops_in_modules(p: Program) -> None:
    for module in ("Net_0/Linear_0", "Net_0/Linear_1"):
        outer = p.op("aten::linear", module=module)
        p.op("aten::mm", module=module, within=outer)
        p.op("aten::add", module=module)
    p.op(BACKWARD, module="Net_0/Linear_1")
    p.op("Optimizer.step#SGD.step")
    assert labels(p.flow()) == [
        "forward and other", "Net_0", "Linear_0", "aten::linear", "aten::add", "Linear_1", "aten::linear", "aten::add",
        "backward", "Net_0 / Linear_1", "optimizer",
    ]  # fmt: skip


def test_ops_without_a_name_of_a_phase_are_of_forward_and_other_as_in_the_table_of_phases(p: Program) -> None:
    for name in ("aten::mm", BACKWARD, "c10d::allreduce_", "Optimizer.step#SGD.step"):
        p.op(name)
    assert labels(p.flow()) == ["forward and other", "aten::mm", "c10d::allreduce_", "backward", "optimizer"]


def test_many_ops_of_one_name_are_one_box(p: Program) -> None:
    for _ in range(30):
        p.op("aten::add_")
    p.op("aten::mm")
    assert [(box.label, box.calls) for box in p.flow().root.inner] == [("aten::add_", 30), ("aten::mm", 1)]


def test_a_damaged_graph_whose_callers_go_in_a_circle_has_boxes(p: Program) -> None:
    p.op("aten::mm", within=2)
    p.op("aten::add", within=1)
    assert labels(p.flow()) == ["aten::mm"]


def test_calls_and_modules_of_any_depth_have_boxes() -> None:
    p, outer = Program(), 0
    for _ in range(3000):
        outer = p.op("aten::to", within=outer, module="/".join(["a"] * 3000))
    assert len(drawn(draw_flow(p.flow()))) == 1


def test_a_part_without_ops_calls_or_activities_has_no_picture_of_its_data_flow() -> None:
    graph = GraphBuilder()
    graph.host("host idle", 0, 10)
    flow = data_flow(graph.build(), "a test", np.zeros(1, np.int64))
    with pytest.raises(DataError, match="there is no data flow to draw"):
        draw_flow(flow)


def test_the_picture_opens_modules_and_keeps_ops_closed_and_has_no_more_boxes_than_can_be_read(p: Program) -> None:
    for block in range(40):
        for layer in range(3):
            p.op("aten::linear", module=f"Net_0/Block_{block}/Linear_{layer}")
            p.op("aten::relu", module=f"Net_0/Block_{block}/Linear_{layer}")
    names = drawn(draw_flow(p.flow()))
    assert len(names) <= 110
    assert {f"Block_{block}" for block in range(40)} <= {*names}


def test_the_picture_opens_what_holds_a_call_of_the_op_that_is_asked_for(p: Program) -> None:
    for number in range(16):
        layer = p.op(f"layer {number}")
        p.op("aten::mm", within=layer)
        p.op("aten::add", within=layer)
    graph = p.build()
    sought = graph.id[[name == "aten::mm" for name in graph.name]].tolist()
    assert drawn(draw_flow(p.flow())).count("aten::mm") < 16
    flow = data_flow(graph, "", np.zeros(len(graph), np.int64), sought=sought)
    assert drawn(draw_flow(flow)).count("aten::mm") == 16


def within(box: tuple[float, ...], group: tuple[float, ...]) -> bool:
    return all(group[axis] <= box[axis] <= group[axis] + group[axis + 2] - box[axis + 2] for axis in (0, 1))


def apart(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return any(
        first[axis] + first[axis + 2] <= second[axis]
        for axis in (0, 1)
        for first, second in ((one, other), (other, one))
    )


def test_boxes_lie_in_what_is_around_them_and_beside_each_other(p: Program) -> None:
    for layer in range(4):
        p.op("aten::linear", module=f"Net_0/Linear_{layer}", reads=(layer,), writes=(layer + 1,))
        p.op("aten::relu", module=f"Net_0/Linear_{layer}", reads=(layer + 1,), writes=(layer + 1,))
    tree = ElementTree.fromstring(draw_flow(p.flow()))
    placed: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for rect in tree.iter(f"{SVG}rect"):
        if rect.get("x") and float(rect.get("y", 0)) > 50:
            place = tuple(float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
            placed[(rect.get("class") or "").split()[0]].append(place)
    boxes = placed["box"]
    assert len(boxes) == 8
    assert all(any(within(box, group) for group in placed["group"]) for box in boxes)
    assert all(one is other or apart(one, other) for one in boxes for other in boxes)


def test_the_critical_path_is_marked(p: Program) -> None:
    p.op("aten::mm", writes=(1,))
    p.op("aten::relu", reads=(1,))
    p.op("aten::sum")
    graph = p.build()
    flow = data_flow(graph, "a test", np.array([10_000, 30_000, 0]))
    tree = ElementTree.fromstring(draw_flow(flow))
    figures = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") == "small"]
    assert "10.0 µs · 25 % of path" in figures and "10.0 µs · 75 % of path" in figures and "10.0 µs" in figures


def test_communication_of_the_host_is_no_time_of_a_device(p: Program) -> None:
    p.op("aten::mm")
    p.op("gloo:all_reduce", type=NodeType.COMM_COLL)
    picture = draw_flow(p.flow())
    assert "device" not in picture and "10.0 µs on the host" in picture
    p.graph.collective(20_000, 5_000, ranks=[0, 1])
    p.callers.append([])
    assert "share of the device time" in draw_flow(data_flow(p.build(), "a test", np.zeros(3, np.int64)))


def test_markup_in_names_is_text(p: Program) -> None:
    p.op("<script>\x1b", module="<b>&")
    assert "<script>" not in draw_flow(p.flow())
    ElementTree.fromstring(draw_flow(p.flow()))


def steps() -> ExecutionGraph:
    p = Program(step_start_ns_4=0, step_start_ns_5=30_000, step_start_ns_6=60_000)
    for _ in range(3):
        p.op("aten::linear", module="Net_0/Block_1/Linear_0")
        p.op("aten::relu", module="Net_0/Block_10")
        p.op("aten::sum")
    return p.build()


def chosen(**selection: Any) -> list[int]:
    ids: list[int] = view(steps(), Selection(**selection)).graph.id.tolist()
    return ids


def test_calls_are_chosen_by_step_by_a_part_of_a_modules_path_or_with_what_an_op_reads_from_and_hands_on_to() -> None:
    assert chosen(step=5) == [4, 5, 6]
    assert chosen(step=6) == [7, 8, 9]
    for name in ("Block_1", "block.1", "Net_0/Block_1", "Linear_0"):
        assert chosen(module=name, step=4) == [1]
    assert chosen(module="Net_0", step=4) == [1, 2]
    assert chosen(op="aten::relu", hops=0, step=4) == [2]
    assert chosen(op="relu", hops=1, step=4) == [1, 2, 3]


@pytest.mark.parametrize(
    ("selection", "complaint"),
    [
        ({"step": 9}, "no step 9; there are 4, 5, 6"),
        ({"module": "Block_2"}, "no module is called Block_2; there are Net_0/Block_1/Linear_0, Net_0/Block_10"),
        ({"op": "aten::reluu"}, "no op is called aten::reluu; there are aten::relu"),
    ],
)
def test_what_there_is_not_is_named_with_what_there_is(selection: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        view(steps(), Selection(**selection))


def test_the_median_step_is_shown_by_default() -> None:
    p = Program(step_start_ns_0=0, step_start_ns_1=90_000, step_start_ns_2=100_000)
    for _ in range(12):
        p.op("aten::mm")
    assert median_step(p.build()) == 2
    assert median_step(training_step()) is None


def test_the_command_draws_a_graph_of_any_size(tmp_path: Path, run: Command) -> None:
    g = GraphBuilder(rank=3)
    for number in range(PICTURED + 1):
        op = g.host("op", 10 * number, 1)
        g.activity("kernel", 10 * number + 5, 1, after=[(op, LAUNCH)])
    g.build().write(str(tmp_path / "g.et"))
    for more in ([], ["--time", "0:"]):
        ended = run("trace-view", tmp_path / "g.et", "-o", tmp_path / "g.svg", *more)
        assert ended.code == 0 and drawn((tmp_path / "g.svg").read_text()) == ["op ×3,001", "kernel ×3,001"]
    assert "are too many for lanes: the picture is of their data flow" in ended.err
