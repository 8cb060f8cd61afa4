"""Builds what users install, the same bytes whenever and wherever.

Run in the tree: `SOURCE_DATE_EPOCH=… python tests/support/packages.py FOLDER`. The source package first, then the wheel
from what that holds. setuptools makes the same wheel each time by itself; in a source package it keeps the times,
owners and rights of the files as they are on the disk.
"""

import gzip
import io
import os
import sys
import tarfile
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from setuptools import build_meta


def _repack(path: Path, time: int) -> None:
    """Files by name, all of one time, of nobody, with the rights that any checkout gives."""
    content = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            held = old.extractfile(member)
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, time
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, held)
    path.write_bytes(gzip.compress(content.getvalue(), mtime=time))


def main() -> None:
    """Builds both, and prints where they are."""
    os.umask(0o022)
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, redirect_stdout(io.StringIO()):
        sdist = folder / build_meta.build_sdist(str(folder))
        _repack(sdist, int(os.environ["SOURCE_DATE_EPOCH"]))
        with tarfile.open(sdist) as archive:
            archive.extractall(name)
        os.chdir(Path(name, sdist.name.removesuffix(".tar.gz")))
        wheel = folder / build_meta.build_wheel(str(folder))
        os.chdir(folder)
    print(sdist, wheel, sep="\n")


if __name__ == "__main__":
    main()
