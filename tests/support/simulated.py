"""Small programs for the simulator, and what holds for every run of it."""

from execgraph.tools.generate import Job, RankRun
from execgraph.tools.generate.instructions import Activity, Instruction, Launch, Rendezvous


def job_of(*threads: list[Instruction], ranks: int = 1) -> Job:
    """Every rank runs the same threads, for one step."""
    names = tuple(f"thread {number}" for number in range(len(threads)))
    return Job("test", 0, ranks, names, (), lambda rank: iter([threads]))


def launch(stream: int, device_ns: int, meeting: Rendezvous | None = None, *, blocking: bool = False) -> Launch:
    """A call of 100 ns, 10 ns until the device has it, gaps of 5 ns, 7 ns to return."""
    kernel = Activity("kernel")
    return Launch("cudaLaunchKernel", kernel, stream, device_ns, 100, 100, 10, 5, meeting, 0, blocking, 7)


def spans(rank: RankRun) -> list[tuple[int, int]]:
    return list(zip(rank.activities.start, rank.activities.end, strict=True))


def assert_storages_are_ordered(rank: RankRun) -> None:
    """In program order no reader overtakes the writer before it, and no writer the readers or the writer before it."""
    busy_until: dict[int, int] = {}
    read_until: dict[int, int] = {}
    for row, call in enumerate(rank.activities.call):
        op_row = rank.calls.op[call]
        while op_row >= 0 and rank.op_table[rank.ops.op[op_row]].annotation:
            op_row = rank.ops.parent[op_row]
        if op_row < 0:
            continue
        op, start, end = rank.op_table[rank.ops.op[op_row]], rank.activities.start[row], rank.activities.end[row]
        reads, writes = _storages(op.inputs), _storages(op.outputs)
        assert all(start >= busy_until.get(storage, 0) for storage in reads | writes)
        assert all(start >= read_until.get(storage, 0) for storage in writes)
        for storage in writes:
            busy_until[storage] = end
        for storage in reads:
            read_until[storage] = max(end, read_until.get(storage, 0))


def _storages(values: tuple[object, ...]) -> set[int]:
    tensors = [part for value in values for part in (value if type(value) is tuple else (value,))]
    return {tensor.storage for tensor in tensors if hasattr(tensor, "storage")}
