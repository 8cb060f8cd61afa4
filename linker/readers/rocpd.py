"""Transcodes a rocpd database (SQLite; RPD's or rocm-trace-lite's) to the rows of a Kineto trace. Rows that are no work
are counted; ranges of unknown threads get lanes. Processes that launched are labelled as ranks.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import compress

import numpy as np

from ...schema.columns import Bool, Int64, group_ids, isin, rows_of_each
from ...schema.errors import DataError
from ...schema.linked import FOREVER, integer
from ...schema.reasons import Counts, Reason
from .database import Database
from .kineto_rows import Row, complete, flow, labels, on_lanes, text_of

GUID_TABLE = re.compile(r"rocpd_\w+_[0-9a-f]{8}_?(?:[0-9a-f]{4}_?){3}[0-9a-f]{12}", re.IGNORECASE)
REQUIRED_TABLES = {"rocpd_op", "rocpd_string"}
READ = REQUIRED_TABLES | {"rocpd_api", "rocpd_api_ops", "rocpd_kernelapi", "rocpd_metadata", "rocpd_ustring"}
NAMED = (
    ("rocpd_op", "description_id"), ("rocpd_op", "opType_id"), ("rocpd_api", "apiName_id"),
    ("rocpd_kernelapi", "kernelName_id"),
)  # fmt: skip
"""The columns that refer to names."""
HARDWARE_QUEUE = re.compile(r"\bhwq\s*[=:]\s*(0x[0-9a-f]+|\d+)", re.IGNORECASE)
MARKER = "UserMarker"
WAIT, UNKNOWN = "wait", ""
KINDS = (
    (re.compile(r"copy|memcpy", re.IGNORECASE), "gpu_memcpy"),
    (re.compile(r"fill|memset", re.IGNORECASE), "gpu_memset"),
    (re.compile(r"barrier|marker", re.IGNORECASE), WAIT),
    (re.compile(r"kernel|dispatch|task", re.IGNORECASE), "kernel"),
)
"""The category of an op by its opType, first match."""
MANY_QUEUES, OPS_PER_QUEUE = 128, 2
"""A device with more than MANY_QUEUES queues of fewer ops each numbers its dispatches, not its queues."""
SHOWN = 1 << 30
"""Numbers of queues that viewers can show as threads; larger ones are addresses."""


def is_rocpd(database: Database) -> bool:
    """Returns whether this is a rocpd file of any profiler, even of a schema that cannot be read here."""
    return any(table.startswith("rocpd_") for table in database.tables)


def dialect(database: Database) -> tuple[str, str]:
    """Returns the format's name and the table of arguments; DataError for the schema of ROCm 7 and unknown ones."""
    tables = database.tables
    if by_guid := next((name for name in sorted(tables) if GUID_TABLE.fullmatch(name)), None):
        what = f"a rocpd database of ROCm 7 (rocprofv3), with tables named by a GUID ({by_guid})"
        advice = "this schema is not read, trace with RPD, rocm-trace-lite or the PyTorch profiler"
        raise DataError(f"{database.path}: {what}; {advice}")
    if missing := sorted(READ & database.views | REQUIRED_TABLES - tables):
        what = f"no rocpd database that profilers write, as {missing[0]} is no table of it"
        raise DataError(f"{database.path}: {what} (its tables: {', '.join(sorted(tables)[:4])})")
    if "rocpd_ustring" in tables:
        return "RPD, schema 3", "rocpd_ustring"
    lite = "rocpd_kernelapi" in tables and "api_id" in database.columns("rocpd_kernelapi")
    return "rocm-trace-lite" if lite else "RPD, schema 2", "rocpd_string"


def processes(database: Database) -> list[int]:
    """Returns the traced processes, ascending: those recorded as such, else those that launched, else all callers."""
    recorded: list[int] = []
    if {"tag", "value"} <= database.columns("rocpd_metadata"):
        recorded = database.different("value", "rocpd_metadata", "tag = 'pid'")
    if recorded or not {"id", "pid"} <= database.columns("rocpd_api"):
        return recorded
    with_calls = database.different("pid", "rocpd_api")
    if len(with_calls) < 2 or "api_id" not in database.columns("rocpd_api_ops"):
        return with_calls
    return database.different("pid", "rocpd_api", "id IN (SELECT api_id FROM rocpd_api_ops)") or with_calls


