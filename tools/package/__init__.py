"""Execution graphs of PyTorch runs: link a host and a device trace, convert them, replay the graph, ask what a change
would do.

>>> import execgraph as eg
>>> folder = "tests/data/training"

A rank, from its two traces to its graph:

>>> trace = eg.link(f"{folder}/host_rank0.json.gz", f"{folder}/device_rank0.json.gz")
>>> trace.kernels["name"][0], trace.unresolved_waits
('ampere_sgemm_128x128_tn', 0)
>>> graph = trace.to_graph(target="generic")
>>> node = graph[4]
>>> node.name, node.duration_ns, [(edge.kind.label, edge.source.name) for edge in node.dependencies]
('aten::addmm', 12573, [('program order', 'aten::t')])

The run that the graph stands for, and what a change would do:

>>> run = graph.replay()
>>> run.error_pct, round(run.what_if({"class:communication": 0.5}).speedup, 2)
(0.0, 1.11)

A job, all of its ranks:

>>> job = eg.build(folder)
>>> job.replay().error_pct, job.scale(data_parallel=2).ranks
(0.0, [0, 1, 2, 3])

Tables (`graph.nodes`, `graph.edges`, `trace.kernels`, `run.critical_path`) become data frames with `to_polars()` and
`to_pandas()`; `plot()` draws, and `job.report("report.html")` writes the page of findings. `trace`, `graph` and `job`
have `write`, and `read_linked`, `read_graph` and `read_job` read what it wrote. Wherever a trace or a graph goes in, so
does its path, an open file or a folder.

Times in tables are whole nanoseconds, with names that end in `_ns`; results are floats in microseconds, with names that
end in `_us`.

Everything is in `execgraph.api`, which is loaded when the first name is asked for: commands start without it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import *  # noqa: F403

    __version__: str
else:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            import importlib.metadata

            return importlib.metadata.version(__name__)
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        # not `from . import`, which asks this function first
        api = importlib.import_module(".api", __name__)
        if name != "__all__" and name not in api.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(api, name)

    def __dir__() -> list[str]:
        return ["__version__", *__getattr__("__all__")]
