"""Graphs of generated jobs, one per rank."""

import tempfile
from functools import cache

from execgraph.converter import Options, convert
from execgraph.linker.device_trace import read_device_trace
from execgraph.linker.host_trace import read_host_trace
from execgraph.linker.link import link
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.generate import build_job, simulate, write_traces


@cache
def graphs_of(job: str, ranks: int | None = None, promote: str = "sync") -> tuple[ExecutionGraph, ...]:
    """Two steps of a job of two layers. The graphs are shared: they must not be changed."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_traces(simulate(build_job(job, ranks=ranks, steps=2, layers=2, seed=1)), folder)
        linked = [link(read_host_trace(str(host)), read_device_trace(str(device))) for host, device in files]
    return tuple(convert(one, Options(promote=promote)) for one in linked)
