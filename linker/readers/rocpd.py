"""Reads a rocpd database (SQLite; RPD's or rocm-trace-lite's) into the columns of a device trace.

Each device op becomes an activity, each API row a call, each roctx range an annotation; times are the file's own ns.
Rows that are no work are counted; ranges of unknown threads are put on the fewest lanes on which they nest.
"""

import heapq
import re
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Categorical, Int64, Lookup, RecordsByRow, RowMap, rows_of_each
from ...schema.errors import DataError, Remedy
from ...schema.io import note_input
from ...schema.linked import FOREVER, Activities, Calls, integer, kineto
from ...schema.reasons import Counts, Reason
from .database import Database, opened
from .device_rows import DeviceTrace, RecordedEvents, RecordedOps, RecordedSyncs, Role

GUID_TABLE = re.compile(r"rocpd_\w+_[0-9a-f]{8}_?(?:[0-9a-f]{4}_?){3}[0-9a-f]{12}", re.IGNORECASE)
REQUIRED_TABLES = {"rocpd_op", "rocpd_string"}
READ = REQUIRED_TABLES | {"rocpd_api", "rocpd_api_ops", "rocpd_kernelapi", "rocpd_metadata", "rocpd_ustring"}
MERGED = {"rank", "device", "edge"}
"""Tables that only a database for counting has."""
HARDWARE_QUEUE = re.compile(r"\bhwq\s*[=:]\s*(0x[0-9a-f]+|\d+)", re.IGNORECASE)
MARKER = "UserMarker"
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
WAIT = "wait"
KINDS = (
    (re.compile(r"copy|memcpy", re.IGNORECASE), "gpu_memcpy"),
    (re.compile(r"fill|memset", re.IGNORECASE), "gpu_memset"),
    (re.compile(r"barrier|marker", re.IGNORECASE), WAIT),
    (re.compile(r"kernel|dispatch|task", re.IGNORECASE), "kernel"),
)
"""The category of an op by its opType, first match."""
MANY_QUEUES = 128
OPS_PER_QUEUE = 2
"""A device with more than MANY_QUEUES queues of fewer ops each numbers its dispatches, not its queues."""
NONE: Int64 = np.empty(0, np.int64)


class Dialect(NamedTuple):
    """The name of the format, and the table with the arguments of API calls."""

    name: str
    arguments: str


def is_merged(database: Database) -> bool:
    """Returns whether this is a database for counting, into which several ranks were merged."""
    return database.tables >= MERGED


def is_rocpd(database: Database) -> bool:
    """Returns whether this is a rocpd file of any profiler, even of a schema that cannot be read here."""
    return any(table.startswith("rocpd_") for table in database.tables)


def dialect(database: Database) -> Dialect:
    """Returns the format of the file. Raises DataError for other databases and for the schema of ROCm 7."""
    tables = database.tables
    if by_guid := next((name for name in sorted(tables) if GUID_TABLE.fullmatch(name)), None):
        raise DataError(
            f"{database.path}: a rocpd database of ROCm 7 (rocprofv3), with tables named by a GUID ({by_guid}); this "
            "schema is not read, trace with RPD, rocm-trace-lite or the PyTorch profiler"
        )
    if is_merged(database):
        raise DataError(
            f"{database.path}: several ranks merged into a database for counting; link each rank's own file, or "
            "merge to .json.gz and take one out with ",
            Remedy.LINK_RANK,
        )
    if as_views := sorted(READ & database.views):
        raise DataError(
            f"{database.path}: {as_views[0]} is a view, where profilers write a table; link the file that it was "
            "made of"
        )
    if not tables >= REQUIRED_TABLES:
        names = ", ".join(sorted(tables)[:4]) or "none"
        raise DataError(f"{database.path}: no rocpd database, it lacks rocpd_op or rocpd_string (its tables: {names})")
    if "rocpd_ustring" in tables:
        return Dialect("RPD, schema 3", "rocpd_ustring")
    lite = "rocpd_kernelapi" in tables and "api_id" in database.columns("rocpd_kernelapi")
    return Dialect("rocm-trace-lite" if lite else "RPD, schema 2", "rocpd_string")


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


def nesting_lanes(start: Int64, end: Int64) -> Int64:
    """Returns for ranges, sorted by start, the first of the lanes 0, 1, … on which each nests. O(n log n).

    >>> nesting_lanes(np.array([0, 1, 2, 9]), np.array([5, 3, 8, 10])).tolist()
    [0, 0, 1, 0]
    """
    lane_of = np.zeros_like(start)
    open_on: list[list[int]] = [[] for _ in range(len(start))]
    # open ranges on all lanes, by their ends
    opened: list[tuple[int, int]] = []
    # the latest end that a new range may have on each lane, as a binary tree of maxima
    first_leaf = 1 << max(len(start) - 1, 0).bit_length()
    latest = [FOREVER] * (2 * first_leaf)

    def set_latest(lane: int, until: int) -> None:
        node = first_leaf + lane
        latest[node] = until
        while node > 1:
            node //= 2
            latest[node] = max(latest[2 * node], latest[2 * node + 1])

    for row, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while opened and opened[0][0] <= begin:
            lane = heapq.heappop(opened)[1]
            open_on[lane].pop()
            set_latest(lane, open_on[lane][-1] if open_on[lane] else FOREVER)
        node = 1
        while node < first_leaf:
            node = 2 * node + (latest[2 * node] < finish)
        lane_of[row] = lane = node - first_leaf
        open_on[lane].append(finish)
        set_latest(lane, finish)
        heapq.heappush(opened, (finish, lane))
    return lane_of


