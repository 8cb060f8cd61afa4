"""Writes docs/python-api.md from the docstrings of what `import execgraph` gives: python docs/python_api.py"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import execgraph

PAGE = Path(__file__).with_name("python-api.md")
QUOTE = "'"
HEAD = """# Python API

Made by `make docs` from the docstrings; a test compares. What `import execgraph` gives; [Python](python.md) shows how it goes together.
"""
ROOMS = {
    "tools.capture": "Recording traces",
    "linker": "Traces and linking",
    "converter": "Converting",
    "schema": "Graphs and linked traces",
    "tools.replay": "Replay and what-if",
}


def page() -> str:
    """docs/python-api.md."""
    found: dict[str, list[str]] = {room: [] for room in ROOMS}
    for name in execgraph.__all__:
        one = getattr(execgraph, name)
        [room] = (room for room in ROOMS if one.__module__.startswith(f"execgraph.{room}."))
        found[room].append(f"### {name}\n\n{described(name, one)}")
    return HEAD + "".join(f"\n## {ROOMS[room]}\n\n" + "\n".join(told) for room, told in found.items())


def described(name: str, one: Any) -> str:
    """A function, or a class with what it offers beside its columns."""
    if not inspect.isclass(one):
        return f"{signature(name, one)}\n{prose(one)}"
    if issubclass(one, Enum):
        members = "".join(f"- `{member.name}` = {member.value}\n" for member in one)
        return f"{prose(one)}\n{members}"
    methods = "".join(f"\n#### {name}.{method}\n\n{text}" for method, text in offered(name, one))
    return prose(one) + fields(one) + methods


def offered(name: str, one: type) -> Iterator[tuple[str, str]]:
    """The public methods and properties that a class, or one of this project that it is made of, defines."""
    defined = {method: value for base in own_classes(one) for method, value in vars(base).items()}
    for method, value in sorted(defined.items()):
        if method.startswith("_"):
            continue
        if isinstance(value, property):
            yield method, prose(value)
        elif inspect.isroutine(function := getattr(value, "__func__", value)):
            yield method, f"{signature(f'{name}.{method}', function)}\n{prose(function)}"


def own_classes(one: type) -> list[type]:
    """A class and its bases, those of this project, from the base on."""
    return [base for base in reversed(one.__mro__) if base.__module__.startswith("execgraph")]


def signature(name: str, function: Any) -> str:
    """As it is called, in a block; types as they stand in the code."""
    written = parsed(function)
    given = re.sub(r"^(self|cls)(, )?", "", ast.unparse(written.args))
    return f"```text\n{name}({given}) -> {ast.unparse(written.returns).strip(QUOTE)}\n```\n"


def fields(one: type) -> str:
    """The columns of a record, with their types as they stand in the code."""
    written = (line for base in own_classes(one) for line in parsed(base).body if isinstance(line, ast.AnnAssign))
    found = {ast.unparse(line.target): ast.unparse(line.annotation) for line in written}
    told = ", ".join(f"`{name}: {kind}`" for name, kind in found.items() if not name.startswith("_"))
    return f"\nFields: {told}.\n" if told else ""


def parsed(one: Any) -> Any:
    """The code of a function or class."""
    return ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]


INDENTED, EXAMPLE = r"^ {4}.+(?:\n+ {4}.+)*", r"^>>> .+(?:\n.+)*"


def prose(one: Any) -> str:
    """The docstring; what is indented in it, and examples, as blocks."""
    text = inspect.cleandoc(inspect.getdoc(one) or "")
    for language, pattern in (("text", INDENTED), ("pycon", EXAMPLE)):
        fenced = f"```{language}\n{{}}\n```"
        text = re.sub(pattern, lambda found, fenced=fenced: fenced.format(textwrap.dedent(found[0])), text, flags=re.M)
    return f"{text}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