def transcode_rocpd(database: Database) -> Iterator[bytes]:
    """Yields a database as the text of a Kineto trace; DataError for another format, a damaged one, or no work."""
    counts, (written_by, arguments) = Counts(), dialect(database)
    if_empty = f"{database.path}: holds no device op, API row or roctx range; was anything recorded?"
    head, tail = {"schemaVersion": 1, "written_by": written_by}, lambda: {"notRead": counts.without_zeros().in_words()}
    yield from text_of(lambda: head, _rows(database, arguments, counts), tail, if_empty)


def _rows(database: Database, arguments: str, counts: Counts) -> Iterator[Row]:
    """Yields the rows, and counts those that are none here; launches are the links of `rocpd_api_ops`."""
    traced, names = processes(database), database.texts("rocpd_string", "string", *NAMED)
    api = database.integers("rocpd_api", "id", "pid", "tid", "start", "end", "apiName_id", "args_id")
    ops = database.integers("rocpd_op", "id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")
    links = database.integers("rocpd_api_ops", "op_id", "api_id")
    # of several links of an op, or rows of one id, the first one counts
    call_of, process_of = dict(links[::-1].tolist()), dict(api[::-1, :2].tolist())
    counts[Reason.LINKS_OF_ABSENT_OPS] += int((~isin(links[:, 0], ops[:, 0])).sum())
    counts[Reason.FURTHER_LAUNCH_LINKS] += len(links) - len(call_of)
    by_call = "api_ptr_id" if "api_ptr_id" in database.columns("rocpd_kernelapi") else "api_id"
    launched = {call: names.get(code) for call, code in database.integers("rocpd_kernelapi", by_call, "kernelName_id")}
    described = ((launched.get(call_of.get(op)), names.get(code)) for op, code in ops[:, [0, 5]].tolist())
    counts[Reason.LINKS_OF_OTHER_KERNELS] += sum(bool(kernel) and kernel != name for kernel, name in described)
    launching = {call_of[number] for number in ops[:, 0].tolist() if number in call_of}
    if len(traced) > 1:
        count, traced = len(traced), sorted({process_of[number] for number in launching if number in process_of})
        if not traced:
            what = f"{count} processes traced, of which no op tells its own; link each rank's own file"
            raise DataError(f"{database.path}: {what}")
    yield from labels(traced)
    is_marker = isin(api[:, 5], [code for code, text in names.items() if text == MARKER])
    codes, messages = ", ".join(map(str, np.unique(api[is_marker, 5]).tolist())), dict[int, str]()
    if codes:
        messages = database.texts(arguments, "string", ("rocpd_api", "args_id"), where=f"apiName_id IN ({codes})")
    # ranges recorded as ops of no device are of the file's process, on an unknown thread
    on_device = ops[:, 1] >= 0
    ops[~on_device, 1:3] = traced[0] if len(traced) == 1 else -1, -1
    texts = [messages.get(code, "") for code in api[is_marker, 6].tolist()]
    texts += [names.get(code, "") for code in ops[~on_device, 5].tolist()]
    yield from _ranges(np.concatenate((api[is_marker, 1:5], ops[~on_device, 1:5])), texts, counts)
    calls = api[~is_marker]
    ended = _last(calls[:, 3:5], 0)
    counts[Reason.API_ROWS_WITHOUT_END] += int((~ended).sum())
    for number, process, thread, start, end, name, _ in calls[ended].tolist():
        args = {"correlation": number}
        yield complete("hip_runtime", names.get(name) or "unknown", (process, thread), start, end, args)
        if number in launching:
            yield flow("s", number, (process, thread), start)
    work, categories = _work(ops[on_device], names, counts)
    device, stream = work[:, 1], _real_queues(work[:, 1], _streams(database, work), counts)
    lane = stream if ((stream >= 0) & (stream < SHOWN)).all() else 1 + group_ids(device, stream)
    placed = zip(work.tolist(), stream.tolist(), lane.tolist(), categories, strict=True)
    for (number, gpu, _, start, end, name, kind), queue, thread, category in placed:
        call = call_of.get(number)
        process = process_of.get(call, -1) if len(traced) > 1 else gpu
        counts[Reason.OPS_OF_NO_PROCESS] += process < 0
        args, place = {"device": gpu, "stream": queue, "correlation": call or 0}, (process, thread)
        # a row without a name has that of its type
        yield complete(category, names.get(name) or names.get(kind) or "unknown", place, start, end, args)
        if call:
            yield flow("f", call, place, start)


