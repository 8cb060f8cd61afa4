"""The repository holds its sources and nothing that a run of them left."""

import subprocess
from pathlib import PurePosixPath

import pytest
from support.folders import ROOT

AT_THE_ROOT = {
    *(
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
        "MANIFEST.in",
        "Makefile",
        "mkdocs.yml",
        "pyproject.toml",
    ),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
    *("benchmarks", "converter", "docs", "linker", "schema", "tests", "tools"),
}


def test_no_output_of_a_command_is_tracked() -> None:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("this is no clone")
    assert {PurePosixPath(name).parts[0] for name in listing.stdout.splitlines()} <= AT_THE_ROOT
