"""Libraries that only some uses need: what for, how to get them, and the one sentence for whoever lacks one."""

import sys
from importlib.util import find_spec
from typing import NamedTuple

from .errors import RequestError


class MissingLibrary(RequestError, ImportError):
    """A library that is not installed here; its text says what needs it and the command that installs it.

    >>> import execgraph as eg
    >>> issubclass(eg.MissingLibrary, ImportError), issubclass(eg.MissingLibrary, eg.DataError)
    (True, True)
    """


class Optional(NamedTuple):
    """What needs the libraries, and what pip is to install, by names that work wherever execgraph came from."""

    use: str
    libraries: tuple[str, ...]
    packages: str


OPTIONAL = {
    "arrow": Optional("an Arrow stream", ("nanoarrow",), "nanoarrow"),
    "chart": Optional("a chart", ("altair",), "altair"),
    "completion": Optional("tab completion", ("argcomplete",), "argcomplete"),
    "dask": Optional("a Dask cluster", ("distributed",), "distributed"),
    "report": Optional(
        "the HTML page", ("altair", "jinja2", "platformdirs", "vl_convert"), "altair vl-convert-python platformdirs"
    ),
    "zstd": Optional("reading zstd", ("zstandard",), "zstandard"),
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
    use, libraries, packages = OPTIONAL[name]
    for library in libraries:
        if sys.modules.get(library) is None and find_spec(library) is None:
            beginning = f"{where}: " if where else ""
            raise MissingLibrary(
                f"{beginning}{use} needs {library}, which is not installed; run: pip install {packages}"
            )
