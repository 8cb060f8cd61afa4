"""Libraries that only some uses need: what for, how to get them, and the one sentence for whoever lacks one."""

import sys
from importlib.util import find_spec
from typing import NamedTuple

from .errors import RequestError


class MissingLibrary(RequestError, ImportError):
    """A library that is not installed here; its text says what needs it and the command that installs it."""


class Optional(NamedTuple):
    """What needs the libraries, and what pip is to install, quoted as a shell that expands brackets wants it."""

    use: str
    libraries: tuple[str, ...]
    package: str


OPTIONAL = {
    "chart": Optional("a chart", ("altair",), "'execgraph[report]'"),
    "completion": Optional("tab completion", ("argcomplete",), "'execgraph[completion]'"),
    "dask": Optional("a Dask cluster", ("distributed",), "'execgraph[dask]'"),
    "report": Optional("the HTML page", ("altair", "jinja2", "platformdirs", "vl_convert"), "'execgraph[report]'"),
    "zstd": Optional("reading zstd", ("zstandard",), "'execgraph[zstd]'"),
    "arrow": Optional("an Arrow stream", ("nanoarrow",), "nanoarrow"),
    "pandas": Optional("a pandas.DataFrame", ("pandas",), "pandas"),
    "polars": Optional("a polars.DataFrame", ("polars",), "polars"),
    "torch": Optional("recording traces", ("torch",), "torch"),
}
"""By the extra of pyproject.toml, or the library that it is. The extra `isal` is not here: gzip is read without it,
only slower.
"""


def require(name: str, where: str = "") -> None:
    """Raises MissingLibrary where one of the libraries is not installed; it loads none.

    `where` is the file or option that the sentence begins with.
    """
    use, libraries, package = OPTIONAL[name]
    for library in libraries:
        if sys.modules.get(library) is None and find_spec(library) is None:
            beginning = f"{where}: " if where else ""
            raise MissingLibrary(
                f"{beginning}{use} needs {library}, which is not installed; run: pip install {package}"
            )
