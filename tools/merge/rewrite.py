"""Rewrites the rows of one rank's Chrome trace so that they can stand in one file with those of other ranks.

Processes, correlations and flow ids become unique, times move by a whole number of µs; nothing else of a row changes.
"""

from decimal import Decimal

import msgspec

from ...linker.categories import DEVICE_SIDE_WAITS, Role, role_of
from ...schema.merged_ranks import MergedRank
from ...schema.numbers import identity, integer

Row = dict[str, msgspec.Raw]
CORRELATIONS = ("correlation", "wait_on_cuda_event_record_corr_id")
FLOW_IDS = ("id", "bind_id")
NAMES = (b'"process_name"', b'"process_sort_index"')
"""Metadata rows that are made anew."""
PROCESSES_OF_RANK = 100
ROW = msgspec.json.Decoder(Row)
NULL, EMPTY, METADATA = msgspec.Raw(b"null"), msgspec.Raw(b'""'), msgspec.Raw(b'"M"')
DEVICE_WAITS = tuple(f'"{name}"'.encode() for name in DEVICE_SIDE_WAITS)


class RankRows:
    """The rows of one rank on their way; `record` then says how to undo what was done to them.

    `hosts` are the processes of its host rows, `last_process` the last one that an earlier rank took. `largest_id` is the largest
    correlation or flow id so far.
    """

    def __init__(self, record: MergedRank, hosts: frozenset[int], last_process: int) -> None:
        self.record = record
        self.rows = 0
        self.activities = 0
        self.largest_id = record.id_offset
        self.last_process = (last_process // PROCESSES_OF_RANK + 1) * PROCESSES_OF_RANK - 1
        self._hosts = hosts
        self._shift_us = record.time_shift_ns // 1000
        self._process: dict[bytes, msgspec.Raw] = {}
        self._recorded_name: dict[bytes, msgspec.Raw] = {}
        self._activity_categories: dict[bytes, bool] = {}

    def rewritten(self, rows: list[Row]) -> bytes:
        """The rows as JSON, separated by commas."""
        kept = [new for row in rows if (new := self._rewrite(row)) is not None]
        self.rows += len(rows)
        return msgspec.json.encode(kept)[1:-1]

    def names(self) -> bytes:
        """Rows that name the rank's processes and put the ranks in order."""
        hosts = sum(identity(msgspec.json.decode(recorded)) in self._hosts for recorded in self._process)
        rows: list[dict[str, object]] = []
        for recorded, process in self._process.items():
            name = self._name(msgspec.json.decode(recorded), hosts)
            known = self._recorded_name.get(recorded)
            args = {"name": name} | ({"recorded": known} if known is not None else {})
            order = int(bytes(process))
            rows.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": args})
            rows.append(
                {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": order}}
            )
        return msgspec.json.encode(rows)[1:-1]

    def _name(self, recorded: int | str | float | None, hosts: int) -> str:
        process = identity(recorded)
        if process in self._hosts:
            what = "host" if hosts == 1 else f"host {process}"
        elif process >= 0:
            what = f"device {process}"
        else:
            what = str(recorded).strip() if isinstance(recorded, str) and recorded.strip() else "profiler"
        return f"rank {self.record.rank} · {what}"

    def _rewrite(self, row: Row) -> Row | None:
        phase, recorded = bytes(row.pop("ph", EMPTY)), bytes(row.get("pid", NULL))
        row["pid"] = self._unique_process(recorded)
        if phase == b'"M"':
            return self._metadata(row, recorded)
        if "ts" in row and self._shift_us:
            row["ts"] = self._later(bytes(row["ts"]))
        for key in FLOW_IDS:
            if key in row:
                row[key] = self._unique_id(row[key])
        is_activity = phase == b'"X"' and self._is_activity(row)
        self.activities += is_activity
        args = bytes(row.get("args", NULL))
        if args.startswith(b"{") and (is_activity or b"corr" in args):
            row["args"] = self._arguments(args, recorded if is_activity else None)
        # the same key is first in all rows, whoever wrote them: readers that stream tell rows apart by it
        return {"ph": msgspec.Raw(phase), **row}

    def _metadata(self, row: Row, recorded: bytes) -> Row | None:
        row.pop("ts", None)
        name, args = bytes(row.get("name", EMPTY)), bytes(row.get("args", NULL))
        if name not in NAMES:
            return {"ph": METADATA, **row}
        if name == NAMES[0] and args.startswith(b"{"):
            self._recorded_name[recorded] = ROW.decode(args).get("name", EMPTY)
        return None

    def _unique_process(self, recorded: bytes) -> msgspec.Raw:
        known = self._process.get(recorded)
        if known is None:
            self.last_process += 1
            known = self._process[recorded] = msgspec.Raw(b"%d" % self.last_process)
            self.record.processes[self.last_process] = identity(msgspec.json.decode(recorded))
        return known

    def _later(self, time: bytes) -> msgspec.Raw:
        """The time moved, digit by digit as it was written."""
        whole, point, fraction = time.strip(b'"').partition(b".")
        if whole.isdigit() and (fraction.isdigit() or not point):
            return msgspec.Raw(b"%d%b%b" % (int(whole) + self._shift_us, point, fraction))
        try:
            return msgspec.Raw(str(Decimal(time.strip(b'"').decode()) + self._shift_us).encode())
        except ArithmeticError:
            return msgspec.Raw(time)

    def _unique_id(self, recorded: msgspec.Raw) -> msgspec.Raw:
        """Ids above 0 move; others mean that there is none."""
        value = msgspec.json.decode(recorded)
        number = integer(value, 0) if isinstance(value, int | float | str) else 0
        if number <= 0:
            return recorded
        self.largest_id = max(self.largest_id, number + self.record.id_offset)
        return msgspec.Raw(b"%d" % (number + self.record.id_offset))

    def _arguments(self, args: bytes, device: bytes | None) -> msgspec.Raw:
        """With unique correlations, and with the device where only the row's process told it."""
        known = ROW.decode(args)
        for key in CORRELATIONS:
            if key in known:
                known[key] = self._unique_id(known[key])
        if device is not None:
            known.setdefault("device", msgspec.Raw(device))
        return msgspec.Raw(msgspec.json.encode(known))

    def _is_activity(self, row: Row) -> bool:
        category = bytes(row.get("cat", NULL))
        if category not in self._activity_categories:
            text = msgspec.json.decode(category)
            self._activity_categories[category] = isinstance(text, str) and role_of(text) is Role.ACTIVITY
        return self._activity_categories[category] and bytes(row.get("name", EMPTY)) not in DEVICE_WAITS
