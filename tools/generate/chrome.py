"""Rows of a Chrome trace as JSON text: complete events, flows, names. Times in are ns from the start of the run."""

import json

from .identity import FIRST_NS


def complete(category: str, name: str, place: str, start: int, end: int, args: str) -> str:
    return (
        f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, {place}, '
        f'"ts": {micros(FIRST_NS + start)}, "dur": {micros(end - start)}, "args": {{{args}}}}}'
    )


def flow(category: str, starts: bool, number: int, place: str, at: int) -> str:
    ends = "" if starts else ', "bp": "e"'
    return (
        f'{{"ph": "{"s" if starts else "f"}", "id": {number}, {place}, "ts": {micros(FIRST_NS + at)}, '
        f'"cat": "{category}", "name": "{category}"{ends}}}'
    )


def label(what: str, process: int, thread: int, key: str, value: str | int) -> str:
    return (
        f'{{"ph": "M", "name": "{what}", "ts": {micros(FIRST_NS)}, {place(process, thread)}, '
        f'"args": {{"{key}": {json.dumps(value)}}}}}'
    )


def place(process: int | str, thread: int | str) -> str:
    return f'"pid": {json.dumps(process)}, "tid": {json.dumps(thread)}'


def micros(ns: int) -> str:
    """µs with three digits, so that no ns is lost."""
    return f"{ns // 1000}.{ns % 1000:03d}"
