"""Execution graphs of PyTorch runs: link a host and a device trace, convert them, replay the graph, ask what a change
would bring.

>>> import execgraph
>>> folder = "tests/data/training"
>>> host = execgraph.read_host_trace(f"{folder}/host_rank0.json.gz")
>>> device = execgraph.read_device_trace(f"{folder}/device_rank0.json.gz")
>>> graph = execgraph.convert(execgraph.link(host, device))
>>> abs(execgraph.replay(graph).error_pct) < 0.5
True
>>> execgraph.what_if([graph], {"class:host": 0.5}).saved_us > 0
True

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
