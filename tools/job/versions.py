"""Versions of what wrote a trace: those recorded in a device trace, and the PyTorch that fits a host schema."""

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from ...linker.readers import dialect, is_database, opened
from ...schema.errors import DataError
from ...schema.io import open_input
from ...schema.json_repair import opening_of, with_plain_letters
from ...schema.linked import integer, name_of

HEAD = 1 << 18
VERSION = re.compile(
    r"^(torch|pytorch|cuda|cupti|nvidia|nccl|rccl|hip|rocm|roctracer|rocprofiler)\w*[ _-]version$", re.IGNORECASE
)
UNKNOWN = ("", "N/A", "None")
PYTORCH = {
    "1.0.1": "1.13 to 2.1",
    "1.0.2": "2.2 or 2.3",
    "1.0.3": "2.4 in development",
    "1.0.4": "2.4 in development",
    "1.1.0": "2.4",
    "1.1.1": "2.5 or newer",
}


def host_versions(schema: str) -> dict[str, str]:
    """Returns the schema of a host trace, and the PyTorch releases that write it."""
    pytorch = PYTORCH.get(schema.partition("-")[0])
    return {"host schema": schema} | ({"PyTorch": pytorch} if pytorch else {})


def device_versions(path: str) -> dict[str, str]:
    """Versions and devices by name, as far as the beginning of a device trace tells them; of a database its dialect."""
    if is_database(path):
        with opened(path) as database:
            return {"written by": dialect(database).name}
    top = _top_level(path)
    named = {name_of(name): _words(name, value) for name, value in _values(top) if VERSION.search(name)}
    versions = {name.replace("_", " "): value for name, value in named.items() if value not in UNKNOWN}
    devices = top.get("deviceProperties")
    listed = devices if isinstance(devices, list) else []
    names = {name_of(device["name"]) for device in listed if isinstance(device, dict) and device.get("name")}
    return versions | ({"devices": ", ".join(sorted(names))} if names else {})


def _top_level(path: str) -> dict[str, Any]:
    """Returns the keys before the events; none where the file begins otherwise."""
    try:
        with open_input(path) as stream:
            head = with_plain_letters(stream.read(HEAD))
        events = opening_of(head, "traceEvents", ended=False)
        top = json.loads(head[:events].decode("utf-8", "replace") + "]}", strict=False) if events else {}
    except (DataError, OSError, EOFError, zlib.error, ValueError, RecursionError):
        return {}
    return top if isinstance(top, dict) else {}


def _values(top: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields every key with its value, nested ones too."""
    for name, value in top.items():
        if isinstance(value, dict):
            yield from _values(value)
        else:
            yield name, value


def _words(name: str, value: object) -> str:
    """CUDA writes 12040 for 12.4, HIP 60443483 for 6.4.43483."""
    number = integer(value, 0) if not isinstance(value, str) or value.isdecimal() else 0
    if name.startswith("hip") and number >= 10_000_000:
        return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"
    if name.startswith("cuda") and number >= 1000:
        return f"{number // 1000}.{number % 1000 // 10}"
    return name_of(value)
