"""The examples in docstrings are right."""

import doctest
import importlib
from pathlib import Path

import pytest

import execgraph

ROOT = Path(execgraph.__file__).parent.parent
PACKAGES = ("execgraph", "schema", "linker", "converter", "tools")


def modules_with_examples() -> list[str]:
    """Names of the modules in whose text there is one."""
    paths = [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if ">>> " in path.read_text()
    ]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in paths]
    dotted = (".".join(part for part in (*path, "") if part not in ("__init__", "")) for path in parts)
    return [name if name.startswith("execgraph") else f"execgraph.{name}" for name in dotted]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = doctest.testmod(importlib.import_module(name), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert ran.attempted and not ran.failed
