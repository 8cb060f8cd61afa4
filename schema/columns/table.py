"""Records of columns, of which large ones live in the workspace."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from .column_types import Categorical
from .frames import Tabular, Values, column_of, nullable
from .summary_repr import SummaryRepr
from .workspace import to_workspace, workspace_folder


class Table(SummaryRepr):
    """A dataclass of columns whose constructor moves large columns to the workspace.

    Columns that are there already stay where they are, so that `dataclasses.replace` moves only what is new.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        if workspace_folder() is not None:
            record = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
            for name, column in _moved(record).items():
                object.__setattr__(self, name, column)


TIMES = ("start", "end", "exclusive")
"""Columns of times in ns, whose names say so in data frames."""


class RowTable(Tabular, Table):
    """A table that data-frame libraries take: its columns of numbers and texts, null where nothing was recorded."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Values:
        """Returns the values of a column of `frame_columns`; KeyError where there is none of that name."""
        return column_of(type(self).__name__, self.frame_columns(), name)

    def frame_columns(self) -> Mapping[str, Values]:
        """Returns the columns of the table by name."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {
            f"{name}_ns" if name in TIMES else name: _with_nulls(column)
            for name, column in columns.items()
            if isinstance(column, np.ndarray | Categorical)
        }


def _with_nulls(column: Any) -> Values:
    is_integer = isinstance(column, np.ndarray) and column.dtype == np.int64
    values: Values = nullable(column) if is_integer else column
    return values


class AttributeTable(dict[str, Any]):
    """Columns by name, which move to the workspace one by one as they are set."""

    def __setitem__(self, name: str, column: Any) -> None:
        super().__setitem__(name, _moved(column) if workspace_folder() is not None else column)

    def extend(self, columns: Iterable[tuple[str, Any]]) -> None:
        """Sets some columns, of which each is made when the one before has moved."""
        for name, column in columns:
            self[name] = column


def _moved(record: Any) -> Any:
    """Returns the record with its large columns in the workspace."""
    arrays = [*_arrays(record)]
    return _with(
        record, {id(old): new for old, new in zip(arrays, to_workspace(arrays), strict=True) if new is not old}
    )


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray | bytes):
        yield value
    for part in _parts(value).values():
        yield from _arrays(part)


def _with(value: Any, moved: dict[int, Any]) -> Any:
    """Returns the value with these arrays, by identity, in place of its own."""
    if isinstance(value, np.ndarray | bytes):
        return moved.get(id(value), value)
    changed = {name: new for name, old in _parts(value).items() if (new := _with(old, moved)) is not old}
    if not changed:
        return value
    if isinstance(value, list):
        return [changed.get(index, old) for index, old in enumerate(value)]
    return {**value, **changed} if isinstance(value, dict) else replace(value, **changed)


def _parts(value: Any) -> dict[Any, Any]:
    """Returns the parts of a column or record: its fields, or the buffers of a list; not tables, which moved theirs."""
    if is_dataclass(value) and not isinstance(value, type | Table):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, list) and value and isinstance(value[0], bytes | memoryview):
        return dict(enumerate(value))
    return value if isinstance(value, dict) and isinstance(next(iter(value), None), str) else {}
