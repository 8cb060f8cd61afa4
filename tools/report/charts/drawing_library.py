"""The scripts that draw the charts: bundled once for each version of the library, and kept in the user's cache, as that takes longer than
the report on most runs."""

from contextlib import suppress
from importlib.metadata import version

import platformdirs

from ....schema.errors import DataError
from ....schema.io import open_output

VERSION = version("vl-convert-python")
EMBED = "window.vegaEmbed = vegaEmbed;"


def drawing_library() -> str:
    """A script that gives a page `vegaEmbed`."""
    kept = platformdirs.user_cache_path("execgraph") / f"vega-embed-{VERSION}.js"
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_text("utf-8")
    import vl_convert  # 40 MB that are not needed again

    bundle: str = vl_convert.javascript_bundle(EMBED)
    with suppress(OSError, DataError):  # a cache that cannot be written costs a second, not the report
        kept.parent.mkdir(parents=True, exist_ok=True)
        with open_output(str(kept)) as stream:
            stream.write(bundle.encode())
    return bundle
