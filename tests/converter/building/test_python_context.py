"""The modules and Python functions of nodes: a slice has those of its op or call, an activity its own."""

import pytest
from support.builder import TraceBuilder
from support.runs import Nodes, convert_linked, link_run, link_without_host


def texts(nodes: Nodes, name: str) -> dict[str, str]:
    return {label: text for label, text in zip(nodes.labels, nodes.graph.texts(name), strict=True) if text}


@pytest.mark.parametrize("with_host", [True, False])
def test_every_slice_of_an_op_a_call_outside_of_ops_and_their_activities_know_their_module_and_function(
    with_host: bool,
) -> None:
    t = TraceBuilder()
    with t.module("Net_0"), t.python("net.py(7): forward"), t.op("aten::mm"):
        t.work(5)
        t.launch("gemm")
        t.work(5)
    t.idle(20)
    with t.module("Head_0"), t.python("head.py(3): forward"):
        t.launch("softmax")
    t.leaf("aten::item", 5)
    t.activity("lost", 9, 40, 5)
    nodes = convert_linked(link_run(t, modules=True) if with_host else link_without_host(t, modules=True))
    first, second = ("aten::mm#0", "aten::mm#1", "gemm"), ("cudaLaunchKernel", "softmax")
    assert texts(nodes, "module") == dict.fromkeys(first, "Net_0") | dict.fromkeys(second, "Head_0")
    functions = dict.fromkeys(first, "net.py(7): forward") | dict.fromkeys(second, "head.py(3): forward")
    assert texts(nodes, "python_function") == functions
