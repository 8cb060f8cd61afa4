"""Virtual environments that hold what pip installs of the package, and nothing else of the tests' Python.

No network is needed: libraries are links to those of this Python, as many as the package's metadata asks for. A test
skips where this Python lacks one.
"""

import os
import subprocess
import sys
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

KEPT = ("LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
"""Variables that processes get. Others would tell Python, pip or coverage of the environment of the tests."""
PIP = ("-m", "pip", "--isolated", "--disable-pip-version-check")


class Environment(NamedTuple):
    """A virtual environment by its folder."""

    folder: Path

    @property
    def python(self) -> str:
        return self.command("python")

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    def command(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, *command: object, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, with the variables `more` besides."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        given = kept | {"HOME": str(self.folder), "PIP_CONFIG_FILE": os.devnull} | more
        return subprocess.run([*map(str, command)], cwd=cwd, env=given, capture_output=True, text=True, check=False)

    def pip_install(self, *requirements: object) -> None:
        """By the pip of the tests, which finds whatever else these require in the environment, or fails."""
        pip = (sys.executable, *PIP, "--python", self.python, "install", "--quiet", "--no-index")
        done = self.run(*pip, *requirements, cwd=self.folder)
        assert done.returncode == 0, done.stderr


class Environments:
    """Makes environments in a folder, for the wheel of the package; all link the same libraries."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        pytest.importorskip("pip", minversion="22.3")  # the first that installs into other environments
        self._folder, self._wheel = folder, wheel
        [self._package] = distributions(path=[str(wheel)])

    @cached_property
    def plain(self) -> Environment:
        """The package without any extra."""
        made = self._with_libraries("")
        made.pip_install(self._wheel)
        return made

    def with_extra(self, extra: str) -> Environment:
        """The package with what the extra needs by its metadata."""
        return self._with_libraries(extra, self.plain.packages)

    def _with_libraries(self, extra: str, *folders: Path) -> Environment:
        made = Environment(self._folder / (extra or "plain"))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", made.folder], check=True)
        libraries = [self._linked(name, one) for name, one in needed(self._package, extra).items()]
        made.packages.joinpath("libraries.pth").write_text("".join(f"{one}\n" for one in (*folders, *libraries)))
        return made

    def _linked(self, name: str, library: Distribution) -> Path:
        """A folder with links to the folders and files of a library, and to no others."""
        folder = self._folder / "libraries" / name
        if not folder.exists():
            # commands are beside Python's path; several libraries may share a package's folder, as of google
            for file in {Path(*file.parts[:2]) for file in library.files or () if ".." not in file.parts}:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).symlink_to(str(library.locate_file(file)))
        return folder


def needed(package: Distribution, extra: str) -> dict[str, Distribution]:
    """What the package requires with the extra, what that requires, and so on, by name."""
    found: dict[str, Distribution] = {}
    asked = [(package, extra)]
    for one, with_extra in asked:
        for requirement in map(Requirement, one.requires or ()):
            name, marker = requirement.name, requirement.marker
            if name not in found and (marker is None or marker.evaluate({"extra": with_extra})):
                try:
                    found[name] = distribution(name)
                except PackageNotFoundError:
                    pytest.skip(f"{name} is not installed here, which {one.name} requires")
                asked += [(found[name], more) for more in ("", *requirement.extras)]
    return found
