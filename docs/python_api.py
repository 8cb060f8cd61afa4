"""Writes docs/python-api.md from the docstrings of what `import execgraph` gives: python docs/python_api.py"""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import execgraph

PAGE = Path(__file__).with_name("python-api.md")
QUOTE = "'"
HEAD = """# Python API

Made by `make docs` from the docstrings; a test compares. What `import execgraph` gives;
[Python](python.md) shows how it goes together.
"""
SECTIONS = {
    "Recording traces": "capture",
    "Before linking": "diagnose Diagnosis merge MergeReport generate",
    "Traces": "link LinkedTrace Window read_linked write_linked read_host_trace HostTrace read_device_trace DeviceTrace",
    "Graphs": "convert Options ExecutionGraph Node Dependency read_graph ConvertReport TargetChanges",
    "Jobs": "build AstraSimOptions GoalOptions Job read_job Simulated read_groups write_groups",
    "Reports": "report compare Report AnalysisOptions",
    "Replay and what-if": "replay what_if Replay WhatIf Scale ReplaySummary MakespanRange replay_ranks",
    "Tables": "Frame",
    "Words of the schema": "NodeType DependencyKind CollectiveType Delay",
    "Errors": "DataError RequestError MissingLibrary",
}
"""The names in the order in which a reader meets them."""
TYPES = {
    "schema.arguments": "FilePath InputFile Paths Target Promotion InputsOutputs",
    "tools.replay.job_graphs": "Graphs",
    "tools.replay.changes": "Changes",
    "tools.job.astra_sim_files": "BuildTarget",
    "schema.comm_groups": "RankList",
    "schema.columns.column_types": "Categorical Ragged",
    "tools.analyses.job": "Finding Gain",
    "tools.analyses.table": "Table Column",
    "tools.report.report": "RankGroup",
    "tools.replay.recording": "Recording",
    "tools.job.inspection": "Inspection",
    "tools.job.merge_survey": "RankReport",
    "tools.replay.simulator": "SimulatedRank",
}
"""What signatures and fields name, by module: nobody makes them, so they are not in `execgraph` itself."""
PLUMBING = {"of", "page_table", "clock_of_tables", "tee", "keep_categories"}
"""Methods that only this project calls."""


def page() -> str:
    """docs/python-api.md."""
    sections = {title: names.split() for title, names in SECTIONS.items()}
    unlisted = {*execgraph.__all__} ^ {name for names in sections.values() for name in names}
    if unlisted:
        raise ValueError(f"SECTIONS lacks these names, or execgraph does: {', '.join(sorted(unlisted))}")
    return (
        HEAD
        + index(sections)
        + "".join(
            f"\n## {title}\n\n"
            + "\n".join(f"### {name}\n\n{described(name, getattr(execgraph, name))}" for name in names)
            for title, names in sections.items()
        )
        + types()
    )


def types() -> str:
    """The types that signatures and fields name, each in a few lines."""
    made = "\n## Types\n\nSignatures and fields use these names.\n"
    for module_name, names in TYPES.items():
        module = importlib.import_module(f"execgraph.{module_name}")
        for name in names.split():
            value = getattr(module, name)
            # Python 3.10 takes tuple[int, ...] for a class
            is_class = inspect.isclass(value) and get_origin(value) is None
            text = prose(value) + fields(value) if is_class else alias(module, name)
            made += f"\n### {name}\n\n{text}"
    return made


def alias(module: ModuleType, name: str) -> str:
    """The value of a name, and the text below it."""
    lines = ast.parse(inspect.getsource(module)).body
    for line, below in zip(lines, [*lines[1:], ast.Pass()], strict=True):
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == name:
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            return f"```text\n{name} = {ast.unparse(line.value)}\n```\n" + (f"\n{text}\n" if text else "")
    raise ValueError(f"{module.__name__} has no {name}")


def index(sections: dict[str, list[str]]) -> str:
    """The names of each section, with a link to it."""
    lines = [
        f"- [{title}](#{title.lower().replace(' ', '-')}): {', '.join(f'`{name}`' for name in names)}"
        for title, names in sections.items()
    ]
    return "\n" + "\n".join([*lines, "- [Types](#types) that signatures and fields name"]) + "\n"


def described(name: str, value: Any) -> str:
    """A function, or a class with what it offers beside its columns."""
    if not inspect.isclass(value):
        return f"{signature(name, value)}\n{prose(value)}"
    if issubclass(value, Enum):
        members = "".join(f"- `{member.name}` = {member.value}\n" for member in value)
        return f"{prose(value)}\n{members}"
    methods = "".join(f"\n#### {name}.{method}\n\n{text}" for method, text in offered(name, value))
    return prose(value) + fields(value) + methods


def offered(name: str, cls: type) -> Iterator[tuple[str, str]]:
    """The public methods and properties that a class, or one of this project that it is made of, defines."""
    defined = {method: value for base in own_classes(cls) for method, value in vars(base).items()}
    for method, value in sorted(defined.items()):
        if method.startswith("_") or method in PLUMBING:
            continue
        if isinstance(value, property):
            yield method, prose(value)
        elif inspect.isroutine(function := getattr(value, "__func__", value)):
            yield method, f"{signature(f'{name}.{method}', function)}\n{prose(function)}"


def own_classes(value: type) -> list[type]:
    """A class and its bases, those of this project, from the base on."""
    return [base for base in reversed(value.__mro__) if base.__module__.startswith("execgraph")]


def signature(name: str, function: Any) -> str:
    """As it is called, in a block; types as they stand in the code."""
    written = parsed(function)
    arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(written.args))
    return f"```text\n{name}({arguments}) -> {ast.unparse(written.returns).strip(QUOTE)}\n```\n"


def fields(value: type) -> str:
    """The columns of a record, with their types as they stand in the code."""
    written = (line for base in own_classes(value) for line in parsed(base).body if isinstance(line, ast.AnnAssign))
    kinds = {ast.unparse(line.target): ast.unparse(line.annotation) for line in written}
    listed = ", ".join(f"`{name}: {kind}`" for name, kind in kinds.items() if not name.startswith("_"))
    return f"\nFields: {listed}.\n" if listed else ""


def parsed(value: Any) -> Any:
    """The code of a function or class."""
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


EXAMPLE = r"^>>> .+(?:\n.+)*"
SECTION = r"^(Args|Attributes|Example|Raises|Returns):\n((?:(?: {4}.*)?\n)*)"
HEADINGS = {"Args": "Arguments"}


def prose(value: Any) -> str:
    """The docstring; examples as blocks, the arguments and exceptions as lists."""
    text = inspect.cleandoc(inspect.getdoc(value) or "")
    text = re.sub(EXAMPLE, r"```pycon\n\g<0>\n```", text, flags=re.M)
    return re.sub(SECTION, section, f"{text}\n", flags=re.M)


def section(match: "re.Match[str]") -> str:
    """A section of a docstring, such as its arguments."""
    heading, text = match[1], textwrap.dedent(match[2])
    blank = "\n" if text.endswith("\n\n") else ""
    if heading == "Example":
        return f"```text\n{text.strip()}\n```\n{blank}"
    if heading != "Returns":
        text = re.sub(r"\n +", " ", text)
        text = re.sub(r"^(\w+): ", r"- `\1`: ", text, flags=re.M)
    return f"{HEADINGS.get(heading, heading)}:\n\n{text.strip()}\n{blank}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
