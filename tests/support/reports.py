"""Runs of trace-report, and what it says as JSON."""

import json
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from execgraph.tools.analyses import Column, Table
from execgraph.tools.commands import trace_report

from support.builder import TraceBuilder

needs_page = pytest.mark.skipif(find_spec("altair") is None, reason="needs the extra `report`")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        trace_report.main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def small_run(kernels: int = 2) -> TraceBuilder:
    t = TraceBuilder(rank=0)
    for number in range(kernels):
        with t.op("aten::mm", inputs=[t.tensor()]):
            t.work(2)
            t.launch(f"gemm {number}", duration=50)
    t.device_synchronize()
    return t


def as_json(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, list[dict[str, Any]]]:
    assert run("-q", "--json", *arguments) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capfd.readouterr().out)
    return found


def table(name: str, /, **columns: list[object]) -> dict[str, Table]:
    """Returns a table by its name, of columns without units."""
    values = {key: given if isinstance(given[0], str) else np.array(given) for key, given in columns.items()}
    return {name: Table(name, name, [Column(key, "", value) for key, value in values.items()])}  # type: ignore[arg-type]
