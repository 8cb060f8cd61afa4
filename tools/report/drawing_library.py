"""The scripts that draw charts, bundled once per version and kept in the user's cache, as bundling takes longer than
most reports.
"""

import hashlib
from contextlib import suppress
from importlib.metadata import version

import platformdirs

from ...schema.errors import DataError
from ...schema.io import open_output

VERSION = version("vl-convert-python")
EMBED = "window.vegaEmbed = vegaEmbed;"


def drawing_library() -> str:
    """Returns a script that gives a page `vegaEmbed`."""
    folder = platformdirs.user_cache_path("execgraph")
    for path in folder.glob(f"vega-embed-{VERSION}-*.js"):
        with suppress(OSError):
            content = path.read_bytes()
            # the name has the digest of the content, so a damaged or changed file is not used
            if path.name == _name(content):
                return content.decode()
    import vl_convert  # 40 MB that are not needed again

    bundle: str = vl_convert.javascript_bundle(EMBED)
    with suppress(OSError, DataError):  # a cache that cannot be written costs a second, not the report
        folder.mkdir(parents=True, exist_ok=True)
        with open_output(str(folder / _name(bundle.encode()))) as stream:
            stream.write(bundle.encode())
    return bundle


def _name(content: bytes) -> str:
    return f"vega-embed-{VERSION}-{hashlib.blake2b(content, digest_size=16).hexdigest()}.js"
