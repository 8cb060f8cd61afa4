"""docs/tables.md explains every table that the report can write, and every column of it, and no others."""

import csv
import re
from pathlib import Path

import pytest
from support.folders import DATA
from support.pages import PAGES
from support.reports import run

PLACES = {"rank", "device"}
"""Columns that the page explains once for all tables; others that repeat are named where they are."""
RUNS = {
    "job": [DATA / "training", "--modules"],
    "modules": [DATA / "gpu" / "attention_modules", "--modules"],
    "difference": ["--diff", DATA / "training", DATA / "gpu" / "attention_modules"],
}


def explained() -> dict[str, set[str]]:
    """The columns that the page names, by table."""
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*) \|$", PAGES["tables.md"].read_text(encoding="utf-8"), re.MULTILINE)
    return {
        table: {name for item in columns.split(";") for name in names_before_colon(item)} for table, columns in rows
    }


def names_before_colon(item: str) -> list[str]:
    return re.findall(r"`(\w+)`", item.split(":")[0])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The columns that the report writes, by table."""
    tables: dict[str, set[str]] = {}
    for name, arguments in RUNS.items():
        folder: Path = tmp_path_factory.mktemp(name)
        assert run(*arguments, "--csv", folder, "-q") == 0
        for path in folder.glob("*.csv"):
            with path.open(newline="", encoding="utf-8") as file:
                tables[path.stem] = set(next(csv.reader(file)))
    return tables


def test_every_table_is_explained_and_no_other(written: dict[str, set[str]]) -> None:
    assert explained().keys() == written.keys()


def test_every_column_is_explained_and_no_other(written: dict[str, set[str]]) -> None:
    page = explained()
    assert {table: columns - PLACES for table, columns in written.items()} == {
        table: columns - PLACES for table, columns in page.items()
    }
