"""The examples in docstrings are right."""

import doctest
import importlib
import re

import execgraph
import pytest
from support.folders import ROOT

PACKAGES = ("schema", "linker", "converter", "tools")
ROOT_PACKAGE = ("tools", "package")
"""The folder that is installed as `execgraph` itself."""


def modules_with_examples() -> list[str]:
    """Names of the modules in whose text there is one."""
    paths = [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if ">>> " in path.read_text()
    ]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in paths]
    inner = [path[len(ROOT_PACKAGE) :] if path[: len(ROOT_PACKAGE)] == ROOT_PACKAGE else path for path in parts]
    return [".".join(("execgraph", *(part for part in path if part != "__init__"))) for path in inner]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = doctest.testmod(importlib.import_module(name), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert ran.attempted and not ran.failed


def test_examples_of_the_page_run_as_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself: a reader copies one, not what its module imports."""
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    for example in re.finditer(r"```pycon\n(.*?)```", text, re.DOTALL):
        line = text[: example.start()].count("\n") + 1
        runner.run(doctest.DocTestParser().get_doctest(example[1], {}, "python-api.md", "python-api.md", line))
    assert runner.tries > 40 and not runner.failures


def test_every_name_of_the_api_has_an_example() -> None:
    texts = {name: getattr(execgraph, name).__doc__ or "" for name in execgraph.__all__}
    assert [name for name, text in texts.items() if ">>> " not in text] == ["capture"], "that one needs PyTorch"
