"""Whatever has a public name says what it is."""

import importlib
import inspect
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest
from support.folders import ROOT

ROOT_PACKAGE = ROOT / "tools" / "package"
"""The folder that is installed as `execgraph` itself."""
PACKAGES = ("schema", "linker", "converter", "tools")


def modules() -> list[str]:
    """All modules that are installed, not the generated one, and the benchmarks."""
    paths = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if ROOT_PACKAGE not in path.parents
    ]
    dotted = (".".join(("execgraph", *path.relative_to(ROOT).with_suffix("").parts)) for path in paths)
    found = {name.removesuffix(".__init__") for name in dotted if not name.endswith("_pb2")}
    benchmarks = (path.relative_to(ROOT).with_suffix("").parts for path in (ROOT / "benchmarks").rglob("*.py"))
    found |= {".".join(parts).removesuffix(".__init__") for parts in benchmarks}
    return sorted({"execgraph", "execgraph.api", *found})


def undocumented(module: ModuleType) -> list[str]:
    """A module's own public classes, functions, methods and properties without a docstring."""
    own = [(name, value) for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    named = [(name, value) for name, value in own if inspect.isclass(value) or inspect.isfunction(value)]
    named += [
        (f"{name}.{member}", value)
        for name, cls in named
        if inspect.isclass(cls)
        for member, value in vars(cls).items()
        if isinstance(value, (property, cached_property, staticmethod, classmethod)) or inspect.isfunction(value)
    ]
    public = ((name, value) for name, value in named if not any(part.startswith("_") for part in name.split(".")))
    return [name for name, value in public if not written(value)]


def written(value: Any) -> bool:
    """Whether it has a docstring that somebody wrote: dataclasses and tuples make their own."""
    text = getattr(value, "__doc__", None) or ""
    return bool(text) and not (inspect.isclass(value) and text.startswith(f"{value.__name__}("))


def test_what_has_no_docstring_is_found() -> None:
    module = ModuleType("made_up")
    text = (
        "from typing import NamedTuple\n"
        "def f(): pass\n"
        "def _g(): pass\n"
        "class C(NamedTuple):\n a: int\n def m(self): 'Said.'\n @property\n def p(self): pass\n"
    )
    exec(text, vars(module))
    assert undocumented(module) == ["f", "C", "C.p"]


@pytest.mark.parametrize("name", modules())
def test_every_public_name_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert undocumented(module) == []
