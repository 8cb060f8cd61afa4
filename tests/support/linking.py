"""Builds and reports of traces of the same content link them once in a process: it takes most of their time."""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from execgraph.schema.linked import LinkedTrace
from execgraph.schema.progress import unseen
from execgraph.tools import recognise
from execgraph.tools.analyses import READ_STAGES, RankTrace
from execgraph.tools.job import rank_building
from execgraph.tools.report import inputs

LINKED, READ = dict[Any, LinkedTrace](), dict[Any, RankTrace]()
recognise._recognise_events = lru_cache(60)(recognise._recognise_events)
linked_rank, read_rank = rank_building.linked_rank, inputs.read_rank


def known(table: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """What a table of the last few answers has for a key, or what is made for it."""
    if key not in table:
        if len(table) > 60:
            del table[next(iter(table))]
        table[key] = make()
    return table[key]


def contents(*paths: Path | str | None) -> list[object]:
    """Which files these are, by what is in them; what is no file is like no other."""
    existing = (Path(path) for path in paths if path)
    return [blake2b(path.read_bytes()).digest() if path.is_file() else object() for path in existing]


def linked_again(task: rank_building.RankTask) -> LinkedTrace:
    job, pair = task.job, task.pair
    key = *pair[:4], job.options.modules, job.window, *contents(*(name and job.folder / name for name in pair.names))
    return known(LINKED, key, lambda: linked_rank(task))


def read_again(*paths: Any, on_progress: Any = unseen, **asked: Any) -> RankTrace:
    key = paths, *sorted(asked.items()), *contents(*paths[:2], asked["detail_path"])
    if key in READ:
        on_progress(READ_STAGES)
    return known(READ, key, lambda: read_rank(*paths, on_progress=on_progress, **asked))