def read_rocpd(path: str) -> DeviceTrace:
    """Reads a database. It is linear in its rows, except for sorts.

    Launches are the links of `rocpd_api_ops`; without them activities have no call. A stream is the hardware queue
    where it is recorded, else the queue id. A file in which several processes launched is marked as merged. Raises
    DataError for a database of another format, a damaged one, or one without work.
    """
    skipped = Counts()
    note_input(path)
    with opened(path) as database:
        arguments = dialect(database).arguments
        names = _names(database)
        api = database.integers("rocpd_api", "id", "pid", "tid", "start", "end", "apiName_id", "args_id")
        ops = database.integers("rocpd_op", "id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")
        linked = database.integers("rocpd_api_ops", "op_id", "api_id")
        marker = np.isin(api[:, 5], [code for code, text in names.items() if text == MARKER])
        # the texts of the roctx ranges that were recorded as API rows
        codes = ", ".join(map(str, np.unique(api[marker, 5]).tolist()))
        of_markers = f"SELECT args_id FROM rocpd_api WHERE apiName_id IN ({codes})"
        messages = database.strings(arguments, of_markers) if codes else {}
        queues = _hardware_queues(database)
        traced = processes(database)
    process, on_device = traced[0] if len(traced) == 1 else -1, ops[:, 1] >= 0
    # ranges recorded as ops of no device are of the file's process, on an unknown thread
    ops[~on_device, 1:3] = process, -1
    trace = DeviceTrace(
        path=path, rank=None, world_size=None, base_time_ns=0, groups=[],
        ops=_annotations(api[marker], messages, ops[~on_device], names, skipped),
        calls=_calls(api[~marker], names, skipped),
        activities=_activities(ops[on_device], (linked, api), queues, names, process=process, skipped=skipped),
        syncs=RecordedSyncs(Categorical.of(()), *[NONE] * 9), event_records=RecordedEvents(*[NONE] * 4),
        communication={role: RecordsByRow.of(kineto.Args) for role in (Role.OP, Role.ACTIVITY)}, skipped=skipped,
        read=len(api) + len(ops),
    )  # fmt: skip
    if not any(len(table.start) for table in (trace.activities, trace.calls, trace.ops)):
        raise DataError(f"{path}: holds no device op, API row or roctx range; was anything recorded?")
    if len(traced) > 1:
        # processes that launched are labelled as ranks, in ascending order, as launchers start them
        launched = trace.activities.correlation > 0
        trace.activities.process[~launched] = -1
        skipped[Reason.OPS_OF_NO_PROCESS] += int((~launched).sum())
        trace.merge_marks.append(f"{len(traced)} processes traced")
        launching = np.unique(trace.activities.process[launched]).tolist()
        trace.labels = [(process, f"rank {number}") for number, process in enumerate(launching)]
    trace.skipped = skipped.without_zeros()
    return trace


def _names(database: Database) -> dict[int, str]:
    """Returns the names of ops and calls, without the arguments of API calls, of which there are many."""
    ids = "SELECT description_id FROM rocpd_op UNION SELECT opType_id FROM rocpd_op"
    api = " UNION SELECT apiName_id FROM rocpd_api" if "rocpd_api" in database.tables else ""
    return database.strings("rocpd_string", ids + api)


def _hardware_queues(database: Database) -> dict[int, int]:
    """Returns the hardware queue of ops, by id, where it is recorded."""
    if "completionSignal" not in database.columns("rocpd_op"):
        return {}
    signals = "CAST(id AS INTEGER), substr(completionSignal, 1, 256) FROM rocpd_op"
    rows = database.read(f"SELECT {signals} WHERE id NOT NULL AND completionSignal LIKE '%hwq%'")
    queues = ((code, HARDWARE_QUEUE.search(str(text))) for code, text in rows)
    return {code: integer(queue.group(1), 0) for code, queue in queues if queue}


def _calls(api: Int64, names: dict[int, str], skipped: Counts) -> Calls:
    ended = (api[:, 3] >= 0) & (api[:, 4] >= api[:, 3]) & (api[:, 4] < FOREVER)
    skipped[Reason.API_ROWS_WITHOUT_END] += int((~ended).sum())
    number, process, thread, start, end, name, _ = api[ended].T
    texts = Categorical.of(names.get(code) or "unknown" for code in name.tolist())
    return Calls(texts, thread, start, end, number, process=process, external_id=np.zeros_like(number))