def _last(times: Int64, shortest: int) -> Bool:
    """Returns which pairs of times are a start and an end that is at least `shortest` ns later."""
    start, end = times.T
    lasts: Bool = (start >= 0) & (end >= start) & (end < FOREVER) & (end - start >= shortest)
    return lasts


def _ranges(ranges: Int64, texts: list[str], counts: Counts) -> Iterator[Row]:
    """Yields the roctx ranges, given by process, thread (-1 for an unknown one), start and end."""
    lasting = _last(ranges[:, 2:], 1)
    counts[Reason.ROCTX_MARKS] += int((~lasting).sum())
    unknown = []
    for (process, thread, start, end), text in zip(ranges[lasting].tolist(), compress(texts, lasting), strict=True):
        if thread < 0:
            unknown.append((process, start, end, text))
        else:
            yield complete("user_annotation", text, (process, thread), start, end, {})
    yield from on_lanes(unknown, 0)


def _work(ops: Int64, names: dict[int, str], counts: Counts) -> tuple[Int64, list[str]]:
    """Returns the ops that are work and took time, and the category of each."""
    kinds = ops[:, 6].tolist()
    category_of = {kind: _category(names.get(kind, "")) for kind in {*kinds}}
    category, takes_time = np.array([category_of[kind] for kind in kinds], np.object_), _last(ops[:, 3:5], 1)
    is_work = (category != WAIT) & (category != UNKNOWN)
    for kind, count in Counter(kind for kind in kinds if category_of[kind] == UNKNOWN).items():
        name = names.get(kind, "").rstrip()
        counts[Reason.UNKNOWN_OP_TYPE.of(name) if name else Reason.UNKNOWN_OP_TYPE] += count
    counts[Reason.DEVICE_ROWS_OF_WAITING] += int((category == WAIT).sum())
    counts[Reason.ZERO_LENGTH_OPS] += int((is_work & ~takes_time).sum())
    chosen = is_work & takes_time
    return ops[chosen], category[chosen].tolist()


def _category(of_type: str) -> str:
    return next((category for pattern, category in KINDS if pattern.search(of_type)), UNKNOWN)


def _streams(database: Database, ops: Int64) -> Int64:
    """Returns the hardware queue of each op where it is recorded, else the queue id."""
    queues, stream = dict[int, int](), ops[:, 2]
    if "completionSignal" in database.columns("rocpd_op"):
        signals = database.select("rocpd_op", "id", "completionSignal", where="completionSignal LIKE '%hwq%'")
        found = ((code, HARDWARE_QUEUE.search(str(text))) for code, text in signals if code is not None)
        queues = {code: integer(queue.group(1), 0) for code, queue in found if queue}
    pairs = zip(ops[:, 0].tolist(), stream.tolist(), strict=True)
    return np.array([queues.get(number, queue) for number, queue in pairs], np.int64)


def _real_queues(device: Int64, queue: Int64, counts: Counts) -> Int64:
    """Returns the queues, 0 on devices where nearly every dispatch has a number of its own."""
    queue = queue.copy()
    for rows in rows_of_each(device).values():
        queues = len(np.unique(queue[rows]))
        if queues > MANY_QUEUES and queues * OPS_PER_QUEUE > len(rows):
            counts[Reason.DISPATCH_NUMBERS_AS_QUEUES] += len(rows)
            queue[rows] = 0
    return queue
