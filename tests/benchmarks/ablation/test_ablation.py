"""Leaving a rule out gives a graph that still replays, and shows what the rule is for."""

import importlib

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.tools.replay import replay
from support.builder import TraceBuilder
from support.runs import link_run

ablation = importlib.import_module("benchmarks.ablation.__main__")


def test_every_rule_has_a_row_and_without_launches_changed_runs_are_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ablation, "NAMED", ("streams",))
    with pytest.raises(SystemExit) as ended:
        ablation.main(["--random", "0"])
    assert not ended.value.code
    rows = {
        cells[1].strip(): cells[3:6]
        for cells in (line.split("|") for line in capsys.readouterr().out.splitlines())
        if len(cells) > 6
    }
    assert float(rows["nothing"][1]) == 100
    assert float(rows["launch"][1]) < float(rows["nothing"][1])
    assert rows.keys() > {"program order", "launch", "stream order", "event wait", "host sync", "hand-off", "delays"}


def test_an_activity_that_depends_on_nothing_starts_as_long_after_the_trace_as_it_did() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.work(50)
        t.launch("kernel", duration=10)
    graph = convert(link_run(t), Options(left_out=("launch",), delays=False))
    [kernel] = np.flatnonzero(graph.is_activity)
    assert not len(graph.data_deps[kernel])
    assert graph.integers("gap_ns")[kernel] == graph.start_ns[kernel] - graph.start_ns.min()
    assert replay(graph).error_pct == pytest.approx(0)
