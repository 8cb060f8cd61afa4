"""Packages import each other by their public API alone, no module is long, and nothing that a run left is tracked.

The direction of layers and circles are checked by import-linter, and docstrings by ruff: `make check`.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path, PurePosixPath

import pytest
from support.folders import ROOT

SHIPPED = ("schema", "linker", "converter", "tools")
BENCHMARKS = "benchmarks"
"""What only developers run: from outside it is like a user's code."""
LAYERS = (*SHIPPED, BENCHMARKS)
"""From below to above."""
ROOT_PACKAGE = ROOT / "tools" / "package"
"""The folder that is installed as `execgraph` itself: its imports go down to all layers."""
LONGEST = 450


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")) if ROOT_PACKAGE not in path.parents]
MODULES = {module_name(path): path for path in PATHS}
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}
WRITTEN = {name: path for name, path in MODULES.items() if not name.endswith("_pb2")}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


@cache
def imports(name: str) -> list[str]:
    """The modules that a module imports from, as absolute names."""
    return [*_imports(name)]


def _imports(name: str) -> Iterator[str]:
    package = f"execgraph.{name if name in PACKAGES else name.rpartition('.')[0]}"
    for node in ast.walk(tree_of(name)):
        if not isinstance(node, ast.ImportFrom):
            continue
        # installed packages and folders of the root are named alike
        source = resolve_name("." * node.level + (node.module or ""), package).removeprefix("execgraph.")
        for alias in node.names if source.split(".")[0] in LAYERS else ():
            inner = f"{source}.{alias.name}"
            is_module = inner in MODULES and source in PACKAGES and (source == name or not _binds(source, alias.name))
            yield inner if is_module else source


def _binds(package: str, name: str) -> bool:
    """Whether a package itself offers something of that name."""
    body = tree_of(package).body
    return any(isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names) for node in body)


def packages_around(name: str) -> list[str]:
    """The packages that a module is in, the outermost first, without its layer."""
    parts = name.split(".")
    inner = [".".join(parts[:length]) for length in range(2, len(parts) + 1)]
    return [one for one in inner if one in PACKAGES]


def entered_packages(name: str, source: str) -> list[str]:
    """The packages that a module has to go into to import from another one."""
    entered = [package for package in packages_around(source) if package not in packages_around(name)]
    return entered[-1:] if name.startswith(BENCHMARKS) else entered


@pytest.mark.parametrize("layer", LAYERS)
def test_only_the_public_api_of_a_package_is_imported(layer: str) -> None:
    """That is what its `__init__` imports. Benchmarks, as users do, also import from the packages inside a package."""
    passed_by = [
        (name, source)
        for name in WRITTEN
        for source in imports(name)
        if source.split(".")[0] == layer and any(package != source for package in entered_packages(name, source))
    ]
    assert passed_by == []


def test_every_package_says_what_it_is_for_and_what_is_public() -> None:
    used = {source for name in WRITTEN for source in imports(name)}
    trees = {name: tree_of(name) for name in PACKAGES - set(LAYERS)}
    offering = {name for name, tree in trees.items() if any(isinstance(node, ast.ImportFrom) for node in tree.body)}
    assert [name for name, tree in trees.items() if not ast.get_docstring(tree)] == []
    assert used & trees.keys() - offering == set()


def test_no_module_is_long() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in WRITTEN.items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_libraries_of_commands_stay_out_of_the_lower_floors() -> None:
    """Library calls draw no bars and know no options."""
    lower = [path.read_text() for name, path in WRITTEN.items() if not name.startswith(("tools", BENCHMARKS))]
    assert not [text for text in lower if re.search(r"^\s*(import|from) (argparse|tqdm)\b", text, re.MULTILINE)]


def test_texts_of_arguments_are_decoded_in_one_package_alone() -> None:
    """All others ask `Arguments`."""
    decoding = {name for name, path in WRITTEN.items() if "RecordedArguments.of" in path.read_text()}
    assert {name.rpartition(".")[0] for name in decoding} == {"schema.linked"}


def test_the_page_about_the_architecture_names_what_there_is() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(rf"`((?:{'|'.join(LAYERS)})/[\w/.]*)`", page))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_room_is_shipped_but_those_of_the_benchmarks() -> None:
    """A folder that pyproject.toml does not list is in the checkout and missing where the project is installed."""
    listed = re.findall(r'^    "execgraph\.(\S+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    shipped = {package for package in PACKAGES if not package.startswith(BENCHMARKS)}
    assert shipped - set(LAYERS) == set(listed) - set(SHIPPED)


AT_THE_ROOT = {
    ".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
    "MANIFEST.in", "Makefile", "README.md", "SECURITY.md", "mkdocs.yml", "pyproject.toml", *LAYERS, "docs", "tests",
}  # fmt: skip


def test_no_output_of_a_command_is_tracked() -> None:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("this is no clone")
    assert {PurePosixPath(name).parts[0] for name in listing.stdout.splitlines()} <= AT_THE_ROOT
