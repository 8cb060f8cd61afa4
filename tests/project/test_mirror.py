"""tests/ mirrors the packages: where the test of a module is, and what a test may import."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.folders import ROOT, TESTS
from support.tested_by import ALSO, TESTED_BY, own_test

LAYERS = ("schema", "linker", "converter", "tools")
SOURCES = {path.relative_to(ROOT).with_suffix("") for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}
PACKAGES = {path.parent for path in SOURCES if path.name == "__init__"}
MODULES = {str(path) for path in SOURCES if not path.name.startswith("__") and not path.name.endswith("_pb2")}
FILES = sorted(path for path in TESTS.rglob("*.py") if not {"data", "support"} & {*path.relative_to(TESTS).parts[:1]})
COMMANDS = Path("tools", "commands")
"""Modules that users start by name: none of them is inside."""

EXCEPTIONS: dict[str, set[str]] = {
    "benchmarks/accuracy/test_accuracy.py": {"tools/generate/instructions"},
    "benchmarks/programs/test_random_jobs.py": {"tools/generate/instructions"},
    "cli/test_max_size.py": {"schema/io/compressed"},
    "converter/building/test_communication.py": {"linker/communication/process_groups"},
    "converter/building/test_live_bytes.py": {"tools/analyses/overlay"},
    "converter/edit/test_lanes.py": {"converter/targets/control", "converter/targets/ready_set"},
    "converter/test_convert.py": {"converter/dependencies/inferred"},
    "docs/test_formats.py": {"schema/graph/attributes", "schema/linked/words"},
    "docs/test_summary_lines.py": {"tools/build_job/build_report", "tools/diagnose/text"},
    "fuzz/test_hostile_files.py": {"schema/traces/arguments"},
    "fuzz/test_limits.py": {"schema/io/compressed"},
    "integration/test_clocks.py": {"converter/building/synthetic_nodes"},
    "integration/test_communication.py": {"converter/building/communication_columns"},
    "integration/test_first_lanes.py": {"linker/host_communication/messages_in_flight", "linker/readers/rocpd/lanes"},
    "integration/test_group_names.py": {"converter/targets/groups"},
    "integration/test_group_orders.py": {"tools/build_job/rank_comms"},
    "integration/test_many_groups.py": {
        "converter/device_time/delays",
        "converter/scaling/group_use",
        "linker/host_communication/idle_gaps",
        "linker/readers/rocpd/rows",
        "tools/analyses/kernel_breakdown",
        "tools/analyses/overlap",
        "tools/analyses/overlay",
        "tools/analyses/rank",
        "tools/analyses/step_breakdown",
        "tools/analyses/temporal_breakdown",
        "tools/replay/concurrency_limit",
        "tools/replay/workload",
    },
    "integration/test_stopped_at_every_step.py": {"tools/build_job/build_rank"},
    "integration/test_what_if.py": {"tools/generate/writing/identity"},
    "linker/readers/test_device_events.py": {"schema/traces/kineto"},
    "linker/waits/test_candidates.py": {"tools/generate/machine"},
    "property/test_random_jobs.py": {"tools/build_job/finish_rank"},
    "tools/analyses/memory/test_timeline.py": {"tools/analyses/rank/recorded"},
    "tools/analyses/test_empty_tables.py": {"tools/analyses/rank/recorded"},
    "tools/generate/test_generate.py": {"tools/generate/writing/identity"},
    "tools/generate/test_machine.py": {"tools/generate/writing/identity"},
    "tools/test_terminal.py": {"schema/io/plain", "tools/report/charts"},
}
"""Tests that import from inside a package of another folder, and which modules."""


def listed() -> Counter[str]:
    return Counter(module for modules in TESTED_BY.values() for module in modules.split())


def test_a_module_has_a_test_of_its_name_or_is_listed_with_another() -> None:
    missing = {module for module in MODULES if not (TESTS / own_test(module)).exists()}
    assert missing - listed().keys() == set(), "write a test, or list the module in tests/support/tested_by.py"
    assert listed().keys() - missing == set(), "these have a test of their own, or are gone"
    assert [module for module, count in listed().items() if count > 1] == []


def test_tests_that_are_listed_exist() -> None:
    tests = {*TESTED_BY, *(test for tests in ALSO.values() for test in tests.split())}
    assert {test for test in tests if not (TESTS / test).exists()} == set()


def test_no_test_lies_outside_the_folders() -> None:
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]


@cache
def binds(package: Path) -> set[str]:
    """The names that a package offers."""
    body = ast.parse((ROOT / package / "__init__.py").read_text()).body
    return {alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}


def imported(test: Path) -> Iterator[Path]:
    """The modules and packages that a test takes names from. A test imports a whole module to replace a part of it."""
    for node in ast.walk(ast.parse(test.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("execgraph."):
            source = Path(*node.module.split(".")[1:])
            for alias in node.names:
                is_module = source in PACKAGES and source / alias.name in SOURCES and alias.name not in binds(source)
                if not is_module:
                    yield source


def entered(test: Path) -> set[str]:
    """The modules that a test takes from inside packages that it does not mirror."""
    place = test.relative_to(TESTS).parent
    return {
        str(source)
        for source in imported(test)
        for package in source.parents
        if package in PACKAGES
        and len(package.parts) > 1
        and package != COMMANDS
        and package not in (place, *place.parents)
    }


def test_a_test_enters_packages_by_what_they_offer() -> None:
    found = {str(path.relative_to(TESTS)): entered(path) for path in FILES}
    assert {name: modules for name, modules in found.items() if modules} == EXCEPTIONS