def _activities(
    ops: Int64,
    links: tuple[Int64, Int64],
    queues: dict[int, int],
    names: dict[int, str],
    *,
    process: int,
    skipped: Counts,
) -> Activities:
    """Returns the ops of devices; `links` are the launch links (op id, API id), and the API rows."""
    types, row_of = np.unique(ops[:, 6], return_inverse=True)
    type_names = [names.get(code, "") for code in types.tolist()]
    kinds = Categorical.of(next((kind for pattern, kind in KINDS if pattern.search(text)), "") for text in type_names)
    category = kinds.take(row_of.reshape(-1).astype(np.int64))
    work, timed = category.equal(*WORK), (ops[:, 3] >= 0) & (ops[:, 4] > ops[:, 3]) & (ops[:, 4] < FOREVER)
    skipped[Reason.DEVICE_ROWS_OF_WAITING] += int(category.equal(WAIT).sum())
    unknown = ops[~work & ~category.equal(WAIT), 6]
    for code, count in zip(*np.unique(unknown, return_counts=True), strict=True):
        type_name = names.get(int(code), "").rstrip()
        skipped[Reason.UNKNOWN_OP_TYPE.of(type_name) if type_name else Reason.UNKNOWN_OP_TYPE] += int(count)
    skipped[Reason.ZERO_LENGTH_OPS] += int((work & ~timed).sum())
    number, device, queue, start, end, name, kind = ops[work & timed].T
    launch_call = _launch_calls(number, ops[:, 0], links[0], skipped)
    # an activity without a launch has the process of the file, or the device where that is unknown (-1)
    api = links[1][::-1]  # of rows with one id the first one counts
    caller = Lookup(api[:, 0], np.arange(len(api))).of(launch_call)
    numbers = zip(number.tolist(), queue.tolist(), strict=True)
    stream = np.array([queues.get(op, queue_id) for op, queue_id in numbers], np.int64)
    # a row without a name has that of its type
    codes = zip(name.tolist(), kind.tolist(), strict=True)
    return Activities(
        name=Categorical.of(names.get(code) or names.get(of_type) or "unknown" for code, of_type in codes),
        category=category.take(work & timed),
        process=np.where(caller >= 0, RowMap(api[:, 1])[caller], process if process >= 0 else device), device=device,
        stream=_real_queues(device, stream, skipped), start=start, end=end, correlation=launch_call,
        external_id=np.zeros_like(number), graph_node=np.full_like(number, -1), size=np.full_like(number, -1),
        bandwidth=np.full_like(number, -1),
    )  # fmt: skip


def _launch_calls(number: Int64, op_ids: Int64, linked: Int64, skipped: Counts) -> Int64:
    """Returns for each op id in `number` the API row that launched it, the first of several, 0 for none."""
    op, api = linked.T
    skipped[Reason.LINKS_OF_ABSENT_OPS] += int((~np.isin(op, op_ids)).sum())
    skipped[Reason.FURTHER_LAUNCH_LINKS] += len(op) - len(np.unique(op))
    return np.append(api, 0)[Lookup(op[::-1], np.arange(len(op))[::-1]).of(number)]


def _real_queues(device: Int64, queue: Int64, skipped: Counts) -> Int64:
    """Returns the queues, 0 on devices where nearly every dispatch has a number of its own."""
    queue = queue.copy()
    for rows in rows_of_each(device).values():
        queues = len(np.unique(queue[rows]))
        if queues > MANY_QUEUES and queues * OPS_PER_QUEUE > len(rows):
            skipped[Reason.DISPATCH_NUMBERS_AS_QUEUES] += len(rows)
            queue[rows] = 0
    return queue


def _annotations(
    api: Int64, messages: dict[int, str], ops: Int64, names: dict[int, str], skipped: Counts
) -> RecordedOps:
    """Returns the roctx ranges that were recorded as API rows and as ops; a thread of -1 is unknown."""
    rows = np.concatenate((api[:, 1:5], ops[:, 1:5]))
    texts = [messages.get(code, "") for code in api[:, 6].tolist()]
    texts += [names.get(code, "") for code in ops[:, 5].tolist()]
    lasting: Bool = (rows[:, 2] >= 0) & (rows[:, 3] > rows[:, 2]) & (rows[:, 3] < FOREVER)
    skipped[Reason.ROCTX_MARKS] += int((~lasting).sum())
    order = np.lexsort((-rows[:, 3], rows[:, 2]))
    order = order[lasting[order]]
    process, thread, start, end = rows[order].T
    zero, none = np.zeros_like(start), np.full_like(start, -1)
    no_text = Categorical(np.zeros(len(start), np.int32), [""])
    is_unknown = thread < 0
    thread[is_unknown] = nesting_lanes(start[is_unknown], end[is_unknown])
    return RecordedOps(
        name=Categorical.of(texts[row] for row in order.tolist()), process=process, thread=thread, start=start, end=end,
        annotation=np.ones(len(start), np.bool_), rf_id=zero, external_id=zero, event_index=none, sequence=none,
        forward_thread=zero, arguments=no_text, shapes=no_text,
    )  # fmt: skip
