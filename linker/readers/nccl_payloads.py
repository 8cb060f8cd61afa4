"""Reads what NCCL writes beside its NVTX ranges, as far as an export of Nsight Systems has it, as Kineto's arguments.

A call says its communicator, bytes, and peer or root; how many ranks that has, calls say that make or end it.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ...schema.device_formats import NVTX, process_of
from ...schema.reasons import LARGEST_JOB
from .database import Database
from .kineto_rows import Row

COMMUNICATOR, PARENT, RANKS, RANK = "NCCL communicator ID", "Parent NCCL communicator ID", "No. of ranks", "Rank"
SIZES, PEERS = ("Message size [bytes]", "Bytes"), ("Peer rank", "Root")
"""The names of fields; NCCL up to 2.23 calls some sizes `Bytes`, and names no communicator."""
NUMBERS = {5: "<i", 18: "<Q", 22: "<Q"}
"""How `struct` reads the types of fields; others are left out."""
HEAD = struct.Struct("<4Q")
"""Domain, schema and size of a payload, and a number that is not needed."""
ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId", "schemaId", "idx", "type", "name", "offset"
LARGEST_MESSAGE = 1 << 44
"""Bytes; a larger number is damage."""


CALLS = {
    "ncclAllReduce": ("allreduce", False, False), "ncclReduce": ("reduce", False, False),
    "ncclBroadcast": ("broadcast", False, False), "ncclAllGather": ("all_gather", False, True),
    "ncclReduceScatter": ("reduce_scatter", True, False), "ncclAlltoAll": ("all_to_all", True, True),
    "ncclGather": ("gather", False, True), "ncclScatter": ("scatter", True, False),
    "ncclSend": ("send", False, False), "ncclRecv": ("recv", False, False),
}  # fmt: skip
"""Kineto's name by the text of a range, and whether one size goes in for each rank, and comes out."""


def _schemas(database: Database) -> dict[tuple[int, int], dict[str, tuple[str, int]]]:
    """Returns how each field is read, and from where, by domain and schema; none that processes define differently."""
    fields = defaultdict[tuple[int, int], set[tuple[Any, ...]]](set)
    for domain, schema, *field in database.select(*ENTRIES):
        fields[domain, schema].add(tuple(field))
    return {
        schema: {
            name: (NUMBERS[kind], offset or 0)
            for index, kind, name, offset in rows
            if kind in NUMBERS and (index == 0 if offset is None else offset >= 0)
        }
        for schema, rows in fields.items()
        if len({index for index, *_ in rows}) == len(rows)
    }


class Payloads:
    """The payloads of an export. `processes` are those given, as far as known in the order of their ranks."""

    def __init__(self, database: Database, processes: list[int]) -> None:
        self._fields, places = _schemas(database), defaultdict[int, set[tuple[int, int, int]]](set)
        self._calls = self._absent = self.unread = self._unsized = 0
        rows = database.select(NVTX, "binaryData", "globalTid")
        for payload, thread in ((self._read(blob), thread) for blob, thread in rows if blob):
            # a split says which rank of the parent the process is
            number = payload.get(PARENT, payload.get(COMMUNICATOR, 0))
            if number and {RANKS, RANK} <= payload.keys():
                places[number].add((payload[RANK], process_of(thread), payload[RANKS]))
        sizes = {number: {size for *_, size in of} for number, of in places.items()}
        self._size = {number: min(of) for number, of in sizes.items() if len(of) == 1 and 0 < min(of) <= LARGEST_JOB}
        members = {
            number: [process for _, process, _ in sorted(places[number])]
            for number, size in self._size.items()
            if [rank for rank, *_ in sorted(places[number])] == [*range(size)]
        }
        self.processes = next((each for each in members.values() if sorted(each) == processes), processes)
        rank_of = {process: rank for rank, process in enumerate(self.processes) if len(processes) > 1}
        self._ranks = {n: [*map(rank_of.get, each)] for n, each in members.items() if rank_of.keys() >= {*each}}

    def _read(self, blob: Any) -> dict[str, int]:
        """Returns the numbers of a payload by name; none of one that cannot be read."""
        try:
            domain, schema, size, _ = HEAD.unpack_from(blob)
            body = blob[HEAD.size :][:size]
            fields = self._fields[domain, schema].items()
            return {name: struct.unpack_from(kind, body, offset)[0] for name, (kind, offset) in fields}
        except (struct.error, KeyError, TypeError):
            return {}

    def args(self, text: str, blob: Any) -> Row:
        """Returns what the range of a call says; nothing, which is counted, where that cannot be read."""
        call = CALLS.get(text)
        if call is None or (blob is None and not self._fields):
            return {}
        payload, self._calls = self._read(blob), self._calls + 1
        one = next((payload[name] for name in SIZES if name in payload), LARGEST_MESSAGE)
        if one >= LARGEST_MESSAGE:
            self._absent, self.unread = self._absent + (blob is None), self.unread + (blob is not None)
            return {}
        number, (name, *each) = payload.get(COMMUNICATOR, 0), call
        size = self._size.get(number)
        inputs, outputs = (one * (size or 0) if is_each else one for is_each in each)
        self._unsized += inputs < one
        args = {
            "Collective name": name, "dtype": "Byte", "In msg nelems": inputs or None,
            "Out msg nelems": (inputs and outputs) or None,
            "Process Group Name": f"{number:#018x}" if number else None, "Group size": size,
            "Process Group Ranks": self._ranks.get(number),
            "Rank": next((payload[name] for name in PEERS if name in payload), None),
        }  # fmt: skip
        return {key: value for key, value in args.items() if value is not None}

    def notes(self) -> Iterator[str]:
        """Yields what calls do not say, and what to do."""
        if lacking := self._absent + self.unread:
            why = "were not exported" if self._absent == self._calls else "are absent, cut or of an unknown schema"
            advice = "export again with nsys export --type sqlite --include-blobs=true"
            yield f"{lacking} of {self._calls} calls of NCCL have no sizes and no groups, as their payloads {why}; {advice}"
        if self._unsized:
            why = "no recorded call says how many ranks their communicators have; record from where these are made"
            yield f"{self._unsized} of {self._calls} calls of NCCL have no sizes, as {why}"
